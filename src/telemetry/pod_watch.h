// What the API server knows of this node's pods: labels and UIDs (telemetry.md §5.3).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/client.h"
#include "kube/informer.h"
#include "telemetry/pods.h"

namespace gpuop::telemetry {

// Which labels are added: those whose raw key some pattern (RE2 syntax, unanchored) matches; without patterns
// all.
class LabelFilter {
 public:
  // Wrong patterns are skipped with a warning; kInvalid when all are wrong.
  static Result<LabelFilter> create(const std::vector<std::string>& patterns);
  LabelFilter();
  bool keeps(std::string_view key) const;

 private:
  struct Patterns;
  std::shared_ptr<const Patterns> patterns_;
};

class PodWatch {
 public:
  // `node` empty: the pods of the whole cluster, with a warning.
  PodWatch(kube::Client& client, const std::string& node, bool labels, LabelFilter filter);
  // Grows as pods become known; empty before the first list.
  const PodMetas& metas() const { return metas_; }

 private:
  void take(const Json& pod);

  const bool labels_;
  const LabelFilter filter_;
  PodMetas metas_;
  std::unique_ptr<kube::Informer> informer_;
};

}  // namespace gpuop::telemetry

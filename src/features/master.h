// The NFD master: NodeFeature objects become node labels, and what it labelled it takes away again when it is
// no longer reported (nfd.md §5); and the garbage collector of NodeFeatures whose node is gone (§6).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"
#include "kube/informer.h"

namespace gpuop::features {

struct MasterOptions {
  std::string ns;  // the master's own namespace
  std::vector<std::string> extra_label_ns{"nvidia.com"};
  std::vector<std::string> deny_label_ns;  // exact, or "*suffix"
  Duration removal_grace = 5min;           // a NodeFeature that vanished while its node stays
};

// Merges nfd-master.conf (§5.1) over `options`: extraLabelNs, denyLabelNs and
// restrictions.removalGracePeriod; the other keys of upstream's are named in `warnings` as without effect.
// kInvalid: "failed to parse config file: …".
Result<> merge_master_config(MasterOptions& options, std::string_view text, std::string_view file,
                             std::vector<std::string>& warnings);

// Labels that the NodeFeatures of one node ask for, with the accepted ones only; `rejected` names the others.
// Objects must be in merge order (order_features). Pure.
std::map<std::string, std::string> merge_labels(const std::vector<std::shared_ptr<const Json>>& objects,
                                                const MasterOptions& options,
                                                std::vector<std::string>& rejected);
// §5.2 step 2: the master's own namespace first, then by name, then by namespace.
void order_features(std::vector<std::shared_ptr<const Json>>& objects, std::string_view own_ns);

struct LabelChange {
  std::map<std::string, std::optional<std::string>> labels;
  std::optional<std::string> owned;  // new value of the tracking annotation; "" removes it
  bool empty() const { return labels.empty() && !owned; }
};
// What has to change on a node. `may_remove`: labels that we own and nobody asks for any more go. Pure.
LabelChange decide_labels(const JsonObject& labels, const JsonObject& annotations,
                          const std::map<std::string, std::string>& wanted, bool may_remove);
Json label_patch(const LabelChange& change, std::string_view resource_version);

class Master {
 public:
  // `nodes`: a collection of all nodes with their metadata that somebody else follows, too, and starts; it
  // outlives the master. Null: one of its own.
  Master(Loop& loop, kube::Client& client, MasterOptions options, kube::Informer* nodes = nullptr);
  ~Master();
  void start_watching();
  bool synced() const;
  void lead();
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::features

#include "telemetry/pod_watch.h"

#include <re2/re2.h>

#include "base/log.h"
#include "base/text.h"

namespace gpuop::telemetry {

struct LabelFilter::Patterns {
  std::vector<std::unique_ptr<re2::RE2>> all;
};

LabelFilter::LabelFilter() = default;

Result<LabelFilter> LabelFilter::create(const std::vector<std::string>& patterns) {
  LabelFilter filter;
  if (patterns.empty()) return filter;
  auto compiled = std::make_shared<Patterns>();
  re2::RE2::Options quiet;
  quiet.set_log_errors(false);
  std::string wrong;
  for (const std::string& pattern : patterns) {
    auto one = std::make_unique<re2::RE2>(pattern, quiet);
    if (one->ok()) {
      compiled->all.push_back(std::move(one));
      continue;
    }
    wrong = "'" + pattern + "': " + one->error();
    log::warn("a pattern of pod labels is left out: " + wrong);
  }
  if (compiled->all.empty()) return fail(Code::kInvalid, "no pattern of pod labels can be used: " + wrong);
  filter.patterns_ = std::move(compiled);
  return filter;
}

bool LabelFilter::keeps(std::string_view key) const {
  if (!patterns_) return true;
  for (const auto& pattern : patterns_->all)
    if (re2::RE2::PartialMatch(re2::StringPiece(key.data(), key.size()), *pattern)) return true;
  return false;
}

PodWatch::PodWatch(kube::Client& client, const std::string& node, bool labels, LabelFilter filter)
    : labels_(labels), filter_(std::move(filter)) {
  kube::InformerOptions options;
  if (node.empty()) {
    log::warn("NODE_NAME is not set: the pods of the whole cluster are watched");
  } else {
    options.field_selector = "spec.nodeName=" + node;
  }
  options.keep = {"status.phase"};
  options.drop = {"metadata.annotations", "metadata.ownerReferences"};
  informer_ = std::make_unique<kube::Informer>(client, kube::kPods, std::move(options));
  informer_->on_change(
      [this](const std::shared_ptr<const Json>& old, const std::shared_ptr<const Json>& now) {
        if (now) return take(*now);
        metas_.erase({std::string(get_string(*old, {"metadata", "namespace"})),
                      std::string(get_string(*old, {"metadata", "name"}))});
      });
  informer_->start();
}

void PodWatch::take(const Json& pod) {
  PodMeta meta;
  meta.uid = get_string(pod, {"metadata", "uid"});
  std::string_view phase = get_string(pod, {"status", "phase"});
  meta.ended = phase == "Succeeded" || phase == "Failed";
  if (labels_) {
    for (const auto& [key, value] : get_object(pod, {"metadata", "labels"}))
      if (value.is_string() && filter_.keeps(std::string_view(key.data(), key.size())))
        meta.labels[std::string(key)] = as_text(value);
  }
  metas_[{std::string(get_string(pod, {"metadata", "namespace"})),
          std::string(get_string(pod, {"metadata", "name"}))}] = std::move(meta);
}

}  // namespace gpuop::telemetry

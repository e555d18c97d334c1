#include "operator/review.h"

#include <algorithm>

#include "fleet/values.h"
#include "kube/object.h"

namespace gpuop::op {

std::size_t Review::errors() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(incompatible, [](const auto& found) { return found.error; }));
}

std::vector<std::string> Review::lines() const {
  std::vector<std::string> out;
  out.reserve(incompatible.size());
  for (const auto& finding : incompatible) out.push_back(finding.line());
  return out;
}

Review review(const Json& policy, const ServerFacts& server, const ClusterCache& cache) {
  Review out;
  const Json* spec = find(policy, {"spec"});
  if (!spec) return out;
  for (const auto& finding : fleet::check_policy_env(*spec)) {
    const std::string text = "spec." + finding.path + ": " + finding.text;
    if (finding.kind != fleet::ValuesFinding::Kind::kRefused) {
      out.advice.push_back(text);
      continue;
    }
    std::string& why = out.refused[finding.path.starts_with("devicePlugin.") ? "state-device-plugin"
                                                                             : "state-container-toolkit"];
    why += (why.empty() ? "" : "; ") + text;
  }
  fleet::CompatFacts common = fleet::policy_facts(*spec);
  if (!server.kubernetes_version.empty()) common["kubernetes"] = server.kubernetes_version;
  if (!server.openshift_version.empty()) common["openshift"] = server.openshift_version;
  // Once for each kind of node, and then all nodes of that kind.
  std::map<std::string, fleet::CompatFacts> examples;
  std::map<std::string, const std::set<std::string>*> alike;
  for (const auto& [kind, names] : cache.gpu_nodes().kinds()) {
    examples.emplace(*names.begin(), kind.compat);
    alike.emplace(*names.begin(), &names);
  }
  out.incompatible = fleet::Compatibility::built_in().check(common, examples);
  for (auto& finding : out.incompatible) {
    std::vector<std::string> nodes;
    for (const std::string& example : finding.nodes)
      nodes.insert(nodes.end(), alike.at(example)->begin(), alike.at(example)->end());
    std::ranges::sort(nodes);
    finding.nodes = std::move(nodes);
  }
  return out;
}

}  // namespace gpuop::op

#include "operator/gpu_nodes.h"

#include <algorithm>

#include "fleet/chain.h"
#include "kube/object.h"
#include "operator/node_labels.h"

namespace gpuop::op {
namespace {

std::string feature(const Json& node, std::string_view name) {
  return std::string(kube::label(node, "feature.node.kubernetes.io/" + std::string(name)));
}

std::string runtime_of(const Json& node) {
  const auto version = get_string(node, {"status", "nodeInfo", "containerRuntimeVersion"});
  if (version.starts_with("docker")) return "docker";
  if (version.starts_with("containerd")) return "containerd";
  if (version.starts_with("cri-o")) return "crio";
  return {};
}

bool is_gpu_node(const Json& node) {
  return kube::label(node, "nvidia.com/gpu.present") == "true";
}

NodeKind kind_of(const Json& node) {
  return {feature(node, "system-os_release.ID"),
          feature(node, "system-os_release.VERSION_ID"),
          feature(node, "kernel-version.full"),
          feature(node, "system-os_release.OSTREE_VERSION"),
          runtime_of(node),
          fleet::node_facts(node)};
}

template <class Which>
std::set<Label> labels_of(const Json& node, Which which) {
  std::set<Label> out;
  for (const auto& [key, value] : get_object(node, {"metadata", "labels"}))
    if (which(key, as_text(value))) out.emplace(key, as_text(value));
  return out;
}

bool places(std::string_view label, std::string_view /*value*/) {
  return places_operands(label);
}

template <class Map, class Key>
void take_from(Map& map, const Key& key, const std::string& name) {
  const auto found = map.find(key);
  if (found == map.end()) return;
  found->second.erase(name);
  if (found->second.empty()) map.erase(found);
}

}  // namespace

bool places_operands(std::string_view label) {
  return label.starts_with("nvidia.com/gpu.deploy.") || label == "nvidia.com/mps.capable";
}

bool is_choice(std::string_view label, std::string_view value) {
  constexpr std::string_view kOthers[] = {"nvidia.com/device-plugin.config", "nvidia.com/mig.config",
                                          "nvidia.com/vgpu.config", "nvidia.com/gpu.workload.config",
                                          "nvidia.com/cc.mode"};
  if (value.empty()) return false;
  if (places_operands(label) || label == "nvidia.com/mig.capable") return value != "true" && value != "false";
  return std::ranges::find(kOthers, label) != std::end(kOthers);
}

bool wants_operands(const Json& node) {
  return kube::label(node, "nvidia.com/gpu.deploy.operands") != "false" &&
         !has(node, {"metadata", "deletionTimestamp"});
}

void GpuNodes::changed(const Json* old, const Json* now) {
  if (old) take(*old);
  if (now) add(*now);
}

void GpuNodes::take(const Json& node) {
  const std::string name(kube::name_of(node));
  if (has_feature_labels(get_object(node, {"metadata", "labels"}))) --feature_labels_;
  not_allocatable_.erase(name);
  lost_.erase(name);
  if (!is_gpu_node(node)) return;
  take_from(placements_, labels_of(node, places), name);
  for (const Label& choice : labels_of(node, is_choice)) take_from(choices_, choice, name);
  const auto kind = kinds_.find(kind_of(node));
  if (kind == kinds_.end() || kind->second.erase(name) == 0) return;
  --count_;
  if (kind->second.empty()) kinds_.erase(kind);
}

void GpuNodes::add(const Json& node) {
  const std::string name(kube::name_of(node));
  if (has_feature_labels(get_object(node, {"metadata", "labels"}))) ++feature_labels_;
  if (std::string why = fleet::not_allocatable(node); !why.empty()) not_allocatable_[name] = std::move(why);
  if (!is_gpu_node(node)) return;
  if (wants_operands(node) && !fleet::node_fault(node).empty()) lost_.insert(name);
  placements_[labels_of(node, places)].insert(name);
  for (const Label& choice : labels_of(node, is_choice)) choices_[choice].insert(name);
  if (kinds_[kind_of(node)].insert(name).second) ++count_;
}

std::vector<std::string> GpuNodes::placed(const Json& pod_spec) const {
  std::set<Label> placing;
  for (const auto& [key, value] : get_object(pod_spec, {"nodeSelector"}))
    if (places_operands(key)) placing.emplace(key, as_text(value));
  std::vector<std::string> out;
  for (const auto& [labels, names] : placements_)
    if (std::ranges::includes(labels, placing)) out.insert(out.end(), names.begin(), names.end());
  return out;
}

std::vector<GpuNode> GpuNodes::examples() const {
  std::vector<GpuNode> out;
  out.reserve(kinds_.size());
  for (const auto& [kind, names] : kinds_)
    out.push_back({*names.begin(), kind.os_id, kind.os_version, kind.kernel, kind.ostree});
  std::ranges::sort(out, {}, &GpuNode::name);
  return out;
}

}  // namespace gpuop::op

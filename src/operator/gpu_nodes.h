// What a pass asks of all nodes at once, kept up node by node: a pass costs as much as there are kinds of
// nodes, not nodes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "fleet/compatibility.h"
#include "operator/render.h"

namespace gpuop::op {

// Nodes with nvidia.com/gpu.present=true that nothing tells apart but their names.
struct NodeKind {
  std::string os_id, os_version, kernel, ostree;  // as in GpuNode
  std::string runtime;                            // "containerd", "docker", "crio"; "" unknown
  fleet::CompatFacts compat;
  auto operator<=>(const NodeKind&) const = default;
};

// Nobody switched the operands off on it, and it is to stay.
bool wants_operands(const Json& node);

// A label's name and value.
using Label = std::pair<std::string, std::string>;
// Labels that decide which operands run on a node: nvidia.com/gpu.deploy.* and nvidia.com/mps.capable.
bool places_operands(std::string_view label);
// Labels by which somebody chooses something for a node (node_choices.h), but for the ordinary values of
// those that every node has.
bool is_choice(std::string_view label, std::string_view value);

class GpuNodes {
 public:
  // A node changed: as it was and as it is; null: it was not, or is not there.
  void changed(const Json* old, const Json* now);

  std::size_t count() const { return count_; }
  // Some node, with GPUs or not, has labels of feature discovery.
  bool any_feature_labels() const { return feature_labels_ > 0; }
  // Each kind with the names of its nodes.
  const std::map<NodeKind, std::set<std::string>>& kinds() const { return kinds_; }
  // One node of each kind, by name: the first of each.
  std::vector<GpuNode> examples() const;
  // Nodes that are to offer GPUs and offer none, with the reason.
  const std::map<std::string, std::string>& not_allocatable() const { return not_allocatable_; }
  // Of the nodes with GPUs that operands are wanted on: whose kubelet is not ready.
  const std::set<std::string>& lost() const { return lost_; }
  // Nodes with GPUs by those of their labels that place operands.
  const std::map<std::set<Label>, std::set<std::string>>& placements() const { return placements_; }
  // Those of them that pods of this template may come to, as far as these labels say.
  std::vector<std::string> placed(const Json& pod_spec) const;
  // Nodes with GPUs by the choices that their labels make.
  const std::map<Label, std::set<std::string>>& choices() const { return choices_; }

 private:
  void take(const Json& node);
  void add(const Json& node);

  std::map<NodeKind, std::set<std::string>> kinds_;
  std::map<std::set<Label>, std::set<std::string>> placements_;
  std::map<Label, std::set<std::string>> choices_;
  std::map<std::string, std::string> not_allocatable_;
  std::set<std::string> lost_;
  std::size_t count_ = 0;
  std::size_t feature_labels_ = 0;
};

}  // namespace gpuop::op

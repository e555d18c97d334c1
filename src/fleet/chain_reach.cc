// Advice for a cluster that nobody can reach.
#include <string_view>

#include "base/text.h"
#include "fleet/chain.h"

namespace gpuop::fleet {
namespace {

bool needs_cluster(std::string_view advice) {
  return advice.contains("kubectl ") || advice.contains("nvidia-smi") || advice.contains(" its log");
}

// Those of several ways ("do a, or do b") that need none; "" when all do.
std::string possible(std::string_view advice) {
  constexpr std::string_view kOr = ", or ";
  std::vector<std::string> out;
  while (true) {
    const auto cut = advice.find(kOr);
    const std::string_view one = advice.substr(0, cut);
    if (!needs_cluster(one)) out.emplace_back(one);
    if (cut == std::string_view::npos) break;
    advice.remove_prefix(cut + kOr.size());
  }
  return join(out, kOr);
}

// Parts are joined by "; ". What is in front of the first is kept where it is `evidence`.
std::string without_commands(std::string_view text, bool evidence) {
  constexpr std::string_view kAnd = "; ";
  std::vector<std::string> out;
  while (true) {
    const auto cut = text.find(kAnd);
    const std::string_view one = text.substr(0, cut);
    if (std::string kept = evidence ? std::string(one) : possible(one); !kept.empty())
      out.push_back(std::move(kept));
    evidence = false;
    if (cut == std::string_view::npos) break;
    text.remove_prefix(cut + kAnd.size());
  }
  return join(out, kAnd);
}

}  // namespace

ClusterChain without_commands(ClusterChain chain) {
  chain.message = without_commands(chain.message, true);
  chain.operator_fault = without_commands(chain.operator_fault, true);
  for (OtherResource& other : chain.others) other.message = without_commands(other.message, true);
  for (NodeChain& node : chain.nodes) {
    for (std::string& warning : node.warnings) warning = without_commands(warning, true);
    for (Stage& stage : node.stages) stage.cure = without_commands(stage.cure, false);
    node.node_cure = "nothing of its GPUs is known meanwhile";
  }
  return chain;
}

}  // namespace gpuop::fleet

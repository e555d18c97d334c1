#include "cluster/faults/chaos.h"

#include <algorithm>
#include <array>
#include <random>

namespace gpuop::cluster {
namespace {

constexpr std::int64_t kSpan = 180000;  // ms in which faults begin

class Maker {
 public:
  Maker(std::uint64_t seed, const std::vector<ChaosNode>& nodes) : random_(seed), nodes_(nodes) {
    plan_.seed = seed;
  }

  FaultPlan make() {
    const int count = 3 + pick(8);
    for (int i = 0; i < count; ++i) pick(2) == 0 ? api() : node();
    if (pick(8) == 0) clock();
    return std::move(plan_);
  }

 private:
  // Not a standard distribution: those may differ from library to library.
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  Duration between(std::int64_t low_ms, std::int64_t high_ms) {
    return std::chrono::milliseconds(
        low_ms + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high_ms - low_ms)));
  }
  Fault& add() {
    Fault& fault = plan_.faults.emplace_back();
    fault.name = "fault " + std::to_string(plan_.faults.size());
    // Half of them in the first seconds, when most happens.
    fault.at = pick(2) == 0 ? between(0, 15000) : between(0, kSpan);
    return fault;
  }

  void aim(Fault& fault) {
    static constexpr std::array<const char*, 7> kComponents{
        "gpu-operator",     "kube-controller-manager", "kubelet",           "nfd-worker",
        "nvidia-validator", "gpu-feature-discovery",   "k8s-driver-manager"};
    static constexpr std::array<const char*, 8> kResources{
        "pods",       "nodes", "daemonsets", "nodefeatures", "pods/status", "clusterpolicies/status",
        "configmaps", "leases"};
    if (pick(2) == 0)
      fault.where.component = kComponents.at(static_cast<std::size_t>(pick(kComponents.size())));
    if (pick(3) == 0) fault.where.resource = kResources.at(static_cast<std::size_t>(pick(kResources.size())));
    if (pick(6) == 0) fault.where.node = some_node().name;
  }

  void api() {
    Fault& fault = add();
    fault.api = static_cast<ApiFault>(pick(8));
    fault.span = between(1000, 60000);
    aim(fault);
    fault.probability = std::array{1.0, 0.5, 0.2, 0.05}.at(static_cast<std::size_t>(pick(4)));
    switch (*fault.api) {
      case ApiFault::kDelay:
        fault.delay = between(10, 20000);
        break;
      case ApiFault::kThrottle:
        fault.retry_after = std::chrono::seconds(1 + pick(10));
        break;
      case ApiFault::kError:
        fault.status = std::array{500, 502, 503, 504}.at(static_cast<std::size_t>(pick(4)));
        break;
      case ApiFault::kConflict:
        fault.where.verbs = {"update", "patch"};
        break;
      case ApiFault::kCutWatch:
        fault.where.verbs = {"watch"};
        if (pick(2) == 0) fault.span.reset();
        break;
      case ApiFault::kStaleList:
        fault.where.verbs = {"list"};
        fault.behind = between(1000, 60000);
        break;
      case ApiFault::kExpired:
        fault.where.verbs = {"list", "watch"};
        break;
      case ApiFault::kLostAnswer:
        break;
    }
    // Subresources are neither listed nor watched.
    const auto reads = [](const std::string& verb) { return verb == "list" || verb == "watch"; };
    if (std::ranges::any_of(fault.where.verbs, reads))
      fault.where.resource = fault.where.resource.substr(0, fault.where.resource.find('/'));
    // What has no end in time ends by number.
    if (!fault.span) fault.times = 50;
  }

  const ChaosNode& some_node() {
    return nodes_.at(static_cast<std::size_t>(pick(static_cast<int>(nodes_.size()))));
  }

  void node() {
    const ChaosNode& on = some_node();
    Fault& fault = add();
    fault.node = on.name;
    static constexpr std::array kAny{NodeFault::kLost,           NodeFault::kReboot,
                                     NodeFault::kKubeletRestart, NodeFault::kPullDelay,
                                     NodeFault::kPullFailure,    NodeFault::kContainerCrash};
    static constexpr std::array kGpu{NodeFault::kPluginCrash, NodeFault::kGpuLost, NodeFault::kXid,
                                     NodeFault::kEcc};
    const bool gpu = on.gpus > 0 && pick(2) == 0;
    fault.event = gpu ? kGpu.at(static_cast<std::size_t>(pick(kGpu.size())))
                      : kAny.at(static_cast<std::size_t>(pick(kAny.size())));
    switch (*fault.event) {
      case NodeFault::kLost:
      case NodeFault::kReboot:
        fault.span = between(1000, 90000);
        break;
      case NodeFault::kKubeletRestart:
        fault.span = between(100, 30000);
        break;
      case NodeFault::kPullDelay:
        fault.delay = between(1000, 60000);
        fault.span = between(1000, 60000);
        break;
      case NodeFault::kPullFailure:
        fault.span = between(1000, 60000);
        break;
      case NodeFault::kContainerCrash:
        fault.container = crashed_container();
        break;
      case NodeFault::kXid:
        fault.xid = std::array{48, 63, 74, 79, 94, 95}.at(static_cast<std::size_t>(pick(6)));
        break;
      default:
        break;
    }
    if (*fault.event == NodeFault::kGpuLost) fault.span = between(1000, 60000);
    const bool hurts = *fault.event == NodeFault::kGpuLost || *fault.event == NodeFault::kXid ||
                       *fault.event == NodeFault::kEcc;
    if (!hurts) return;
    fault.gpu = pick(on.gpus);
    // A device that is marked stays so until somebody has looked and restarted the plugin.
    Fault repair;
    repair.name = fault.name + " repaired";
    repair.at = std::max<Duration>(fault.at + fault.span.value_or(Duration::zero()),
                                   std::chrono::milliseconds(kSpan)) +
                between(60000, 120000);
    repair.node = on.name;
    repair.event = NodeFault::kPluginCrash;
    plan_.faults.push_back(std::move(repair));
  }

  std::string crashed_container() {
    static constexpr std::array<const char*, 8> kNames{"worker",
                                                       "gpu-operator",
                                                       "nvidia-driver-ctr",
                                                       "nvidia-container-toolkit-ctr",
                                                       "gpu-feature-discovery",
                                                       "nvidia-dcgm-exporter",
                                                       "nvidia-operator-validator",
                                                       "driver-validation"};
    return kNames.at(static_cast<std::size_t>(pick(kNames.size())));
  }

  void clock() {
    Fault& fault = add();
    fault.clock = pick(2) == 0 ? between(1000, 600000) : -between(1000, 600000);
  }

  std::mt19937_64 random_;
  const std::vector<ChaosNode>& nodes_;
  FaultPlan plan_;
};

}  // namespace

FaultPlan chaos_plan(std::uint64_t seed, const std::vector<ChaosNode>& nodes) {
  return Maker(seed, nodes).make();
}

}  // namespace gpuop::cluster

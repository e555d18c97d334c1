// How far each node has come on the way from bare to schedulable, and what it waits for: one function, whose
// words are used wherever a person asks (architecture §5). Pure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace gpuop::fleet {

enum class StageState {
  kDone,
  kWorking,  // its pods run, and it is not there yet
  kWaiting,  // an earlier stage is not done
  kFailed,   // something says that it will not get there by itself, or is being retried after a fault
  kOff,      // switched off by the policy or by a label of the node; `detail` says by which
};
std::string_view state_name(StageState state);

// A container's log.
struct LogRef {
  std::string pod, container;
  bool previous = false;  // of the run before
  bool operator==(const LogRef&) const = default;
};

struct Stage {
  // discovered, driver, toolkit, cuda, plugin, labels, telemetry; behind them other operands that are not
  // ready or have no pod here, by the names of their DaemonSets
  std::string name;
  StageState state = StageState::kWaiting;
  std::string detail;  // the evidence: "driver 595.91.07 of the driver container"; why it fails or waits
  std::string cure;    // what a person can do about it; "" while it only takes its time
  // For whoever can ask for more: the pod that the detail is about, and the log with the words that it lacks.
  std::string pod;
  std::optional<LogRef> log;
  bool stuck = false;  // failed, and not for the first time or for good
  bool here = false;   // off, and on this node alone: its own labels say so
  // Failed, and nothing before it on the way is why: its image cannot be pulled.
  bool by_itself = false;
  bool ending = false;    // its old pod is being deleted, and no other is made before it is gone
  bool kept_off = false;  // a taint, or a change of its DaemonSet, keeps its pod from the node
  bool operator==(const Stage&) const = default;
};

// The first thing on a node's way that is not done: what a person is told of it, wherever they look (the
// node's condition GPUReady and its events, the policy's condition, the operator's metrics, gpuctl status).
struct BrokenLink {
  std::string stage;         // "toolkit", "node", an operand's app
  std::string reason;        // a condition's: "ToolkitNotReady", and with `failed` "ToolkitFailed"
  std::string evidence;      // "pod x: container c: CrashLoopBackOff: no such file"
  std::string cure;          // may be ""
  bool failed = false;       // it will not get there by itself, or is being retried after a fault
  bool kept_off = false;     // as Stage has it: no DaemonSet lacks that pod
  std::string text() const;  // "toolkit: EVIDENCE; CURE"
  bool operator==(const BrokenLink&) const = default;
};

struct NodeChain {
  std::string name;
  bool gpu = false;                                 // feature discovery or the operator says so
  bool ready = false;                               // every stage is done or off
  std::string product;                              // "8 × NVIDIA-A100-SXM4-80GB", "" when not known yet
  std::map<std::string, std::int64_t> allocatable;  // GPU resources
  std::vector<Stage> stages;
  // What is wrong although the node may be ready: GPUs that are not allocatable.
  std::vector<std::string> warnings;
  std::string plugin_pod;  // the device plugin's, whose log tells of its GPUs; "" when none is ready
  std::string node_fault;  // why the node itself is not ready; "" when it is, or does not say
  std::string node_cure = "look at the kubelet on the node; nothing of its GPUs is known meanwhile";
  bool unserved = false;  // it has GPUs, and its labels switch every operand off
  // The first stage that is neither done nor off, or one behind it that keeps it from being done; nullptr
  // when the node is ready.
  const Stage* first_broken() const;
  // Its GPUs can be used: every stage up to the plugin is done or off, and the node itself is ready. What
  // reports and labels may still be missing.
  bool usable() const;
  // The first broken stage, or the node's own state before it; nullopt when the node is ready or has no GPU.
  std::optional<BrokenLink> broken_link() const;
  bool operator==(const NodeChain& other) const = default;
};

using Objects = std::vector<std::shared_ptr<const Json>>;

// Why a node whose GPUs are to be advertised (label nvidia.com/gpu.deploy.device-plugin is "true") offers
// none, although its device plugin may run: "nvidia.com/gpu: 0 of 8 allocatable". "" when it offers one, or
// need not.
std::string not_allocatable(const Json& node);

// Why the node itself is not ready; "" when it is, or does not say.
std::string node_fault(const Json& node);

// Stages of operands that the policies in force switch off: driver, toolkit, plugin (devicePlugin), labels
// (gfd), telemetry (dcgmExporter).
std::set<std::string> switched_off(const Objects& policies);

// What a node's chain is judged by, beside the node and its pods.
struct ChainFacts {
  std::set<std::string> off;  // switched_off()
  Objects daemonsets;         // of the operator's namespace; empty where they are not known
  std::map<std::string, std::string> refused{};  // refused_pods()
};

// `pods`: those of the operator's namespace on this node, or made for it.
NodeChain chain_of(const Json& node, const Objects& pods, const ChainFacts& facts = {});

// What of an object the chain reads, as an informer's `keep`.
std::vector<std::string> policy_fields();  // of all kinds of policies
std::vector<std::string> node_fields();
std::vector<std::string> pod_fields();
std::vector<std::string> daemonset_fields();

// A resource of ours beside the ClusterPolicy in force.
struct OtherResource {
  std::string kind, name;
  std::string state;    // "ready", "notReady", "ignored", "disabled", ""
  std::string message;  // of the condition that tells most
  bool operator==(const OtherResource&) const = default;
};

struct ClusterChain {
  std::string policy;                 // name, "" when there is none
  std::string policy_state;           // "ready", "notReady", "ignored", ""
  std::string message;                // of the condition that tells most
  std::string reason;                 // of the same condition
  std::string operator_fault;         // "" when an operator works, or nobody looked
  std::vector<OtherResource> others;  // GPUClusters, NVIDIADrivers, and ClusterPolicies that are ignored
  std::vector<NodeChain> nodes;
  bool ready() const;  // the policy and every GPU node are, and there is a GPU node
};
struct ClusterObjects {
  Objects policies, nodes, pods;
  Objects daemonsets;  // of the operator's namespace
  Objects gpu_clusters, drivers;
  Objects events{};  // of pods that were refused (refusals.h)
};
ClusterChain cluster_chain(const ClusterObjects& objects);

// The same without advice that needs the cluster's API server, logs or nodes (kubectl, nvidia-smi): of one
// that nobody can reach, as a simulated one that has ended.
ClusterChain without_commands(ClusterChain chain);

// What keeps the cluster from being ready, in words: "node gpu-1, stage toolkit: …".
std::string first_broken_link(const ClusterChain& chain);

// A table for people: one line a node, the first broken link below it.
std::string render(const ClusterChain& chain);

}  // namespace gpuop::fleet

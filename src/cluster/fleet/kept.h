// A fleet file beside a cluster that was kept (--data-dir): what the cluster has of machines that the file
// has no longer, and what it still says of the run before.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "base/time.h"
#include "cluster/fleet/fleet.h"
#include "kube/client.h"

namespace gpuop::cluster {

// Makes the Node objects of a kept cluster those of `fleet`, before its kubelets speak. A Node without a
// machine is deleted with the pods on it, which nobody would ever end. So is one whose `driver` is another
// than in the call before: who takes a driver off a machine's OS installs that anew, and nothing on the node
// would ever take back the labels that tell of the old one; its kubelet registers it. Labels and taints that
// the file has gained or lost since the last call with this folder are set or taken off: what others put on a
// node stays. Hardware, kernel and engine are told by the kubelets themselves. The fleet is kept in
// DATA_DIR/fleet.json for the next call. Answers what a person should know, a sentence each: of many nodes
// that met the same, the first three and how many more.
Result<std::vector<std::string>> follow_fleet(Loop& loop, kube::Client& client, const Fleet& fleet,
                                              const fs::path& data_dir);

// Makes `asked`, the ClusterPolicy that a run is given by name, the one in force of a kept cluster, before it
// is applied: one of another name is deleted, with its operands, if the last run with this folder had applied
// it (keep_policy). One that somebody else made stays; a sentence warns if the operator will take it, as the
// older one.
Result<std::vector<std::string>> follow_policy(Loop& loop, kube::Client& client, const std::string& asked,
                                               const fs::path& data_dir);
// Notes in DATA_DIR/policy.json that this run has applied that one.
Result<> keep_policy(Loop& loop, kube::Client& client, const std::string& applied, const fs::path& data_dir);
// "ClusterPolicy 'b' is ignored by the operator: 'a' is older". Empty: they are the same, or one is none.
std::string not_in_force(std::string_view asked, std::string_view in_force);

// Whether a pod's status is of before `began` (one of its containers runs since then), and a node's (no
// kubelet has reported since).
bool is_of_the_past(const Json& pod, Time began);
bool is_unheard(const Json& node, Time began);

}  // namespace gpuop::cluster

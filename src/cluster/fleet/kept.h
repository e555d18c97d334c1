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
// machine is deleted with the pods on it, which nobody would ever end; labels and taints that the file has
// gained or lost since the last call with this folder are set or taken off: what others put on a node stays.
// Hardware, kernel and engine are told by the kubelets themselves. The fleet is kept in DATA_DIR/fleet.json
// for the next call. Answers what a person should know, a sentence each.
Result<std::vector<std::string>> follow_fleet(Loop& loop, kube::Client& client, const Fleet& fleet,
                                              const fs::path& data_dir);

// Whether a pod's status is of before `began` (one of its containers runs since then), and a node's (no
// kubelet has reported since).
bool is_of_the_past(const Json& pod, Time began);
bool is_unheard(const Json& node, Time began);

}  // namespace gpuop::cluster

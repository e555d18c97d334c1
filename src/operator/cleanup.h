// What is taken off the nodes when the operator is uninstalled: its labels, annotations, taints and
// conditions, and nothing that somebody else put there.
#pragma once

#include <string>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"

namespace gpuop::op {

struct NodeCleanup {
  Json patch;              // merge patch; an empty object: nothing to do
  bool condition = false;  // the condition GPUReady goes
};

// Pure. `features`: node feature discovery goes too, and with it the labels and annotations that its master
// wrote.
NodeCleanup decide_cleanup(const Json& node, bool features);

struct CleanupOptions {
  std::string ns;  // the operator's namespace
  bool features = false;
  bool wait_for_operator =
      false;  // first until no pod of the operator is left, which would write everything anew
  Duration limit = Duration(0);  // for that
};

// Cleans every node. Where a ClusterPolicy or an NVIDIADriver is left, its operands may still run: the nodes
// stay as they are, and the answer is false. Every step can be repeated.
Result<bool> cleanup_nodes(Loop& loop, kube::Client& client, const CleanupOptions& options);

}  // namespace gpuop::op

// What the chart's hooks do: bring the custom resource definitions to those of this version before an
// upgrade, take them away or end a GPUCluster before an uninstallation (operator.md §2.4). Every step can be
// repeated.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"

namespace gpuop::op {

// The CustomResourceDefinitions of files (YAML, several documents each) and of folders with all that lies
// below
// (*.yaml, *.yml, *.json), in the order of their paths. Any other kind is an error that names the file:
// nothing else may be made or deleted this way.
Result<std::vector<Json>> read_crds(const std::vector<fs::path>& paths);

// Creates what is not there and replaces the spec, and adds the labels and annotations, of what is. A
// definition that is as it should be is not written. Ends at the first that the API server refuses; a
// conflict is tried again.
Result<> apply_crds(Loop& loop, kube::Client& client, const std::vector<Json>& crds);

// Deletes them, and with them every object of their kinds; those that are not there are as good as deleted.
Result<> delete_crds(Loop& loop, kube::Client& client, const std::vector<Json>& crds);

// Deletes the GPUCluster and waits until its finalizer has let it go. No such object, or no such kind, is
// success. kTimeout after `limit`: pods still hold claims.
Result<> cleanup_gpuclusters(Loop& loop, kube::Client& client, const std::string& name, Duration limit);

}  // namespace gpuop::op

// Bringing manifests into a cluster: what `kubectl apply` does for a file, as far as an install needs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"

namespace gpuop::fleet {

// All objects of the YAML files beneath `dir`, files by name.
Result<std::vector<Json>> load_manifests(const std::filesystem::path& dir);

// Where an object is created: its collection by apiVersion and kind. kUnsupported for a kind that is not
// among those that an install holds (with the nearest that is), kInvalid for a known kind with another
// apiVersion.
Result<kube::Resource> resource_of(const Json& object);
// That it has a kind, an apiVersion that fits, and a name: what a file must have before it is worth reading.
Result<> check_identity(const Json& object);

// Creates each object, or merges it into the one that is there. All requests go out together. CRDs first: the
// call returns when they are established. Errors name the object.
Result<> apply_all(Loop& loop, kube::Client& client, const std::vector<Json>& objects);
// The same for a policy that nobody named, where the cluster has no ClusterPolicy of its own. False: it has
// one, and that stays as it is.
Result<bool> apply_default_policy(Loop& loop, kube::Client& client, const std::vector<Json>& objects);

// Deletes each object, with what it owns, and waits until all are gone; absent is fine. CRDs, whose end takes
// their objects along, and namespaces go last.
Result<> remove_all(Loop& loop, kube::Client& client, const std::vector<Json>& objects, Duration limit);

}  // namespace gpuop::fleet

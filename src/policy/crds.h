// Our CustomResourceDefinitions and the field reference, made from the declarations.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "policy/shared_types.h"

namespace gpuop::policy {

struct GeneratedFile {
  std::string path;  // within the repository: "deploy/chart/crds/nvidia.com_clusterpolicies.yaml"
  std::string content;
};

// CustomResourceDefinition objects (apiextensions.k8s.io/v1): clusterpolicies, nvidiadrivers, gpuclusters.
std::vector<Json> crds();
// Every file that is made from the declarations; the repository holds them as they come from here.
std::vector<GeneratedFile> generated_files();

// What the API server would store for a spec: unknown fields and nulls dropped, defaults filled in. `kind` is
// ClusterPolicy, NVIDIADriver or GPUCluster; kInvalid for another.
Result<Json> stored_spec(std::string_view kind, const Json& spec);

// One thing wrong with a spec, or odd in it.
struct SpecFault {
  std::string path;     // "spec.driver.version"
  std::string text;     // "must be …; got …", without the path
  bool refused = true;  // false: an unknown or a deprecated field
};
// Everything that the declaration of `object`'s kind says against its spec, as the user wrote it, in document
// order, what is refused first. Another kind has none.
std::vector<SpecFault> spec_faults(const Json& object);

struct Schema;
// Checks `object`'s spec, stores it in `*spec`, and notes unknown and deprecated fields.
Result<> read_spec(const Schema& schema, const Json& object, void* spec, std::vector<Note>& notes);
const Schema& cluster_policy_spec_schema();
const Schema& nvidia_driver_spec_schema();
const Schema& gpu_cluster_spec_schema();

}  // namespace gpuop::policy

// Who owns what by its selector (kubernetes-api.md §14): a controller takes objects that match and that no
// controller owns, and lets go of owned ones that match no more.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cluster/controllers/context.h"
#include "kube/resource.h"

namespace gpuop::cluster {

// Values of index "orphan": none where a controller owns the object; else "namespace/", and
// "namespace/key=value" for each of its labels.
std::vector<std::string> orphan_index(const Json& object);
// The value of index "selector" of controllers: "namespace/key=value" of one label that spec.selector asks
// for, or "namespace/" where it asks for none.
std::vector<std::string> selector_index(const Json& controller);

struct Claims {
  std::vector<Object> adopt, release;
  bool empty() const { return adopt.empty() && release.empty(); }
};
// What `controller` is to take and to let go of among `objects` (indices "owner" and "orphan"). Costs as much
// as it owns and as there are orphans with one label of its selector. Nothing of those that `counts` denies,
// and nothing at all while the controller goes; what goes is not taken.
Claims claims_of(const kube::Informer& objects, const Json& controller,
                 bool (*counts)(const Json& object) = nullptr);

// Writes them; nothing is taken unless the server still has the controller, and not on its way out.
// `done(true)` when all is written or needs no more; the watch shows it then, and until it does a repetition
// changes nothing.
void write_claims(Context& context, const kube::Resource& controllers, const Json& controller,
                  const kube::Resource& type, const Claims& claims, std::function<void(bool)> done);

// Whether the selector of `controller` picks the object. An empty selector picks nothing.
bool picks(const Json& controller, const Json& object);

// The keys of the controllers of that type that a change of an object concerns: its owner, its owner before,
// and those that might take it now that nobody owns it.
std::vector<std::string> concerned(const kube::Informer& controllers, const kube::Resource& type,
                                   const Object& old, const Object& now);

}  // namespace gpuop::cluster

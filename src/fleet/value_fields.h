// What the API server refuses in the objects that come of values, beyond what a schema can say: rules between
// the fields of tolerations, affinity, resources and variables, and texts with a grammar of their own. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace gpuop::fleet {

struct FieldFault {
  std::string path;
  std::string text;
  bool refused = true;  // false: it is taken, and does something else than it seems to
};

// `schema`: values.schema.json, whose definitions say which value is what.
std::vector<FieldFault> field_faults(const Json& values, const Json& schema);

}  // namespace gpuop::fleet

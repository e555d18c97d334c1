// The part of the Common Expression Language that validation rules of custom resources use (kubernetes-api.md
// §12).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "cluster/apiserver/cel_node.h"

namespace gpuop::cluster::api {

class CelProgram {
 public:
  // For values of type `self`; the expression's own type has to be `wanted`: kConflict where it is another.
  // kInvalid: what cel_fault() says of every place that is wrong.
  static Result<std::shared_ptr<const CelProgram>> compile(std::string_view text, const CelType& self,
                                                           CelType::Kind wanted);
  virtual ~CelProgram() = default;
  virtual bool mentions_old_self() const = 0;
  // Errors are those of evaluation ("no such key: x"). `old_self` may be null.
  virtual Result<Json> evaluate(const Json& self, const Json* old_self) const = 0;
};

}  // namespace gpuop::cluster::api

// The parsed form of a rule, and its types: what cel.h's parts share.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::cluster::api {

class Schema;

struct CelNode {
  enum class Kind { kLiteral, kName, kSelect, kIndex, kCall, kMethod, kUnary, kBinary, kChoice, kList, kMap };
  Kind kind = Kind::kLiteral;
  std::string text;  // name, field, function or operator
  Json value;
  std::vector<std::unique_ptr<CelNode>> parts;  // for methods the first is the target
  std::size_t at = 0;  // where in the text: of a call its "(", of an operator the sign
};
using CelNodePtr = std::unique_ptr<CelNode>;

Result<CelNodePtr> parse_cel(std::string_view text);

// all, exists, exists_one, map, filter.
bool is_cel_macro(std::string_view method);

// "ERROR: <input>:1:7: message", and below it the line with a mark under the place.
std::string cel_fault(std::string_view text, std::size_t at, const std::string& message);

// What an expression is, as far as it can be told from the schema.
struct CelType {
  enum class Kind {
    kUnknown,
    kDyn,
    kNull,
    kBool,
    kInt,
    kDouble,
    kText,
    kBytes,
    kTime,
    kDuration,
    kList,
    kMap,
    kObject
  };
  Kind kind = Kind::kDyn;
  std::shared_ptr<const CelType> of;  // a list's items, a map's values
  const Schema* schema = nullptr;     // of an object; null: metadata, of which two names can be read
  bool root = false;                  // such an object has apiVersion, kind and metadata too
  std::string name;                   // of an object, for messages
};

// `root`: of a whole object.
CelType cel_type_of(const Schema& schema, bool root, const std::string& name);
// The type of `node`, and every fault in it, as cel_fault() puts them, one a line.
Result<CelType> check_cel(std::string_view text, const CelNode& node, const CelType& self);

}  // namespace gpuop::cluster::api

// Types of rules: names, fields and operators are looked at when a definition is made (kubernetes-api.md
// §12).
#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/text.h"
#include "cluster/apiserver/cel_node.h"
#include "cluster/apiserver/schema.h"

namespace gpuop::cluster::api {

namespace {

using Kind = CelType::Kind;

CelType simple(Kind kind) {
  CelType out;
  out.kind = kind;
  return out;
}
CelType container(Kind kind, CelType of) {
  CelType out = simple(kind);
  out.of = std::make_shared<const CelType>(std::move(of));
  return out;
}

std::string shown(const CelType& type) {
  switch (type.kind) {
    case Kind::kUnknown:
      return "!error!";
    case Kind::kDyn:
      return "dyn";
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kDouble:
      return "double";
    case Kind::kText:
      return "string";
    case Kind::kBytes:
      return "bytes";
    case Kind::kTime:
      return "timestamp";
    case Kind::kDuration:
      return "duration";
    case Kind::kList:
      return "list(" + shown(*type.of) + ")";
    case Kind::kMap:
      return "map(string, " + shown(*type.of) + ")";
    case Kind::kObject:
      return type.name;
  }
  return "";
}

bool is_open(const CelType& type) {
  return type.kind == Kind::kDyn || type.kind == Kind::kUnknown;
}
bool is_a(const CelType& type, Kind kind) {
  return type.kind == kind || is_open(type);
}
bool takes_null(Kind kind) {
  return kind == Kind::kObject || kind == Kind::kTime || kind == Kind::kDuration || kind == Kind::kNull;
}

// Whether a value of one may be where the other is.
bool alike(const CelType& a, const CelType& b) {
  if (is_open(a) || is_open(b)) return true;
  if (a.kind == Kind::kNull) return takes_null(b.kind);
  if (b.kind == Kind::kNull) return takes_null(a.kind);
  if (a.kind != b.kind) return false;
  if (a.kind == Kind::kList || a.kind == Kind::kMap) return alike(*a.of, *b.of);
  return a.kind != Kind::kObject || (a.schema == b.schema && a.root == b.root);
}

bool is_number(const CelType& type) {
  return type.kind == Kind::kInt || type.kind == Kind::kDouble;
}

// Functions that are no part of this control plane's language, though of the real one's.
bool known_elsewhere(std::string_view name) {
  static const std::set<std::string_view> names = {
      "timestamp",   "duration",      "quantity",     "cidr",       "ip",
      "isIP",        "isCIDR",        "isURL",        "url",        "isQuantity",
      "bytes",       "uint",          "dyn",          "optional",   "find",
      "findAll",     "isSorted",      "sum",          "min",        "max",
      "indexOf",     "lastIndexOf",   "replace",      "substring",  "charAt",
      "format",      "orValue",       "or",           "hasValue",   "value",
      "optMap",      "isGreaterThan", "isLessThan",   "compareTo",  "asInteger",
      "containsIP",  "containsCIDR",  "getHost",      "getScheme",  "getPort",
      "getFullYear", "getHours",      "getSeconds",   "getMinutes", "sets",
      "existsOne",   "transformList", "transformMap", "semver",     "isSemver",
      "masked",      "prefixLength",  "family"};
  return names.contains(name);
}

class Checker {
 public:
  Checker(std::string_view text, const CelType& self) : text_(text) {
    names_.emplace_back("self", self);
    names_.emplace_back("oldSelf", self);
  }

  CelType of(const CelNode& node) {
    switch (node.kind) {
      case CelNode::Kind::kLiteral:
        return literal(node.value);
      case CelNode::Kind::kName:
        return name(node);
      case CelNode::Kind::kSelect:
        return select(of(*node.parts[0]), node, node.at);
      case CelNode::Kind::kIndex:
        return index(node);
      case CelNode::Kind::kCall:
        return call(node);
      case CelNode::Kind::kMethod:
        return is_cel_macro(node.text) ? macro(node) : method(node);
      case CelNode::Kind::kUnary:
        return unary(node);
      case CelNode::Kind::kBinary:
        return binary(node);
      case CelNode::Kind::kChoice:
        return choice(node);
      case CelNode::Kind::kList:
      case CelNode::Kind::kMap:
        return collection(node);
    }
    return simple(Kind::kDyn);
  }

  const std::vector<std::string>& faults() const { return faults_; }

 private:
  CelType wrong(std::size_t at, const std::string& message) {
    faults_.push_back(cel_fault(text_, at, message));
    return simple(Kind::kUnknown);
  }

  CelType no_overload(const CelNode& node, const std::string& function, const std::vector<CelType>& types,
                      bool method = false) {
    std::string list;
    for (std::size_t i = method ? 1 : 0; i < types.size(); ++i)
      list += (list.empty() ? "" : ", ") + shown(types[i]);
    const std::string target = method ? shown(types[0]) + "." : "";
    return wrong(node.at, "found no matching overload for '" + function + "' applied to '" + target + "(" +
                              list + ")'");
  }

  static CelType literal(const Json& value) {
    return simple(value.is_null()     ? Kind::kNull
                  : value.is_bool()   ? Kind::kBool
                  : value.is_string() ? Kind::kText
                  : value.is_double() ? Kind::kDouble
                                      : Kind::kInt);
  }

  CelType name(const CelNode& node) {
    for (auto it = names_.rbegin(); it != names_.rend(); ++it)
      if (it->first == node.text) return it->second;
    return wrong(node.at, "undeclared reference to '" + node.text + "' (in container '')");
  }

  CelType select(const CelType& target, const CelNode& node, std::size_t at) {
    if (is_open(target)) return target;
    if (target.kind == Kind::kMap) return *target.of;
    if (target.kind != Kind::kObject)
      return wrong(at, "type '" + shown(target) + "' does not support field selection");
    if (std::optional<CelType> field = field_of(target, node.text)) return *field;
    return wrong(at, "undefined field '" + node.text + "'");
  }

  static std::optional<CelType> field_of(const CelType& object, const std::string& field) {
    if (object.schema == nullptr) {
      if (field == "name" || field == "generateName") return simple(Kind::kText);
      return std::nullopt;
    }
    if (object.root && (field == "apiVersion" || field == "kind")) return simple(Kind::kText);
    if (object.root && field == "metadata") {
      CelType metadata = simple(Kind::kObject);
      metadata.name = object.name + ".metadata";
      return metadata;
    }
    auto found = object.schema->properties.find(field);
    if (found == object.schema->properties.end()) return std::nullopt;
    CelType type = cel_type_of(*found->second, found->second->embedded, object.name + "." + field);
    // What nothing is known of cannot be named either.
    if (type.kind == Kind::kDyn && !found->second->int_or_string) return std::nullopt;
    return type;
  }

  CelType index(const CelNode& node) {
    CelType target = of(*node.parts[0]);
    const CelType key = of(*node.parts[1]);
    if (is_open(target)) return target;
    if (target.kind == Kind::kList && is_a(key, Kind::kInt)) return *target.of;
    if (target.kind == Kind::kMap && is_a(key, Kind::kText)) return *target.of;
    return no_overload(node, "_[_]", {target, key});
  }

  std::vector<CelType> types_of(const std::vector<CelNodePtr>& parts) {
    std::vector<CelType> types;
    types.reserve(parts.size());
    for (const CelNodePtr& part : parts) types.push_back(of(*part));
    return types;
  }

  CelType call(const CelNode& node) {
    if (node.text == "has") {
      (void)select(of(*node.parts[0]->parts[0]), *node.parts[0], node.at);
      return simple(Kind::kBool);
    }
    const std::vector<CelType> types = types_of(node.parts);
    struct Known {
      std::string_view name;
      Kind answer;
      std::vector<Kind> from;
    };
    static const std::array<Known, 6> known = {
        {{"size", Kind::kInt, {Kind::kText, Kind::kBytes, Kind::kList, Kind::kMap}},
         {"int", Kind::kInt, {Kind::kInt, Kind::kDouble, Kind::kText, Kind::kTime}},
         {"string",
          Kind::kText,
          {Kind::kInt, Kind::kDouble, Kind::kText, Kind::kBool, Kind::kBytes, Kind::kTime, Kind::kDuration}},
         {"double", Kind::kDouble, {Kind::kInt, Kind::kDouble, Kind::kText}},
         {"bool", Kind::kBool, {Kind::kBool, Kind::kText}},
         {"type", Kind::kDyn, {}}}};
    for (const Known& one : known) {
      if (one.name != node.text) continue;
      const bool fits = types.size() == 1 && (one.from.empty() || is_open(types[0]) ||
                                              std::ranges::find(one.from, types[0].kind) != one.from.end());
      return fits ? simple(one.answer) : no_overload(node, node.text, types);
    }
    return unknown(node);
  }

  CelType unknown(const CelNode& node) {
    if (known_elsewhere(node.text))
      return wrong(node.at, "'" + node.text + "' is no part of this control plane's rules");
    return wrong(node.at, "undeclared reference to '" + node.text + "' (in container '')");
  }

  CelType method(const CelNode& node) {
    const std::vector<CelType> types = types_of(node.parts);
    struct Known {
      std::string_view name;
      Kind answer;
      std::size_t least, most;  // arguments, all of them texts
    };
    static constexpr std::array<Known, 9> kKnown = {{{"startsWith", Kind::kBool, 1, 1},
                                                     {"endsWith", Kind::kBool, 1, 1},
                                                     {"contains", Kind::kBool, 1, 1},
                                                     {"matches", Kind::kBool, 1, 1},
                                                     {"lowerAscii", Kind::kText, 0, 0},
                                                     {"upperAscii", Kind::kText, 0, 0},
                                                     {"trim", Kind::kText, 0, 0},
                                                     {"split", Kind::kList, 1, 1},
                                                     {"join", Kind::kText, 0, 1}}};
    if (node.text == "size") {
      const Kind kind = types[0].kind;
      const bool sized = is_open(types[0]) || kind == Kind::kText || kind == Kind::kBytes ||
                         kind == Kind::kList || kind == Kind::kMap;
      return sized && types.size() == 1 ? simple(Kind::kInt) : no_overload(node, "size", types, true);
    }
    for (const Known& one : kKnown) {
      if (one.name != node.text) continue;
      const bool target = node.text == "join" ? is_open(types[0]) || (types[0].kind == Kind::kList &&
                                                                      is_a(*types[0].of, Kind::kText))
                                              : is_a(types[0], Kind::kText);
      const std::size_t given = types.size() - 1;
      const bool texts = std::all_of(types.begin() + 1, types.end(),
                                     [](const CelType& type) { return is_a(type, Kind::kText); });
      if (!target || !texts || given < one.least || given > one.most)
        return no_overload(node, node.text, types, true);
      return one.answer == Kind::kList ? container(Kind::kList, simple(Kind::kText)) : simple(one.answer);
    }
    return unknown(node);
  }

  CelType macro(const CelNode& node) {
    if (node.parts.size() < 3 || node.parts.size() > (node.text == "map" ? 4U : 3U) ||
        node.parts[1]->kind != CelNode::Kind::kName)
      return wrong(node.at, "'" + node.text + "' takes a variable and an expression");
    const CelType range = of(*node.parts[0]);
    CelType item = simple(Kind::kDyn);
    if (range.kind == Kind::kList) item = *range.of;
    if (range.kind == Kind::kMap) item = simple(Kind::kText);
    if (range.kind != Kind::kList && range.kind != Kind::kMap && !is_open(range))
      return wrong(node.parts[0]->at,
                   "expression of type '" + shown(range) +
                       "' cannot be range of a comprehension (must be list, map, or dynamic)");
    names_.emplace_back(node.parts[1]->text, item);
    CelType last;
    for (std::size_t i = 2; i < node.parts.size(); ++i) {
      last = of(*node.parts[i]);
      const bool test = node.text != "map" || (i == 2 && node.parts.size() == 4);
      if (test && !is_a(last, Kind::kBool)) macro_wants_bool(node, last);
    }
    names_.pop_back();
    if (node.text == "map") return container(Kind::kList, last);
    if (node.text == "filter") return container(Kind::kList, item);
    return simple(Kind::kBool);
  }

  void macro_wants_bool(const CelNode& node, const CelType& type) {
    if (node.text == "all") {
      no_overload(node, "_&&_", {simple(Kind::kBool), type});
    } else if (node.text == "exists") {
      no_overload(node, "_||_", {simple(Kind::kBool), type});
    } else {
      const CelType list = container(Kind::kList, simple(Kind::kDyn));
      no_overload(node, "_?_:_", {type, list, list});
    }
  }

  CelType unary(const CelNode& node) {
    const CelType type = of(*node.parts[0]);
    if (is_open(type)) return node.text == "!" ? simple(Kind::kBool) : type;
    if (node.text == "!") return type.kind == Kind::kBool ? type : no_overload(node, "!_", {type});
    return is_number(type) ? type : no_overload(node, "-_", {type});
  }

  CelType choice(const CelNode& node) {
    const CelType test = of(*node.parts[0]);
    const CelType yes = of(*node.parts[1]);
    const CelType no = of(*node.parts[2]);
    if (!is_a(test, Kind::kBool) || !alike(yes, no)) return no_overload(node, "_?_:_", {test, yes, no});
    return is_open(yes) || yes.kind == Kind::kNull ? no : yes;
  }

  CelType collection(const CelNode& node) {
    const bool map = node.kind == CelNode::Kind::kMap;
    CelType item = simple(Kind::kDyn);
    for (std::size_t i = 0; i < node.parts.size(); ++i) {
      const CelType type = of(*node.parts[i]);
      if (map && i % 2 == 0) continue;
      if (is_open(item)) {
        item = type;
      } else if (!alike(item, type)) {
        return wrong(node.parts[i]->at,
                     "expected type '" + shown(item) + "' but found '" + shown(type) + "'");
      }
    }
    return container(map ? Kind::kMap : Kind::kList, item);
  }

  CelType binary(const CelNode& node) {
    const CelType left = of(*node.parts[0]);
    const CelType right = of(*node.parts[1]);
    const std::string& sign = node.text;
    if (sign == "&&" || sign == "||") {
      if (is_a(left, Kind::kBool) && is_a(right, Kind::kBool)) return simple(Kind::kBool);
    } else if (sign == "==" || sign == "!=") {
      if (alike(left, right)) return simple(Kind::kBool);
    } else if (sign == "in") {
      if (contained(left, right)) return simple(Kind::kBool);
      return no_overload(node, "@in", {left, right});
    } else if (sign[0] == '<' || sign[0] == '>') {
      if (ordered(left, right)) return simple(Kind::kBool);
    } else if (std::optional<CelType> result = computed(sign, left, right)) {
      return *result;
    }
    return no_overload(node, "_" + sign + "_", {left, right});
  }

  static bool contained(const CelType& item, const CelType& in) {
    if (is_open(in)) return true;
    if (in.kind == Kind::kList) return alike(item, *in.of);
    return in.kind == Kind::kMap && is_a(item, Kind::kText);
  }

  static bool ordered(const CelType& left, const CelType& right) {
    if (is_open(left) || is_open(right) || (is_number(left) && is_number(right))) return true;
    const bool known = left.kind == Kind::kText || left.kind == Kind::kBool || left.kind == Kind::kBytes ||
                       left.kind == Kind::kTime || left.kind == Kind::kDuration;
    return known && left.kind == right.kind;
  }

  static std::optional<CelType> computed(const std::string& sign, const CelType& left, const CelType& right) {
    if (is_open(left)) return right;
    if (is_open(right)) return left;
    if (left.kind != right.kind) return std::nullopt;
    if (left.kind == Kind::kInt || (left.kind == Kind::kDouble && sign != "%")) return left;
    const bool added = left.kind == Kind::kText || left.kind == Kind::kBytes ||
                       left.kind == Kind::kDuration || (left.kind == Kind::kList && alike(left, right));
    if (sign == "+" && added) return left;
    return std::nullopt;
  }

  std::string_view text_;
  std::vector<std::pair<std::string, CelType>> names_;
  std::vector<std::string> faults_;
};

}  // namespace

CelType cel_type_of(const Schema& schema, bool root, const std::string& name) {
  if (schema.int_or_string) return simple(Kind::kDyn);
  switch (schema.type) {
    case Schema::Type::kInteger:
      return simple(Kind::kInt);
    case Schema::Type::kNumber:
      return simple(Kind::kDouble);
    case Schema::Type::kBoolean:
      return simple(Kind::kBool);
    case Schema::Type::kString: {
      const std::string_view format = schema.format();
      return simple(format == "byte"                            ? Kind::kBytes
                    : format == "date" || format == "date-time" ? Kind::kTime
                    : format == "duration"                      ? Kind::kDuration
                                                                : Kind::kText);
    }
    case Schema::Type::kArray:
      if (schema.items == nullptr) return simple(Kind::kDyn);
      return container(Kind::kList, cel_type_of(*schema.items, schema.items->embedded, name + ".@idx"));
    case Schema::Type::kObject: {
      if (schema.additional != nullptr)
        return container(Kind::kMap,
                         cel_type_of(*schema.additional, schema.additional->embedded, name + ".@elem"));
      CelType out = simple(Kind::kObject);
      out.schema = &schema;
      out.root = root;
      out.name = name;
      return out;
    }
    case Schema::Type::kAny:
      break;
  }
  return simple(Kind::kDyn);
}

Result<CelType> check_cel(std::string_view text, const CelNode& node, const CelType& self) {
  Checker checker(text, self);
  CelType type = checker.of(node);
  if (!checker.faults().empty()) return fail(Code::kInvalid, join(checker.faults(), "\n"));
  return type;
}

}  // namespace gpuop::cluster::api

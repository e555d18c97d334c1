#include "cluster/apiserver/cel.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "base/text.h"
#include "cluster/apiserver/schema.h"

namespace gpuop::cluster::api {

namespace {

constexpr int kMaxSteps = 200000;  // of one evaluation; beyond it the rule costs too much

class Machine {
 public:
  Machine(const Json& self, const Json* old_self) {
    names_.emplace_back("self", self);
    if (old_self != nullptr) names_.emplace_back("oldSelf", *old_self);
  }

  Result<Json> run(const CelNode& node) {
    if (++steps_ > kMaxSteps) return fail(Code::kInvalid, "operation cancelled: actual cost limit exceeded");
    switch (node.kind) {
      case CelNode::Kind::kLiteral:
        return node.value;
      case CelNode::Kind::kName:
        return name(node);
      case CelNode::Kind::kSelect:
        return select(TRY(run(*node.parts[0])), node.text);
      case CelNode::Kind::kIndex:
        return index(TRY(run(*node.parts[0])), TRY(run(*node.parts[1])));
      case CelNode::Kind::kCall:
        return call(node);
      case CelNode::Kind::kMethod:
        return method(node);
      case CelNode::Kind::kUnary:
        return unary(node);
      case CelNode::Kind::kBinary:
        return binary(node);
      case CelNode::Kind::kChoice:
        return run(*node.parts[TRY(truth(*node.parts[0])) ? 1 : 2]);
      case CelNode::Kind::kList: {
        JsonArray list;
        for (const CelNodePtr& part : node.parts) list.push_back(TRY(run(*part)));
        return Json(std::move(list));
      }
      case CelNode::Kind::kMap: {
        JsonObject map;
        for (std::size_t i = 0; i + 1 < node.parts.size(); i += 2) {
          Json key = TRY(run(*node.parts[i]));
          map[plain_text(key)] = TRY(run(*node.parts[i + 1]));
        }
        return Json(std::move(map));
      }
    }
    return fail(Code::kInvalid, "unknown expression");
  }

 private:
  static std::unexpected<Error> no_overload() { return fail(Code::kInvalid, "no such overload"); }

  Result<bool> truth(const CelNode& node) {
    Json value = TRY(run(node));
    if (!value.is_bool()) return no_overload();
    return value.get_bool();
  }

  Result<Json> name(const CelNode& node) {
    for (auto it = names_.rbegin(); it != names_.rend(); ++it)
      if (it->first == node.text) return it->second;
    if (node.text == "oldSelf") return Json(nullptr);
    return fail(Code::kInvalid, "no such attribute: " + node.text);
  }

  static Result<Json> select(const Json& target, const std::string& key) {
    const JsonObject* map = target.if_object();
    if (map == nullptr) return no_overload();
    const Json* value = map->if_contains(key);
    if (value == nullptr) return fail(Code::kInvalid, "no such key: " + key);
    return *value;
  }

  static Result<Json> index(const Json& target, const Json& key) {
    if (const JsonArray* list = target.if_array()) {
      if (!key.is_int64()) return no_overload();
      std::int64_t i = key.get_int64();
      if (i < 0 || i >= static_cast<std::int64_t>(list->size()))
        return fail(Code::kInvalid, "index out of bounds: " + std::to_string(i));
      return (*list)[static_cast<std::size_t>(i)];
    }
    if (!key.is_string()) return no_overload();
    return select(target, str(as_text(key)));
  }

  Result<Json> call(const CelNode& node) {
    const CelNode& argument = *node.parts[0];
    if (node.text == "has") {
      Json target = TRY(run(*argument.parts[0]));
      const JsonObject* map = target.if_object();
      return Json(map != nullptr && map->contains(argument.text));
    }
    Json value = TRY(run(argument));
    if (node.text == "size") return size(value);
    if (node.text == "string") return value.is_string() ? value : Json(to_text(value));
    if (node.text == "bool") return value.is_bool() ? value : Json(as_text(value) == "true");
    if (node.text == "int") return to_int(value);
    if (node.text == "double") return to_double(value);
    return Json(value.is_string()  ? "string"
                : value.is_bool()  ? "bool"
                : value.is_int64() ? "int"
                : value.is_array() ? "list"
                                   : "map");
  }

  static Result<Json> to_int(const Json& value) {
    if (value.is_int64()) return value;
    if (value.is_double() && std::fabs(value.get_double()) < 9e18)
      return Json(static_cast<std::int64_t>(value.get_double()));
    std::optional<std::int64_t> number = parse_int(as_text(value));
    if (!number) return fail(Code::kInvalid, "type conversion error");
    return Json(*number);
  }

  static Result<Json> to_double(const Json& value) {
    if (value.is_number())
      return Json(value.is_int64() ? static_cast<double>(value.get_int64()) : value.get_double());
    return fail(Code::kInvalid, "type conversion error");
  }

  static Result<Json> size(const Json& value) {
    if (value.is_array()) return Json(static_cast<std::int64_t>(value.get_array().size()));
    if (value.is_object()) return Json(static_cast<std::int64_t>(value.get_object().size()));
    if (!value.is_string()) return no_overload();
    std::int64_t count = 0;
    for (char c : as_text(value)) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
    return Json(count);
  }

  Result<Json> method(const CelNode& node) {
    Json target = TRY(run(*node.parts[0]));
    if (node.text == "size") return size(target);
    if (node.text == "all" || node.text == "exists" || node.text == "exists_one" || node.text == "map" ||
        node.text == "filter")
      return macro(node, target);
    if (node.text == "join") return joined(node, target);
    if (!target.is_string()) return no_overload();
    std::string_view text = as_text(target);
    if (node.text == "lowerAscii") return Json(to_lower(text));
    if (node.text == "trim") return Json(trim(text));
    if (node.text == "upperAscii") {
      std::string upper(text);
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      return Json(upper);
    }
    if (node.parts.size() < 2) return no_overload();
    Json argument = TRY(run(*node.parts[1]));
    if (!argument.is_string()) return no_overload();
    std::string_view other = as_text(argument);
    if (node.text == "startsWith") return Json(text.starts_with(other));
    if (node.text == "endsWith") return Json(text.ends_with(other));
    if (node.text == "contains") return Json(text.find(other) != std::string_view::npos);
    if (node.text == "split") {
      JsonArray parts;
      if (other.size() == 1)
        for (const std::string& part : split(text, other[0])) parts.push_back(Json(part));
      return Json(std::move(parts));
    }
    Result<std::shared_ptr<const Pattern>> pattern = Pattern::compile(std::string(other));
    if (!pattern) return fail(Code::kInvalid, "error parsing regexp: " + pattern.error().text());
    return Json((*pattern)->found_in(text));
  }

  Result<Json> joined(const CelNode& node, const Json& target) {
    if (!target.is_array()) return no_overload();
    std::string separator = node.parts.size() > 1 ? str(as_text(TRY(run(*node.parts[1])))) : "";
    std::string out;
    for (const Json& part : target.get_array()) out += (out.empty() ? "" : separator) + str(as_text(part));
    return Json(out);
  }

  Result<Json> macro(const CelNode& node, const Json& target) {
    JsonArray items;
    if (const JsonArray* list = target.if_array()) {
      items = *list;
    } else if (const JsonObject* map = target.if_object()) {
      for (const auto& entry : *map) items.push_back(Json(entry.key()));
    } else {
      return no_overload();
    }
    JsonArray out;
    int hits = 0;
    std::optional<Error> doubt;  // an error counts only where no item decides
    for (const Json& item : items) {
      names_.emplace_back(node.parts[1]->text, item);
      Result<Json> answer = run(*node.parts[2]);
      bool keep = answer && answer->is_bool() && answer->get_bool();
      if (node.text == "map" && answer) {
        if (node.parts.size() == 4) {
          if (keep) answer = run(*node.parts[3]);
          if (answer && keep) out.push_back(*answer);
        } else {
          out.push_back(*answer);
        }
      }
      names_.pop_back();
      if (!answer) {
        if (node.text != "all" && node.text != "exists") return answer;
        doubt = answer.error();
        continue;
      }
      if (node.text == "map") continue;
      if (!answer->is_bool()) return no_overload();
      if (keep) ++hits;
      if (node.text == "filter" && keep) out.push_back(item);
      if (node.text == "all" && !keep) return Json(false);
      if (node.text == "exists" && keep) return Json(true);
    }
    if (doubt) return fail(*doubt);
    if (node.text == "all") return Json(true);
    if (node.text == "exists") return Json(false);
    if (node.text == "exists_one") return Json(hits == 1);
    return Json(std::move(out));
  }

  Result<Json> unary(const CelNode& node) {
    Json value = TRY(run(*node.parts[0]));
    if (node.text == "!") return value.is_bool() ? Result<Json>(Json(!value.get_bool())) : no_overload();
    if (value.is_int64())
      return value.get_int64() == INT64_MIN ? no_overload() : Result<Json>(Json(-value.get_int64()));
    if (value.is_double()) return Json(-value.get_double());
    return no_overload();
  }

  Result<Json> logical(const CelNode& node) {
    // Either side may decide alone; an error counts only when the other does not.
    bool decides = node.text == "||";
    Result<bool> left = truth(*node.parts[0]);
    if (left && *left == decides) return Json(decides);
    Result<bool> right = truth(*node.parts[1]);
    if (right && *right == decides) return Json(decides);
    if (!left) return fail(left.error());
    if (!right) return fail(right.error());
    return Json(!decides);
  }

  Result<Json> binary(const CelNode& node) {
    if (node.text == "&&" || node.text == "||") return logical(node);
    Json left = TRY(run(*node.parts[0]));
    Json right = TRY(run(*node.parts[1]));
    if (node.text == "==") return Json(equal(left, right));
    if (node.text == "!=") return Json(!equal(left, right));
    if (node.text == "in") return contains(left, right);
    if (left.is_number() && right.is_number()) return arithmetic(node.text, left, right);
    if (left.is_string() && right.is_string()) return on_texts(node.text, as_text(left), as_text(right));
    if (left.is_array() && right.is_array() && node.text == "+") {
      for (const Json& item : right.get_array()) left.get_array().push_back(item);
      return left;
    }
    return no_overload();
  }

  static bool equal(const Json& left, const Json& right) {
    if (left.is_number() && right.is_number()) {
      if (left.is_int64() && right.is_int64()) return left.get_int64() == right.get_int64();
      return number(left) == number(right);
    }
    return left == right;
  }

  static double number(const Json& value) {
    return value.is_int64()    ? static_cast<double>(value.get_int64())
           : value.is_uint64() ? static_cast<double>(value.get_uint64())
                               : value.get_double();
  }

  static Result<Json> contains(const Json& item, const Json& in) {
    if (const JsonArray* list = in.if_array())
      return Json(
          std::any_of(list->begin(), list->end(), [&](const Json& other) { return equal(item, other); }));
    if (const JsonObject* map = in.if_object()) return Json(item.is_string() && map->contains(as_text(item)));
    return no_overload();
  }

  static Result<Json> on_texts(const std::string& sign, std::string_view left, std::string_view right) {
    if (sign == "+") return Json(std::string(left) + std::string(right));
    if (sign == "<") return Json(left < right);
    if (sign == "<=") return Json(left <= right);
    if (sign == ">") return Json(left > right);
    if (sign == ">=") return Json(left >= right);
    return no_overload();
  }

  static Result<Json> arithmetic(const std::string& sign, const Json& left, const Json& right) {
    if (sign == "<") return Json(number(left) < number(right));
    if (sign == "<=") return Json(number(left) <= number(right));
    if (sign == ">") return Json(number(left) > number(right));
    if (sign == ">=") return Json(number(left) >= number(right));
    if (!left.is_int64() || !right.is_int64()) {
      double a = number(left);
      double b = number(right);
      if (sign == "+") return Json(a + b);
      if (sign == "-") return Json(a - b);
      if (sign == "*") return Json(a * b);
      if (sign == "/") return Json(a / b);
      return no_overload();
    }
    std::int64_t a = left.get_int64();
    std::int64_t b = right.get_int64();
    std::int64_t out = 0;
    bool over = false;
    if (sign == "+") {
      over = __builtin_add_overflow(a, b, &out);
    } else if (sign == "-") {
      over = __builtin_sub_overflow(a, b, &out);
    } else if (sign == "*") {
      over = __builtin_mul_overflow(a, b, &out);
    } else {
      if (b == 0) return fail(Code::kInvalid, sign == "/" ? "division by zero" : "modulus by zero");
      over = a == INT64_MIN && b == -1;
      if (!over) out = sign == "/" ? a / b : a % b;
    }
    if (over) return fail(Code::kInvalid, "integer overflow");
    return Json(out);
  }

  std::vector<std::pair<std::string, Json>> names_;
  int steps_ = 0;
};

// Whether the rule looks at what was before.
bool mentions_old(const CelNode& node) {
  if (node.kind == CelNode::Kind::kName && node.text == "oldSelf") return true;
  return std::any_of(node.parts.begin(), node.parts.end(),
                     [](const CelNodePtr& part) { return mentions_old(*part); });
}

class Program : public CelProgram {
 public:
  explicit Program(CelNodePtr root) : root_(std::move(root)), old_self_(mentions_old(*root_)) {}
  bool mentions_old_self() const override { return old_self_; }
  Result<Json> evaluate(const Json& self, const Json* old_self) const override {
    return Machine(self, old_self).run(*root_);
  }

 private:
  CelNodePtr root_;
  bool old_self_;
};

std::string_view wanted_word(CelType::Kind wanted) {
  return wanted == CelType::Kind::kBool ? "bool" : "string";
}

}  // namespace

Result<std::shared_ptr<const CelProgram>> CelProgram::compile(std::string_view text, const CelType& self,
                                                              CelType::Kind wanted) {
  CelNodePtr root = TRY(parse_cel(text));
  const CelType type = TRY(check_cel(text, *root, self));
  if (type.kind != wanted && type.kind != CelType::Kind::kDyn)
    return fail(Code::kConflict, "cel expression must evaluate to a " + str(wanted_word(wanted)));
  return std::shared_ptr<const CelProgram>(std::make_shared<Program>(std::move(root)));
}

}  // namespace gpuop::cluster::api

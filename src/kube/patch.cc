// JSON merge patch (RFC 7386) and JSON patch (RFC 6902).
#include <algorithm>
#include <array>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::kube {
namespace {

constexpr std::size_t kMaxOperations = 10'000;
// "copy" can double a document with every operation, so what is copied in all is limited.
constexpr std::size_t kMaxCopied = 3u << 20;
// Values are walked recursively, here and elsewhere.
constexpr std::size_t kMaxDepth = 128;

std::size_t rough_size(const Json& value) {
  std::size_t size = 8;
  if (value.is_string()) size += value.get_string().size();
  if (value.is_array()) {
    for (const Json& item : value.get_array()) size += rough_size(item);
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.get_object()) size += key.size() + rough_size(item);
  }
  return size;
}

std::size_t depth_of(const Json& value) {
  std::size_t deepest = 0;
  if (value.is_array()) {
    for (const Json& item : value.get_array()) deepest = std::max(deepest, depth_of(item));
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.get_object()) deepest = std::max(deepest, depth_of(item));
  }
  return deepest + 1;
}

// The steps of a JSON pointer, decoded.
Result<std::vector<std::string>> parse_pointer(std::string_view text) {
  if (text.empty()) return std::vector<std::string>();
  if (text[0] != '/') return fail(Code::kInvalid, "path '" + std::string(text) + "': must start with '/'");
  std::vector<std::string> steps = split(text.substr(1), '/');
  for (std::string& step : steps) step = replace_all(replace_all(std::move(step), "~1", "/"), "~0", "~");
  return steps;
}

Result<> check_depth(const std::vector<std::string>& steps, const Json& value) {
  if (steps.size() + depth_of(value) <= kMaxDepth) return {};
  return fail(Code::kInvalid, "nests more than " + std::to_string(kMaxDepth) + " levels");
}

std::optional<std::size_t> parse_index(std::string_view text) {
  if (text.empty() || text.size() > 9 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  std::size_t out = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    out = out * 10 + static_cast<std::size_t>(c - '0');
  }
  return out;
}

Json* step_into(Json& value, const std::string& step) {
  if (value.is_object()) return value.get_object().if_contains(step);
  if (value.is_array()) {
    const auto index = parse_index(step);
    if (index && *index < value.get_array().size()) return &value.get_array()[*index];
  }
  return nullptr;
}

Json* resolve(Json& root, const std::vector<std::string>& steps, std::size_t count) {
  Json* at = &root;
  for (std::size_t i = 0; i < count && at != nullptr; ++i) at = step_into(*at, steps[i]);
  return at;
}

std::unexpected<Error> missing(std::string_view path) {
  return fail(Code::kNotFound, "path '" + std::string(path) + "': there is nothing there");
}

Result<> add_at(Json& root, std::string_view path, Json value) {
  const auto steps = TRY(parse_pointer(path));
  TRY(check_depth(steps, value));
  if (steps.empty()) {
    root = std::move(value);
    return {};
  }
  Json* parent = resolve(root, steps, steps.size() - 1);
  if (parent == nullptr) return missing(path);
  const std::string& last = steps.back();
  if (parent->is_object()) {
    parent->get_object()[last] = std::move(value);
    return {};
  }
  if (!parent->is_array()) return missing(path);
  JsonArray& list = parent->get_array();
  const auto index = last == "-" ? std::optional(list.size()) : parse_index(last);
  if (!index || *index > list.size()) return missing(path);
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(*index), std::move(value));
  return {};
}

Result<Json> take_at(Json& root, std::string_view path) {
  const auto steps = TRY(parse_pointer(path));
  if (steps.empty()) return std::exchange(root, nullptr);
  Json* parent = resolve(root, steps, steps.size() - 1);
  Json* target = parent == nullptr ? nullptr : step_into(*parent, steps.back());
  if (target == nullptr) return missing(path);
  Json out = std::move(*target);
  if (parent->is_object()) {
    remove(*parent, {steps.back()});
  } else {
    parent->get_array().erase(parent->get_array().begin() +
                              static_cast<std::ptrdiff_t>(*parse_index(steps.back())));
  }
  return out;
}

Result<Json*> look_at(Json& root, std::string_view path) {
  const auto steps = TRY(parse_pointer(path));
  Json* target = resolve(root, steps, steps.size());
  if (target == nullptr) return missing(path);
  return target;
}

Result<const Json*> operand(const Json& op) {
  const Json* value = find(op, {"value"});
  if (value == nullptr) return fail(Code::kInvalid, "value: required");
  return value;
}

Result<> apply_one(Json& root, const Json& op, std::size_t& copied) {
  const Json* path_value = find(op, {"path"});
  if (path_value == nullptr || !path_value->is_string()) {
    return fail(Code::kInvalid, "path: required, a string");
  }
  const std::string_view path = as_text(*path_value);
  const std::string_view kind = get_string(op, {"op"});
  if (kind == "add") {
    const Json* value = TRY(operand(op));
    return add_at(root, path, *value);
  }
  if (kind == "remove") {
    TRY(take_at(root, path));
    return {};
  }
  if (kind == "replace") {
    const Json* value = TRY(operand(op));
    TRY(check_depth(TRY(parse_pointer(path)), *value));
    Json* target = TRY(look_at(root, path));
    *target = *value;
    return {};
  }
  if (kind == "test") {
    const Json* value = TRY(operand(op));
    Json* target = TRY(look_at(root, path));
    if (*target == *value) return {};
    return fail(Code::kConflict, "path '" + std::string(path) + "': the test failed");
  }
  const std::string from = str(get_string(op, {"from"}));
  if (kind == "move") {
    if (path.size() > from.size() && path.starts_with(from) && path[from.size()] == '/') {
      return fail(Code::kInvalid, "from '" + from + "': cannot be moved into itself");
    }
    Json value = TRY(take_at(root, from));
    return add_at(root, path, std::move(value));
  }
  if (kind == "copy") {
    Json* source = TRY(look_at(root, from));
    copied += rough_size(*source);
    if (copied > kMaxCopied) return fail(Code::kInvalid, "copies more than 3 MiB in all");
    return add_at(root, path, Json(*source));
  }
  const std::array<std::string, 6> known = {"add", "remove", "replace", "move", "copy", "test"};
  return fail(Code::kInvalid, "op: must be one of add, remove, replace, move, copy, test; got '" + str(kind) +
                                  "'" + did_you_mean(kind, known));
}

}  // namespace

Json merge_diff(const Json& from, const Json& to) {
  if (!from.is_object() || !to.is_object()) return from == to ? Json(JsonObject()) : to;
  JsonObject out;
  for (const auto& [key, value] : from.get_object()) {
    if (!value.is_null() && to.get_object().if_contains(key) == nullptr) out[key] = nullptr;
  }
  for (const auto& [key, value] : to.get_object()) {
    const Json* old = from.get_object().if_contains(key);
    if (old != nullptr && *old == value) continue;
    if (old != nullptr && old->is_object() && value.is_object()) {
      out[key] = merge_diff(*old, value);
    } else if (old != nullptr || !value.is_null()) {
      out[key] = value;
    }
  }
  return out;
}

void merge_apply(Json& target, const Json& patch) {
  if (!patch.is_object()) {
    target = patch;
    return;
  }
  if (!target.is_object()) target = JsonObject();
  for (const auto& [key, value] : patch.get_object()) {
    if (value.is_null()) {
      remove(target, {key});
    } else {
      merge_apply(target.get_object()[key], value);
    }
  }
}

Result<> json_patch_apply(Json& target, const Json& patch) {
  if (!patch.is_array()) return fail(Code::kInvalid, "apply JSON patch: must be a list of operations");
  const JsonArray& operations = patch.get_array();
  if (operations.size() > kMaxOperations) {
    return fail(Code::kInvalid, "apply JSON patch: at most 10000 operations are taken, got " +
                                    std::to_string(operations.size()));
  }
  Json work = target;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    TRY_IN(apply_one(work, operations[i], copied), "apply JSON patch: operation " + std::to_string(i));
  }
  target = std::move(work);
  return {};
}

}  // namespace gpuop::kube

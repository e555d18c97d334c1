#include "policy/schema.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace gpuop::policy {

FieldRef& FieldRef::pattern(std::string text, bool (*matches)(std::string_view), std::string must) {
  schema_.pattern = std::move(text);
  schema_.matches = matches;
  schema_.must = std::move(must);
  return *this;
}

FieldRef& FieldRef::deprecated(std::string why) {
  schema_.deprecated = true;
  schema_.deprecation = std::move(why);
  return *this;
}

FieldRef& FieldRef::rule(std::string cel, std::string message) {
  schema_.rules.emplace_back(std::move(cel), std::move(message));
  return *this;
}

FieldRef& FieldRef::as(const Schema& schema) {
  schema_.kind = schema.kind;
  schema_.properties = schema.properties;
  schema_.items = schema.items;
  schema_.list_map_key = schema.list_map_key;
  return *this;
}

FieldRef add_json(Schema& schema, std::string_view name, Kind kind, std::string_view doc) {
  Property& p = schema.properties.emplace_back();
  p.name = name;
  p.schema.kind = kind;
  p.schema.doc = doc;
  return FieldRef(p.schema);
}

namespace detail {

namespace {
std::int64_t as_int(const Json& json) {
  if (json.is_int64()) return json.get_int64();
  if (json.is_uint64()) return static_cast<std::int64_t>(json.get_uint64());
  if (json.is_double()) return static_cast<std::int64_t>(json.get_double());
  return 0;
}
}  // namespace

void store_string(const Schema&, const Json& json, void* target) {
  *static_cast<std::string*>(target) = str(as_text(json));
}
void store_bool(const Schema&, const Json& json, void* target) {
  *static_cast<bool*>(target) = json.get_bool();
}
void store_optional_bool(const Schema&, const Json& json, void* target) {
  *static_cast<std::optional<bool>*>(target) = json.get_bool();
}
void store_int(const Schema&, const Json& json, void* target) {
  *static_cast<std::int64_t*>(target) = as_int(json);
}
void store_json(const Schema&, const Json& json, void* target) {
  *static_cast<Json*>(target) = json;
}
void store_json_array(const Schema&, const Json& json, void* target) {
  *static_cast<JsonArray*>(target) = json.get_array();
}
void store_strings(const Schema&, const Json& json, void* target) {
  auto& list = *static_cast<std::vector<std::string>*>(target);
  list.clear();
  for (const Json& item : json.get_array()) list.push_back(str(as_text(item)));
}
void store_map(const Schema&, const Json& json, void* target) {
  auto& map = *static_cast<StringMap*>(target);
  map.clear();
  for (const auto& [key, value] : json.get_object()) map[str(key)] = str(as_text(value));
}
void store_object(const Schema& schema, const Json& json, void* target) {
  const JsonObject& object = json.get_object();
  for (const Property& p : schema.properties) {
    if (!p.has_member || !p.schema.store) continue;
    if (const Json* value = find(object, p.name))
      p.schema.store(p.schema, *value, static_cast<char*>(target) + p.offset);
  }
}

std::optional<Json> load_string(const void* source) {
  return Json(*static_cast<const std::string*>(source));
}
std::optional<Json> load_bool(const void* source) {
  return Json(*static_cast<const bool*>(source));
}
std::optional<Json> load_int(const void* source) {
  return Json(*static_cast<const std::int64_t*>(source));
}

const Schema& string_schema() {
  static const Schema schema = [] {
    Schema s;
    Traits<std::string>::fill(s);
    return s;
  }();
  return schema;
}

}  // namespace detail

namespace {

std::string below(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}
std::string below(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

std::string_view wanted(Kind kind) {
  switch (kind) {
    case Kind::kObject:
    case Kind::kMap:
      return "a map";
    case Kind::kArray:
      return "a list";
    case Kind::kString:
      return "a string";
    case Kind::kBool:
      return "true or false";
    case Kind::kInt32:
    case Kind::kInt64:
      return "a whole number";
    case Kind::kQuantity:
      return "a quantity such as 500m or 2Gi";
    case Kind::kIntOrString:
      return "a whole number or a string";
  }
  return "";
}

// What is there instead, short enough for a message.
std::string shown(const Json& json) {
  if (json.is_object()) return "a map";
  if (json.is_array()) return "a list";
  if (json.is_null()) return "nothing";
  std::string text = to_text(json);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return json.is_string() ? "the string " + text : text;
}

std::string shown_string(std::string_view text) {
  return "'" + std::string(text.substr(0, 60)) + (text.size() > 60 ? "...'" : "'");
}

bool is_whole(const Json& json) {
  if (json.is_int64()) return true;
  if (json.is_uint64()) return json.get_uint64() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (!json.is_double()) return false;
  double d = json.get_double();
  return std::trunc(d) == d && std::abs(d) < 9007199254740992.0;
}

bool digits(std::string_view text, std::size_t& at) {
  std::size_t start = at;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
  return at > start;
}

// A number as quantities have it: digits, optionally with a fraction.
bool decimal(std::string_view text, std::size_t& at) {
  bool whole = digits(text, at);
  if (at < text.size() && text[at] == '.') {
    ++at;
    return digits(text, at) || whole;
  }
  return whole;
}

bool is_quantity(std::string_view text) {
  std::size_t at = 0;
  if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
  if (!decimal(text, at)) return false;
  std::string_view suffix = text.substr(at);
  if (suffix.empty()) return true;
  if (suffix.size() == 2 && suffix[1] == 'i') return std::string_view("KMGTPE").contains(suffix[0]);
  if (suffix.size() == 1) return std::string_view("numkMGTPE").contains(suffix[0]);
  if (suffix[0] != 'e' && suffix[0] != 'E') return false;
  std::size_t exponent = 1;
  if (suffix[exponent] == '+' || suffix[exponent] == '-') ++exponent;
  return decimal(suffix, exponent) && exponent == suffix.size();
}

bool right_kind(Kind kind, const Json& json) {
  switch (kind) {
    case Kind::kObject:
    case Kind::kMap:
      return json.is_object();
    case Kind::kArray:
      return json.is_array();
    case Kind::kString:
      return json.is_string();
    case Kind::kBool:
      return json.is_bool();
    case Kind::kInt32:
    case Kind::kInt64:
      return is_whole(json);
    case Kind::kQuantity:
      return is_whole(json) || (json.is_string() && is_quantity(json.get_string()));
    case Kind::kIntOrString:
      return is_whole(json) || json.is_string();
  }
  return false;
}

class Checker {
 public:
  explicit Checker(std::vector<Problem>& out) : out_(out) {}

  void check(const Schema& schema, const Json& json, const std::string& path) {
    if (!right_kind(schema.kind, json)) {
      std::string hint = kind_hint(schema.kind, json);
      return problem(path, "must be " + std::string(wanted(schema.kind)) + "; got " + shown(json) + hint);
    }
    switch (schema.kind) {
      case Kind::kObject:
        return object(schema, json.get_object(), path);
      case Kind::kMap:
        for (const auto& [key, value] : json.get_object()) check(*schema.items, value, below(path, str(key)));
        return;
      case Kind::kArray:
        for (std::size_t i = 0; i < json.get_array().size(); ++i)
          check(*schema.items, json.get_array()[i], below(path, i));
        return;
      case Kind::kString:
        return string(schema, str(as_text(json)), path);
      case Kind::kInt32:
      case Kind::kInt64:
        return number(schema, json, path);
      default:
        return;
    }
  }

 private:
  void problem(const std::string& path, const std::string& text) {
    out_.push_back({path, path + ": " + text});
  }

  // The two slips that YAML invites: quoted booleans and numbers, and bare words read as booleans.
  static std::string kind_hint(Kind kind, const Json& json) {
    if (json.is_string()) {
      std::string text = to_lower(as_text(json));
      if (kind == Kind::kBool && (text == "true" || text == "false")) return " (write it without quotes)";
      if ((kind == Kind::kInt32 || kind == Kind::kInt64) && parse_int(text))
        return " (write it without quotes)";
    }
    if (kind == Kind::kString && (json.is_bool() || json.is_number())) return " (put it in quotes)";
    return "";
  }

  void object(const Schema& schema, const JsonObject& json, const std::string& path) {
    for (const Property& p : schema.properties) {
      const Json* value = gpuop::find(json, p.name);
      if (value && !value->is_null())
        check(p.schema, *value, below(path, p.name));
      else if (p.schema.required)
        problem(below(path, p.name),
                "is required" +
                    std::string(p.schema.kind == Kind::kObject ? " (an empty block {} will do)" : ""));
    }
  }

  void string(const Schema& schema, const std::string& text, const std::string& path) {
    if (!schema.choices.empty()) {
      for (const std::string& choice : schema.choices)
        if (choice == text) return;
      std::vector<std::string> named;
      for (const std::string& choice : schema.choices) named.push_back(choice.empty() ? "\"\"" : choice);
      problem(path, "must be one of " + join(named, ", ") + "; got " + shown_string(text) +
                        did_you_mean(text, schema.choices));
    } else if (schema.matches && !schema.matches(text)) {
      problem(path, "must " + schema.must + "; got " + shown_string(text));
    }
  }

  void number(const Schema& schema, const Json& json, const std::string& path) {
    std::int64_t value = 0;
    detail::store_int(schema, json, &value);
    std::int64_t low = schema.kind == Kind::kInt32 ? std::numeric_limits<std::int32_t>::min()
                                                   : std::numeric_limits<std::int64_t>::min();
    std::int64_t high = schema.kind == Kind::kInt32 ? std::numeric_limits<std::int32_t>::max()
                                                    : std::numeric_limits<std::int64_t>::max();
    low = schema.minimum.value_or(low);
    high = schema.maximum.value_or(high);
    if (value < low)
      problem(path, "must be at least " + std::to_string(low) + "; got " + std::to_string(value));
    if (value > high)
      problem(path, "must be at most " + std::to_string(high) + "; got " + std::to_string(value));
  }

  std::vector<Problem>& out_;
};

// Whether a deprecated field's value asks for nothing.
bool is_trivial(const Json& json) {
  if (json.is_null()) return true;
  if (json.is_bool()) return !json.get_bool();
  if (json.is_string()) return json.get_string().empty();
  if (json.is_array()) return json.get_array().empty();
  if (json.is_object()) {
    if (const Json* enabled = find(json, {"enabled"})) return !enabled->is_bool() || !enabled->get_bool();
    for (const auto& [key, value] : json.get_object())
      if (!is_trivial(value)) return false;
    return true;
  }
  return is_whole(json) && to_text(json) == "0";
}

// A block that is off where it does not say otherwise, as catalogs' policies have it with its defaults.
bool is_left_off(const Schema& schema, const Json& json) {
  return json.is_object() && !has(json, {"enabled"}) &&
         std::ranges::any_of(schema.properties, [](const Property& one) { return one.name == "enabled"; });
}

void collect_notes(const Schema& schema, const Json& json, const std::string& path, std::vector<Note>& out) {
  if (schema.kind == Kind::kArray && json.is_array() && schema.items) {
    for (std::size_t i = 0; i < json.get_array().size(); ++i)
      collect_notes(*schema.items, json.get_array()[i], below(path, i), out);
  }
  if (schema.kind != Kind::kObject || !json.is_object()) return;
  for (const auto& [key, value] : json.get_object()) {
    std::string here = below(path, str(key));
    const Property* known = nullptr;
    for (const Property& p : schema.properties)
      if (p.name == key) known = &p;
    if (!known) {
      std::vector<std::string> names;
      names.reserve(schema.properties.size());
      for (const Property& p : schema.properties) names.push_back(p.name);
      out.push_back({Note::Kind::kUnknownField, here,
                     here + ": unknown field, has no effect" + did_you_mean(str(key), names)});
    } else if (known->schema.deprecated) {
      if (!is_trivial(value) && !is_left_off(known->schema, value))
        out.push_back(
            {Note::Kind::kDeprecatedField, here, here + ": deprecated, " + known->schema.deprecation});
    } else {
      collect_notes(known->schema, value, here, out);
    }
  }
}

}  // namespace

std::vector<Problem> find_problems(const Schema& schema, const Json& json, const std::string& path) {
  std::vector<Problem> out;
  Checker(out).check(schema, json, path);
  return out;
}

std::vector<Note> find_notes(const Schema& schema, const Json& json, const std::string& path) {
  std::vector<Note> out;
  collect_notes(schema, json, path, out);
  return out;
}

Json normalized(const Schema& schema, const Json& json) {
  if (schema.kind == Kind::kArray && json.is_array() && schema.items) {
    JsonArray out;
    for (const Json& item : json.get_array()) out.push_back(normalized(*schema.items, item));
    return out;
  }
  if (schema.kind == Kind::kMap && json.is_object() && schema.items) {
    JsonObject out;
    for (const auto& [key, value] : json.get_object())
      if (!value.is_null()) out[key] = normalized(*schema.items, value);
    return out;
  }
  if (schema.kind != Kind::kObject || !json.is_object()) return json;
  JsonObject out;
  for (const auto& [key, value] : json.get_object()) {
    if (value.is_null()) continue;
    for (const Property& p : schema.properties)
      if (p.name == key) out[key] = normalized(p.schema, value);
  }
  for (const Property& p : schema.properties)
    if (p.schema.default_value && !out.contains(p.name))
      out[p.name] = normalized(p.schema, *p.schema.default_value);
  return out;
}

void list_paths(const Schema& schema, const std::string& path, std::vector<std::string>& out) {
  switch (schema.kind) {
    case Kind::kObject:
      if (schema.properties.empty()) out.push_back(path);
      for (const Property& p : schema.properties) list_paths(p.schema, below(path, p.name), out);
      return;
    case Kind::kMap:
      return list_paths(*schema.items, path + "{}", out);
    case Kind::kArray:
      return list_paths(*schema.items, path + "[]", out);
    default:
      out.push_back(path);
  }
}

}  // namespace gpuop::policy

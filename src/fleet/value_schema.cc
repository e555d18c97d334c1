#include "fleet/value_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <regex>

#include "base/text.h"

namespace gpuop::fleet {
namespace {

constexpr std::string_view kDefinitions = "#/definitions/";
// A pattern is not tried on longer texts: the library's matcher needs a stack frame a character.
constexpr std::size_t kLongest = 4096;

// The schema itself, or what its $ref stands for.
const Json& resolved(const Json* schema, const Json& root) {
  const auto reference = get_string(*schema, {"$ref"});
  if (!reference.starts_with(kDefinitions)) return *schema;
  const Json* found = find(root, {"definitions", reference.substr(kDefinitions.size())});
  return found ? *found : *schema;
}

std::string_view form_of(const Json& schema) {
  const auto reference = get_string(schema, {"$ref"});
  return reference.starts_with(kDefinitions) ? reference.substr(kDefinitions.size()) : std::string_view();
}

// As JSON schema has it, 3.0 is an integer.
bool is_whole(const Json& value) {
  if (value.is_int64() || value.is_uint64()) return true;
  return value.is_double() && std::trunc(value.get_double()) == value.get_double();
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "integer") return is_whole(value);
  return type == "number" && value.is_number();
}

std::string word_of(std::string_view type) {
  return type == "object" ? "map" : type == "array" ? "list" : std::string(type);
}

std::string type_name(const Json& value) {
  for (const char* type : {"null", "boolean", "string", "object", "array", "integer", "number"}) {
    if (has_type(value, type)) return word_of(type);
  }
  return "value";
}

std::vector<std::string> texts_of(const Json* words) {
  std::vector<std::string> out;
  if (words && words->is_string()) out.push_back(str(as_text(*words)));
  if (words && words->is_array()) {
    for (const auto& each : words->as_array()) {
      if (each.is_string()) out.push_back(str(as_text(each)));
    }
  }
  return out;
}

std::string shown(const Json& value) {
  if (value.is_double()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.15g", value.get_double());
    return text;
  }
  std::string text = to_text(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

bool matches(const std::string& text, const std::string& pattern) {
  static std::map<std::string, std::regex> compiled;
  const auto known = compiled.try_emplace(pattern, pattern).first;
  return text.size() <= kLongest && std::regex_search(text, known->second);
}

// The two slips that YAML invites: quoted booleans and numbers, and bare words read as booleans or numbers.
std::string type_hint(const Json& value, const std::vector<std::string>& wanted) {
  const auto wants = [&](const char* type) { return std::ranges::find(wanted, type) != wanted.end(); };
  if (value.is_string()) {
    const std::string text = to_lower(as_text(value));
    if ((wants("boolean") && (text == "true" || text == "false")) || (wants("integer") && parse_int(text)))
      return " (write it without quotes)";
  }
  if (wants("string") && (value.is_bool() || value.is_number())) return " (put it in quotes)";
  return "";
}

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}

  void check(const Json& value, const Json& schema_or_reference, const std::string& path) {
    const Json& schema = resolved(&schema_or_reference, root_);
    if (!right_type(value, schema, path) || !right_choice(value, schema, path)) return;
    if (value.is_string()) text(value, schema, path);
    if (value.is_number()) number(value, schema, path);
    if (const Json* refused = find(schema, {"not"}); refused && fits(value, *refused))
      add(path, "must be " + str(get_string(schema, {"description"})) + "; got " + shown(value));
    if (value.is_object()) object(value.get_object(), schema, path);
    const Json* items = find(schema, {"items"});
    if (!value.is_array() || !items) return;
    std::size_t i = 0;
    for (const auto& item : value.get_array()) check(item, *items, below(path, i++));
  }

  std::vector<SchemaFault> faults;

 private:
  void add(const std::string& path, std::string text) { faults.push_back({path, std::move(text), ""}); }

  bool fits(const Json& value, const Json& schema) const {
    Checker other(root_);
    other.check(value, schema, "");
    return other.faults.empty();
  }

  bool right_type(const Json& value, const Json& schema, const std::string& path) {
    const auto wanted = texts_of(find(schema, {"type"}));
    if (wanted.empty() ||
        std::ranges::any_of(wanted, [&](const auto& type) { return has_type(value, type); }))
      return true;
    std::vector<std::string> names;
    for (const auto& type : wanted) {
      if (type != "null") names.push_back((type == "integer" ? "an " : "a ") + word_of(type));
    }
    add(path, "must be " + join(names, " or ") + "; got " +
                  (value.is_null() ? "nothing" : "the " + type_name(value) + " " + shown(value)) +
                  type_hint(value, wanted));
    return false;
  }

  bool right_choice(const Json& value, const Json& schema, const std::string& path) {
    const Json* allowed = find(schema, {"enum"});
    if (!allowed || !allowed->is_array()) return true;
    std::vector<std::string> words;
    for (const auto& each : allowed->get_array()) {
      if (each == value) return true;
      if (each.is_string() && !as_text(each).empty()) words.push_back(str(as_text(each)));
    }
    const std::string got = value.is_string() ? str(as_text(value)) : shown(value);
    std::string hint = did_you_mean(got, words);
    if (value.is_bool()) hint = " (YAML reads on, off, yes and no as booleans; put it in quotes)";
    add(path, "must be one of " + join(words, ", ") + "; got " + got + hint);
    return false;
  }

  void text(const Json& value, const Json& schema, const std::string& path) {
    const std::string content = str(as_text(value));
    const auto letters = static_cast<std::int64_t>(std::ranges::count_if(
        content, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    const std::string pattern = str(get_string(schema, {"pattern"}));
    const bool good = (pattern.empty() || matches(content, pattern)) &&
                      letters >= get_int(schema, {"minLength"}) &&
                      (!has(schema, {"maxLength"}) || letters <= get_int(schema, {"maxLength"}));
    if (!good) add(path, "must be " + str(get_string(schema, {"description"})) + "; got " + shown(value));
  }

  void number(const Json& value, const Json& schema, const std::string& path) {
    const double number = value.to_number<double>();
    const Json* least = find(schema, {"minimum"});
    const Json* most = find(schema, {"maximum"});
    if (least && number < least->to_number<double>())
      add(path, "must be at least " + shown(*least) + "; got " + shown(value));
    if (most && number > most->to_number<double>())
      add(path, "must be at most " + shown(*most) + "; got " + shown(value));
  }

  // The key that was meant to be `required`.
  static std::string misspelt(std::string_view required, const JsonObject& value, const Json& schema) {
    std::vector<std::string> unknown;
    for (const auto& [key, inner] : value) {
      if (!find(schema, {"properties", key})) unknown.emplace_back(key);
    }
    const auto near = nearest(required, unknown);
    return near ? "; it has '" + *near + "'" : "";
  }

  // A section is only ever missing where a key with nothing behind it takes its defaults away.
  void missing(const std::string& required, const JsonObject& value, const Json& schema,
               const std::string& path) {
    if (const Json* own = find(schema, {"properties", required});
        own && has(resolved(own, root_), {"properties"}))
      return add(below(path, required),
                 "is empty, which takes its defaults away; remove the key, or write keys below it");
    add(path, "must have the key '" + required + "'" + misspelt(required, value, schema));
  }

  void object(const JsonObject& value, const Json& schema, const std::string& path) {
    for (const auto& required : texts_of(find(schema, {"required"}))) {
      if (!value.contains(required)) missing(required, value, schema, path);
    }
    const Json* names = find(schema, {"propertyNames"});
    const Json* others = find(schema, {"additionalProperties"});
    for (const auto& [key, inner] : value) {
      const std::string at = below(path, key);
      if (names) check_name(Json(key), *names, at);
      if (const Json* own = find(schema, {"properties", key})) {
        check(inner, *own, at);
      } else if (others && others->is_object()) {
        check(inner, *others, at);
      } else if (others && *others == Json(false)) {
        unknown_key(key, schema, path);
      }
    }
  }

  void check_name(const Json& name, const Json& schema, const std::string& path) {
    const Json& rule = resolved(&schema, root_);
    if (!fits(name, rule))
      add(path, "the key must be " + str(get_string(rule, {"description"})) + "; got " + shown(name));
  }

  void unknown_key(std::string_view key, const Json& schema, const std::string& path) {
    std::vector<std::string> known;
    for (const auto& [name, inner] : get_object(schema, {"properties"})) known.emplace_back(name);
    const auto near = nearest(key, known);
    const std::string meant = near ? below(path, *near) : "";
    faults.push_back({below(path, key),
                      "is no key here" +
                          (near ? " (did you mean '" + meant + "'?)" : "; the keys are " + join(known, ", ")),
                      meant});
  }

  const Json& root_;
};

class Visitor {
 public:
  Visitor(const Json& root, const std::function<void(const SchemaPlace&)>& visit)
      : root_(root), visit_(visit) {}

  void walk(const Json& value, const Json& reference, const std::string& path) {
    const Json& schema = resolved(&reference, root_);
    visit_({path, value, schema, form_of(reference)});
    if (value.is_object()) {
      const Json* others = find(schema, {"additionalProperties"});
      for (const auto& [key, inner] : value.get_object()) {
        const Json* own = find(schema, {"properties", key});
        if (!own && others && others->is_object()) own = others;
        if (own) walk(inner, *own, below(path, key));
      }
    }
    const Json* items = find(schema, {"items"});
    if (!value.is_array() || !items) return;
    std::size_t i = 0;
    for (const auto& item : value.get_array()) walk(item, *items, below(path, i++));
  }

 private:
  const Json& root_;
  const std::function<void(const SchemaPlace&)>& visit_;
};

void collect_keys(const Json& reference, const Json& root, const std::string& path,
                  std::set<std::string>& out) {
  const Json& schema = resolved(&reference, root);
  const auto types = texts_of(find(schema, {"type"}));
  const bool map = std::ranges::find(types, "object") != types.end();
  if (!map || has(schema, {"properties"})) out.insert(path);
  if (map && takes_any_key(schema)) out.insert(path + ".*");
  for (const auto& [key, inner] : get_object(schema, {"properties"}))
    collect_keys(inner, root, below(path, key), out);
}

void collect_foreign(const Json& schema, std::set<std::string>& out) {
  static const std::set<std::string_view> kPlain = {"$schema", "title",     "description", "$ref",
                                                    "type",    "enum",      "pattern",     "minimum",
                                                    "maximum", "minLength", "maxLength",   "required"};
  if (!schema.is_object()) return;
  for (const auto& [key, inner] : schema.get_object()) {
    if (key == "properties" || key == "definitions") {
      for (const auto& [name, one] : inner.get_object()) collect_foreign(one, out);
    } else if (key == "items" || key == "additionalProperties" || key == "propertyNames" || key == "not") {
      collect_foreign(inner, out);
    } else if (!kPlain.contains(key)) {
      out.insert(std::string(key));
    }
  }
}

}  // namespace

std::string below(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}
std::string below(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

std::vector<SchemaFault> schema_faults(const Json& value, const Json& schema) {
  Checker checker(schema);
  checker.check(value, schema, "");
  return std::move(checker.faults);
}

std::set<std::string> foreign_keywords(const Json& schema) {
  std::set<std::string> out;
  collect_foreign(schema, out);
  return out;
}

std::set<std::string> schema_keys(const Json& schema) {
  std::set<std::string> out;
  for (const auto& [key, inner] : get_object(schema, {"properties"}))
    collect_keys(inner, schema, std::string(key), out);
  return out;
}

void visit_schema(const Json& value, const Json& schema,
                  const std::function<void(const SchemaPlace& place)>& visit) {
  Visitor(schema, visit).walk(value, schema, "");
}

bool takes_any_key(const Json& schema) {
  const Json* others = find(schema, {"additionalProperties"});
  if (others && others->is_bool()) return others->get_bool();
  return others || !has(schema, {"properties"});
}

}  // namespace gpuop::fleet

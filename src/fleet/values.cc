#include "fleet/values.h"

#include <algorithm>
#include <cstdio>
#include <regex>

#include "base/text.h"
#include "fleet/built_in.h"
#include "fleet/image_reference.h"
#include "fleet/own_images.h"

namespace gpuop::fleet {
namespace {

using Kind = ValuesFinding::Kind;

std::string under(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

// The value of a dotted key; null stands for absent, as in Helm.
const Json* lookup(const Json& values, std::string_view dotted) {
  const Json* at = &values;
  for (const auto& key : split(dotted, '.')) {
    at = at->is_object() ? at->as_object().if_contains(key) : nullptr;
    if (!at) return nullptr;
  }
  return at->is_null() ? nullptr : at;
}

// As Helm's `if` has it: null, false, 0 and what is empty are not set.
bool is_set(const Json* value) {
  if (!value) return false;
  switch (value->kind()) {
    case boost::json::kind::bool_:
      return value->get_bool();
    case boost::json::kind::int64:
      return value->get_int64() != 0;
    case boost::json::kind::uint64:
      return value->get_uint64() != 0;
    case boost::json::kind::double_:
      return value->get_double() != 0;
    case boost::json::kind::string:
      return !value->get_string().empty();
    case boost::json::kind::array:
      return !value->get_array().empty();
    case boost::json::kind::object:
      return !value->get_object().empty();
    default:
      return false;
  }
}

std::string shown(const Json& value) {
  if (value.is_double()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.15g", value.get_double());
    return text;
  }
  return value.is_string() ? str(as_text(value)) : to_text(value);
}

// Helm's merge: maps key by key, anything else replaced; null takes a default away.
void merge(Json& target, const Json& from) {
  if (!target.is_object() || !from.is_object()) {
    target = from;
    return;
  }
  for (const auto& [key, value] : from.as_object()) {
    if (value.is_null()) {
      target.as_object().erase(key);
    } else {
      merge(target.as_object()[key], value);
    }
  }
}

class Check {
 public:
  Check(const YamlDocument& values, const ValuesRules& rules) : values_(values), rules_(rules) {
    merged_ = rules.defaults;
    merge(merged_, values.value);
  }

  std::vector<ValuesFinding> run() {
    for (const auto& key : values_.duplicate_keys)
      add(Kind::kDuplicate, key, key, "is written twice; the last one counts");
    unknown_keys(values_.value, "");
    types(values_.value, rules_.schema, "");
    emptied_sections();
    images(merged_, values_.value, "");
    for (const auto& rule : rules_.advice) advise(rule);
    drop_advice_on_refused();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& a, const auto& b) { return a.line < b.line; });
    return std::move(found_);
  }
  std::vector<ValuesFinding> advice_only() {
    for (const auto& rule : rules_.advice) advise(rule);
    drop_advice_on_refused();
    return std::move(found_);
  }

 private:
  void add(Kind kind, const std::string& at, std::string path, std::string text) {
    found_.push_back({kind, std::move(path), values_.line_of(at), std::move(text)});
  }

  void unknown_keys(const Json& value, const std::string& path) {
    if (!value.is_object()) return;
    for (const auto& [key, inner] : value.as_object()) {
      const std::string at = under(path, key);
      if (rules_.keys.contains(at + ".*")) continue;
      if (rules_.keys.contains(at)) {
        unknown_keys(inner, at);
      } else {
        add(Kind::kUnknown, at, at,
            "no version of this chart has this key; it does nothing" + suggestion(path, key));
      }
    }
  }

  // The nearest sibling; else the key elsewhere whose last part is the same, which was put at the wrong
  // place.
  std::string suggestion(const std::string& path, std::string_view key) const {
    std::vector<std::string> siblings;
    std::string elsewhere;
    for (const auto& known : rules_.keys) {
      const std::string plain = known.ends_with(".*") ? known.substr(0, known.size() - 2) : known;
      const auto dot = plain.rfind('.');
      const std::string parent = dot == std::string::npos ? "" : plain.substr(0, dot);
      const std::string word = dot == std::string::npos ? plain : plain.substr(dot + 1);
      if (parent == path) siblings.push_back(word);
      if (elsewhere.empty() && key.size() > 5 && to_lower(word) == to_lower(key)) elsewhere = plain;
    }
    for (const auto& word : siblings) {
      if (to_lower(word) == to_lower(key)) return " (did you mean '" + under(path, word) + "'?)";
    }
    if (const auto near = nearest(key, siblings)) return " (did you mean '" + under(path, *near) + "'?)";
    return elsewhere.empty() ? "" : " (did you mean '" + elsewhere + "'?)";
  }

  // "driver:" with nothing behind it takes all of the section's defaults away, which the templates need.
  void emptied_sections() {
    if (!values_.value.is_object()) return;
    for (const auto& [key, value] : values_.value.as_object()) {
      const Json* usual = find(rules_.defaults, {key});
      if (value.is_null() && usual && usual->is_object() && !usual->as_object().empty())
        add(Kind::kRefused, under("", key), under("", key),
            "is empty, which takes its defaults away; remove the key, or write keys below it");
    }
  }

  // --- images ---

  // Sections with repository, image and version, of which the user set one.
  void images(const Json& section, const Json& mine, const std::string& path) {
    if (!section.is_object() || !mine.is_object()) return;
    for (const auto& [key, inner] : mine.as_object()) {
      if (const Json* all = find(section, {key})) images(*all, inner, under(path, key));
    }
    const bool named = has(mine, {"repository"}) || has(mine, {"image"}) || has(mine, {"version"});
    if (!named) return;
    const auto own = std::ranges::find_if(
        rules_.images, [&](const Json& entry) { return get_string(entry, {"key"}) == path; });
    if (own != rules_.images.end()) return own_section(section, path);
    OwnImage parts;
    for (auto& [key, part] : {std::pair{"repository", &parts.repository}, std::pair{"image", &parts.image},
                              std::pair{"version", &parts.version}}) {
      const Json* value = find(section, {key});
      if (!value || value->is_object() || value->is_array()) return;
      *part = shown(*value);
      if (part->empty()) return;
    }
    reference(parts, path);
  }

  void own_section(const Json& section, const std::string& path) {
    const auto image = own_image(rules_.images, path, merged_, rules_.app_version);
    reference(image, path);
    if (image.instead.empty()) return;
    const std::string key = under(path, image.instead);
    const Json* value = find(section, {image.instead});
    add(Kind::kNoEffect, key, key,
        "'" + shown(*value) + "': names upstream's program, which cannot serve this chart; " +
            image.reference() +
            " runs in its place. Instead: leave repository, image and version out, or name a copy of that "
            "image");
  }

  void reference(const OwnImage& parts, const std::string& path) {
    const std::string reference = parts.reference();
    if (is_image_reference(reference)) return;
    const std::string key = is_image_reference(parts.repository + "/" + parts.image) ? "version"
                            : is_image_reference(parts.repository + "/x")            ? "image"
                                                                                     : "repository";
    add(Kind::kBroken, under(path, key), under(path, key),
        "makes '" + reference + "', which is not an image reference; the operator refuses it");
  }

  // --- types ---

  const Json* resolved(const Json* schema) const {
    constexpr std::string_view kPrefix = "#/definitions/";
    const auto reference = get_string(*schema, {"$ref"});
    if (!reference.starts_with(kPrefix)) return schema;
    const Json* found = find(rules_.schema, {"definitions", reference.substr(kPrefix.size())});
    return found ? found : schema;
  }

  static bool has_type(const Json& value, std::string_view type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_bool();
    if (type == "string") return value.is_string();
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "integer") return value.is_int64() || value.is_uint64();
    return type == "number" && value.is_number();
  }

  static std::string type_name(const Json& value) {
    for (const char* type : {"null", "boolean", "string", "object", "array", "integer", "number"}) {
      if (has_type(value, type))
        return std::string(type) == "object" ? "map" : std::string(type) == "array" ? "list" : type;
    }
    return "value";
  }

  static std::vector<std::string> wanted_types(const Json& schema) {
    std::vector<std::string> types;
    const Json* type = find(schema, {"type"});
    if (!type) return types;
    if (type->is_string()) types.push_back(str(as_text(*type)));
    if (type->is_array()) {
      for (const auto& each : type->as_array()) types.push_back(str(as_text(each)));
    }
    return types;
  }

  void types(const Json& value, const Json& schema_or_reference, const std::string& path) {
    const Json& schema = *resolved(&schema_or_reference);
    const auto wanted = wanted_types(schema);
    if (!wanted.empty() &&
        std::ranges::none_of(wanted, [&](const auto& type) { return has_type(value, type); })) {
      std::vector<std::string> names;
      for (const auto& type : wanted) {
        if (type != "null") names.push_back(type == "object" ? "map" : type == "array" ? "list" : type);
      }
      return add(Kind::kRefused, path, path,
                 "must be a " + join(names, " or a ") + "; got the " + type_name(value) + " " +
                     (value.is_string() ? to_text(value) : shown(value)));
    }
    if (const Json* allowed = find(schema, {"enum"}); allowed && allowed->is_array())
      return choices(value, *allowed, path);
    if (const auto pattern = get_string(schema, {"pattern"});
        value.is_string() && !pattern.empty() &&
        !std::regex_search(str(as_text(value)), std::regex(str(pattern))))
      return add(Kind::kRefused, path, path,
                 "must be " + str(get_string(schema, {"description"})) + "; got " + to_text(value));
    if (value.is_object()) object_types(value.as_object(), schema, path);
    if (value.is_array()) {
      if (const Json* items = find(schema, {"items"})) {
        int i = 0;
        for (const auto& item : value.as_array()) types(item, *items, path + "[" + std::to_string(i++) + "]");
      }
    }
  }

  void choices(const Json& value, const Json& allowed, const std::string& path) {
    std::vector<std::string> words;
    for (const auto& each : allowed.as_array()) {
      if (each == value) return;
      if (each.is_string() && !as_text(each).empty()) words.push_back(str(as_text(each)));
    }
    add(Kind::kRefused, path, path,
        "must be one of " + join(words, ", ") + "; got " + shown(value) + did_you_mean(shown(value), words));
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

  void object_types(const JsonObject& value, const Json& schema, const std::string& path) {
    for (const auto& required : get_array(schema, {"required"})) {
      if (!value.contains(as_text(required)))
        add(Kind::kRefused, path, path,
            "must have the key '" + str(as_text(required)) + "'" +
                misspelt(as_text(required), value, schema));
    }
    const Json* others = find(schema, {"additionalProperties"});
    for (const auto& [key, inner] : value) {
      const Json* own = find(schema, {"properties", key});
      if (own || (others && others->is_object())) types(inner, own ? *own : *others, under(path, key));
    }
  }

  // --- advice ---

  void advise(const Json& rule) {
    const auto& keys = get_array(rule, {"keys"});
    if (keys.empty()) return advise(rule, std::string(get_string(rule, {"key"})));
    for (const Json& key : keys) advise(rule, str(as_text(key)));
  }

  void advise(const Json& rule, const std::string& key) {
    const Json* mine = lookup(values_.value, key);
    const Json* value = lookup(merged_, key);
    if (!value) return;
    const Json* env = find(rule, {"env"});
    if (!env) {
      // What the defaults alone say is not the user's doing.
      if (mine || concerns_user(rule)) apply(rule, key, key, *value);
      return;
    }
    if (!mine || !mine->is_array()) return;
    std::vector<std::string> names;
    if (env->is_string()) names.push_back(str(as_text(*env)));
    if (env->is_array()) {
      for (const auto& each : env->as_array()) names.push_back(str(as_text(each)));
    }
    int i = 0;
    for (const auto& variable : mine->as_array()) {
      const std::string at = key + "[" + std::to_string(i++) + "]";
      const std::string name(get_string(variable, {"name"}));
      const Json* set = find(variable, {"value"});
      if (std::ranges::find(names, name) != names.end())
        apply(rule, at, key + " " + name, set ? *set : Json(""));
    }
  }

  // What is refused need not be advised on.
  void drop_advice_on_refused() {
    std::set<std::string> refused;
    for (const auto& finding : found_) {
      if (finding.kind == Kind::kRefused) refused.insert(finding.path);
    }
    std::erase_if(found_, [&](const auto& finding) {
      return finding.kind == Kind::kNoEffect && refused.contains(finding.path);
    });
  }

  // A rule over several keys concerns the user who set any of them.
  bool concerns_user(const Json& rule) const {
    for (const char* list : {"with", "without"}) {
      for (const auto& key : get_array(rule, {list})) {
        if (lookup(values_.value, as_text(key))) return true;
      }
    }
    return false;
  }

  bool applies(const Json& rule, const Json& value) const {
    const std::string text = shown(value);
    if (const Json* wanted = find(rule, {"value"}); wanted && text != shown(*wanted)) return false;
    if (const auto other = get_string(rule, {"sameAs"}); !other.empty()) {
      const Json* same = lookup(merged_, other);
      if (!same || text != shown(*same)) return false;
    }
    if (const auto other = get_string(rule, {"differsFrom"}); !other.empty()) {
      const Json* same = lookup(merged_, other);
      if (same && text == shown(*same)) return false;
    }
    if (get_bool(rule, {"numeric"}) && (value.is_string() || !text.contains('.'))) return false;
    if (const auto suffix = get_string(rule, {"suffix"}); !suffix.empty() && !text.ends_with(suffix))
      return false;
    if (get_bool(rule, {"relative"}) && (text.empty() || text.starts_with('/'))) return false;
    if (get_bool(rule, {"notEmpty"}) && !is_set(&value)) return false;
    auto set = [this](const Json& key) { return is_set(lookup(merged_, as_text(key))); };
    if (!std::ranges::all_of(get_array(rule, {"with"}), set)) return false;
    const auto& without = get_array(rule, {"without"});
    return without.empty() || !std::ranges::all_of(without, set);
  }

  void apply(const Json& rule, const std::string& at, const std::string& name, const Json& value) {
    if (!applies(rule, value)) return;
    const bool refused = has(rule, {"refuse"});
    const std::string brief = value.is_object() || value.is_array() ? "" : "'" + shown(value) + "': ";
    const std::string text =
        refused ? str(get_string(rule, {"refuse"}))
                : str(get_string(rule, {"does"})) + ". Instead: " + str(get_string(rule, {"instead"}));
    add(refused ? Kind::kRefused : Kind::kNoEffect, at, name, brief + text);
  }

  const YamlDocument& values_;
  const ValuesRules& rules_;
  Json merged_;
  std::vector<ValuesFinding> found_;
};

}  // namespace

Result<ValuesRules> load_values_rules(const fs::path& chart) {
  ValuesRules rules;
  const std::string keys = TRY(read_file(chart / "files/keys.txt"));
  for (const auto& line : split(keys, '\n')) {
    if (!line.empty() && !line.starts_with('#')) rules.keys.insert(line);
  }
  const fs::path advice = chart / "files/advice.yaml";
  auto list = TRY(parse_yaml_one(TRY(read_file(advice)), advice.string()));
  if (!list.value.is_array()) return fail(Code::kInvalid, "read '" + advice.string() + "': must be a list");
  rules.advice = std::move(list.value.as_array());
  const fs::path images = chart / "files/images.yaml";
  auto known = TRY(parse_yaml_one(TRY(read_file(images)), images.string()));
  if (!known.value.is_array()) return fail(Code::kInvalid, "read '" + images.string() + "': must be a list");
  rules.images = std::move(known.value.as_array());
  const fs::path about = chart / "Chart.yaml";
  const Json described = TRY(parse_yaml_one(TRY(read_file(about)), about.string())).value;
  rules.app_version = std::string(get_string(described, {"appVersion"}));
  rules.schema = TRY_IN(parse_json(TRY(read_file(chart / "values.schema.json"))),
                        "read '" + (chart / "values.schema.json").string() + "'");
  const fs::path defaults = chart / "values.yaml";
  rules.defaults = TRY(parse_yaml_one(TRY(read_file(defaults)), defaults.string())).value;
  return rules;
}

std::vector<ValuesFinding> check_values(const YamlDocument& values, const ValuesRules& rules) {
  return Check(values, rules).run();
}

std::vector<ValuesFinding> check_policy_env(const Json& spec) {
  static const ValuesRules kRules = [] {
    ValuesRules rules;
    const auto list = parse_yaml_one(kAdviceYaml, "advice.yaml");
    if (!list || !list->value.is_array()) return rules;  // the chart's own tests read it too
    for (const Json& rule : list->value.get_array()) {
      if (has(rule, {"env"}) || get_bool(rule, {"policy"})) rules.advice.push_back(rule);
    }
    return rules;
  }();
  YamlDocument document;
  document.value = spec;
  // What the operator assumes where nothing is said.
  for (const char* block : {"cdi", "toolkit", "devicePlugin"}) {
    if (!has(spec, {block, "enabled"})) set(document.value, {block, "enabled"}, true);
  }
  if (get_string(spec, {"operator", "runtimeClass"}).empty())
    set(document.value, {"operator", "runtimeClass"}, "nvidia");
  return Check(document, kRules).advice_only();
}

bool installable(const std::vector<ValuesFinding>& findings) {
  return std::ranges::none_of(findings, [](const auto& finding) {
    return finding.kind == Kind::kRefused || finding.kind == Kind::kBroken;
  });
}

}  // namespace gpuop::fleet

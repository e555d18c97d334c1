#include "fleet/values.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "base/text.h"
#include "base/version.h"
#include "fleet/built_in.h"
#include "fleet/image_reference.h"
#include "fleet/own_images.h"
#include "fleet/value_schema.h"

namespace gpuop::fleet {
namespace {

using Kind = ValuesFinding::Kind;

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
  return plain_text(value);
}

// Several files: the later wins, maps key by key; null stays, for it takes a default away.
void merge_files(Json& target, const Json& from) {
  if (!target.is_object() || !from.is_object()) {
    target = from;
    return;
  }
  for (const auto& [key, value] : from.as_object()) merge_files(target.as_object()[key], value);
}

// The user's values over the chart's: null goes with the default that it takes away, and stays where there is
// none.
void merge_defaults(Json& mine, const Json& defaults) {
  if (!mine.is_object() || !defaults.is_object()) return;
  for (const auto& [key, value] : defaults.as_object()) {
    Json* own = mine.as_object().if_contains(key);
    if (!own) {
      mine.as_object()[key] = value;
    } else if (own->is_null()) {
      mine.as_object().erase(key);
    } else {
      merge_defaults(*own, value);
    }
  }
}

// The keys of the chart, as misspelt ones ask for them.
struct KeyIndex {
  KeyIndex() = default;
  explicit KeyIndex(const Json& schema) : all(schema_keys(schema)) {
    for (const auto& known : all) {
      const std::string plain = known.ends_with(".*") ? known.substr(0, known.size() - 2) : known;
      const auto dot = plain.rfind('.');
      const std::string word = dot == std::string::npos ? plain : plain.substr(dot + 1);
      below[dot == std::string::npos ? "" : plain.substr(0, dot)].push_back(word);
      by_word[to_lower(word)].push_back(plain);
    }
  }

  std::set<std::string> all;
  std::map<std::string, std::vector<std::string>> below;    // a path's own keys
  std::map<std::string, std::vector<std::string>> by_word;  // paths by their last part, in small letters
};

class Check {
 public:
  Check(std::span<const YamlDocument> files, const ValuesRules& rules) : files_(files), rules_(rules) {
    mine_ = JsonObject{};
    for (const auto& file : files) merge_files(mine_, file.value);
    merged_ = mine_;
    merge_defaults(merged_, rules.defaults);
  }

  std::vector<ValuesFinding> run(const MoreFaults& more) {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      for (const auto& key : files_[i].duplicate_keys)
        found_.push_back(
            {Kind::kDuplicate, key, files_[i].line_of(key), "is written twice; the last one counts", i});
    }
    for (auto& fault : schema_faults(merged_, rules_.schema))
      add(Kind::kRefused, fault.path, fault.path, fault.text, fault.meant);
    unknown_keys();
    faults(field_faults(merged_, rules_.schema));
    if (more) faults(more(merged_));
    images(merged_, mine_, "");
    for (const auto& rule : rules_.advice) advise(rule);
    drop_advice_on_refused();
    std::stable_sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.file, a.line) < std::pair(b.file, b.line);
    });
    return std::move(found_);
  }
  std::vector<ValuesFinding> advice_only() {
    for (const auto& rule : rules_.advice) advise(rule);
    drop_advice_on_refused();
    return std::move(found_);
  }

 private:
  void faults(const std::vector<FieldFault>& all) {
    for (const auto& fault : all)
      add(fault.refused ? Kind::kBroken : Kind::kNoEffect, fault.path, fault.path, fault.text);
  }

  // Where the last file that has this key, or the nearest one above it, has it.
  void add(Kind kind, const std::string& at, std::string path, std::string text, std::string meant = {}) {
    std::size_t file = 0;
    std::size_t depth = 0;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      std::string known = at;
      while (!known.empty() && !files_[i].lines.contains(known)) {
        const auto cut = known.find_last_of(".[");
        known.resize(cut == std::string::npos ? 0 : cut);
      }
      if (known.size() < depth || (known.empty() && !files_[i].lines.contains(known))) continue;
      depth = known.size();
      file = i;
    }
    const int line = files_.empty() ? 0 : files_[file].line_of(at);
    found_.push_back({kind, std::move(path), line, std::move(text), file, std::move(meant)});
  }

  std::set<std::string> refused_paths() const {
    std::set<std::string> out;
    for (const auto& one : found_) {
      if (one.kind == Kind::kRefused) out.insert(one.path);
    }
    return out;
  }

  void unknown_keys() {
    std::vector<std::pair<std::string, std::string>> unknown;  // parent, key
    visit_schema(mine_, rules_.schema, [&](const SchemaPlace& place) {
      if (!place.value.is_object() || takes_any_key(place.schema)) return;
      for (const auto& [key, inner] : place.value.get_object()) {
        if (!has(place.schema, {"properties", key})) unknown.emplace_back(place.path, key);
      }
    });
    if (!unknown.empty()) keys_ = KeyIndex(rules_.schema);
    const auto refused = refused_paths();
    for (const auto& [parent, key] : unknown) {
      const std::string at = below(parent, key);
      const std::string path = key.empty() ? below(parent, "''") : at;
      if (refused.contains(at)) continue;
      if (parent.ends_with(']')) {
        add(Kind::kUnknown, at, path, "is no key here; it does nothing" + sibling(parent, key));
      } else if (key.contains('.') && keys_.all.contains(at)) {
        add(Kind::kUnknown, at, path,
            "is one key with dots in it, which does nothing; in a file each part is a key of its own: " +
                parts_of(key));
      } else {
        const std::string known = foreign(at);
        const std::string meant = known.empty() ? suggestion(parent, key) : "";
        add(Kind::kUnknown, at, path,
            "this chart has no such key; it does nothing" + (known.empty() ? "" : "; " + known) +
                (meant.empty() ? "" : " (did you mean '" + meant + "'?)"),
            meant);
      }
    }
  }

  // "a.b.c" → "a: {b: {c: …}}".
  static std::string parts_of(std::string_view key) {
    const auto parts = split(key, '.');
    std::string out = parts.back() + ": …";
    for (auto part = parts.rbegin() + 1; part != parts.rend(); ++part) out = *part + ": {" + out + "}";
    return out;
  }

  // What is known of a key that is not the chart's.
  std::string foreign(const std::string& path) const {
    const auto dot = path.rfind('.');
    const std::string last = dot == std::string::npos ? "" : "*" + path.substr(dot);
    for (const auto& one : rules_.foreign) {
      const auto key = get_string(one, {"key"});
      if (key == path || (!last.empty() && key == last)) return std::string(get_string(one, {"says"}));
    }
    return "";
  }

  // The key of a list's item that was meant.
  std::string sibling(const std::string& parent, const std::string& key) const {
    std::string out;
    visit_schema(mine_, rules_.schema, [&](const SchemaPlace& place) {
      if (place.path != parent) return;
      std::vector<std::string> known;
      for (const auto& [name, inner] : get_object(place.schema, {"properties"})) known.emplace_back(name);
      out = did_you_mean(key, known);
    });
    return out;
  }

  // The path that was meant, or "": the nearest sibling; else the key elsewhere whose last part is the same,
  // which was put at the wrong place: in the same section, or high up.
  std::string suggestion(const std::string& path, std::string_view key) const {
    const auto siblings = keys_.below.find(path);
    if (siblings != keys_.below.end()) {
      for (const auto& word : siblings->second) {
        if (to_lower(word) == to_lower(key)) return below(path, word);
      }
      if (const auto near = nearest(key, siblings->second)) return below(path, *near);
    }
    const auto elsewhere = keys_.by_word.find(to_lower(key));
    if (key.size() <= 5 || elsewhere == keys_.by_word.end()) return "";
    const std::string section = path.substr(0, std::min(path.find('.'), path.size())) + ".";
    const auto first = [&](const auto& wanted) {
      const auto found = std::ranges::find_if(elsewhere->second, wanted);
      return found == elsewhere->second.end() ? std::string() : *found;
    };
    auto same_section = first([&](const std::string& known) { return known.starts_with(section); });
    if (!same_section.empty()) return same_section;
    return first([](const std::string& known) { return std::ranges::count(known, '.') < 2; });
  }

  // --- images ---

  // Sections with repository, image and version, of which the user set one. An image alone is the whole
  // reference. What is switched off runs none.
  void images(const Json& section, const Json& mine, const std::string& path) {
    if (!section.is_object() || !mine.is_object() || is_off(section, path)) return;
    for (const auto& [key, inner] : mine.as_object()) {
      if (const Json* all = find(section, {key})) images(*all, inner, below(path, key));
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
      if (value && (value->is_object() || value->is_array())) return;
      if (value && !value->is_null()) *part = shown(*value);
    }
    if (parts.image.empty()) return;
    reference(parts, path);
  }

  bool is_off(const Json& section, const std::string& path) const {
    static const std::set<std::string> kOfMachines = {"vgpuManager",         "vgpuDeviceManager",
                                                      "vfioManager",         "ccManager",
                                                      "sandboxDevicePlugin", "kataSandboxDevicePlugin"};
    if (kOfMachines.contains(path) && !is_set(lookup(merged_, "sandboxWorkloads.enabled"))) return true;
    if (path == "draDriver" && !is_set(lookup(merged_, "gpuCluster.deployCR"))) return true;
    if (path == "operator.initContainer" || path == "kataManager") return true;  // ignored
    const Json* enabled = find(section, {"enabled"});
    return enabled && enabled->is_bool() && !enabled->get_bool();
  }

  void own_section(const Json& section, const std::string& path) {
    const auto image = own_image(rules_.images, path, merged_, rules_.app_version);
    reference(image, path);
    if (image.instead.empty()) return;
    const std::string key = below(path, image.instead);
    const Json* value = find(section, {image.instead});
    add(Kind::kNoEffect, key, key,
        "'" + shown(*value) + "': names upstream's program, which cannot serve this chart; " +
            image.reference() +
            " runs in its place. Instead: leave repository, image and version out, or name a copy of that "
            "image");
  }

  void reference(const OwnImage& parts, const std::string& path) {
    if (parts.version.empty() != parts.repository.empty()) {
      const std::string key = below(path, parts.version.empty() ? "version" : "repository");
      return add(Kind::kBroken, key, key,
                 "is empty; the operator needs repository, image and version, or an image alone");
    }
    const std::string reference = parts.reference();
    if (is_image_reference(reference)) return;
    const std::string key = parts.repository.empty() || !is_image_reference(parts.repository + "/x")
                                ? (parts.repository.empty() ? "image" : "repository")
                            : is_image_reference(parts.repository + "/" + parts.image) ? "version"
                                                                                       : "image";
    add(Kind::kBroken, below(path, key), below(path, key),
        "makes '" + reference + "', which is not an image reference; the operator refuses it");
  }

  // --- advice ---

  void advise(const Json& rule) {
    const auto& keys = get_array(rule, {"keys"});
    if (keys.empty()) return advise(rule, std::string(get_string(rule, {"key"})));
    for (const Json& key : keys) advise(rule, str(as_text(key)));
  }

  void advise(const Json& rule, const std::string& key) {
    const Json* mine = lookup(mine_, key);
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
    const auto refused = refused_paths();
    std::erase_if(found_, [&](const auto& finding) {
      return finding.kind == Kind::kNoEffect && refused.contains(finding.path);
    });
  }

  // A rule over several keys concerns the user who set any of them.
  bool concerns_user(const Json& rule) const {
    for (const char* list : {"with", "without"}) {
      for (const auto& key : get_array(rule, {list})) {
        if (lookup(mine_, as_text(key))) return true;
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

  std::span<const YamlDocument> files_;
  const ValuesRules& rules_;
  Json mine_;      // what the files set
  Json merged_;    // with the chart's defaults
  KeyIndex keys_;  // once it is asked for
  std::vector<ValuesFinding> found_;
};

// The chart's own tests read the built-in files too: they are well-formed.
JsonArray built_in_advice() {
  return parse_yaml_one(kAdviceYaml, "advice.yaml").value().value.as_array();
}

}  // namespace

const ValuesRules& chart_rules() {
  static const ValuesRules kRules = [] {
    ValuesRules rules;
    rules.advice = built_in_advice();
    rules.images = parse_yaml_one(kImagesYaml, "images.yaml").value().value.as_array();
    rules.foreign = parse_yaml_one(kForeignYaml, "foreign.yaml").value().value.as_array();
    rules.app_version = GPUOP_VERSION;
    rules.schema = parse_json(kValuesSchema).value();
    rules.defaults = parse_yaml_one(kValuesYaml, "values.yaml").value().value;
    return rules;
  }();
  return kRules;
}

std::string keys_file(const Json& schema) {
  std::string out =
      "# Every key of the values, one a line; \"*\": whatever lies below belongs to the user or to another "
      "schema.\n"
      "# The install notes name keys that are not here. Made from values.schema.json; do not edit.\n";
  for (const auto& key : schema_keys(schema)) out += key + "\n";
  return out;
}

std::vector<ValuesFinding> check_values(std::span<const YamlDocument> files, const ValuesRules& rules,
                                        const MoreFaults& more) {
  return Check(files, rules).run(more);
}

Json merged_values(std::span<const YamlDocument> files, const Json& defaults) {
  Json out = JsonObject{};
  for (const auto& file : files) merge_files(out, file.value);
  merge_defaults(out, defaults);
  return out;
}

std::vector<ValuesFinding> check_policy_env(const Json& spec) {
  static const ValuesRules kRules = [] {
    ValuesRules rules;
    const JsonArray advice = built_in_advice();
    for (const Json& rule : advice) {
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
  for (const auto& [taint, key] : {std::pair("startupTaint", "nvidia.com/gpu.not-ready"),
                                   std::pair("dedicatedTaint", "nvidia.com/gpu")}) {
    if (get_string(spec, {"fleet", taint, "key"}).empty()) set(document.value, {"fleet", taint, "key"}, key);
  }
  return Check({&document, 1}, kRules).advice_only();
}

std::string no_values_file(const Json& value) {
  const auto kind = get_string(value, {"kind"});
  if (kind.empty() || get_string(value, {"apiVersion"}).empty()) return "";
  static const std::map<std::string_view, const char*> kPlaces = {
      {"HelmRelease", "spec.values"},
      {"HelmChart", "spec.valuesContent"},
      {"HelmChartConfig", "spec.valuesContent"},
      {"Application", "spec.source.helm.values or valuesObject"}};
  const auto place = kPlaces.find(kind);
  return "is a " + str(kind) + ", not a values file" +
         (place == kPlaces.end() ? "" : "; give what is in " + std::string(place->second) + " alone");
}

bool installable(const std::vector<ValuesFinding>& findings) {
  return std::ranges::none_of(findings, [](const auto& finding) {
    return finding.kind == Kind::kRefused || finding.kind == Kind::kBroken;
  });
}

}  // namespace gpuop::fleet

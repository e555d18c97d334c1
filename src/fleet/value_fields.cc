#include "fleet/value_fields.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/yaml.h"
#include "fleet/value_schema.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

class Fields {
 public:
  void look(const SchemaPlace& place) {
    const std::string_view last = std::string_view(place.path).substr(place.path.rfind('.') + 1);
    if (place.form == "toleration") return toleration(place.value, place.path);
    if (place.form == "nodeRequirement" || place.form == "labelRequirement")
      return requirement(place.value, place.path);
    if (place.form == "resources" || place.form == "operatorResources")
      return resources(place.value, place.path);
    if (place.form == "env" || place.form == "operatorEnv") return variables(place.value, place.path);
    if (place.form == "dataKeys") return data_keys(place.value, place.path);
    if (place.path.starts_with("extraObjects[")) return extra_object(place.value, place.path);
    if (last == "podSelector") return selector(place.value, place.path);
    if (last == "imagePullPolicy") return pull_policy(place.value, place.path);
  }
  std::vector<FieldFault> found;

 private:
  void refuse(const std::string& path, const std::string& text) {
    found.push_back({path, text + "; the API server refuses it"});
  }

  void toleration(const Json& value, const std::string& path) {
    const auto how = get_string(value, {"operator"}, "Equal");
    const auto given = get_string(value, {"value"});
    if (how == "Exists" && !given.empty())
      refuse(below(path, "value"), "must be empty with operator Exists; got '" + str(given) + "'");
    if (how != "Exists" && get_string(value, {"key"}).empty())
      refuse(below(path, "operator"), "must be Exists where no key is given, which means every taint");
    const Json* seconds = find(value, {"tolerationSeconds"});
    if (seconds && !seconds->is_null() && get_string(value, {"effect"}) != "NoExecute")
      refuse(below(path, "effect"), "must be NoExecute where tolerationSeconds is given");
  }

  // Of affinity: how many values its operator takes.
  void requirement(const Json& value, const std::string& path) {
    const auto how = get_string(value, {"operator"});
    const auto& values = get_array(value, {"values"});
    const std::string at = below(path, "values");
    if ((how == "In" || how == "NotIn") && values.empty())
      refuse(at, "must not be empty with operator " + str(how));
    if ((how == "Exists" || how == "DoesNotExist") && !values.empty())
      refuse(at, "must be empty with operator " + str(how));
    const bool number = values.size() == 1 && values[0].is_string() && parse_int(as_text(values[0]));
    if ((how == "Gt" || how == "Lt") && !number)
      refuse(at, "must be one whole number with operator " + str(how));
  }

  static bool is_extended(std::string_view name) {
    const auto slash = name.find('/');
    if (slash == std::string_view::npos) return false;
    const auto domain = name.substr(0, slash);
    return domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io");
  }

  void resources(const Json& value, const std::string& path) {
    const auto& limits = get_object(value, {"limits"});
    for (const char* list : {"limits", "requests"}) {
      for (const auto& [name, amount] : get_object(value, {list}))
        resource(limits, list, str(name), amount, below(below(path, list), name));
    }
  }

  void resource(const JsonObject& limits, std::string_view list, const std::string& name, const Json& amount,
                const std::string& path) {
    static constexpr std::array<std::string_view, 3> kOwn = {"cpu", "memory", "ephemeral-storage"};
    const bool extended = is_extended(name);
    if (!extended && std::ranges::find(kOwn, name) == kOwn.end() && !name.starts_with("hugepages-")) {
      const std::vector<std::string> known(kOwn.begin(), kOwn.end());
      return refuse(path,
                    "must be cpu, memory, ephemeral-storage, hugepages-SIZE or a resource with a domain" +
                        did_you_mean(name, known));
    }
    const auto asked = kube::parse_quantity_milli(amount);
    if (!asked) return;  // the schema says so
    if (extended && *asked % 1000 != 0) refuse(path, "must be a whole number; got " + plain_text(amount));
    if (list != "requests") return;
    const Json* limit = limits.if_contains(name);
    const auto most = limit ? kube::parse_quantity_milli(*limit) : asked;
    if (extended && !limit) return refuse(path, "needs the same limit: " + name + " cannot be overcommitted");
    if (most && (extended ? *asked != *most : *asked > *most))
      refuse(path, std::string("must be ") + (extended ? "the limit, " : "at most the limit, ") +
                       plain_text(*limit) + "; got " + plain_text(amount));
  }

  void variables(const Json& value, const std::string& path) {
    if (!value.is_array()) return;
    std::size_t i = 0;
    for (const auto& variable : value.get_array()) {
      const std::string at = below(path, i++);
      if (has(variable, {"valueFrom"}) && !get_string(variable, {"value"}).empty())
        refuse(below(at, "valueFrom"), "must not be given beside value");
      if (const auto name = get_string(variable, {"name"}); !is_classic(name))
        found.push_back(
            {below(at, "name"),
             "'" + str(name) +
                 "' is refused by Kubernetes before 1.32, which takes letters, digits, '_', '-' and "
                 "'.' and no digit first",
             false});
    }
  }

  static bool is_classic(std::string_view name) {
    const auto letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.';
    };
    if (name.empty()) return true;
    return letter(name[0]) &&
           std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
  }

  void data_keys(const Json& value, const std::string& path) {
    if (!value.is_object()) return;
    for (const auto& [key, inner] : value.get_object()) {
      if (key == "." || std::string_view(key).starts_with(".."))
        refuse(below(path, key), "a file's name must not be '.' or begin with '..'");
    }
  }

  // What every object has. Helm puts a text through its templates first: what has none can be read as it is.
  void extra_object(const Json& value, const std::string& path) {
    if (path.find(']') + 1 != path.size()) return;
    if (value.is_object()) return object(value, path);
    if (!value.is_string()) return;  // the schema says so
    const std::string text = str(as_text(value));
    if (text.find("{{") != std::string::npos) return;
    const auto documents = parse_yaml(text, path);
    if (!documents) {
      found.push_back({path, documents.error().text() + "; helm refuses it"});
      return;
    }
    for (const YamlDocument& one : *documents) object(one.value, path);
  }

  void object(const Json& value, const std::string& path) {
    if (!value.is_object()) {
      found.push_back({path, "must be an object with apiVersion and kind; helm refuses it"});
      return;
    }
    for (const char* key : {"apiVersion", "kind"}) {
      if (get_string(value, {key}).empty()) return refuse(path, "must have apiVersion and kind, both texts");
    }
    const bool list = get_string(value, {"kind"}).ends_with("List") && has(value, {"items"});
    if (!list && get_string(value, {"metadata", "name"}).empty() &&
        get_string(value, {"metadata", "generateName"}).empty())
      refuse(path, str(get_string(value, {"kind"})) + " must have metadata.name, a text");
  }

  void selector(const Json& value, const std::string& path) {
    if (!value.is_string()) return;
    const auto parsed = kube::LabelSelector::parse(as_text(value));
    if (!parsed)
      found.push_back({path, "must be a label selector such as app=train; got " + to_text(value) +
                                 "; the operator cannot carry it out"});
  }

  void pull_policy(const Json& value, const std::string& path) {
    if (!value.is_string() || as_text(value).empty()) return;
    static const std::vector<std::string> kKnown = {"Always", "IfNotPresent", "Never"};
    const std::string given = str(as_text(value));
    if (std::ranges::find(kKnown, given) != kKnown.end()) return;
    found.push_back({path,
                     "'" + given + "' counts as IfNotPresent; write Always, IfNotPresent or Never" +
                         did_you_mean(given, kKnown),
                     false});
  }
};

}  // namespace

std::vector<FieldFault> field_faults(const Json& values, const Json& schema) {
  Fields fields;
  visit_schema(values, schema, [&](const SchemaPlace& place) { fields.look(place); });
  return std::move(fields.found);
}

}  // namespace gpuop::fleet

#include <algorithm>
#include <set>

#include "base/text.h"
#include "base/yaml.h"
#include "fleet/value_schema.h"
#include "fleet/values.h"
#include "kube/object.h"
#include "policy/cluster_policy.h"
#include "policy/crds.h"
#include "policy/gpu_cluster.h"
#include "policy/nvidia_driver.h"
#include "preflight/config_texts.h"

namespace gpuop::preflight {
namespace {

using fleet::below;
using Faults = std::vector<fleet::FieldFault>;

constexpr std::string_view kGroup = "nvidia.com/";
constexpr const char* kServer = "; the API server refuses it";

// Helm puts objects and texts through its templates first.
bool has_templates(std::string_view text) {
  return text.find("{{") != std::string_view::npos;
}

// The kinds that are ours, with their apiVersion.
const std::map<std::string, std::string>& own_kinds() {
  static const std::map<std::string, std::string> kKinds = [] {
    std::map<std::string, std::string> kinds;
    for (const Json& crd : policy::crds())
      kinds[str(get_string(crd, {"spec", "names", "kind"}))] =
          str(get_string(crd, {"spec", "group"})) + "/" +
          str(get_string(get_array(crd, {"spec", "versions"}).front(), {"name"}));
    return kinds;
  }();
  return kKinds;
}

// "load NVIDIADriver 'a': spec.nodeSelector: must …" as the field's.
Faults refusal(const Error& error, std::string_view kind, std::string_view name) {
  std::string text = error.text();
  const std::string start = "load " + std::string(kind) + " '" + std::string(name) + "': ";
  if (text.starts_with(start)) text.erase(0, start.size());
  const auto colon = text.find(": ");
  if (!text.starts_with("spec") || colon == std::string::npos) return {{"spec", text}};
  return {{text.substr(0, colon), text.substr(colon + 2)}};
}

// What only the whole object tells, once its fields are good: rules between them, and what would harm nodes.
Faults rules_of(const Json& object, std::string_view kind) {
  const auto name = kube::name_of(object);
  const auto refused = [&](const auto& read) { return read ? Faults{} : refusal(read.error(), kind, name); };
  if (kind == "NVIDIADriver") return refused(policy::parse_nvidia_driver(object));
  if (kind == "GPUCluster") return refused(policy::parse_gpu_cluster(object));
  const auto read = policy::parse_cluster_policy(object);
  if (!read) return refused(read);
  if (const auto good = policy::check(read->spec); !good) return refused(good);
  Faults out;
  const Json* spec = find(object, {"spec"});
  for (const auto& one : fleet::check_policy_env(*spec))
    out.push_back({"spec." + one.path, one.text, one.kind == fleet::ValuesFinding::Kind::kRefused});
  return out;
}

Faults own_kind(const Json& object) {
  const std::string kind(get_string(object, {"kind"}));
  const std::string version(get_string(object, {"apiVersion"}));
  const auto own = own_kinds().find(kind);
  if (own == own_kinds().end()) {
    std::vector<std::string> kinds;
    for (const auto& [name, its_version] : own_kinds()) kinds.push_back(name);
    const std::string meant = version.starts_with(kGroup) ? did_you_mean(kind, kinds) : "";
    return meant.empty() ? Faults{} : Faults{{"kind", "is no kind of " + version + meant + kServer}};
  }
  if (version != own->second) {
    if (!version.starts_with(kGroup)) return {};  // somebody else's kind of the same name
    return {{"apiVersion", "must be " + own->second + " for a " + kind + "; got " + version + kServer}};
  }
  Faults out;
  bool refused = false;
  for (auto& one : policy::spec_faults(object)) {
    refused = refused || one.refused;
    out.push_back({one.path, one.text + (one.refused ? kServer : ""), one.refused});
  }
  if (refused) return out;
  for (auto& one : rules_of(object, kind)) out.push_back(std::move(one));
  return out;
}

Faults plain_config_map(const Json& object) {
  Faults out;
  for (const auto& [key, value] : get_object(object, {"data"})) {
    const std::string at = below("data", key);
    if (!value.is_string() && !value.is_null())
      out.push_back({at, "must be a text; got " + to_text(value) + " (put it in quotes)" + kServer});
    if (key.empty() || key.size() > 253 || key == "." || std::string_view(key).starts_with("..") ||
        !std::ranges::all_of(key, [](char c) {
          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                 c == '_' || c == '.';
        }))
      out.push_back(
          {at, std::string("the key must be a file's name: letters, digits, '-', '_' and '.'") + kServer});
  }
  if (const Json* data = find(object, {"data"}); data && !data->is_object() && !data->is_null())
    out.push_back({"data", "must be a map; got " + to_text(*data) + kServer});
  return out;
}

class Objects {
 public:
  explicit Objects(const Json& values) : values_(values) {}

  Faults run() {
    const auto& items = get_array(values_, {"extraObjects"});
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string at = below("extraObjects", i);
      if (items[i].is_object()) {
        objects_.push_back({at, items[i], false});
      } else if (items[i].is_string()) {
        texts(at, str(as_text(items[i])));
      }
    }
    read_policies();
    for (const Object& one : objects_) object(one);
    return std::move(found_);
  }

 private:
  struct Object {
    std::string at;
    Json value;
    bool text;  // has no paths of its own in the file
  };

  void texts(const std::string& at, const std::string& text) {
    if (has_templates(text)) return;
    const auto documents = parse_yaml(text, at);
    if (!documents) return;  // told by the field
    for (const auto& document : *documents) objects_.push_back({at, document.value, true});
  }

  void add(const Object& of, fleet::FieldFault fault) {
    if (of.text) {
      fault.text = str(get_string(of.value, {"kind"})) + " '" + str(kube::name_of(of.value)) +
                   "': " + fault.path + ": " + fault.text;
      fault.path = of.at;
    } else {
      fault.path = below(of.at, fault.path);
    }
    found_.push_back(std::move(fault));
  }

  void object(const Object& one) {
    if (has_templates(to_text(one.value))) return;
    for (auto& fault : own_kind(one.value)) add(one, std::move(fault));
    const auto kind = get_string(one.value, {"kind"});
    if (kind == "ClusterPolicy") second_policy(one);
    if (kind != "ConfigMap" || get_string(one.value, {"apiVersion"}) != "v1") return;
    auto wrong = plain_config_map(one.value);
    const bool sound = wrong.empty();
    for (auto& fault : wrong) add(one, std::move(fault));
    if (sound) configuration(one);
  }

  void second_policy(const Object& one) {
    const bool charts = get_bool(values_, {"clusterPolicy", "deployCR"}, true);
    if (!charts && &one == first_policy_) return;
    add(one, {"kind",
              std::string("the operator follows one ClusterPolicy, and ignores this beside ") +
                  (charts ? "the chart's. Instead: clusterPolicy.deployCR=false" : "the first"),
              false});
  }

  void read_policies() {
    for (const Object& one : objects_) {
      const Json* spec = find(one.value, {"spec"});
      if (get_string(one.value, {"kind"}) != "ClusterPolicy") continue;
      if (!first_policy_) first_policy_ = &one;
      if (!spec || !spec->is_object()) continue;
      if (auto stored = policy::stored_spec("ClusterPolicy", *spec)) specs_.push_back(std::move(*stored));
    }
  }

  // Whom a ConfigMap configures.
  void configuration(const Object& one) {
    if (get_bool(values_, {"clusterPolicy", "deployCR"}, true)) configuration(one, values_);
    for (const Json& spec : specs_) configuration(one, spec);
  }
  void configuration(const Object& one, const Json& values) {
    for (auto& fault : config_map_faults(values, one.value)) {
      if (fault.path.starts_with("data")) {
        add(one, std::move(fault));
      } else {
        found_.push_back(std::move(fault));
      }
    }
  }

  const Json& values_;
  std::vector<Object> objects_;
  const Object* first_policy_ = nullptr;
  std::vector<Json> specs_;  // of the ClusterPolicies among them, with their defaults
  Faults found_;
};

}  // namespace

Faults extra_object_faults(const Json& values) {
  return Objects(values).run();
}

}  // namespace gpuop::preflight

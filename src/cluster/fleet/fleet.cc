#include "cluster/fleet/fleet.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/text.h"
#include "base/yaml_place.h"
#include "cluster/runtime/engine_config.h"
#include "kube/object.h"

namespace gpuop::cluster {
namespace {

constexpr int kMostNodes = 1000;
constexpr int kMostHollow = 20000;
constexpr int kMostGpus = 16;  // boards of the fake hardware's state

using Place = YamlPlace;

bool is_dns_label(std::string_view name) {
  auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 63 || !alnum(name.front()) || !alnum(name.back())) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return alnum(c) || c == '-'; });
}

Result<> read_os(const Place& place, FleetNode& node) {
  static const std::vector<std::string> kKnown{"ubuntu", "debian", "rhel", "rocky",    "ol",
                                               "centos", "fedora", "sles", "sl-micro", "rhcos"};
  std::string os = TRY(place.text("os", "ubuntu22.04"));
  std::size_t digit = os.find_first_of("0123456789");
  if (digit == 0 || digit == std::string::npos) {
    return place.wrong("os", "must be an os-release ID and VERSION_ID such as ubuntu22.04; got '" + os + "'");
  }
  node.os_id = os.substr(0, digit);
  node.os_version = os.substr(digit);
  if (std::find(kKnown.begin(), kKnown.end(), node.os_id) == kKnown.end()) {
    return place.wrong("os", "no such system '" + node.os_id + "'; known are " + join(kKnown, ", ") +
                                 did_you_mean(node.os_id, kKnown));
  }
  return {};
}

bool is_among(const std::vector<std::string>& models, const std::string& model) {
  return models.empty() ||
         std::ranges::any_of(models, [&](const auto& known) { return to_lower(known) == to_lower(model); });
}

Result<> read_gpus(const Place& place, FleetNode& node, const std::vector<std::string>& models) {
  if (place.has("gpus")) {
    Place gpus = place.child("gpus", place.at("gpus"));
    TRY(gpus.only({"model", "count"}));
    node.gpu_model = TRY(gpus.text("model", ""));
    node.gpu_count = static_cast<int>(TRY(gpus.number("count", 1, 0, kMostGpus)));
    if (node.gpu_model.empty()) return gpus.wrong("model", "must be given");
    if (!is_among(models, node.gpu_model)) {
      return gpus.wrong("model", "no such model '" + node.gpu_model + "'; known are " + join(models, ", ") +
                                     did_you_mean(node.gpu_model, models));
    }
    if (node.gpu_count == 0) node.gpu_model.clear();
  }
  std::string driver = TRY(place.choice("driver", node.gpu_count > 0 ? "container" : "none",
                                        {"preinstalled", "container", "none"}));
  node.driver = driver == "preinstalled" ? DriverSource::kPreinstalled
                : driver == "container"  ? DriverSource::kContainer
                                         : DriverSource::kNone;
  node.driver_version = TRY(place.text("driverVersion", ""));
  if (node.driver == DriverSource::kPreinstalled) {
    if (node.gpu_count == 0) return place.wrong("driver", "a node without GPUs has no preinstalled driver");
    if (node.driver_version.empty()) node.driver_version = "580.95.05";
    bool version = std::isdigit(static_cast<unsigned char>(node.driver_version[0])) &&
                   node.driver_version.find_first_not_of("0123456789.") == std::string::npos &&
                   node.driver_version.find('.') != std::string::npos;
    if (!version) {
      return place.wrong("driverVersion",
                         "must be a driver version such as 580.95.05; got '" + node.driver_version + "'");
    }
  } else if (place.has("driverVersion")) {
    return place.wrong("driverVersion",
                       "is that of a preinstalled driver; a driver container's is in the policy");
  }
  return {};
}

Result<> read_vgpu_host(const Place& place, FleetNode& node, const std::vector<std::string>& models) {
  if (!place.has("vgpuHost")) return {};
  const Json& value = place.at("vgpuHost");
  if (!value.is_bool()) return place.wrong("vgpuHost", "must be true or false");
  node.vgpu_host = value.get_bool();
  if (!node.vgpu_host) return {};
  if (node.hollow) return place.wrong("vgpuHost", "is for nodes with processes");
  if (node.gpu_count == 0) return place.wrong("vgpuHost", "is for nodes with GPUs: give 'gpus'");
  if (is_among(models, node.gpu_model)) return {};
  return place.wrong("vgpuHost", "a board of model '" + node.gpu_model +
                                     "' cannot be shared out; those that can are " + join(models, ", "));
}

Result<> read_labels(const Place& place, FleetNode& node) {
  if (place.has("labels")) {
    Place labels = place.child("labels", place.at("labels"));
    if (!place.at("labels").is_object()) return labels.wrong("", "must be a map");
    for (const auto& [key, value] : place.at("labels").get_object()) {
      std::string text = TRY(labels.text(key, ""));
      if (!kube::is_label_key(key)) return labels.wrong(key, "is not a valid label key");
      if (!kube::is_label_value(text))
        return labels.wrong(key, "must be a valid label value; got '" + text + "'");
      node.labels[str(key)] = std::move(text);
    }
  }
  if (!place.has("taints")) return {};
  if (!place.at("taints").is_array()) return place.wrong("taints", "must be a list");
  std::size_t index = 0;
  for (const Json& item : place.at("taints").get_array()) {
    Place taint = place.item("taints", index++, item);
    TRY(taint.only({"key", "value", "effect"}));
    FleetTaint out{
        TRY(taint.text("key", "")), TRY(taint.text("value", "")),
        TRY(taint.choice("effect", "NoSchedule", {"NoSchedule", "PreferNoSchedule", "NoExecute"}))};
    if (out.key.empty()) return taint.wrong("key", "must be given");
    node.taints.push_back(std::move(out));
  }
  return {};
}

Result<> read_runtime(const Place& place, FleetNode& node) {
  node.runtime = TRY(place.choice("runtime", "containerd", {"containerd", "crio", "docker"}));
  node.runtime_version = TRY(place.text("runtimeVersion", TRY(find_engine(node.runtime)).version));
  if (place.has("criDockerdCdi")) {
    const Json& value = place.at("criDockerdCdi");
    if (!value.is_bool()) return place.wrong("criDockerdCdi", "must be true or false");
    if (node.runtime != "docker") return place.wrong("criDockerdCdi", "is for `runtime: docker`");
    node.cri_dockerd_cdi = value.get_bool();
  }
  const std::vector<std::string> parts = split(node.runtime_version, '.');
  const bool numbers =
      std::ranges::all_of(parts, [](const std::string& part) { return parse_int(part).has_value(); });
  if (parts.size() >= 2 && numbers) return {};
  return place.wrong("runtimeVersion", "must be a version such as 2.1.0; got '" + node.runtime_version + "'");
}

Result<std::string> read_mode(const Place& place, const std::string& fallback) {
  return place.choice("mode", fallback, {"processes", "hollow", "light"});
}

// Models that there are, and those of them with vGPUs; empty: not checked.
struct Models {
  const std::vector<std::string>&all, &vgpu;
};

Result<std::pair<FleetNode, int>> read_node(const Place& place, const Models& models,
                                            const std::string& fleet_mode) {
  TRY(place.only({"name", "mode", "count", "os", "kernel", "runtime", "runtimeVersion", "criDockerdCdi",
                  "gpus", "vgpuHost", "driver", "driverVersion", "instanceType", "numa", "topologyPolicy",
                  "cpus", "memory", "labels", "taints"}));
  FleetNode node;
  node.name = TRY(place.text("name", ""));
  if (!is_dns_label(node.name)) {
    return place.wrong("name", node.name.empty()
                                   ? "must be given"
                                   : "must be lower-case letters, digits and '-'; got '" + node.name + "'");
  }
  const std::string mode = TRY(read_mode(place, fleet_mode));
  node.hollow = mode != "processes";
  node.light = mode == "light";
  int count = static_cast<int>(TRY(place.number("count", 1, 0, node.hollow ? kMostHollow : kMostNodes)));
  TRY(read_os(place, node));
  node.kernel = TRY(place.text("kernel", node.os_version == "24.04" ? "6.8.0-60-generic" : node.kernel));
  if (node.kernel.empty() || node.kernel.find_first_of(" /") != std::string::npos) {
    return place.wrong("kernel",
                       "must be a kernel release such as 5.15.0-91-generic; got '" + node.kernel + "'");
  }
  TRY(read_runtime(place, node));
  TRY(read_gpus(place, node, models.all));
  TRY(read_vgpu_host(place, node, models.vgpu));
  node.instance_type = TRY(place.text("instanceType", ""));
  node.numa_nodes = static_cast<int>(TRY(place.number("numa", node.gpu_count > 4 ? 2 : 1, 1, 16)));
  node.topology_policy =
      TRY(place.choice("topologyPolicy", "none", {"none", "best-effort", "restricted", "single-numa-node"}));
  node.cpus = static_cast<int>(TRY(place.number("cpus", 8, 1, 1024)));
  if (place.has("memory")) {
    auto bytes = kube::parse_quantity(place.at("memory"));
    if (!bytes || *bytes < (1 << 20)) return place.wrong("memory", "must be a quantity such as 256Gi");
    node.memory_mib = *bytes >> 20;
  }
  TRY(read_labels(place, node));
  return std::pair{std::move(node), count};
}

Result<std::string> read_kubernetes(const Place& root, const std::string& fallback, bool hollow) {
  if (root.has("kubernetes") && !hollow) {
    return root.wrong("kubernetes", "is for fleets with `mode: hollow`");
  }
  std::string version = TRY(root.text("kubernetes", fallback));
  const std::vector<std::string> parts = split(version, '.');
  const bool good = parts.size() == 3 && parts[0] == "v1" && parse_int(parts[1]).value_or(-1) >= 30 &&
                    parse_int(parts[1]).value_or(-1) <= 40 && parse_int(parts[2]).value_or(-1) >= 0;
  if (!good)
    return root.wrong("kubernetes", "must be a version from v1.30.0 to v1.40.0; got '" + version + "'");
  return version;
}

}  // namespace

std::string_view driver_word(DriverSource driver) {
  switch (driver) {
    case DriverSource::kPreinstalled:
      return "preinstalled";
    case DriverSource::kContainer:
      return "container";
    case DriverSource::kNone:
      return "none";
  }
  return "none";
}

bool Fleet::hollow() const {
  return std::ranges::all_of(nodes, &FleetNode::hollow);
}
bool Fleet::any_hollow() const {
  return std::ranges::any_of(nodes, &FleetNode::hollow);
}

std::string FleetNode::os_tag() const {
  bool major_only = os_id == "rhel" || os_id == "rocky" || os_id == "ol";
  return os_id + (major_only ? os_version.substr(0, os_version.find('.')) : os_version);
}

Result<Fleet> parse_fleet(std::string_view text, std::string_view file,
                          const std::vector<std::string>& models,
                          const std::vector<std::string>& vgpu_models) {
  YamlDocument document = TRY_IN(parse_yaml_one(text, file), "read fleet");
  Place root(document, "read fleet '" + std::string(file) + "'");
  if (!document.duplicate_keys.empty()) {
    return root.wrong(document.duplicate_keys.front(), "is given twice");
  }
  TRY(root.only({"seed", "mode", "kubernetes", "nodes"}));
  Fleet fleet;
  const std::string mode = TRY(read_mode(root, "processes"));
  fleet.kubernetes = TRY(read_kubernetes(root, fleet.kubernetes, mode != "processes"));
  fleet.seed = static_cast<std::uint64_t>(TRY(root.number("seed", 1, 0, INT64_MAX)));
  if (!root.has("nodes") || !root.at("nodes").is_array() || root.at("nodes").get_array().empty()) {
    return root.wrong("nodes", "must be a list of at least one node");
  }
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& item : root.at("nodes").get_array()) {
    Place place = root.item("nodes", index++, item);
    auto [node, count] = TRY(read_node(place, {models, vgpu_models}, mode));
    for (int i = 0; i < count; ++i) {
      FleetNode one = node;
      if (count > 1) one.name += "-" + std::to_string(i);
      if (!names.insert(one.name).second)
        return place.wrong("name", "there are two nodes '" + one.name + "'");
      fleet.nodes.push_back(std::move(one));
    }
    const std::size_t processes = std::ranges::count(fleet.nodes, false, &FleetNode::hollow);
    if (processes > kMostNodes) {
      return root.wrong("nodes", "more than " + std::to_string(kMostNodes) + " nodes with processes");
    }
    if (fleet.nodes.size() > kMostHollow)
      return root.wrong("nodes", "more than " + std::to_string(kMostHollow) + " nodes");
  }
  return fleet;
}

Json to_json(const Fleet& fleet) {
  JsonArray nodes;
  for (const FleetNode& node : fleet.nodes) {
    JsonObject labels;
    for (const auto& [key, value] : node.labels) labels[key] = value;
    JsonArray taints;
    for (const FleetTaint& taint : node.taints) {
      taints.push_back(JsonObject{{"key", taint.key}, {"value", taint.value}, {"effect", taint.effect}});
    }
    nodes.push_back(JsonObject{{"name", node.name},
                               {"hollow", node.hollow},
                               {"light", node.light},
                               {"osId", node.os_id},
                               {"osVersion", node.os_version},
                               {"kernel", node.kernel},
                               {"runtime", node.runtime},
                               {"runtimeVersion", node.runtime_version},
                               {"criDockerdCdi", node.cri_dockerd_cdi},
                               {"gpuModel", node.gpu_model},
                               {"gpuCount", node.gpu_count},
                               {"vgpuHost", node.vgpu_host},
                               {"driver", driver_word(node.driver)},
                               {"driverVersion", node.driver_version},
                               {"instanceType", node.instance_type},
                               {"numa", node.numa_nodes},
                               {"topologyPolicy", node.topology_policy},
                               {"cpus", node.cpus},
                               {"memoryMib", node.memory_mib},
                               {"labels", std::move(labels)},
                               {"taints", std::move(taints)}});
  }
  return JsonObject{{"seed", fleet.seed}, {"kubernetes", fleet.kubernetes}, {"nodes", std::move(nodes)}};
}

Result<Fleet> fleet_from_json(const Json& json) {
  Fleet fleet;
  fleet.seed = static_cast<std::uint64_t>(get_int(json, {"seed"}, 1));
  fleet.kubernetes = str(get_string(json, {"kubernetes"}, fleet.kubernetes));
  for (const Json& item : get_array(json, {"nodes"})) {
    FleetNode node;
    auto text = [&](std::string_view key) { return str(get_string(item, {key})); };
    node.name = text("name");
    node.hollow = get_bool(item, {"hollow"});
    node.light = get_bool(item, {"light"});
    node.os_id = text("osId");
    node.os_version = text("osVersion");
    node.kernel = text("kernel");
    node.runtime = text("runtime");
    node.runtime_version = text("runtimeVersion");
    node.cri_dockerd_cdi = get_bool(item, {"criDockerdCdi"});
    node.gpu_model = text("gpuModel");
    node.gpu_count = static_cast<int>(get_int(item, {"gpuCount"}));
    node.vgpu_host = get_bool(item, {"vgpuHost"});
    std::string driver = text("driver");
    node.driver = driver == "preinstalled" ? DriverSource::kPreinstalled
                  : driver == "container"  ? DriverSource::kContainer
                                           : DriverSource::kNone;
    node.driver_version = text("driverVersion");
    node.instance_type = text("instanceType");
    node.numa_nodes = static_cast<int>(get_int(item, {"numa"}, 1));
    node.topology_policy = str(get_string(item, {"topologyPolicy"}, "none"));
    node.cpus = static_cast<int>(get_int(item, {"cpus"}, 8));
    node.memory_mib = get_int(item, {"memoryMib"}, 32768);
    for (const auto& [key, value] : get_object(item, {"labels"})) node.labels[str(key)] = str(as_text(value));
    for (const Json& taint : get_array(item, {"taints"})) {
      node.taints.push_back({str(get_string(taint, {"key"})), str(get_string(taint, {"value"})),
                             str(get_string(taint, {"effect"}))});
    }
    if (node.name.empty()) return fail(Code::kInvalid, "read fleet: a node without a name");
    fleet.nodes.push_back(std::move(node));
  }
  return fleet;
}

}  // namespace gpuop::cluster

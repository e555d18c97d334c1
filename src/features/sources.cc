#include "features/sources.h"

#include <algorithm>
#include <functional>
#include <regex>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"

namespace gpuop::features {
namespace {

constexpr std::string_view kPrefix = "feature.node.kubernetes.io/";
constexpr std::size_t kFeatureFileLimit = 65536;

std::string read_value(const fs::path& path) {
  const auto text = read_file(path, 4096);
  return text ? std::string(trim(*text)) : std::string();
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.';
}
bool is_alnum(char c) {
  return is_name_char(c) && c != '-' && c != '_' && c != '.';
}

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= 63 && is_alnum(name.front()) && is_alnum(name.back()) &&
         std::all_of(name.begin(), name.end(), is_name_char);
}

void read_kernel(const HostView& host, FeatureSet& features, std::vector<std::string>& problems) {
  if (const auto release = kernel_release()) {
    features.attributes["kernel.version"] = kernel_version(*release);
  } else {
    problems.push_back("kernel.version: " + release.error().text());
  }
  auto& loaded = features.flags["kernel.loadedmodule"];
  if (const auto modules = read_file(kernel_path("/proc/modules"))) {
    for (const auto& line : split(*modules, '\n')) {
      if (!line.empty()) loaded.insert(line.substr(0, line.find(' ')));
    }
  } else {
    problems.push_back("kernel.loadedmodule: " + modules.error().text());
  }
  const std::string release = kernel_release().value_or("");
  if (const auto builtin = read_file(host.lib / "modules" / release / "modules.builtin")) {
    auto& enabled = features.flags["kernel.enabledmodule"];
    enabled = loaded;
    for (const auto& line : split(*builtin, '\n')) {
      std::string name = fs::path(line).filename().string();
      if (name.ends_with(".ko")) enabled.insert(name.substr(0, name.size() - 3));
    }
  }
  const std::string enforce = read_value(host.sys / "fs/selinux/enforce");
  features.attributes["kernel.selinux"] = {{"enabled", enforce.starts_with('1') ? "true" : "false"}};
  const bool kvm = file_exists(host.sys / "devices/virtual/misc/kvm");
  features.attributes["kernel.kvm"] = {{"enabled", kvm ? "true" : "false"}};
}

void read_system(const HostView& host, FeatureSet& features, std::vector<std::string>& problems) {
  features.attributes["system.name"] = {{"nodename", host.node_name}};
  if (const auto text = read_file(host.os_release, 65536)) {
    features.attributes["system.osrelease"] = parse_os_release(*text);
  } else {
    // The container's own file would describe our image, not the node.
    problems.push_back("system.osrelease: " + text.error().text());
  }
  Attributes dmi;
  for (const char* name :
       {"bios_date", "bios_vendor", "bios_version", "board_asset_tag", "board_name", "board_vendor",
        "board_version", "chassis_asset_tag", "chassis_type", "chassis_vendor", "chassis_version",
        "product_family", "product_name", "product_sku", "product_version", "sys_vendor"}) {
    if (const auto text = read_file(host.sys / "devices/virtual/dmi/id" / name, 4096))
      dmi[name] = std::string(trim(*text));
  }
  if (!dmi.empty()) features.attributes["system.dmiid"] = std::move(dmi);
}

void read_cpu(const HostView& host, FeatureSet& features) {
  Attributes model;
  if (const auto text = read_file(kernel_path("/proc/cpuinfo"))) {
    for (const auto& line : split(*text, '\n')) {
      if (line.empty()) break;  // the first processor stands for all
      const auto colon = line.find(':');
      if (colon == std::string::npos) continue;
      const std::string key(trim(std::string_view(line).substr(0, colon)));
      const std::string value(trim(std::string_view(line).substr(colon + 1)));
      if (key == "vendor_id") {
        model["vendor_id"] = value == "GenuineIntel" ? "Intel" : value == "AuthenticAMD" ? "AMD" : value;
      } else if (key == "cpu family") {
        model["family"] = value;
      } else if (key == "model") {
        model["id"] = value;
      } else if (key == "flags") {
        auto& flags = features.flags["cpu.cpuid"];
        for (const auto& flag : split_fields(value)) {
          std::string upper = flag;
          for (char& c : upper) {
            if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
          }
          // /proc/cpuinfo writes avx512f; the CPUID tables' names, which labels carry, drop the underscores
          // of sse4_1 and the like only for AVX512.
          flags.insert(upper.starts_with("AVX512") ? replace_all(upper, "_", "") : upper);
        }
      }
    }
  }
  features.attributes["cpu.model"] = std::move(model);
  std::set<std::string> packages;
  bool threads = false;
  if (const auto cpus = list_dir(host.sys / "devices/system/cpu")) {
    for (const auto& cpu : *cpus) {
      const fs::path topology = host.sys / "devices/system/cpu" / cpu / "topology";
      const std::string package = read_value(topology / "physical_package_id");
      if (!package.empty()) packages.insert(package);
      const std::string siblings = read_value(topology / "thread_siblings_list");
      threads = threads || siblings.find_first_of(",-") != std::string::npos;
    }
  }
  features.attributes["cpu.topology"] = {{"hardware_multithreading", threads ? "true" : "false"},
                                         {"socket_count", std::to_string(packages.size())}};
}

void read_memory(const HostView& host, FeatureSet& features) {
  int nodes = 0;
  if (const auto names = list_dir(host.sys / "bus/node/devices")) {
    nodes = static_cast<int>(names->size());
  } else if (const auto system = list_dir(host.sys / "devices/system/node")) {
    nodes = static_cast<int>(std::count_if(system->begin(), system->end(), [](const std::string& name) {
      return name.starts_with("node") && parse_int(std::string_view(name).substr(4));
    }));
  }
  features.attributes["memory.numa"] = {{"is_numa", nodes > 1 ? "true" : "false"},
                                        {"node_count", std::to_string(nodes)}};
  int swaps = 0;
  if (const auto text = read_file(host.swaps)) {
    for (const auto& line : split(*text, '\n')) swaps += !trim(line).empty();
  }
  features.attributes["memory.swap"] = {{"enabled", swaps > 1 ? "true" : "false"}};
}

struct LocalSource {
  FeatureSet features;
  std::map<std::string, std::string> labels;
};

LocalSource read_local(const HostView& host, Time now, std::vector<std::string>& problems) {
  LocalSource out;
  auto& raw = out.features.attributes["local.feature"];
  const auto names = list_dir(host.features_d);
  if (!names) {
    problems.push_back("local: " + names.error().text());
    return out;
  }
  for (const auto& name : *names) {
    const fs::path path = host.features_d / name;
    std::error_code error;
    if (name.starts_with('.') || !fs::is_regular_file(path, error)) continue;
    const auto size = fs::file_size(path, error);
    if (!error && size > kFeatureFileLimit) {
      problems.push_back("local: '" + path.string() + "': file size limit exceeded: " + std::to_string(size) +
                         " bytes > " + std::to_string(kFeatureFileLimit) + " bytes");
      continue;
    }
    const auto text = read_file(path, kFeatureFileLimit);
    if (!text) {
      problems.push_back("local: " + text.error().text());
      continue;
    }
    LocalFeatures found = parse_feature_file(*text, name, now, problems);
    for (auto& [key, value] : found.features) raw[key] = value;
    for (auto& [key, value] : found.labels) out.labels[key] = value;
  }
  out.features.attributes["local.label"] = Attributes(out.labels.begin(), out.labels.end());
  return out;
}

void kernel_labels(const FeatureSet& features, std::map<std::string, std::string>& labels) {
  if (const auto version = features.attributes.find("kernel.version"); version != features.attributes.end()) {
    for (const auto& [name, value] : version->second) labels["kernel-version." + name] = value;
  }
  if (const auto selinux = features.attributes.find("kernel.selinux");
      selinux != features.attributes.end() && selinux->second.at("enabled") == "true") {
    labels["kernel-selinux.enabled"] = "true";
  }
}

void system_labels(const FeatureSet& features, std::map<std::string, std::string>& labels) {
  const auto release = features.attributes.find("system.osrelease");
  if (release == features.attributes.end()) return;
  for (const char* name : {"ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor", "OSTREE_VERSION",
                           "OPENSHIFT_VERSION", "RHEL_VERSION"}) {
    if (const auto value = release->second.find(name); value != release->second.end()) {
      labels["system-os_release." + std::string(name)] = value->second;
    }
  }
}

void other_labels(const FeatureSet& features, std::map<std::string, std::string>& labels) {
  const auto attribute = [&](const char* feature, const char* name) -> std::string {
    const auto found = features.attributes.find(feature);
    if (found == features.attributes.end()) return {};
    const auto value = found->second.find(name);
    return value == found->second.end() ? std::string() : value->second;
  };
  for (const char* name : {"vendor_id", "family", "id"}) {
    if (const auto value = attribute("cpu.model", name); !value.empty())
      labels[std::string("cpu-model.") + name] = value;
  }
  if (const auto value = attribute("cpu.topology", "hardware_multithreading"); !value.empty()) {
    labels["cpu-hardware_multithreading"] = value;
  }
  if (attribute("memory.numa", "is_numa") == "true") labels["memory-numa"] = "true";
  if (attribute("memory.swap", "enabled") == "true") labels["memory-swap"] = "true";
}

// The static rules of §2.10.
void rdma_labels(const FeatureSet& features, std::map<std::string, std::string>& labels) {
  if (const auto devices = features.instances.find("pci.device"); devices != features.instances.end()) {
    for (const auto& device : devices->second) {
      if (device.at("vendor") == "15b3") labels[std::string(kPrefix) + "rdma.capable"] = "true";
    }
  }
  const auto modules = features.flags.find("kernel.loadedmodule");
  if (modules != features.flags.end() && modules->second.contains("ib_uverbs") &&
      modules->second.contains("rdma_ucm")) {
    labels[std::string(kPrefix) + "rdma.available"] = "true";
  }
}

}  // namespace

HostView host_view(const std::string& prefix) {
  HostView host;
  const bool bare = prefix == "/";
  const auto at = [&](const char* name) { return fs::path(prefix + name); };
  // Where the kernel's root is moved (simulated nodes), its own tree is the truth; the host's mounts show the
  // rest.
  host.sys = env_or("GPUOP_KERNEL_ROOT").empty() ? at("sys") : kernel_path("/sys");
  host.os_release = at("etc") / "os-release";
  host.boot = at("boot");
  host.usr = at("usr");
  host.lib = env_or("GPUOP_KERNEL_ROOT").empty() ? at("lib") : kernel_path("/lib");
  host.swaps = bare ? fs::path("/proc/swaps") : at("proc") / "swaps";
  return host;
}

bool valid_label_value(std::string_view value) {
  return value.empty() || valid_name(value);
}

bool valid_label_key(std::string_view key) {
  const auto slash = key.find('/');
  if (slash == std::string_view::npos) return valid_name(key);
  const auto domain = key.substr(0, slash);
  if (domain.empty() || domain.size() > 253 || !valid_name(key.substr(slash + 1))) return false;
  for (const auto& part : split(domain, '.')) {
    if (part.empty() || part.size() > 63 || part.front() == '-' || part.back() == '-') return false;
    for (char c : part) {
      if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
    }
  }
  return true;
}

Attributes kernel_version(std::string_view osrelease) {
  std::string full(trim(osrelease));
  for (char& c : full) {
    if (!is_name_char(c)) c = '_';
  }
  const auto first = full.find_first_not_of("-_.");
  full = first == std::string::npos ? std::string()
                                    : full.substr(first, full.find_last_not_of("-_.") - first + 1);
  Attributes out{{"full", full}};
  static const std::regex pattern(R"(^(\d+)(\.(\d+))?(\.(\d+))?(-.*)?$)");
  std::smatch match;
  if (std::regex_match(full, match, pattern)) {
    out["major"] = match[1];
    out["minor"] = match[3];
    out["revision"] = match[5];
  }
  return out;
}

Attributes parse_os_release(std::string_view text) {
  Attributes out;
  for (const auto& line : split(text, '\n')) {
    const auto equals = line.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == line.size()) continue;
    const std::string key = line.substr(0, equals);
    if (!std::all_of(key.begin(), key.end(), [](char c) { return is_alnum(c) || c == '_'; })) continue;
    std::string value = line.substr(equals + 1);
    const auto first = value.find_first_not_of("\"'");
    value = first == std::string::npos ? std::string()
                                       : value.substr(first, value.find_last_not_of("\"'") - first + 1);
    out[key] = value;
  }
  if (const auto version = out.find("VERSION_ID"); version != out.end()) {
    static const std::regex pattern(R"(^(\d+)(\.(\d+))?(\..*)?$)");
    std::smatch match;
    const std::string value = version->second;
    if (std::regex_match(value, match, pattern)) {
      out["VERSION_ID.major"] = match[1];
      if (match[3].matched) out["VERSION_ID.minor"] = match[3];
    }
  }
  return out;
}

FeatureSet read_pci(const HostView& host, std::vector<std::string>& problems) {
  FeatureSet out;
  auto& devices = out.instances["pci.device"];
  const fs::path dir = host.sys / "bus/pci/devices";
  const auto names = list_dir(dir);
  if (!names) {
    problems.push_back("pci: " + names.error().text());
    return out;
  }
  for (const auto& name : *names) {
    Attributes device;
    bool complete = true;
    const auto read = [&](const char* attribute, bool mandatory) {
      const auto text = read_file(dir / name / attribute, 4096);
      if (!text) {
        if (mandatory) {
          problems.push_back("pci: device " + name + " left out: " + text.error().text());
          complete = false;
        }
        return;
      }
      std::string_view value = trim(*text);
      if (value.starts_with("0x")) value.remove_prefix(2);
      device[attribute] = std::string(std::string_view(attribute) == "class" ? value.substr(0, 4) : value);
    };
    for (const char* attribute : {"class", "vendor", "device", "subsystem_vendor", "subsystem_device"}) {
      if (complete) read(attribute, true);
    }
    if (!complete) continue;
    for (const char* attribute : {"sriov_totalvfs", "iommu_group/type", "iommu/intel-iommu/version"})
      read(attribute, false);
    devices.push_back(std::move(device));
  }
  return out;
}

std::map<std::string, std::string> pci_labels(const FeatureSet& features, const WorkerConfig& config,
                                              std::vector<std::string>& problems) {
  static constexpr const char* kFields[] = {"class", "vendor", "device", "subsystem_vendor",
                                            "subsystem_device"};
  std::vector<std::string> fields;
  for (const char* field : kFields) {
    if (std::find(config.pci_label_fields.begin(), config.pci_label_fields.end(), field) !=
        config.pci_label_fields.end()) {
      fields.emplace_back(field);
    }
  }
  for (const auto& field : config.pci_label_fields) {
    if (std::find(std::begin(kFields), std::end(kFields), field) == std::end(kFields)) {
      problems.push_back("sources.pci.deviceLabelFields: '" + field + "' is not a field of PCI devices");
    }
  }
  if (fields.empty()) fields = {"class", "vendor"};
  std::map<std::string, std::string> labels;
  const auto devices = features.instances.find("pci.device");
  if (devices == features.instances.end()) return labels;
  for (const auto& device : devices->second) {
    const std::string& device_class = device.at("class");
    const bool wanted =
        std::any_of(config.pci_class_whitelist.begin(), config.pci_class_whitelist.end(),
                    [&](const std::string& entry) { return device_class.starts_with(to_lower(entry)); });
    if (!wanted) continue;
    std::vector<std::string> parts;
    for (const auto& field : fields) parts.push_back(device.at(field));
    const std::string name = "pci-" + join(parts, "_");
    labels[name + ".present"] = "true";
    if (device.contains("sriov_totalvfs")) labels[name + ".sriov.capable"] = "true";
  }
  return labels;
}

LocalFeatures parse_feature_file(std::string_view text, const std::string& name, Time now,
                                 std::vector<std::string>& problems) {
  LocalFeatures out;
  std::optional<Time> expiry;
  bool no_label = false;
  bool no_feature = false;
  for (const auto& raw : split(text, '\n')) {
    const std::string_view line = trim(raw);
    if (line.empty()) continue;
    if (line.starts_with("# +")) {
      const std::string_view directive = line.substr(3);
      constexpr std::string_view kExpiry = "expiry-time=";
      if (directive == "no-label") {
        no_label = true;
      } else if (directive == "no-feature") {
        no_feature = true;
      } else if (directive.starts_with(kExpiry)) {
        if (const auto time = parse_time(trim(directive.substr(kExpiry.size()))))
          expiry = *time;
        else
          problems.push_back("local: '" + name + "': expiry-time: " + time.error().text());
      } else {
        problems.push_back("local: '" + name + "': unknown directive '" + std::string(directive) + "'");
      }
      continue;
    }
    if (line.starts_with('#')) continue;
    const bool label = !std::exchange(no_label, false);
    const bool feature = !std::exchange(no_feature, false);
    if (expiry && *expiry < now) continue;
    const auto equals = line.find('=');
    const std::string key(line.substr(0, equals));
    const std::string value(equals == std::string_view::npos ? std::string_view("true")
                                                             : line.substr(equals + 1));
    if (label)
      out.labels[key] = value;
    else
      out.labels.erase(key);
    if (feature)
      out.features[key] = value;
    else
      out.features.erase(key);
  }
  return out;
}

void add_labels(Discovery& out, const std::map<std::string, std::string>& local, const WorkerConfig& config) {
  const auto label_on = [&](std::string_view source) { return source_enabled(config.label_sources, source); };
  std::map<std::string, std::string> named;  // without prefix
  if (label_on("pci")) named = pci_labels(out.features, config, out.problems);
  if (label_on("kernel")) kernel_labels(out.features, named);
  if (label_on("system")) system_labels(out.features, named);
  if (label_on("cpu") || label_on("memory")) {
    std::map<std::string, std::string> more;
    other_labels(out.features, more);
    for (auto& [key, value] : more) {
      if (label_on(key.starts_with("cpu-") ? "cpu" : "memory")) named[key] = value;
    }
  }
  std::map<std::string, std::string> labels;
  for (auto& [key, value] : named) labels[std::string(kPrefix) + key] = value;
  if (label_on("custom")) rdma_labels(out.features, labels);
  if (label_on("local")) {
    for (const auto& [key, value] : local) labels[key] = value;
  }

  const std::regex allowed(config.label_white_list.empty() ? std::string(".*") : config.label_white_list);
  for (auto& [key, value] : labels) {
    const std::string name = key.substr(key.find('/') == std::string::npos ? 0 : key.find('/') + 1);
    if (!valid_label_key(key) || !valid_label_value(value)) {
      out.problems.push_back("label " + key + "=" + value + " left out: not a valid label");
    } else if (!config.label_white_list.empty() && !std::regex_search(name, allowed)) {
      continue;
    } else {
      out.labels[key] = value;
    }
  }
}

Discovery discover(const HostView& host, const WorkerConfig& config, Time now) {
  Discovery out;
  const auto feature_on = [&](std::string_view source) {
    return source_enabled(config.feature_sources, source);
  };
  LocalSource local;
  if (feature_on("cpu")) read_cpu(host, out.features);
  if (feature_on("kernel")) read_kernel(host, out.features, out.problems);
  if (feature_on("local")) local = read_local(host, now, out.problems);
  if (feature_on("memory")) read_memory(host, out.features);
  if (feature_on("pci")) out.features.merge(read_pci(host, out.problems));
  if (feature_on("system")) read_system(host, out.features, out.problems);
  out.features.merge(local.features);
  add_labels(out, local.labels, config);
  return out;
}

}  // namespace gpuop::features

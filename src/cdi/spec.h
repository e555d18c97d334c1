// The Container Device Interface: a spec as a value, read strictly, validated, and written with the lowest
// version that its content needs (CDI 1.1.0; container-toolkit-cdi.md §1).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::cdi {

struct DeviceNode {
  std::string path;
  std::string host_path;  // empty: the same as path
  std::string type;       // "", b, c, u, p
  std::int64_t major = 0;
  std::int64_t minor = 0;
  std::optional<std::uint32_t> file_mode;  // permission bits
  std::string permissions;                 // of r, w, m; "" or "none" (accepted on reading only)
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  bool operator==(const DeviceNode&) const = default;
};

struct Mount {
  std::string host_path;
  std::string container_path;
  std::vector<std::string> options;
  std::string type;
  bool operator==(const Mount&) const = default;
};

struct Hook {
  std::string name;  // "createContainer"
  std::string path;
  std::vector<std::string> args;
  std::vector<std::string> env;
  std::optional<std::int64_t> timeout;  // seconds
  bool operator==(const Hook&) const = default;
};

struct NetDevice {
  std::string host_interface_name;
  std::string name;
  bool operator==(const NetDevice&) const = default;
};

struct IntelRdt {
  std::string clos_id;
  std::string l3_cache_schema;
  std::string mem_bw_schema;
  std::optional<std::vector<std::string>> schemata;
  bool enable_monitoring = false;
  bool operator==(const IntelRdt&) const = default;
};

struct Edits {
  std::vector<std::string> env;  // "NAME=VALUE"
  std::vector<DeviceNode> device_nodes;
  std::vector<NetDevice> net_devices;
  std::vector<Hook> hooks;
  std::vector<Mount> mounts;
  std::optional<IntelRdt> intel_rdt;
  std::vector<std::uint32_t> additional_gids;
  bool operator==(const Edits&) const = default;

  bool empty() const;
  void append(const Edits& more);  // intel_rdt of `more` wins
};

using Annotations = std::map<std::string, std::string>;

struct Device {
  std::string name;
  Annotations annotations;
  Edits edits;
  bool operator==(const Device&) const = default;
};

struct Spec {
  std::string version;  // "0.5.0"
  std::string kind;     // "nvidia.com/gpu"
  Annotations annotations;
  std::vector<Device> devices;
  Edits edits;  // common to all devices
  bool operator==(const Spec&) const = default;

  std::string vendor() const;
  std::string device_class() const;
  std::string qualified(const Device& device) const { return kind + "=" + device.name; }
};

// A qualified device name, taken apart.
struct QualifiedName {
  std::string vendor;
  std::string device_class;
  std::string name;
  std::string text() const { return vendor + "/" + device_class + "=" + name; }
};
// Errors hold the input and the reason: missing vendor, missing class, missing device name, or the bad
// character.
Result<QualifiedName> parse_qualified_name(std::string_view text);
bool is_qualified_name(std::string_view text);
Result<> check_vendor(std::string_view text);
Result<> check_class(std::string_view text);
Result<> check_device_name(std::string_view text);

// The lowest version that has everything `spec` uses (§1.4).
std::string minimum_version(const Spec& spec);

// Checks everything that §1.3 and §1.4 ask of a spec that is read. First fault, with its path.
Result<> validate(const Spec& spec);
// What we ask of our own in addition: length limits, annotation keys, no permissions "none".
Result<> validate_for_writing(const Spec& spec);

// Reads JSON or YAML text strictly: unknown and duplicate keys, wrong types and an empty document are errors
// with line and suggestion. `file` is used in messages.
Result<Spec> parse_spec(std::string_view text, std::string_view file);
Result<Spec> read_spec(const std::filesystem::path& file);

// Keys in the order of the specification, zero values left out.
Json to_json(const Spec& spec);
Json to_json(const Edits& edits);
// "---\n" and block style with an indent of 4, or compact JSON.
std::string to_yaml_text(const Spec& spec);
std::string to_json_text(const Spec& spec);

// Validates, sets the minimum version and writes `file` atomically with mode 0644, folder made when missing;
// the extension (.yaml or .json) picks the format, none means .yaml. Answers whether anything changed.
Result<bool> save_spec(Spec spec, std::filesystem::path file);
// "management.nvidia.com-gpu" for a kind.
std::string file_stem(const Spec& spec);

}  // namespace gpuop::cdi

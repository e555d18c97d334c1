#include "cluster/launcher/oci_spec.h"

#include <limits>

#include "base/files.h"

namespace gpuop::cluster {
namespace {

std::string at(std::string_view path, std::size_t index) {
  return std::string(path) + "[" + std::to_string(index) + "]";
}

// The array at `keys`; absent and null are an empty one, anything else than an array is an error.
Result<const JsonArray*> array_at(const Json& root, Keys keys, std::string_view path) {
  static const JsonArray none;
  const Json* value = find(root, keys);
  if (!value || value->is_null()) return &none;
  if (!value->is_array()) return fail(Code::kInvalid, std::string(path) + ": must be a list");
  return &value->get_array();
}

Result<std::vector<std::string>> strings_at(const Json& root, Keys keys, std::string_view path) {
  const JsonArray* array = TRY(array_at(root, keys, path));
  std::vector<std::string> out;
  out.reserve(array->size());
  for (const Json& item : *array) {
    if (!item.is_string()) return fail(Code::kInvalid, std::string(path) + ": must be a list of strings");
    std::string text = str(as_text(item));
    // A zero byte would silently cut the text where the kernel reads it.
    if (text.find('\0') != std::string::npos) {
      return fail(Code::kInvalid, std::string(path) + ": must not hold a zero byte");
    }
    out.push_back(std::move(text));
  }
  return out;
}

Result<std::string> string_at(const Json& root, Keys keys, std::string_view path) {
  const Json* value = find(root, keys);
  if (!value || value->is_null()) return std::string();
  if (!value->is_string()) return fail(Code::kInvalid, std::string(path) + ": must be a string");
  std::string text = str(as_text(*value));
  if (text.find('\0') != std::string::npos) {
    return fail(Code::kInvalid, std::string(path) + ": must not hold a zero byte");
  }
  return text;
}

Result<std::int64_t> number_at(const Json& root, Keys keys, std::string_view path, std::int64_t low,
                               std::int64_t high) {
  const Json* value = find(root, keys);
  if (!value || value->is_null()) return 0;
  std::int64_t number = 0;
  if (value->is_int64()) {
    number = value->get_int64();
  } else if (value->is_uint64() &&
             value->get_uint64() <= std::uint64_t(std::numeric_limits<std::int64_t>::max())) {
    number = static_cast<std::int64_t>(value->get_uint64());
  } else {
    return fail(Code::kInvalid, std::string(path) + ": must be a whole number");
  }
  if (number < low || number > high) return fail(Code::kInvalid, std::string(path) + ": is out of range");
  return number;
}

Result<std::vector<OciHook>> hooks_at(const Json& root, std::string_view stage) {
  std::string path = "hooks." + std::string(stage);
  const JsonArray* array = TRY(array_at(root, {"hooks", stage}, path));
  std::vector<OciHook> out;
  for (std::size_t i = 0; i < array->size(); ++i) {
    const Json& item = (*array)[i];
    OciHook hook;
    hook.path = TRY(string_at(item, {"path"}, at(path, i) + ".path"));
    if (hook.path.empty() || hook.path[0] != '/') {
      return fail(Code::kInvalid, at(path, i) + ".path: must be an absolute path");
    }
    hook.args = TRY(strings_at(item, {"args"}, at(path, i) + ".args"));
    hook.env = TRY(strings_at(item, {"env"}, at(path, i) + ".env"));
    hook.timeout_seconds =
        static_cast<int>(TRY(number_at(item, {"timeout"}, at(path, i) + ".timeout", 0, 86400)));
    out.push_back(std::move(hook));
  }
  return out;
}

Result<> read_process(const Json& config, OciSpec& spec) {
  constexpr auto kIdMax = std::numeric_limits<std::uint32_t>::max();
  spec.args = TRY(strings_at(config, {"process", "args"}, "process.args"));
  spec.env = TRY(strings_at(config, {"process", "env"}, "process.env"));
  spec.cwd = TRY(string_at(config, {"process", "cwd"}, "process.cwd"));
  if (spec.cwd.empty()) spec.cwd = "/";
  if (spec.cwd[0] != '/') return fail(Code::kInvalid, "process.cwd: must be an absolute path");
  spec.uid = static_cast<std::uint32_t>(
      TRY(number_at(config, {"process", "user", "uid"}, "process.user.uid", 0, kIdMax)));
  spec.gid = static_cast<std::uint32_t>(
      TRY(number_at(config, {"process", "user", "gid"}, "process.user.gid", 0, kIdMax)));
  const JsonArray* groups =
      TRY(array_at(config, {"process", "user", "additionalGids"}, "process.user.additionalGids"));
  for (const Json& item : *groups) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() > std::int64_t(kIdMax)) {
      return fail(Code::kInvalid, "process.user.additionalGids: must be a list of group ids");
    }
    spec.additional_gids.push_back(static_cast<std::uint32_t>(item.get_int64()));
  }
  if (has(config, {"process", "user", "umask"})) {
    spec.umask = static_cast<std::uint32_t>(
        TRY(number_at(config, {"process", "user", "umask"}, "process.user.umask", 0, 0777)));
  }
  spec.no_new_privileges = get_bool(config, {"process", "noNewPrivileges"});
  auto caps = [&](std::string_view set) {
    return strings_at(config, {"process", "capabilities", set}, "process.capabilities." + std::string(set));
  };
  spec.capabilities.bounding = TRY(caps("bounding"));
  spec.capabilities.effective = TRY(caps("effective"));
  spec.capabilities.permitted = TRY(caps("permitted"));
  spec.capabilities.inheritable = TRY(caps("inheritable"));
  spec.capabilities.ambient = TRY(caps("ambient"));
  const JsonArray* limits = TRY(array_at(config, {"process", "rlimits"}, "process.rlimits"));
  for (std::size_t i = 0; i < limits->size(); ++i) {
    const Json& item = (*limits)[i];
    std::string path = at("process.rlimits", i);
    OciRlimit limit;
    limit.type = TRY(string_at(item, {"type"}, path + ".type"));
    constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
    limit.soft = static_cast<std::uint64_t>(TRY(number_at(item, {"soft"}, path + ".soft", 0, kMax)));
    limit.hard = static_cast<std::uint64_t>(TRY(number_at(item, {"hard"}, path + ".hard", 0, kMax)));
    spec.rlimits.push_back(std::move(limit));
  }
  return {};
}

Result<> read_mounts(const Json& config, OciSpec& spec) {
  const JsonArray* mounts = TRY(array_at(config, {"mounts"}, "mounts"));
  for (std::size_t i = 0; i < mounts->size(); ++i) {
    const Json& item = (*mounts)[i];
    std::string path = at("mounts", i);
    OciMount mount;
    mount.destination = TRY(string_at(item, {"destination"}, path + ".destination"));
    if (mount.destination.empty() || mount.destination[0] != '/') {
      return fail(Code::kInvalid, path + ".destination: must be an absolute path");
    }
    mount.type = TRY(string_at(item, {"type"}, path + ".type"));
    mount.source = TRY(string_at(item, {"source"}, path + ".source"));
    mount.options = TRY(strings_at(item, {"options"}, path + ".options"));
    spec.mounts.push_back(std::move(mount));
  }
  return {};
}

Result<> read_linux(const Json& config, OciSpec& spec) {
  const JsonArray* namespaces = TRY(array_at(config, {"linux", "namespaces"}, "linux.namespaces"));
  for (std::size_t i = 0; i < namespaces->size(); ++i) {
    const Json& item = (*namespaces)[i];
    std::string path = at("linux.namespaces", i);
    OciNamespace ns;
    ns.type = TRY(string_at(item, {"type"}, path + ".type"));
    ns.path = TRY(string_at(item, {"path"}, path + ".path"));
    if (spec.has_namespace(ns.type))
      return fail(Code::kInvalid, path + ".type: occurs twice: '" + ns.type + "'");
    spec.namespaces.push_back(std::move(ns));
  }
  const JsonArray* devices = TRY(array_at(config, {"linux", "devices"}, "linux.devices"));
  for (std::size_t i = 0; i < devices->size(); ++i) {
    const Json& item = (*devices)[i];
    std::string path = at("linux.devices", i);
    OciDevice device;
    device.path = TRY(string_at(item, {"path"}, path + ".path"));
    if (device.path.empty() || device.path[0] != '/') {
      return fail(Code::kInvalid, path + ".path: must be an absolute path");
    }
    std::string type = TRY(string_at(item, {"type"}, path + ".type"));
    if (type.size() != 1 || std::string_view("bcup").find(type[0]) == std::string_view::npos) {
      return fail(Code::kInvalid, path + ".type: must be one of b, c, u, p; got '" + type + "'");
    }
    device.type = type[0];
    constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
    device.major = TRY(number_at(item, {"major"}, path + ".major", -1, kMax));
    device.minor = TRY(number_at(item, {"minor"}, path + ".minor", -1, kMax));
    spec.devices.push_back(std::move(device));
  }
  spec.rootfs_propagation = TRY(string_at(config, {"linux", "rootfsPropagation"}, "linux.rootfsPropagation"));
  spec.masked_paths = TRY(strings_at(config, {"linux", "maskedPaths"}, "linux.maskedPaths"));
  spec.readonly_paths = TRY(strings_at(config, {"linux", "readonlyPaths"}, "linux.readonlyPaths"));
  return {};
}

}  // namespace

bool OciSpec::has_namespace(std::string_view type) const {
  return find_namespace(type) != nullptr;
}

const OciNamespace* OciSpec::find_namespace(std::string_view type) const {
  for (const OciNamespace& ns : namespaces) {
    if (ns.type == type) return &ns;
  }
  return nullptr;
}

Result<OciSpec> parse_oci_spec(const Json& config) {
  if (!config.is_object()) return fail(Code::kInvalid, "must be a JSON object");
  OciSpec spec;
  spec.version = TRY(string_at(config, {"ociVersion"}, "ociVersion"));
  spec.root_path = TRY(string_at(config, {"root", "path"}, "root.path"));
  if (spec.root_path.empty()) return fail(Code::kInvalid, "root.path: must be given");
  spec.root_readonly = get_bool(config, {"root", "readonly"});
  spec.hostname = TRY(string_at(config, {"hostname"}, "hostname"));
  if (spec.hostname.size() > 64) return fail(Code::kInvalid, "hostname: is longer than 64 characters");
  spec.annotations = get_object(config, {"annotations"});
  TRY(read_process(config, spec));
  TRY(read_mounts(config, spec));
  TRY(read_linux(config, spec));
  spec.hooks.prestart = TRY(hooks_at(config, "prestart"));
  spec.hooks.create_runtime = TRY(hooks_at(config, "createRuntime"));
  spec.hooks.create_container = TRY(hooks_at(config, "createContainer"));
  spec.hooks.start_container = TRY(hooks_at(config, "startContainer"));
  spec.hooks.poststart = TRY(hooks_at(config, "poststart"));
  spec.hooks.poststop = TRY(hooks_at(config, "poststop"));
  return spec;
}

Result<OciSpec> read_oci_spec(const std::string& bundle) {
  std::string path = bundle + "/config.json";
  std::string doing = "load OCI configuration '" + path + "'";
  std::string text = TRY_IN(read_file(path), doing);
  Json config = TRY_IN(parse_json(text), doing);
  OciSpec spec = TRY_IN(parse_oci_spec(config), doing);
  if (spec.root_path[0] != '/') spec.root_path = bundle + "/" + spec.root_path;
  return spec;
}

}  // namespace gpuop::cluster

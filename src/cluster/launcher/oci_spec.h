// The part of an OCI runtime configuration (config.json, runtime-spec 1.0 to 1.2) that the launcher carries
// out. What is not here is left alone: unknown fields never fail a container (container-toolkit-cdi.md §3.1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace gpuop::cluster {

struct OciMount {
  std::string destination;
  std::string type;  // "bind" or a file system; empty means bind when the options say so
  std::string source;
  std::vector<std::string> options;
};

struct OciHook {
  std::string path;
  std::vector<std::string> args;
  std::vector<std::string> env;  // all that the hook gets
  int timeout_seconds = 0;       // 0: no limit
};

struct OciHooks {
  std::vector<OciHook> prestart, create_runtime, create_container, start_container, poststart, poststop;
};

struct OciDevice {
  std::string path;
  char type = 'c';  // b c u p
  std::int64_t major = 0, minor = 0;
};

struct OciNamespace {
  std::string type;  // pid mount uts ipc network user cgroup time
  std::string path;  // empty: a new one
};

struct OciRlimit {
  std::string type;  // "RLIMIT_NOFILE"
  std::uint64_t soft = 0, hard = 0;
};

struct OciCapabilities {
  std::vector<std::string> bounding, effective, permitted, inheritable, ambient;
};

struct OciSpec {
  std::string version;
  std::vector<std::string> args, env;
  std::string cwd = "/";
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> additional_gids;
  std::optional<std::uint32_t> umask;
  OciCapabilities capabilities;
  std::vector<OciRlimit> rlimits;
  bool no_new_privileges = false;
  std::string root_path;
  bool root_readonly = false;
  std::string hostname;
  std::vector<OciMount> mounts;
  OciHooks hooks;
  std::vector<OciNamespace> namespaces;
  std::vector<OciDevice> devices;
  std::string rootfs_propagation;
  std::vector<std::string> masked_paths, readonly_paths;
  Json annotations;  // an object

  bool has_namespace(std::string_view type) const;
  const OciNamespace* find_namespace(std::string_view type) const;
};

// Errors (kInvalid) name the field: "process.args: must be a list of strings".
Result<OciSpec> parse_oci_spec(const Json& config);

// Reads <bundle>/config.json.
Result<OciSpec> read_oci_spec(const std::string& bundle);

}  // namespace gpuop::cluster

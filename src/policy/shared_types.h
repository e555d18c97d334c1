// Field groups that several of our resources share (operator.md §1.2).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace gpuop::policy {

using StringMap = std::map<std::string, std::string>;

struct EnvVar {
  std::string name;
  std::string value;
  bool operator==(const EnvVar&) const = default;
};

// An image reference in parts; how the parts combine is operator.md §1.6.
struct ImageSpec {
  std::string repository;
  std::string image;
  std::string version;  // a tag, or "sha256:HEX"
  std::string image_pull_policy;
  std::vector<std::string> image_pull_secrets;
};

struct Manager : ImageSpec {
  std::vector<EnvVar> env;
};

// A container that goes along in the driver's pod.
struct Sidecar : ImageSpec {
  bool enabled = false;
  std::vector<std::string> args;
  std::vector<EnvVar> env;
};

// What every operand block has.
struct Operand : ImageSpec {
  bool enabled = false;
  Json resources;                 // {"limits": …, "requests": …}; null when absent
  std::vector<std::string> args;  // non-empty replaces the main container's
  std::vector<EnvVar> env;
  bool host_network = false;
};

// A T that is enabled unless the user says otherwise.
template <class T>
T on() {
  T block;
  block.enabled = true;
  return block;
}

struct Toggle {
  bool enabled = false;
};

struct NamedConfig {
  std::string name;
};

struct DefaultedConfig {
  std::string name;
  std::string default_config;
};

// Zero keeps the manifest's value.
struct Probe {
  std::int64_t initial_delay_seconds = 0;
  std::int64_t timeout_seconds = 0;
  std::int64_t period_seconds = 0;
  std::int64_t success_threshold = 0;
  std::int64_t failure_threshold = 0;
};

struct ServiceMonitor {
  bool enabled = false;
  std::string interval;        // Prometheus duration, e.g. "15s"
  std::string scrape_timeout;  // the same
  std::optional<bool> honor_labels;
  StringMap additional_labels;
  JsonArray relabelings;  // Prometheus RelabelConfig objects
};

struct Rdma {
  bool enabled = false;
  bool use_host_mofed = false;
};

// Driver upgrades (operator.md §6.2). Absent sub-blocks mean their defaults.
struct UpgradePolicy {
  bool auto_upgrade = false;
  std::int64_t max_parallel_upgrades = 1;  // 0: no limit
  Json max_unavailable = "25%";            // a count or "N%"
  struct WaitForCompletion {
    std::string pod_selector;
    std::int64_t timeout_seconds = 0;  // 0: for ever
  } wait_for_completion;
  struct PodDeletion {
    bool force = false;
    std::int64_t timeout_seconds = 300;
    bool delete_empty_dir = false;
  } pod_deletion;
  struct Drain {
    bool enable = false;
    bool force = false;
    std::string pod_selector;
    std::int64_t timeout_seconds = 300;
    bool delete_empty_dir = false;
  } drain;
};

struct HostPaths {
  std::string root_fs;             // "" counts as "/"
  std::string driver_install_dir;  // "" counts as "/run/nvidia/driver"
  std::string kubelet_root_dir = "/var/lib/kubelet";
};

// Something about a resource that its author should be told; nothing was refused.
struct Note {
  enum class Kind { kUnknownField, kDeprecatedField } kind;
  std::string path;  // "spec.driver.versoin"
  std::string text;  // "spec.driver.versoin: unknown field, has no effect (did you mean 'version'?)"
};

}  // namespace gpuop::policy

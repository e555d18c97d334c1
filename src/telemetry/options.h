// What the exporter was asked to do: flags over environment over configuration file over defaults
// (telemetry.md §1.2, §1.4).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "telemetry/counters.h"
#include "telemetry/selector.h"

namespace gpuop::telemetry {

struct Options {
  std::string collectors = "/etc/dcgm-exporter/default-counters.csv";
  std::string config_file;
  std::string address = ":9400";
  std::string web_read_timeout = "10s";
  std::string web_write_timeout = "30s";
  std::int64_t interval_ms = 30000;
  bool kubernetes = false;
  bool old_namespace = false;
  std::string cpu_devices = "f";
  std::string devices = "f";
  std::string switch_devices = "f";
  std::string configmap_data = "none";
  std::string remote;  // empty: not remote
  bool pod_labels = false;
  bool pod_uid = false;
  std::string gpu_id_type = "uid";
  std::vector<std::string> pod_label_allowlist;
  bool no_hostname = false;
  bool fake_gpus = false;
  bool systemd_socket = false;
  std::string web_config_file;
  std::int64_t xid_window_ms = 300000;
  std::int64_t clock_window_ms = 300000;
  bool join_model_name = false;
  bool debug = false;
  bool enable_dcgm_log = false;
  std::string dcgm_log_level = "NONE";
  std::string log_format = "text";
  std::string kubelet_socket = "/var/lib/kubelet/pod-resources/kubelet.sock";
  std::string hpc_dir;
  bool container_labels = false;
  std::string runtime_socket;
  std::vector<std::string> resource_names;
  bool virtual_gpus = false;
  bool dra = false;
  bool dump_enabled = false;
  std::string dump_directory = "/tmp/dcgm-exporter-debug";
  std::int64_t dump_retention_h = 24;
  bool dump_compression = true;
  bool disable_startup_validate = false;
  bool bind_watch = false;
  std::string bind_poll_interval = "1s";
  bool pprof = false;
  std::string host_label = "hostname";
  std::string backend = "auto";
  bool help = false;
  bool version = false;

  Selector selector;  // of `devices`
  // Families that the configuration file names itself; then `collectors` is not read.
  std::optional<CounterSet> inline_counters;
  std::vector<std::string> notes;  // what was asked for and has no effect, or was corrected

  Duration read_timeout() const;
  Duration write_timeout() const;
};

using Environment = std::map<std::string, std::string>;

// Reads `--config-file` where one is named. Errors name the flag or variable and the value.
Result<Options> parse_options(const std::vector<std::string>& arguments, const Environment& environment);

// The text of a configuration file (schema version 1) put over `options`; `set` has the flags that were given
// and therefore count more.
Result<> apply_config_file(std::string_view text, std::string_view file, const std::set<std::string>& set,
                           Options& options);

std::string help_text();

// The host label's value (§6.2); empty: none.
std::string host_label_value(const Options& options, const std::string& node_name,
                             const std::string& local_name);

// "host:port", ":9400" or "[::]:9400" taken apart; an empty host means every interface.
struct ListenAddress {
  std::string host;
  std::uint16_t port = 0;
};
Result<ListenAddress> parse_listen(std::string_view text);

}  // namespace gpuop::telemetry

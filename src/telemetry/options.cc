#include "telemetry/options.h"

#include <algorithm>
#include <variant>

#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"

namespace gpuop::telemetry {
namespace {

using Member = std::variant<bool Options::*, std::string Options::*, std::int64_t Options::*,
                            std::vector<std::string> Options::*>;

struct Flag {
  std::string_view name;
  std::string_view alias;  // one letter, or another long name; may be empty
  std::string_view env;
  Member member;
  std::string_view help;
};

const std::vector<Flag>& flags() {
  static const std::vector<Flag> table = {
      {"collectors", "f", "DCGM_EXPORTER_COLLECTORS", &Options::collectors, "File of the metrics to export"},
      {"config-file", "", "DCGM_EXPORTER_CONFIG_FILE", &Options::config_file, "YAML configuration file"},
      {"address", "a", "DCGM_EXPORTER_LISTEN", &Options::address, "Address to listen on, host:port"},
      {"web-read-timeout", "", "DCGM_EXPORTER_WEB_READ_TIMEOUT", &Options::web_read_timeout,
       "Longest wait for a request"},
      {"web-write-timeout", "", "DCGM_EXPORTER_WEB_WRITE_TIMEOUT", &Options::web_write_timeout,
       "Longest wait for an answer to be taken"},
      {"collect-interval", "c", "DCGM_EXPORTER_INTERVAL", &Options::interval_ms,
       "Milliseconds between readings"},
      {"kubernetes", "k", "DCGM_EXPORTER_KUBERNETES", &Options::kubernetes, "Add the pods that use each GPU"},
      {"use-old-namespace", "o", "DCGM_EXPORTER_USE_OLD_NAMESPACE", &Options::old_namespace,
       "Old label names: uuid, pod_name, pod_namespace, container_name"},
      {"cpu-devices", "p", "DCGM_EXPORTER_CPU_DEVICES_STR", &Options::cpu_devices, "CPUs to export"},
      {"devices", "d", "DCGM_EXPORTER_DEVICES_STR", &Options::devices,
       "GPUs to export: f, g[:0,2-3], i[:0,4], or both with +"},
      {"switch-devices", "s", "DCGM_EXPORTER_OTHER_DEVICES_STR", &Options::switch_devices,
       "NVSwitches to export"},
      {"configmap-data", "m", "DCGM_EXPORTER_CONFIGMAP_DATA", &Options::configmap_data,
       "NAMESPACE:NAME of a ConfigMap with the metrics to export"},
      {"remote-hostengine-info", "r", "DCGM_REMOTE_HOSTENGINE_INFO", &Options::remote,
       "Address of a host engine"},
      {"kubernetes-enable-pod-labels", "", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", &Options::pod_labels,
       "Add the pods' labels"},
      {"kubernetes-enable-pod-uid", "", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", &Options::pod_uid,
       "Add the pods' UIDs"},
      {"kubernetes-gpu-id-type", "", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", &Options::gpu_id_type,
       "What the device plugin's ids are: uid or device-name"},
      {"kubernetes-pod-label-allowlist-regex", "", "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX",
       &Options::pod_label_allowlist, "Pod labels to add; all where none is given"},
      {"no-hostname", "n", "DCGM_EXPORTER_NO_HOSTNAME", &Options::no_hostname, "No host label"},
      {"fake-gpus", "", "DCGM_EXPORTER_USE_FAKE_GPUS", &Options::fake_gpus, "Made-up GPUs, for tests"},
      {"web-systemd-socket", "", "DCGM_EXPORTER_SYSTEMD_SOCKET", &Options::systemd_socket,
       "Listen on the socket that systemd hands over"},
      {"web-config-file", "", "DCGM_EXPORTER_WEB_CONFIG_FILE", &Options::web_config_file,
       "TLS and users, in the format of Prometheus exporters"},
      {"xid-count-window-size", "x", "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", &Options::xid_window_ms,
       "Milliseconds over which XIDs are counted"},
      {"clock-events-count-window-size", "", "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE",
       &Options::clock_window_ms, "Milliseconds over which clock events are counted"},
      {"replace-blanks-in-model-name", "rbmn", "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME",
       &Options::join_model_name, "Model names with '-' for blanks"},
      {"debug", "", "DCGM_EXPORTER_DEBUG", &Options::debug, "Log more"},
      {"enable-dcgm-log", "", "DCGM_EXPORTER_ENABLE_DCGM_LOG", &Options::enable_dcgm_log,
       "Log of the DCGM library"},
      {"dcgm-log-level", "", "DCGM_EXPORTER_DCGM_LOG_LEVEL", &Options::dcgm_log_level,
       "NONE, FATAL, ERROR, WARN, INFO, DEBUG or VERB"},
      {"log-format", "", "DCGM_EXPORTER_LOG_FORMAT", &Options::log_format, "text or json"},
      {"pod-resources-kubelet-socket", "", "DCGM_POD_RESOURCES_KUBELET_SOCKET", &Options::kubelet_socket,
       "The kubelet's pod-resources socket"},
      {"hpc-job-mapping-dir", "", "DCGM_HPC_JOB_MAPPING_DIR", &Options::hpc_dir,
       "Folder with a file of job ids for each GPU"},
      {"container-labels", "", "DCGM_EXPORTER_CONTAINER_LABELS", &Options::container_labels,
       "Add containers' names without Kubernetes"},
      {"container-runtime-socket", "", "DCGM_CONTAINER_RUNTIME_SOCKET", &Options::runtime_socket,
       "Socket of a runtime with Docker's API"},
      {"nvidia-resource-names", "", "NVIDIA_RESOURCE_NAMES", &Options::resource_names,
       "Further resource names that mean GPUs"},
      {"kubernetes-virtual-gpus", "", "KUBERNETES_VIRTUAL_GPUS", &Options::virtual_gpus,
       "A series for each pod that shares a GPU"},
      {"kubernetes-enable-dra", "", "KUBERNETES_ENABLE_DRA", &Options::dra, "Follow resource claims"},
      {"dump-enabled", "", "DCGM_EXPORTER_DUMP_ENABLED", &Options::dump_enabled,
       "Write what was read to files"},
      {"dump-directory", "", "DCGM_EXPORTER_DUMP_DIRECTORY", &Options::dump_directory, "Where to"},
      {"dump-retention", "", "DCGM_EXPORTER_DUMP_RETENTION", &Options::dump_retention_h,
       "Hours until they are removed; 0: never"},
      {"dump-compression", "", "DCGM_EXPORTER_DUMP_COMPRESSION", &Options::dump_compression, "Compress them"},
      {"disable-startup-validate", "", "DISABLE_STARTUP_VALIDATE", &Options::disable_startup_validate,
       "No checks at start"},
      {"enable-gpu-bind-unbind-watch", "", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", &Options::bind_watch,
       "Always on here"},
      {"gpu-bind-unbind-poll-interval", "", "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL",
       &Options::bind_poll_interval, "Not used here"},
      {"enable-pprof", "", "DCGM_EXPORTER_ENABLE_PPROF", &Options::pprof, "Not used here"},
      {"hostname-label", "", "DCGM_EXPORTER_HOSTNAME_LABEL", &Options::host_label, "hostname or Hostname"},
      {"backend", "", "DCGM_EXPORTER_BACKEND", &Options::backend, "auto, dcgm, nvml or fake"},
      {"help", "h", "", &Options::help, "This text"},
      {"version", "v", "", &Options::version, "The version"},
  };
  return table;
}

const Flag* find_flag(std::string_view name) {
  for (const Flag& flag : flags())
    if (flag.name == name || (!flag.alias.empty() && flag.alias == name)) return &flag;
  return nullptr;
}

bool is_switch(const Flag& flag) {
  return std::holds_alternative<bool Options::*>(flag.member);
}

std::optional<bool> parse_bool(std::string_view text) {
  std::string word = to_lower(text);
  if (word == "true" || word == "1" || word == "t") return true;
  if (word == "false" || word == "0" || word == "f") return false;
  return std::nullopt;
}

// `first`: the first value of a source, which replaces what a weaker one said.
Result<> assign(Options& options, const Flag& flag, const std::string& value, bool first) {
  if (auto member = std::get_if<bool Options::*>(&flag.member)) {
    auto parsed = parse_bool(value);
    if (!parsed) return fail(Code::kInvalid, "'" + value + "' is neither true nor false");
    options.*(*member) = *parsed;
  } else if (auto text = std::get_if<std::string Options::*>(&flag.member)) {
    options.*(*text) = value;
  } else if (auto number = std::get_if<std::int64_t Options::*>(&flag.member)) {
    auto parsed = parse_int(value);
    if (!parsed) return fail(Code::kInvalid, "'" + value + "' is no whole number");
    options.*(*number) = *parsed;
  } else {
    auto& list = options.*std::get<std::vector<std::string> Options::*>(flag.member);
    if (first) list.clear();
    for (const std::string& item : split(value, ','))
      if (!trim(item).empty()) list.emplace_back(trim(item));
  }
  return {};
}

Result<> read_environment(const Environment& environment, Options& options, std::set<std::string>& set) {
  for (const Flag& flag : flags()) {
    auto found = flag.env.empty() ? environment.end() : environment.find(std::string(flag.env));
    if (found == environment.end() || found->second.empty()) continue;
    TRY_IN(assign(options, flag, found->second, true),
           "environment variable '" + std::string(flag.env) + "'");
    set.insert(std::string(flag.name));
  }
  return {};
}

Result<> read_arguments(const std::vector<std::string>& arguments, Options& options,
                        std::set<std::string>& set) {
  std::set<std::string_view> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view word = arguments[i];
    if (word.size() < 2 || word[0] != '-')
      return fail(Code::kInvalid, "unexpected argument '" + arguments[i] + "'");
    word.remove_prefix(word.starts_with("--") ? 2 : 1);
    auto equals = word.find('=');
    std::string name(word.substr(0, equals));
    const Flag* flag = find_flag(name);
    if (!flag) {
      std::vector<std::string> known;
      for (const Flag& each : flags()) known.emplace_back(each.name);
      return fail(Code::kInvalid, "flag provided but not defined: '" +
                                      arguments[i].substr(0, arguments[i].find('=')) + "'" +
                                      did_you_mean(name, known));
    }
    std::string value = "true";
    if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    } else if (!is_switch(*flag)) {
      if (i + 1 == arguments.size())
        return fail(Code::kInvalid, "flag '--" + std::string(flag->name) + "' needs a value");
      value = arguments[++i];
    }
    TRY_IN(assign(options, *flag, value, given.insert(flag->name).second),
           "flag '--" + std::string(flag->name) + "'");
    set.insert(std::string(flag->name));
  }
  return {};
}

Result<> must_be_one_of(std::string_view flag, const std::string& value, std::vector<std::string> allowed) {
  if (std::ranges::find(allowed, value) != allowed.end()) return {};
  return fail(Code::kInvalid, "invalid " + std::string(flag) + " parameter value: '" + value +
                                  "': must be one of " + join(allowed, ", ") + did_you_mean(value, allowed));
}

Result<> validate(Options& options) {
  TRY(must_be_one_of("dcgm-log-level", options.dcgm_log_level,
                     {"NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB"}));
  TRY(must_be_one_of("log-format", options.log_format, {"text", "json"}));
  TRY(must_be_one_of("kubernetes-gpu-id-type", options.gpu_id_type, {"uid", "device-name"}));
  TRY(must_be_one_of("hostname-label", options.host_label, {"hostname", "Hostname"}));
  TRY(must_be_one_of("backend", options.backend, {"auto", "dcgm", "nvml", "fake"}));
  if (options.interval_ms <= 0)
    return fail(Code::kInvalid,
                "flag '--collect-interval': '" + std::to_string(options.interval_ms) + "': must be above 0");
  for (auto [name, window] : {std::pair("xid-count-window-size", options.xid_window_ms),
                              std::pair("clock-events-count-window-size", options.clock_window_ms)})
    if (window <= 0)
      return fail(Code::kInvalid,
                  "flag '--" + std::string(name) + "': '" + std::to_string(window) + "': must be above 0");
  options.selector = TRY_IN(parse_selector(options.devices), "flag '--devices'");
  TRY_IN(parse_selector(options.switch_devices), "flag '--switch-devices'");
  TRY_IN(parse_selector(options.cpu_devices), "flag '--cpu-devices'");
  TRY_IN(parse_listen(options.address), "flag '--address'");
  if (options.configmap_data != "none" && std::ranges::count(options.configmap_data, ':') != 1)
    return fail(Code::kInvalid, "malformed configmap-data '" + options.configmap_data + "'");
  auto poll = parse_go_duration(options.bind_poll_interval);
  if (options.bind_watch && (!poll || *poll <= Duration::zero()))
    return fail(Code::kInvalid, "flag '--gpu-bind-unbind-poll-interval': '" + options.bind_poll_interval +
                                    "': must be a duration above 0");
  if (options.container_labels && options.kubernetes) {
    options.notes.push_back("--container-labels is ignored in Kubernetes mode");
    options.container_labels = false;
  }
  if (options.container_labels && options.runtime_socket.empty())
    return fail(Code::kInvalid, "flag '--container-labels' needs '--container-runtime-socket'");
  for (auto [name, value] : {std::pair("web-read-timeout", options.web_read_timeout),
                             std::pair("web-write-timeout", options.web_write_timeout)})
    if (!parse_go_duration(value))
      options.notes.push_back("flag '--" + std::string(name) + "': '" + value +
                              "' is no duration: the default is used");
  if (options.pprof) options.notes.push_back("--enable-pprof has no effect here");
  return {};
}

// --- the configuration file ---

Error wrong(const YamlDocument& document, const std::string& path, const std::string& why) {
  return {Code::kInvalid,
          "line " + std::to_string(document.line_of(path)) + ": " + (path.empty() ? "" : path + ": ") + why};
}

Result<> known_keys(const YamlDocument& document, const Json& value, const std::string& path,
                    const std::vector<std::string>& known) {
  if (!value.is_object()) return fail(wrong(document, path, "must be a map"));
  for (const auto& [key, child] : value.get_object()) {
    std::string name(key);
    if (std::ranges::find(known, name) == known.end())
      return fail(wrong(document, path.empty() ? name : path + "." + name,
                        "unknown key" + did_you_mean(name, known)));
  }
  return {};
}

Result<std::int64_t> whole_milliseconds(const YamlDocument& document, const std::string& path,
                                        const std::string& text) {
  auto span = parse_go_duration(text);
  if (!span || *span <= Duration::zero())
    return fail(wrong(document, path, "'" + text + "' must be a duration above 0"));
  if (*span % std::chrono::milliseconds(1) != Duration::zero())
    return fail(wrong(document, path, "'" + text + "' must be whole milliseconds"));
  return std::chrono::duration_cast<std::chrono::milliseconds>(*span).count();
}

Result<CounterSet> read_fields(const YamlDocument& document, const JsonArray& fields) {
  CounterSet set;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::string path = "metrics.fields[" + std::to_string(i) + "]";
    TRY(known_keys(document, fields[i], path, {"name", "prometheusType", "help"}));
    for (const char* key : {"name", "prometheusType", "help"})
      if (get_string(fields[i], {key}).empty())
        return fail(wrong(document, path, std::string(key) + " is required"));
    auto counter = make_counter(get_string(fields[i], {"name"}), get_string(fields[i], {"prometheusType"}),
                                get_string(fields[i], {"help"}));
    if (!counter) return fail(wrong(document, path, counter.error().text()));
    counter->line = document.line_of(path);
    std::size_t before = set.warnings.size();
    std::string name = counter->name;
    add_counter(set, std::move(*counter));
    if (set.warnings.size() != before) return fail(wrong(document, path, "'" + name + "' is listed before"));
  }
  return set;
}

Result<> check_watch_groups(const YamlDocument& document, const Json& collection) {
  std::set<std::string> names;
  const JsonArray& groups = get_array(collection, {"watchGroups"});
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::string path = "collection.watchGroups[" + std::to_string(i) + "]";
    TRY(known_keys(document, groups[i], path, {"name", "interval", "fields"}));
    std::string name(get_string(groups[i], {"name"}));
    if (name.empty() || !names.insert(name).second)
      return fail(wrong(document, path, "name must be there and unique"));
    if (get_array(groups[i], {"fields"}).empty())
      return fail(wrong(document, path, "fields must not be empty"));
    TRY(whole_milliseconds(document, path + ".interval", std::string(get_string(groups[i], {"interval"}))));
  }
  return {};
}

}  // namespace

Result<> apply_config_file(std::string_view text, std::string_view file, const std::set<std::string>& set,
                           Options& options) {
  const std::string doing = "read configuration '" + std::string(file) + "'";
  YamlDocument document = TRY_IN(parse_yaml_one(text, file), doing);
  auto check = [&]() -> Result<> {
    if (!document.duplicate_keys.empty())
      return fail(wrong(document, document.duplicate_keys.front(), "the key is there twice"));
    const Json& root = document.value;
    TRY(known_keys(document, root, "", {"version", "metrics", "collection"}));
    const Json* version = find(root, {"version"});
    if (!version || !version->is_int64() || version->get_int64() != 1)
      return fail(wrong(document, "version", "version must be 1"));
    if (const Json* metrics = find(root, {"metrics"})) {
      TRY(known_keys(document, *metrics, "metrics", {"file", "fields"}));
      bool has_file = find(*metrics, {"file"}) != nullptr;
      bool has_fields = find(*metrics, {"fields"}) != nullptr;
      if (has_file == has_fields)
        return fail(wrong(document, "metrics", "exactly one of file or fields must be given"));
      if (has_file && !set.contains("collectors")) options.collectors = get_string(*metrics, {"file"});
      if (has_fields && !set.contains("collectors"))
        options.inline_counters = TRY(read_fields(document, get_array(*metrics, {"fields"})));
    }
    if (const Json* collection = find(root, {"collection"})) {
      TRY(known_keys(document, *collection, "collection", {"interval", "watchGroups"}));
      if (find(*collection, {"interval"})) {
        auto interval = TRY(whole_milliseconds(document, "collection.interval",
                                               std::string(get_string(*collection, {"interval"}))));
        if (!set.contains("collect-interval")) options.interval_ms = interval;
      }
      TRY(check_watch_groups(document, *collection));
      if (!get_array(*collection, {"watchGroups"}).empty())
        options.notes.push_back(
            "collection.watchGroups: all fields are read together, at the interval of the exporter");
    }
    return {};
  };
  TRY_IN(check(), doing);
  return {};
}

Result<Options> parse_options(const std::vector<std::string>& arguments, const Environment& environment) {
  Options options;
  std::set<std::string> set;
  TRY(read_environment(environment, options, set));
  TRY(read_arguments(arguments, options, set));
  if (options.help || options.version) return options;
  if (!options.config_file.empty()) {
    std::string text =
        TRY_IN(read_file(options.config_file, 1u << 20), "read configuration '" + options.config_file + "'");
    TRY(apply_config_file(text, options.config_file, set, options));
  }
  TRY(validate(options));
  return options;
}

std::string help_text() {
  std::string text = "usage: dcgm-exporter [FLAG…]\n\n";
  for (const Flag& flag : flags()) {
    std::string line = "  --" + std::string(flag.name);
    if (flag.alias.size() == 1) line += ", -" + std::string(flag.alias);
    if (flag.alias.size() > 1) line += ", --" + std::string(flag.alias);
    line.resize(std::max<std::size_t>(line.size() + 1, 44), ' ');
    text += line + std::string(flag.help);
    if (!flag.env.empty()) text += " [$" + std::string(flag.env) + "]";
    text += "\n";
  }
  return text;
}

Duration Options::read_timeout() const {
  return parse_go_duration(web_read_timeout).value_or(10s);
}

Duration Options::write_timeout() const {
  return parse_go_duration(web_write_timeout).value_or(30s);
}

Result<ListenAddress> parse_listen(std::string_view text) {
  auto colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return fail(Code::kInvalid, "'" + std::string(text) + "' has no port: host:port is expected");
  auto port = parse_int(text.substr(colon + 1));
  if (!port || *port < 0 || *port > 65535)
    return fail(Code::kInvalid,
                "'" + std::string(text) + "': '" + std::string(text.substr(colon + 1)) + "' is no port");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.find(':') != std::string_view::npos && text[0] != '[')
    return fail(Code::kInvalid, "'" + std::string(text) + "': an IPv6 address needs brackets: [::]:9400");
  return ListenAddress{std::string(host), static_cast<std::uint16_t>(*port)};
}

std::string host_label_value(const Options& options, const std::string& node_name,
                             const std::string& local_name) {
  if (options.no_hostname) return {};
  if (options.kubernetes) return node_name.empty() ? local_name : node_name;
  std::string remote = options.remote;
  if (remote.empty() || remote.starts_with("unix://") || remote.starts_with("vsock://")) return local_name;
  if (remote.starts_with("tcp://")) remote.erase(0, 6);
  std::string host = remote;
  if (remote.starts_with('[')) {
    host = remote.substr(1, remote.find(']') == std::string::npos ? std::string::npos : remote.find(']') - 1);
  } else if (std::ranges::count(remote, ':') == 1) {
    host = remote.substr(0, remote.find(':'));
  }
  bool loopback = host.empty() || to_lower(host) == "localhost" || host.starts_with("127.") || host == "::1";
  return loopback ? local_name : host;
}

}  // namespace gpuop::telemetry

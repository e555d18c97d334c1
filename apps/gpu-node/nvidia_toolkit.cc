// nvidia-toolkit: options of container-toolkit-cdi.md §5.1.
#include <malloc.h>

#include <csignal>
#include <cstdlib>

#include "base/json.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/process.h"
#include "base/text.h"
#include "cli.h"
#include "roles.h"
#include "toolkit/toolkit.h"

namespace gpuop {
namespace {

// CLI11 takes one variable for an option; upstream has several, the first that is set counts.
template <class T>
CLI::Option* option(CLI::App& app, const char* flags, T& value, const char* help,
                    std::initializer_list<const char*> variables) {
  CLI::Option* made = app.add_option(flags, value, help);
  for (const char* name : variables) {
    if (env_or(name).empty()) continue;
    return made->envname(name);
  }
  return variables.size() > 0 ? made->envname(*variables.begin()) : made;
}

// Lists come as one text with commas or as several occurrences.
std::vector<std::string> comma_list(const std::vector<std::string>& given) {
  std::vector<std::string> items;
  for (const auto& text : given) {
    for (const auto& item : split(text, ',')) {
      if (!trim(item).empty()) items.emplace_back(trim(item));
    }
  }
  return items;
}

// What upstream takes and this build does not need.
struct Ignored {
  std::string package_type, cri_hooks_dir, hook_filename, config_mode, executable, config_sources, nri_index,
      nri_socket, nri_namespace, nri_extra;
};

void add_ignored(CLI::App& app, Ignored& ignored) {
  option(app, "--toolkit-package-type", ignored.package_type, "accepted, without effect",
         {"TOOLKIT_PACKAGE_TYPE"});
  option(app, "--hooks-dir", ignored.cri_hooks_dir, "accepted, without effect", {"CRIO_HOOKS_DIR"});
  option(app, "--hook-filename", ignored.hook_filename, "accepted, without effect", {"CRIO_HOOK_FILENAME"});
  option(app, "--config-mode", ignored.config_mode, "accepted, without effect", {"CRIO_CONFIG_MODE"});
  option(app, "--executable-path", ignored.executable, "accepted, without effect",
         {"RUNTIME_EXECUTABLE_PATH"});
  option(app, "--config-source,--config-sources", ignored.config_sources,
         "accepted: options are copied from the configuration file",
         {"RUNTIME_CONFIG_SOURCES", "RUNTIME_CONFIG_SOURCE"});
  option(app, "--nri-plugin-index", ignored.nri_index, "index of the NRI plugin", {"NRI_PLUGIN_INDEX"});
  option(app, "--nri-socket", ignored.nri_socket, "socket of NRI", {"NRI_SOCKET"});
  option(app, "--nri-namespace", ignored.nri_namespace, "namespace that may ask for management devices",
         {"NRI_NAMESPACE"});
  option(app, "--nri-management-cdi-device-namespaces", ignored.nri_extra, "further such namespaces",
         {"NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES"});
}

struct Lists {
  std::vector<std::string> annotation_prefixes;
  std::vector<std::string> runtimes;
  std::vector<std::string> features;
  std::vector<std::string> configured;
};

void add_installer(CLI::App& app, toolkit::Options& options, Lists& lists) {
  app.add_flag("-n,--no-daemon", options.no_daemon, "end after the set-up")->envname("NO_DAEMON");
  app.add_flag("--no-runtime-config", options.no_runtime_config, "leave the engine alone")
      ->envname("NO_RUNTIME_CONFIG");
  option(app, "-r,--runtime", options.engine, "container engine: containerd, crio or docker", {"RUNTIME"});
  option(app, "--toolkit-install-dir,--root", options.root, "folder of the toolkit on the host",
         {"TOOLKIT_INSTALL_DIR", "ROOT"});
  option(app, "--toolkit-source-root", options.source, "folder of the programs to install",
         {"TOOLKIT_SOURCE_ROOT"});
  option(app, "--pid-file", options.pid_file, "file with the process id, and lock",
         {"TOOLKIT_PID_FILE", "PID_FILE"});
  app.add_flag("-p,--enable-nri-plugin", options.enable_nri_plugin, "inject through NRI")
      ->envname("ENABLE_NRI_PLUGIN");
  option(app, "--configured-file", lists.configured,
         "files that are made when the engine is configured, with commas", {"TOOLKIT_CONFIGURED_FILE"});
  option(app, "--driver-root,--nvidia-driver-root", options.driver_root, "driver root, as the host sees it",
         {"NVIDIA_DRIVER_ROOT", "DRIVER_ROOT"});
  option(app, "--driver-root-ctr-path", options.driver_root_ctr_path, "driver root, here",
         {"DRIVER_ROOT_CTR_PATH"});
  option(app, "--dev-root", options.dev_root, "root of the device nodes, as the host sees it",
         {"NVIDIA_DEV_ROOT", "DEV_ROOT"});
  option(app, "--dev-root-ctr-path", options.dev_root_ctr_path, "root of the device nodes, here",
         {"DEV_ROOT_CTR_PATH"});
  app.add_flag("--cdi-enabled,--enable-cdi", options.cdi_enabled, "write a CDI spec")
      ->envname(env_or("CDI_ENABLED").empty() ? "ENABLE_CDI" : "CDI_ENABLED");
  option(app, "--cdi-output-dir", options.cdi_output_dir, "folder of CDI specs", {"CDI_OUTPUT_DIR"});
  option(app, "--cdi-kind", options.cdi_kind, "kind of the management spec", {"CDI_KIND"});
  option(app, "--create-device-nodes", options.create_device_nodes, "device nodes to make: control or none",
         {"CREATE_DEVICE_NODES"});
}

void add_engine(CLI::App& app, toolkit::Options& options, std::string& overrides,
                std::string& cdi_in_runtime) {
  option(app, "--config", options.config, "the engine's configuration file",
         {"RUNTIME_CONFIG", "CONTAINERD_CONFIG", "DOCKER_CONFIG", "CRIO_CONFIG"});
  option(app, "--drop-in-config", options.drop_in, "the drop-in file", {"RUNTIME_DROP_IN_CONFIG"});
  option(app, "--drop-in-config-host-path", options.drop_in_host_path,
         "the drop-in file, as the host sees it", {"RUNTIME_DROP_IN_CONFIG_HOST_PATH"});
  option(app, "--socket", options.socket, "the engine's socket",
         {"RUNTIME_SOCKET", "CONTAINERD_SOCKET", "DOCKER_SOCKET"});
  option(app, "--restart-mode", options.restart_mode, "how the engine is restarted: signal, systemd or none",
         {"RUNTIME_RESTART_MODE"});
  option(app, "--enable-cdi-in-runtime", cdi_in_runtime, "switch CDI on in the engine",
         {"RUNTIME_ENABLE_CDI"});
  option(app, "--host-root", options.host_root, "the host's root, here", {"HOST_ROOT_MOUNT"});
  option(app, "--runtime-name,--nvidia-runtime-name,--runtime-class", options.runtime_name,
         "name of the runtime", {"NVIDIA_RUNTIME_NAME", "CONTAINERD_RUNTIME_CLASS", "DOCKER_RUNTIME_NAME"});
  option(app, "--set-as-default", options.set_as_default, "make it the engine's default",
         {"NVIDIA_RUNTIME_SET_AS_DEFAULT", "CONTAINERD_SET_AS_DEFAULT", "DOCKER_SET_AS_DEFAULT"});
  app.add_flag("--use-legacy-config", options.legacy_config, "containerd: version 1 configuration")
      ->envname("CONTAINERD_USE_LEGACY_CONFIG");
  option(app, "--runtime-type", options.runtime_type, "containerd: type of the runtime",
         {"CONTAINERD_RUNTIME_TYPE"});
  option(app, "--runtime-config-override", overrides, "JSON merged into each of our runtimes",
         {"RUNTIME_CONFIG_OVERRIDE", "CONTAINERD_RUNTIME_CONFIG_OVERRIDE"});
}

void add_runtime(CLI::App& app, toolkit::Options& options, Lists& lists) {
  auto& runtime = options.runtime;
  option(app, "--nvidia-container-runtime.debug", runtime.debug, "the runtime's log file",
         {"NVIDIA_CONTAINER_RUNTIME_DEBUG"});
  option(app, "--nvidia-container-runtime.log-level", runtime.log_level, "the runtime's log level",
         {"NVIDIA_CONTAINER_RUNTIME_LOG_LEVEL"});
  option(app, "--nvidia-container-runtime.mode", runtime.mode, "the runtime's mode",
         {"NVIDIA_CONTAINER_RUNTIME_MODE"});
  option(app, "--nvidia-container-runtime.modes.cdi.default-kind", runtime.default_kind,
         "kind of unqualified devices", {"NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND"});
  option(app, "--nvidia-container-runtime.modes.cdi.annotation-prefixes", lists.annotation_prefixes,
         "annotations that ask for devices", {"NVIDIA_CONTAINER_RUNTIME_MODES_CDI_ANNOTATION_PREFIXES"});
  option(app, "--nvidia-container-runtime.runtimes", lists.runtimes, "low-level runtimes",
         {"NVIDIA_CONTAINER_RUNTIME_RUNTIMES"});
  option(app, "--nvidia-container-runtime-hook.skip-mode-detection", runtime.skip_mode_detection,
         "let the hook skip its check", {"NVIDIA_CONTAINER_RUNTIME_HOOK_SKIP_MODE_DETECTION"});
  option(app, "--nvidia-container-cli.debug", runtime.cli_debug, "the CLI's log file",
         {"NVIDIA_CONTAINER_CLI_DEBUG"});
  option(app, "--accept-nvidia-visible-devices-envvar-when-unprivileged", runtime.accept_envvar_unprivileged,
         "take requests by variable in unprivileged containers",
         {"ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"});
  option(app, "--accept-nvidia-visible-devices-as-volume-mounts", runtime.accept_volume_mounts,
         "take requests by volume mount", {"ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"});
  option(app, "--opt-in-features", lists.features, "features to switch on",
         {"NVIDIA_CONTAINER_TOOLKIT_OPT_IN_FEATURES"});
}

// Where the gate is, by the same rule as for other operands: driver_ready.h.
std::filesystem::path driver_gate() {
  const char* set = std::getenv("DRIVER_READY_FILE");
  if (set != nullptr) return set;
  fs::path usual = "/run/nvidia/validations/driver-ready";
  return file_exists(usual.parent_path()) ? usual : fs::path();
}

// Pods that wait for the runtime can start now: the operator looks for this Event (operator/wake.h). Where
// none can be written, it sees that this container is ready.
Handle tell_configured(Loop& loop, const toolkit::Options& options) {
  if (options.configured.empty() || env_or("POD_UID").empty()) return {};
  Command command{
      {self_path().string(), "event", "--component", "nvidia-toolkit", "--reason", "RuntimeConfigured",
       options.engine + " is configured: pods can use " + options.runtime_name},
      current_environment()};
  command.merge_output = true;
  return run_command(loop, std::move(command), 30s, [](const Result<ExitState>& ended) {
    if (!ended || !ended->ok())
      log::warn("the operator was not told that the runtime is configured",
                {{"error", ended ? std::string(trim(ended->out)) : ended.error().text()}});
  });
}

int run(Loop& loop, toolkit::Options options) {
  const toolkit::Options given = options;
  auto created = toolkit::Toolkit::create(loop, std::move(options));
  if (!created) {
    log::error(created.error().text());
    return 1;
  }
  auto& tool = **created;
  Handle signals = on_signals(loop, {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM}, [&](int number) {
    log::info("stopping", {{"signal", number}});
    loop.stop();
  });
  if (auto done = tool.set_up(); !done) {
    tool.release();
    if (loop.stopped()) return 0;
    log::error(done.error().text());
    return 1;
  }
  log::info("the toolkit is set up");
  const Handle telling = tell_configured(loop, given);
  if (tool.no_daemon()) {
    tool.release();
    return 0;
  }
  // What the programs were read into while they were copied: 20 MiB that nothing needs any more.
  ::malloc_trim(0);
  if (auto done = tool.serve(); !done) log::error(done.error().text());
  if (auto done = tool.clean_up(); !done) {
    log::error(done.error().text());
    return 1;
  }
  return 0;
}

}  // namespace

int nvidia_toolkit_main(int argc, char** argv) {
  toolkit::Options options;
  Ignored ignored;
  Lists lists;
  std::string overrides = "{}";
  std::string cdi_in_runtime;
  bool debug = false;
  std::string rescan;
  CLI::App app("Install the container toolkit on the host and wire the container engine.");
  app.add_flag("--debug", debug, "log more")->envname("TOOLKIT_DEBUG");
  add_installer(app, options, lists);
  add_engine(app, options, overrides, cdi_in_runtime);
  add_runtime(app, options, lists);
  add_ignored(app, ignored);
  option(app, "--device-rescan-interval", rescan,
         "how often GPUs that could not be read are tried again, while there are such; 0: only when a device "
         "node "
         "comes (default 10s)",
         {"TOOLKIT_DEVICE_RESCAN_INTERVAL"});
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("nvidia-toolkit", debug ? log::Level::kDebug : log::Level::kInfo);

  options.runtime.annotation_prefixes = comma_list(lists.annotation_prefixes);
  options.runtimes = comma_list(lists.runtimes);
  for (std::string& file : comma_list(lists.configured)) options.configured.emplace_back(std::move(file));
  options.runtime.features = comma_list(lists.features);
  options.driver_ready = driver_gate();
  if (!cdi_in_runtime.empty())
    options.enable_cdi_in_runtime = cdi_in_runtime == "true" || cdi_in_runtime == "1";
  if (!rescan.empty()) {
    auto span = parse_go_duration(rescan);
    if (!span) {
      log::error("--device-rescan-interval: " + span.error().text());
      return 1;
    }
    options.device_rescan_interval = *span;
  }
  auto parsed = parse_json(overrides);
  if (!parsed || !parsed->is_object()) {
    log::error("--runtime-config-override: must be a JSON object", {{"value", overrides}});
    return 1;
  }
  options.overrides = std::move(*parsed);
  Loop loop;
  return run(loop, std::move(options));
}

}  // namespace gpuop

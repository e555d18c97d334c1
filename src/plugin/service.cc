#include "plugin/service.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "hardware/driver_root.h"
#include "hardware/returned.h"
#include "plugin/cdi_specs.h"
#include "plugin/health.h"
#include "plugin/health_watch.h"
#include "plugin/mps_daemon.h"
#include "plugin/server.h"

namespace gpuop::plugin {
namespace {

using sharing::Settings;

constexpr Duration kMpsCommandLimit = 10s;

// Which file a path names now: a socket that was removed and made again is another one, even with the same
// inode.
std::string identity(const fs::path& path) {
  struct statx status{};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &status) != 0)
    return {};
  const auto& time = status.stx_mask & STATX_BTIME ? status.stx_btime : status.stx_ctime;
  return std::to_string(status.stx_dev_major) + ":" + std::to_string(status.stx_dev_minor) + ":" +
         std::to_string(status.stx_ino) + ":" + std::to_string(time.tv_sec) + "." +
         std::to_string(time.tv_nsec);
}

Result<Settings> load_settings(sharing::SettingsInputs inputs) {
  std::string path = sharing::config_file_path(sharing::Program::kPlugin, inputs);
  if (!path.empty()) {
    std::string text = TRY_IN(read_file(path), "unable to parse config file");
    inputs.file = TRY(sharing::parse_config_file(text, path));
  }
  Settings settings = TRY(sharing::resolve_settings(sharing::Program::kPlugin, inputs));
  for (const std::string& note : settings.notes) log::warn("configuration: " + note);
  log::info("configuration:\n" + to_pretty_text(sharing::settings_json(sharing::Program::kPlugin, settings)));
  return settings;
}

}  // namespace

struct Service::Impl {
  // What one start made; dropped whole before the next.
  struct Run {
    Settings settings;
    Plan plan;
    CdiOutcome cdi;
    bool nvml_missing = false;
    bool watching = false;
    std::vector<std::unique_ptr<PluginServer>> servers;
    std::vector<Handle> registrations;
    std::unique_ptr<HealthWatch> watch;
    std::unique_ptr<hardware::ReturnedWatch> returned;
    std::map<std::string, std::string> sockets;  // path to identity
    std::unique_ptr<DirWatch> mps_watch;
    std::vector<Handle> mps_checks;
    Handle recovery;
  };

  Impl(Loop& l, ServiceOptions o, std::function<void(const Error&)> f)
      : loop(l), options(std::move(o)), fatal(std::move(f)), health(rules()) {}

  HealthRules rules() const {
    auto text = [&](const char* name) {
      auto found = options.inputs.env.find(name);
      return found == options.inputs.env.end() ? std::string() : found->second;
    };
    return parse_health_rules(text("DP_DISABLE_HEALTHCHECKS"), text("DP_ENABLE_HEALTHCHECKS"));
  }

  Result<> begin() {
    run.reset();
    retry.reset();
    last_start = loop.elapsed();
    auto next = std::make_unique<Run>();
    next->settings = TRY(load_settings(options.inputs));
    const Settings& settings = next->settings;
    TRY(sharing::validate_plugin(settings, observe_platform(settings)));
    Facts facts = TRY(observe(settings));
    next->plan = TRY(plan_resources(settings, facts));
    for (const std::string& warning : next->plan.warnings) log::warn(warning);
    next->nvml_missing = !facts.init_error.empty();
    if (!next->nvml_missing) {
      next->cdi = TRY_IN(write_cdi_specs(settings, facts, next->plan, options.cdi_dir), "write CDI specs");
    }
    TRY(some_node_seen(*next, facts));
    run = std::move(next);
    kubelet = identity(settings.kubelet_socket);
    warn_of_stale_names();
    TRY(watch_kubelet());
    if (run->nvml_missing) {
      retry = loop.after(options.nvml_retry, [this] { restart("look for a driver again"); });
    }
    run->returned = watch_missing(loop, run->settings, facts,
                                  [this] { restart_soon("a GPU answers that did not before"); });
    if (run->plan.resources.empty()) {
      log::info("no devices found; waiting for them");
      return {};
    }
    mps_or_serve();
    return {};
  }

  // Not one device node of any GPU: what is mounted here as the driver's root is one that is gone, which a
  // driver container that starts anew leaves to whoever started in between, or this container was made while
  // the nodes were. Only a new container sees them.
  static Result<> some_node_seen(const Run& run, const Facts& facts) {
    if (!run.settings.fail_on_init_error) return {};
    if (run.nvml_missing || facts.platform == Platform::kTegra) return {};
    if (facts.inventory.gpus.empty() && facts.inventory.unread == 0) {
      const auto driven = list_dir(kernel_path("/proc/driver/nvidia/gpus"));
      if (!driven || driven->empty()) return {};
      return fail(Code::kUnavailable,
                  "find device nodes: NVML finds no GPU in this container, the kernel's driver has " +
                      std::to_string(driven->size()) + ": the container has been made without their nodes");
    }
    std::size_t devices = 0;
    for (const Resource& resource : run.plan.resources) devices += resource.devices.size();
    if (run.cdi.missing.empty() || run.cdi.missing.size() < devices) return {};
    const auto& [name, path] = *run.cdi.missing.begin();
    return fail(Code::kUnavailable, "find device nodes: none of the GPUs has one, " + path +
                                        " is not there: the "
                                        "driver's root is not that of a running driver");
  }

  // A resource name that the kubelet has seen stays on the node with value 0; only a kubelet restart removes
  // it.
  void warn_of_stale_names() {
    std::set<std::string> now;
    for (const Resource& resource : run->plan.resources) now.insert(resource.name);
    for (const std::string& name : ever_registered) {
      if (now.contains(name)) continue;
      log::warn("resource is no longer offered; it stays on the node with value 0 until the kubelet restarts",
                {{"resource", name}});
    }
    registered_now.clear();
  }

  // --- MPS: the control daemons must answer before anything is offered (§4.3) ---

  void mps_or_serve() {
    if (sharing::active_strategy(run->settings) != sharing::SharingStrategy::kMps) return serve();
    auto ready = options.mps_dir / ".ready";
    if (file_exists(ready)) return check_mps();
    log::warn("error waiting for MPS daemon: not ready yet", {{"file", ready.string()}});
    auto watch = DirWatch::create(loop, options.mps_dir, [this, ready] {
      if (!file_exists(ready)) return;
      loop.post([this] {
        if (!run || !run->mps_watch) return;
        run->mps_watch.reset();
        check_mps();
      });
    });
    if (!watch) return retry_later(watch.error());
    run->mps_watch = std::move(*watch);
  }

  Result<std::string> mps_control() const {
    if (!options.mps_control.empty()) return options.mps_control;
    auto path = options.inputs.env.find("PATH");
    return find_program_in_path("nvidia-cuda-mps-control",
                                path == options.inputs.env.end() ? std::string_view() : path->second);
  }

  void check_mps() {
    auto left = std::make_shared<std::size_t>(0);
    auto control = mps_control();
    if (!control) return retry_later(control.error());
    for (const Resource& resource : run->plan.resources) {
      if (std::ranges::none_of(resource.devices, &Device::annotated)) continue;
      ++*left;
      Command command;
      command.argv = {*control};
      command.env = {"CUDA_MPS_PIPE_DIRECTORY=" + (options.mps_dir / resource.name / "pipe").string(),
                     "CUDA_MPS_LOG_DIRECTORY=" + (options.mps_dir / resource.name / "log").string()};
      command.input = "get_default_active_thread_percentage\n";
      run->mps_checks.push_back(
          run_command(loop, std::move(command), kMpsCommandLimit, [this, left](Result<ExitState> done) {
            const std::string doing = "error waiting for MPS daemon: error checking MPS daemon health";
            if (!done) return retry_later(std::move(done).error().in(doing));
            if (!done->ok()) {
              return retry_later(Error(Code::kUnavailable, doing + ": exit status " +
                                                               std::to_string(done->code) + ": " +
                                                               std::string(trim(done->err))));
            }
            if (--*left == 0) serve();
          }));
    }
    if (*left == 0) serve();
  }

  // --- serving ---

  void serve() {
    for (const Resource& resource : run->plan.resources) {
      auto path = (options.plugin_dir / resource.endpoint()).string();
      auto offer = make_offer(offer_of(resource));
      auto server = PluginServer::create(path, offer, healthy_list(*offer));
      if (!server) return retry_later(server.error());
      run->sockets[path] = identity(path);
      run->servers.push_back(std::move(*server));
      log::info("serving",
                {{"resource", resource.name}, {"devices", resource.devices.size()}, {"socket", path}});
      register_resource(resource);
    }
    start_health();
  }

  Offer offer_of(const Resource& resource) const {
    Offer offer;
    offer.resource = resource;
    offer.settings = run->settings;
    offer.scores = run->plan.scores;
    offer.control_nodes = run->plan.control_nodes;
    offer.imex = run->plan.imex;
    offer.cdi_classes = run->cdi.classes;
    for (const auto& [name, path] : run->cdi.missing) offer.not_in_cdi.push_back(name);
    return offer;
  }

  void register_resource(const Resource& resource) {
    if (run->settings.kubelet_socket.empty()) {
      log::info("no kubelet socket: not registering", {{"resource", resource.name}});
      return;
    }
    Registration registration{run->settings.kubelet_socket, resource.endpoint(), resource.name};
    run->registrations.push_back(
        register_plugin(loop, registration, [this, name = resource.name](Result<> done) {
          if (!done) return retry_later(done.error());
          log::info("registered with the kubelet", {{"resource", name}});
          ever_registered.insert(name);
          registered_now.push_back(name);
        }));
  }

  void retry_later(const Error& error) {
    log::error("start failed: " + error.text(), {{"retry", format_go_duration(options.retry)}});
    // Not at once: the caller may stand in something that the run owns.
    loop.post([this] {
      if (!run) return;
      run->registrations.clear();
      run->mps_checks.clear();
      run->watch.reset();
      run->servers.clear();
      run->sockets.clear();
    });
    retry = loop.after(options.retry, [this] { restart("retry"); });
  }

  void restart(const char* why) {
    log::info(std::string("restarting: ") + why);
    pending.reset();
    if (auto begun = begin(); !begun) fatal(begun.error());
  }

  // --- the kubelet's folder ---

  Result<> watch_kubelet() {
    fs::path dir = run->settings.kubelet_socket.empty()
                       ? options.plugin_dir
                       : fs::path(run->settings.kubelet_socket).parent_path();
    if (watched_dir == dir && dir_watch) return {};
    watched_dir = dir;
    dir_watch = TRY(DirWatch::create(loop, dir, [this] { look(); }));
    return {};
  }

  // The kubelet removes all sockets when it starts and makes its own last.
  void look() {
    if (!run) return;
    std::string now = identity(run->settings.kubelet_socket);
    if (!now.empty() && now != kubelet) return restart_soon("the kubelet's socket is new");
    if (now.empty() && !run->settings.kubelet_socket.empty()) return;  // it will come, and then we start anew
    for (const auto& [path, socket] : run->sockets) {
      if (identity(path) != socket) return restart_soon("our socket was removed");
    }
  }

  // At once, unless the last start was just now.
  void restart_soon(const char* why) {
    if (pending) return;
    Duration wait = std::max(Duration(0), last_start + options.debounce - loop.elapsed());
    pending = loop.after(wait, [this, why] {
      pending.reset();
      restart(why);
    });
  }

  // --- health ---

  std::vector<bool> healthy_list(const Offer& offer) const {
    std::vector<bool> out;
    for (const Device& device : offer.resource.devices) {
      bool in_cdi = !run->cdi.missing.contains(device_name(offer, device));
      out.push_back(health.healthy(device.uuid) && in_cdi);
    }
    return out;
  }

  void start_health() {
    for (const auto& [name, path] : run->cdi.missing) {
      log::error("device is unhealthy: a device node of it is missing", {{"device", name}, {"path", path}});
    }
    for (const std::string& warning : health.rules().warnings) log::warn(warning);
    std::set<std::string> gpus;
    for (const Resource& resource : run->plan.resources) {
      for (const Device& device : resource.devices) {
        if (!device.gpu_uuid.empty()) gpus.insert(device.gpu_uuid);
      }
    }
    if (gpus.empty()) return;
    if (!health.rules().needed()) {
      log::info("health checks are disabled");
      if (!run->settings.watch_mig_changes) return;
    }
    HealthWatchOptions watch;
    watch.nvml_library = hardware::nvml_library(run->settings.container_driver_root);
    watch.gpu_uuids.assign(gpus.begin(), gpus.end());
    watch.mig_changes = run->settings.watch_mig_changes;
    HealthWatchEvents events;
    events.event = [this](const HealthEvent& event) { on_event(event); };
    events.lost = [this](const std::string& gpu, const std::string& why) { on_lost(gpu, why); };
    events.changed = [this](const std::string& gpu) { look_again(gpu); };
    events.watching = [this] { run->watching = true; };
    events.mig_changed = [this] { restart_soon("the MIG configuration changed"); };
    run->watch = std::make_unique<HealthWatch>(loop, std::move(watch), std::move(events));
    schedule_recovery();
  }

  // A GPU's NVML index; "" for one that is not offered.
  std::string index_of(const std::string& gpu) const {
    for (const Resource& resource : run->plan.resources)
      for (const Device& device : resource.devices)
        if (device.gpu_uuid == gpu) return std::to_string(device.gpu_index);
    return {};
  }

  void on_event(const HealthEvent& event) {
    auto changed = health.apply(event, run->plan.resources, loop.now());
    log::Level level = changed.empty() ? log::Level::kInfo : log::Level::kError;
    log::write(level, "GPU event",
               {{"xid", event.xid},
                {"gpu", event.gpu_uuid},
                {"index", index_of(event.gpu_uuid)},
                {"marked_unhealthy", join(changed, ",")}});
    if (!changed.empty()) publish();
    schedule_recovery();
  }

  void on_lost(const std::string& gpu, const std::string& why) {
    std::vector<std::string> marked;
    for (const Resource& resource : run->plan.resources) {
      for (const Device& device : resource.devices) {
        if (device.gpu_uuid != gpu || !health.healthy(device.uuid)) continue;
        if (health.mark(device.uuid, gpu, why, true, loop.now())) marked.push_back(device.uuid);
      }
    }
    if (marked.empty()) return;
    log::error("GPU is unhealthy: " + why,
               {{"gpu", gpu}, {"index", index_of(gpu)}, {"marked_unhealthy", join(marked, ",")}});
    publish();
    schedule_recovery();
  }

  void publish() {
    for (auto& server : run->servers) server->update(healthy_list(server->offer()));
  }

  void schedule_recovery() {
    auto wait = health.next(loop.now(), run->settings.health_recovery_interval);
    run->recovery = wait ? loop.after(*wait, [this] { recover(); }) : Handle();
  }

  // True: the device is healthy again.
  bool try_again(const std::string& uuid) {
    const HealthState::Mark mark = health.marks().at(uuid);
    auto probed = probe(hardware::nvml_library(run->settings.container_driver_root), uuid, mark.gpu_uuid);
    if (probed) {
      log::info("device is healthy again", {{"device", uuid}, {"was", mark.reason}});
      return health.clear(uuid);
    }
    log::warn("device stays unhealthy: " + probed.error().text(), {{"device", uuid}, {"since", mark.reason}});
    return false;
  }

  void recover() {
    bool changed = false;
    for (const std::string& uuid : health.due(loop.now(), run->settings.health_recovery_interval)) {
      if (try_again(uuid)) {
        changed = true;
      } else {
        const HealthState::Mark mark = health.marks().at(uuid);
        health.mark(uuid, mark.gpu_uuid, mark.reason, true, loop.now());
      }
    }
    if (changed) publish();
    schedule_recovery();
  }

  // NVML's word that a GPU was reset, or that a lost one is back, is what the interval would wait for:
  // whatever the mark's reason, a GPU that answers and needs nothing more is healthy.
  void look_again(const std::string& gpu) {
    if (run->settings.health_recovery_interval <= Duration(0)) return;
    std::vector<std::string> units;
    for (const auto& [uuid, mark] : health.marks()) {
      if (mark.gpu_uuid == gpu) units.push_back(uuid);
    }
    bool changed = false;
    for (const std::string& uuid : units) changed = try_again(uuid) || changed;
    if (changed) publish();
    schedule_recovery();
  }

  Loop& loop;
  ServiceOptions options;
  std::function<void(const Error&)> fatal;
  HealthState health;  // outlives restarts: a kubelet that comes back heals no GPU
  std::string kubelet;
  Duration last_start{0};
  std::set<std::string> ever_registered;
  std::vector<std::string> registered_now;
  fs::path watched_dir;
  std::unique_ptr<DirWatch> dir_watch;
  Handle retry, pending;
  std::unique_ptr<Run> run;
};

Service::Service(Loop& loop, ServiceOptions options, std::function<void(const Error&)> fatal)
    : impl_(std::make_unique<Impl>(loop, std::move(options), std::move(fatal))) {}
Service::~Service() = default;

Result<> Service::start() {
  return impl_->begin();
}

void Service::reload() {
  impl_->health = HealthState(impl_->rules());
  impl_->restart("asked to reload");
}

bool Service::watching() const {
  return impl_->run && impl_->run->watching;
}
std::vector<std::string> Service::registered() const {
  return impl_->registered_now;
}

}  // namespace gpuop::plugin

#include "toolkit/toolkit.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/inotify.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "cdigen/generate.h"
#include "shim/facts.h"
#include "toolkit/restart.h"

namespace gpuop::toolkit {

namespace {

void take_away(const fs::path& path) {
  if (const auto removed = remove_file(path); !removed)
    log::warn("a file of an earlier time stays", {{"why", removed.error()}});
}

FileText read_text(const fs::path& path) {
  if (path.empty()) return std::nullopt;
  auto text = read_file(path, 16u << 20);
  if (!text) return std::nullopt;
  return std::move(*text);
}

mode_t mode_of(const fs::path& path, mode_t fallback) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : fallback;
}

// Writes or removes a file as decided; answers whether anything changed.
Result<bool> put(const fs::path& path, const FileText& before, const FileText& after) {
  if (path.empty() || before == after) return false;
  if (!after || after->empty()) return remove_file(path);
  TRY(make_dirs(path.parent_path()));
  return write_file_atomic(path, *after, mode_of(path, 0644));
}

Result<EngineFiles> decide(const std::string& engine, bool set_up, const EngineFiles& now,
                           const FileText& source, const EngineSettings& settings) {
  if (engine == "containerd")
    return set_up ? containerd_setup(now, source, settings) : containerd_cleanup(now, settings);
  if (engine == "crio") return set_up ? crio_setup(now, source, settings) : crio_cleanup(now, settings);
  return set_up ? docker_setup(now, source, settings) : docker_cleanup(now, settings);
}

std::optional<std::int64_t> device_major(const std::string& devices, std::string_view name) {
  for (const auto& line : split(devices, '\n')) {
    auto fields = split_fields(line);
    if (fields.size() == 2 && fields[1] == name) return parse_int(fields[0]);
  }
  return std::nullopt;
}

// The control nodes, made where they are missing. A folder that cannot be written to is the validator's
// business.
void create_control_nodes(const fs::path& dev_root) {
  auto devices = read_file(kernel_path("/proc/devices"), 1u << 20);
  if (!devices) return;
  auto gpu = device_major(*devices, "nvidia");
  if (!gpu) gpu = device_major(*devices, "nvidia-frontend");
  auto uvm = device_major(*devices, "nvidia-uvm");
  struct Wanted {
    const char* name;
    std::optional<std::int64_t> major;
    unsigned minor;
  };
  for (const auto& node : {Wanted{"nvidiactl", gpu, 255}, Wanted{"nvidia-modeset", gpu, 254},
                           Wanted{"nvidia-uvm", uvm, 0}, Wanted{"nvidia-uvm-tools", uvm, 1}}) {
    fs::path path = dev_root / "dev" / node.name;
    if (!node.major || file_exists(path)) continue;
    if (mknod(path.c_str(), S_IFCHR | 0666, makedev(static_cast<unsigned>(*node.major), node.minor)) != 0 ||
        chmod(path.c_str(), 0666) != 0) {
      log::warn("cannot make a device node", {{"node", path.string()}, {"why", errno_error("mknod", errno)}});
    }
  }
}

shim::HostFacts host_facts(const cdigen::Facts& facts) {
  shim::HostFacts host;
  host.driver_version = facts.driver.version;
  if (facts.inventory.cuda_version > 0) {
    host.cuda_version = std::to_string(facts.inventory.cuda_version / 1000) + "." +
                        std::to_string(facts.inventory.cuda_version % 1000 / 10);
  }
  for (const auto& gpu : facts.inventory.gpus) {
    const auto& capability = gpu.compute_capability;
    shim::HostFacts::Gpu entry{gpu.index,
                               gpu.minor,
                               gpu.uuid,
                               gpu.bus_id,
                               std::to_string(capability.major) + "." + std::to_string(capability.minor),
                               std::string(hardware::brand_name(gpu.brand)),
                               {}};
    for (const auto& mig : gpu.mig_devices) entry.mig.push_back(mig.uuid);
    host.gpus.push_back(std::move(entry));
  }
  return host;
}

}  // namespace

Result<Options> complete(Options options) {
  const std::vector<std::string> engines = {"containerd", "crio", "docker"};
  if (std::ranges::find(engines, options.engine) == engines.end()) {
    return fail(Code::kInvalid, "--runtime: unsupported runtime '" + options.engine +
                                    "': must be one of containerd, crio, docker" +
                                    did_you_mean(options.engine, engines));
  }
  if (options.pid_file.filename() != "toolkit.pid") {
    return fail(Code::kInvalid,
                "--pid-file: invalid path '" + options.pid_file.string() + "': the name must be toolkit.pid");
  }
  if (options.create_device_nodes != "" && options.create_device_nodes != "none" &&
      options.create_device_nodes != "control") {
    return fail(Code::kInvalid,
                "--create-device-nodes: '" + options.create_device_nodes + "': must be none or control");
  }
  if (options.enable_nri_plugin) {
    return fail(Code::kUnsupported,
                "--enable-nri-plugin: injection through NRI is not offered; set cdi.nriPluginEnabled to "
                "false in the ClusterPolicy");
  }
  auto kind = split(options.cdi_kind, '/');
  if (kind.size() != 2)
    return fail(Code::kInvalid, "--cdi-kind: '" + options.cdi_kind + "': must be VENDOR/CLASS");
  bool containerd = options.engine == "containerd";
  bool crio = options.engine == "crio";
  if (options.config.empty()) {
    options.config = containerd ? "/etc/containerd/config.toml"
                     : crio     ? "/etc/crio/crio.conf"
                                : "/etc/docker/daemon.json";
  }
  if (options.drop_in.empty() && (containerd || crio)) {
    options.drop_in =
        containerd ? "/etc/containerd/conf.d/99-nvidia.toml" : "/etc/crio/crio.conf.d/99-nvidia.toml";
  }
  if (options.drop_in_host_path.empty()) options.drop_in_host_path = options.drop_in.string();
  if (options.socket.empty()) {
    options.socket = containerd ? "/run/containerd/containerd.sock"
                     : crio     ? "/var/run/crio/crio.sock"
                                : "/var/run/docker.sock";
  }
  if (options.restart_mode.empty()) options.restart_mode = crio ? "systemd" : "signal";
  TRY(check_restart_mode(options.restart_mode, options.engine));
  if (options.source.empty()) options.source = self_path().parent_path();
  if (options.dev_root.empty()) options.dev_root = options.driver_root;
  if (options.dev_root_ctr_path.empty()) options.dev_root_ctr_path = options.driver_root_ctr_path;
  return options;
}

EngineSettings engine_settings(const Options& options) {
  EngineSettings settings;
  std::string folder = (options.root / "toolkit").string();
  std::string name = options.runtime_name;
  settings.default_name = name;
  // A user's name that is one of the fixed two keeps "nvidia" for the first and makes that one the default.
  if (name == "nvidia-cdi" || name == "nvidia-legacy") name = "nvidia";
  settings.runtimes = {{name, folder + "/nvidia-container-runtime"},
                       {"nvidia-cdi", folder + "/nvidia-container-runtime.cdi"},
                       {"nvidia-legacy", folder + "/nvidia-container-runtime.legacy"}};
  settings.set_as_default = options.set_as_default;
  settings.enable_cdi = options.enable_cdi_in_runtime.value_or(options.cdi_enabled);
  settings.legacy_config = options.legacy_config;
  settings.runtime_type = options.runtime_type;
  settings.annotation_prefixes = options.runtime.annotation_prefixes;
  settings.import_glob = (fs::path(options.drop_in_host_path).parent_path() / "*.toml").string();
  settings.overrides = options.overrides;
  return settings;
}

Result<std::unique_ptr<Toolkit>> Toolkit::create(Loop& loop, Options options) {
  Options ready = TRY(complete(std::move(options)));
  auto doing = "take the lock '" + ready.pid_file.string() + "'";
  TRY_IN(make_dirs(ready.pid_file.parent_path()), doing);
  // Not truncated before the lock is ours: the content is the running instance's.
  Fd lock(open(ready.pid_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock) return fail(errno_error(doing, errno));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(Code::kBusy, doing + ": another instance of the toolkit is running");
  }
  std::string text = std::to_string(getpid()) + "\n";
  if (ftruncate(lock.get(), 0) != 0 ||
      pwrite(lock.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return fail(errno_error(doing, errno));
  }
  return std::unique_ptr<Toolkit>(new Toolkit(loop, std::move(ready), std::move(lock)));
}

Result<hardware::DriverReady> Toolkit::driver() const {
  if (options_.driver_ready.empty()) {
    return hardware::DriverReady{options_.driver_root == "/", options_.driver_root,
                                 options_.driver_root_ctr_path, options_.dev_root,
                                 options_.dev_root_ctr_path};
  }
  return hardware::parse_driver_ready(TRY(read_file(options_.driver_ready, 65536)));
}

Result<> Toolkit::set_up() {
  // One on the host may be an earlier container's.
  for (const fs::path& file : options_.configured) take_away(file);
  if (!options_.driver_ready.empty()) {
    log::info("waiting for the driver", {{"file", options_.driver_ready.string()}});
    TRY_IN(wait_for_file(loop_, options_.driver_ready, 24h * 365), "wait for the driver");
  }
  auto facts = TRY(driver());
  TRY(apply(facts));
  applied_ = facts;
  return {};
}

Result<> Toolkit::apply(const hardware::DriverReady& driver) {
  log::info("the driver is ready", {{"root", driver.driver_root}, {"devRoot", driver.dev_root}});
  fs::path folder = options_.root / "toolkit";
  if (TRY(install_programs(options_.source, folder)))
    log::info("installed the toolkit", {{"folder", folder.string()}});
  TRY(write_runtime_config(driver, read_text(options_.config)));
  if (options_.cdi_enabled) TRY(write_cdi(driver));
  if (auto written = write_facts(driver); !written) {
    // Containers in cdi mode do not need them; those that do are told so when they start.
    log::warn("no facts for the runtime", {{"why", written.error()}});
    take_away(options_.pid_file.parent_path() / "facts.json");
  }
  if (!options_.no_runtime_config && !options_.enable_nri_plugin) TRY(set_up_engine());
  for (const fs::path& file : options_.configured) {
    TRY(make_dirs(file.parent_path()));
    TRY(write_file_atomic(file, ""));
  }
  return {};
}

Result<> Toolkit::write_runtime_config(const hardware::DriverReady& driver, const FileText& engine_config) {
  RuntimeConfig config = options_.runtime;
  config.folder = options_.root / "toolkit";
  config.driver_root = driver.driver_root;
  config.driver_root_here = driver.driver_root_ctr_path;
  config.runtimes =
      options_.runtimes.empty() ? low_level_runtimes(options_.engine, engine_config) : options_.runtimes;
  std::string text = runtime_config_text(config);
  fs::path file = runtime_config_file(config.folder);
  TRY(make_dirs(file.parent_path()));
  bool changed = TRY(write_file_atomic(file, text, 0644));
  if (changed) std::printf("Using config:\n%s", text.c_str());
  std::fflush(stdout);
  return {};
}

Result<> Toolkit::write_cdi(const hardware::DriverReady& driver) {
  if (options_.create_device_nodes == "control") create_control_nodes(driver.dev_root_ctr_path);
  if (options_.cdi_output_dir.empty()) return {};
  cdigen::Options options;
  options.mode = "management";
  options.vendor = options_.cdi_kind.substr(0, options_.cdi_kind.find('/'));
  options.device_class = options_.cdi_kind.substr(options_.cdi_kind.find('/') + 1);
  options.driver_root = driver.driver_root;
  options.dev_root = driver.dev_root;
  options.hook_path = (options_.root / "toolkit/nvidia-cdi-hook").string();
  cdigen::Facts facts;
  auto driver_root = TRY_IN(Root::open(driver.driver_root_ctr_path), "read the driver root");
  auto dev_root = TRY_IN(Root::open(driver.dev_root_ctr_path), "read the dev root");
  facts.driver = TRY(cdigen::observe_driver(driver_root));
  facts.devices = TRY(cdigen::observe_devices(dev_root));
  auto spec = TRY_IN(cdigen::generate(facts, options), "make the CDI spec of " + options_.cdi_kind);
  fs::path file = fs::path(options_.cdi_output_dir) / (cdi::file_stem(spec) + ".yaml");
  if (TRY(cdi::save_spec(std::move(spec), file))) log::info("wrote a CDI spec", {{"file", file.string()}});
  return {};
}

Result<> Toolkit::write_facts(const hardware::DriverReady& driver) {
  cdigen::Facts facts;
  auto inventory = hardware::observe(fs::path(driver.driver_root_ctr_path));
  wait_for_gpus(driver, inventory.value_or(hardware::Inventory{}));
  facts.inventory = TRY(std::move(inventory));
  auto driver_root = TRY_IN(Root::open(driver.driver_root_ctr_path), "read the driver root");
  auto dev_root = TRY_IN(Root::open(driver.dev_root_ctr_path), "read the dev root");
  facts.driver = TRY(cdigen::observe_driver(driver_root, {.version = facts.inventory.driver_version}));
  facts.devices = TRY(cdigen::observe_devices(dev_root));
  for (const auto& warning : facts.inventory.warnings) log::warn("a device is left out", {{"why", warning}});
  auto host = host_facts(facts);
  cdigen::Options options;
  options.vendor = "runtime.nvidia.com";
  options.driver_root = driver.driver_root;
  options.dev_root = driver.dev_root;
  options.hook_path = (options_.root / "toolkit/nvidia-cdi-hook").string();
  options.strategies = {"index", "uuid"};
  std::vector<std::string> without_gpu{"none"};
  // Whoever makes the instances, or waits for them, asks for all GPUs and needs the driver.
  if (cdigen::awaits_mig_instances(facts.inventory)) {
    options.device_ids = {"none"};
    without_gpu = {"all"};
  }
  auto gpu = TRY_IN(cdigen::generate(facts, options), "make the runtime's CDI spec");
  for (const std::string& name : without_gpu) {
    gpu.devices.push_back({name, {}, {}});
    gpu.devices.back().edits.env.emplace_back("NVCT_EMPTY_DEVICE=");
  }
  options.device_ids = {"all"};
  host.specs.emplace("gpu", std::move(gpu));
  for (std::string mode : {"gds", "gdrcopy", "mofed", "nvswitch", "imex"}) {
    options.mode = mode;
    // No such devices here: no spec.
    if (auto spec = cdigen::generate(facts, options))
      host.specs.emplace(spec->device_class(), std::move(*spec));
  }
  TRY(write_file_atomic(options_.pid_file.parent_path() / "facts.json", shim::format_facts(host), 0644));
  return {};
}

// What the facts lack now, they get when it answers.
void Toolkit::wait_for_gpus(const hardware::DriverReady& driver, const hardware::Inventory& seen) {
  returned_.reset();
  if (options_.no_daemon || !hardware::gpus_missing(seen)) return;
  hardware::ReturnedOptions watch{.nvml_library = hardware::nvml_library(driver.driver_root_ctr_path),
                                  .dev_dir = fs::path(driver.dev_root_ctr_path) / "dev",
                                  .known = {},
                                  .interval = options_.device_rescan_interval};
  for (const auto& gpu : seen.gpus) watch.known.push_back(gpu.uuid);
  returned_ = std::make_unique<hardware::ReturnedWatch>(loop_, std::move(watch), [this, driver] {
    log::info("a GPU answers that did not before");
    refresh(driver);
  });
}

// CDI spec and facts anew.
void Toolkit::refresh(const hardware::DriverReady& driver) {
  if (options_.cdi_enabled) {
    if (auto done = write_cdi(driver); !done)
      log::error("cannot refresh the CDI spec", {{"why", done.error()}});
  }
  if (auto done = write_facts(driver); !done) log::warn("cannot refresh the facts", {{"why", done.error()}});
}

Result<> Toolkit::set_up_engine() {
  EngineFiles now{read_text(options_.config), read_text(options_.drop_in)};
  EngineFiles next = TRY(decide(options_.engine, true, now, now.main, engine_settings(options_)));
  bool changed = TRY(put(options_.drop_in, now.drop_in, next.drop_in));
  changed = TRY(put(options_.config, now.main, next.main)) || changed;
  bool stale = !changed && options_.restart_mode == "signal" &&
               engine_is_stale(options_.socket, {options_.config, options_.drop_in});
  if (!changed && !stale) {
    log::info("the engine is configured already", {{"engine", options_.engine}});
    return {};
  }
  log::info("restarting the engine", {{"engine", options_.engine},
                                      {"why", changed ? "its configuration changed"
                                                      : "it started before its configuration was written"},
                                      {"dropIn", options_.drop_in.string()}});
  RestartOptions restart{.mode = options_.restart_mode,
                         .engine = options_.engine,
                         .socket = options_.socket,
                         .host_root = options_.host_root};
  return restart_engine(loop_, restart);
}

Result<> Toolkit::serve() {
  auto check = [&] {
    auto now = driver();
    if (!now || (applied_ && *now == *applied_)) return;  // gone for the moment, or the same
    auto done = apply(*now);
    if (done) {
      applied_ = *now;
    } else {
      log::error("cannot follow the driver's change", {{"why", done.error()}});
    }
  };
  std::unique_ptr<DirWatch> gate;
  if (!options_.driver_ready.empty())
    gate = TRY(DirWatch::create(loop_, options_.driver_ready.parent_path(), check));
  // MIG devices come and go with their capability files.
  std::unique_ptr<DirWatch> caps;
  if (applied_) {
    fs::path folder = fs::path(applied_->dev_root_ctr_path) / "dev/nvidia-caps";
    auto names = [folder] { return list_dir(folder).value_or(std::vector<std::string>{}); };
    auto changed = [this, names, seen = names()]() mutable {
      auto now = names();
      if (now == seen || !applied_) return;
      seen = std::move(now);
      refresh(*applied_);
    };
    caps = TRY(DirWatch::create(loop_, folder, changed));
  }
  loop_.run();
  return {};
}

Result<> Toolkit::clean_up() {
  Result<> done;
  if (!options_.no_runtime_config && !options_.enable_nri_plugin) {
    EngineFiles now{read_text(options_.config), read_text(options_.drop_in)};
    auto next = decide(options_.engine, false, now, now.main, engine_settings(options_));
    if (next) {
      auto first = put(options_.drop_in, now.drop_in, next->drop_in);
      auto second = put(options_.config, now.main, next->main);
      bool changed = first.value_or(false) || second.value_or(false);
      if (!first) done = fail(std::move(first).error());
      if (!second) done = fail(std::move(second).error());
      // Handlers that nothing uses by default may stay in the daemon's memory until its next start.
      if (changed && options_.set_as_default) {
        Loop loop;
        auto restarted = restart_engine(loop, {.mode = options_.restart_mode,
                                               .engine = options_.engine,
                                               .socket = options_.socket,
                                               .host_root = options_.host_root});
        if (!restarted) done = fail(std::move(restarted).error());
      }
    } else {
      done = fail(std::move(next).error());
    }
  }
  release();
  return done;
}

void Toolkit::release() {
  for (const fs::path& file : options_.configured) take_away(file);
  take_away(options_.pid_file);
  lock_.reset();
}

}  // namespace gpuop::toolkit

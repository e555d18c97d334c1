#include "plugin/mps_daemon.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdio>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/text.h"
#include "hardware/driver_root.h"
#include "hardware/nvml.h"

namespace gpuop::plugin {
namespace {

constexpr const char* kControlName = "nvidia-cuda-mps-control";
constexpr const char* kLabel = "system_u:object_r:container_file_t:s0";
constexpr int kDefaultMode = 0, kExclusiveProcess = 3;
constexpr Duration kCommandLimit = 10s;

Result<> label_for_containers(const fs::path& dir) {
  if (!file_exists(kernel_path("/sys/fs/selinux"))) return {};
  auto label = [](const fs::path& path) -> Result<> {
    if (::lsetxattr(path.c_str(), "security.selinux", kLabel, std::string_view(kLabel).size() + 1, 0) == 0)
      return {};
    return fail(errno_error("label '" + path.string() + "'", errno));
  };
  TRY(label(dir));
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(dir, ignored)) TRY(label(entry.path()));
  return {};
}

// What a daemon writes to its log goes to our output, as it comes.
class LogFollower {
 public:
  static Result<std::unique_ptr<LogFollower>> create(Loop& loop, const fs::path& file) {
    std::unique_ptr<LogFollower> out(new LogFollower(file));
    out->watch_ = TRY(DirWatch::create(loop, file.parent_path(), [raw = out.get()] { raw->copy(); }));
    return out;
  }

 private:
  explicit LogFollower(fs::path file) : file_(std::move(file)) {}
  void copy() {
    auto text = read_file(file_);
    if (!text) return;
    if (text->size() < copied_) copied_ = 0;  // it was cut
    std::fwrite(text->data() + copied_, 1, text->size() - copied_, stdout);
    std::fflush(stdout);
    copied_ = text->size();
  }
  fs::path file_;
  std::size_t copied_ = 0;
  std::unique_ptr<DirWatch> watch_;
};

}  // namespace

Result<std::string> find_program_in_path(std::string_view name, std::string_view path) {
  if (path.empty()) path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (const std::string& dir : split(path, ':')) {
    std::string file = dir + "/" + std::string(name);
    if (!dir.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return fail(Code::kNotFound,
              "find program '" + std::string(name) + "': it is in none of " + std::string(path));
}

Result<> mount_shm(const fs::path& root) {
  fs::path shm = root / "shm";
  while (::umount2(shm.c_str(), MNT_DETACH) == 0) {
  }
  std::error_code failed;
  fs::remove_all(shm, failed);
  if (failed) return fail(Code::kIo, "remove '" + shm.string() + "': " + failed.message());
  TRY(make_dirs(shm, 0755));
  auto meminfo = read_file("/proc/meminfo");
  std::string size = "size=" + shm_size(meminfo ? *meminfo : std::string());
  unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RELATIME;
  if (::mount("shm", shm.c_str(), "tmpfs", flags, size.c_str()) != 0) {
    return fail(errno_error("mount tmpfs on '" + shm.string() + "' with " + size, errno));
  }
  log::info("mounted shared memory", {{"path", shm.string()}, {"size", size.substr(5)}});
  return {};
}

struct MpsService::Impl {
  struct Running {
    MpsDaemon daemon;
    std::unique_ptr<LogFollower> log;
  };

  Impl(Loop& l, MpsServiceOptions o, std::function<void(const Error&)> f)
      : loop(l), options(std::move(o)), fatal(std::move(f)) {}
  ~Impl() { stop(); }

  Result<> load() {
    sharing::SettingsInputs inputs = options.inputs;
    std::string path = sharing::config_file_path(sharing::Program::kMps, inputs);
    if (!path.empty()) {
      std::string text = TRY_IN(read_file(path), "unable to parse config file");
      inputs.file = TRY(sharing::parse_config_file(text, path));
    }
    settings = TRY(sharing::resolve_settings(sharing::Program::kMps, inputs));
    auto root = options.inputs.env.find("DRIVER_ROOT_CTR_PATH");
    settings.container_driver_root = root == options.inputs.env.end() ? "/" : root->second;
    settings.device_discovery_strategy = "auto";
    settings.fail_on_init_error = true;
    TRY(sharing::validate_feature_discovery(settings));
    for (const std::string& note : settings.notes) log::warn("configuration: " + note);
    log::info("configuration:\n" + to_pretty_text(sharing::settings_json(sharing::Program::kMps, settings)));
    return {};
  }

  // Errors of the configuration are fatal, those of the daemons are tried again.
  Result<> begin() {
    retry.reset();
    returned.reset();
    stop();
    TRY(load());
    MpsPlan plan;
    if (sharing::active_strategy(settings) == sharing::SharingStrategy::kMps) {
      const Facts facts = TRY(observe(settings));
      plan = TRY(plan_mps(settings, facts));
      returned = watch_missing(loop, settings, facts, [this] { restart(); });
    }
    for (const std::string& warning : plan.warnings) log::warn(warning);
    if (auto started = start_all(plan); !started) {
      log::error("start failed: " + started.error().text(), {{"retry", format_go_duration(options.retry)}});
      stop();
      retry = loop.after(options.retry, [this] { restart(); });
    }
    return {};
  }

  Result<> start_all(const MpsPlan& plan) {
    if (plan.daemons.empty()) log::info("nothing is shared with MPS; waiting for signals");
    for (const MpsDaemon& daemon : plan.daemons) {
      running.push_back({daemon, nullptr});
      TRY_IN(start_one(running.back()), "start MPS daemon for '" + daemon.resource + "'");
    }
    TRY(write_file_atomic(options.root / ".ready", ""));
    is_ready = true;
    return {};
  }

  fs::path folder(const MpsDaemon& daemon, const char* name) const {
    return options.root / daemon.resource / name;
  }

  Result<> start_one(Running& run) {
    const MpsDaemon& daemon = run.daemon;
    if (control.empty()) {
      control = options.control;
      if (control.empty()) control = TRY(find_program_in_path(kControlName, env("PATH")));
    }
    TRY(set_mode(daemon, kExclusiveProcess));
    fs::path pipe = folder(daemon, "pipe"), logs = folder(daemon, "log");
    TRY(make_dirs(pipe, 0755));
    // What a daemon that was killed left would keep a new one from starting.
    for (const std::string& name : TRY(list_dir(pipe))) TRY(remove_file(pipe / name));
    TRY(label_for_containers(pipe));
    TRY(make_dirs(logs, 0755));
    TRY(tell(daemon, {"-d"}, ""));
    for (const std::string& limit : daemon.limits) {
      if (auto set = tell(daemon, {}, limit); !set)
        log::warn("memory limit is not in force: " + set.error().text());
    }
    TRY(tell(daemon, {}, daemon.threads));
    TRY(write_file_atomic(options.root / daemon.resource / ".started", ""));
    run.log = TRY(LogFollower::create(loop, logs / "control.log"));
    log::info("MPS daemon started", {{"resource", daemon.resource}, {"gpus", join(daemon.uuids, ",")}});
    return {};
  }

  std::string env(const char* name) const {
    auto found = options.inputs.env.find(name);
    return found == options.inputs.env.end() ? std::string() : found->second;
  }

  // Runs the control program: as the daemon, or to hand it one command.
  Result<> tell(const MpsDaemon& daemon, std::vector<std::string> arguments, const std::string& command,
                Duration limit = kCommandLimit) const {
    Command run;
    run.argv = {control};
    run.argv.insert(run.argv.end(), arguments.begin(), arguments.end());
    run.env = {"CUDA_MPS_PIPE_DIRECTORY=" + folder(daemon, "pipe").string(),
               "CUDA_MPS_LOG_DIRECTORY=" + folder(daemon, "log").string()};
    // The daemon counts the devices that it sees: in this order, and only these.
    if (!arguments.empty()) {
      run.env.push_back("CUDA_DEVICE_ORDER=PCI_BUS_ID");
      run.env.push_back("CUDA_VISIBLE_DEVICES=" + join(daemon.uuids, ","));
    }
    if (!command.empty()) run.input = command + "\n";
    std::string doing = "run " + std::string(kControlName) + " '" + (command.empty() ? "-d" : command) + "'";
    ExitState state = TRY_IN(run_command(run, limit), doing);
    if (state.ok()) return {};
    return fail(Code::kUnknown,
                doing + ": exit status " + std::to_string(state.code) + ": " + std::string(trim(state.err)));
  }

  Result<> set_mode(const MpsDaemon& daemon, int mode) const {
    auto nvml = TRY(hardware::Nvml::open(hardware::nvml_library(settings.container_driver_root)));
    for (const std::string& uuid : daemon.uuids) {
      auto device = TRY(nvml->device_by_uuid(uuid));
      auto set = nvml->set_compute_mode(device, mode);
      if (!set) TRY(set_mode_by_smi(uuid, mode, set.error()));
    }
    return {};
  }
  Result<> set_mode_by_smi(const std::string& uuid, int mode, const Error& why) const {
    auto smi = find_program_in_path("nvidia-smi", env("PATH"));
    if (!smi) return fail(why.in("set compute mode of GPU '" + uuid + "'"));
    Command run;
    run.argv = {*smi, "-i", uuid, "-c", mode == kExclusiveProcess ? "EXCLUSIVE_PROCESS" : "DEFAULT"};
    ExitState state = TRY(run_command(run, kCommandLimit));
    if (state.ok()) return {};
    return fail(why.in("set compute mode of GPU '" + uuid + "'"));
  }

  // Every step is tried, whatever the others do: a daemon that never started is no reason to leave GPUs
  // exclusive.
  void stop() {
    is_ready = false;
    auto note = [](const Result<>& done) {
      if (!done) log::warn("stop MPS: " + done.error().text());
    };
    auto gone = [](const Result<bool>& done) {
      if (!done) log::warn("stop MPS: " + done.error().text());
    };
    gone(remove_file(options.root / ".ready"));
    for (Running& run : running) {
      const MpsDaemon& daemon = run.daemon;
      if (file_exists(options.root / daemon.resource / ".started")) {
        auto quit = tell(daemon, {}, "quit", options.quit_limit);
        if (!quit) {
          note(quit);
          kill_daemon(daemon);
        }
      }
      run.log.reset();
      note(set_mode(daemon, kDefaultMode));
      gone(remove_file(options.root / daemon.resource / ".started"));
      std::error_code ignored;
      fs::remove_all(folder(daemon, "log"), ignored);
    }
    running.clear();
  }

  void kill_daemon(const MpsDaemon& daemon) const {
    auto text = read_file(folder(daemon, "pipe") / "nvidia-cuda-mps-control.pid");
    auto pid = text ? parse_int(trim(*text)) : std::nullopt;
    if (pid && *pid > 1) ::kill(static_cast<pid_t>(*pid), SIGKILL);
  }

  void restart() {
    if (auto begun = begin(); !begun) fatal(begun.error());
  }

  Loop& loop;
  MpsServiceOptions options;
  std::function<void(const Error&)> fatal;
  sharing::Settings settings;
  std::string control;
  std::vector<Running> running;
  bool is_ready = false;
  Handle retry;
  std::unique_ptr<hardware::ReturnedWatch> returned;  // while a GPU is missing
};

MpsService::MpsService(Loop& loop, MpsServiceOptions options, std::function<void(const Error&)> fatal)
    : impl_(std::make_unique<Impl>(loop, std::move(options), std::move(fatal))) {}
MpsService::~MpsService() = default;
Result<> MpsService::start() {
  return impl_->begin();
}
void MpsService::reload() {
  impl_->restart();
}
bool MpsService::ready() const {
  return impl_->is_ready;
}

}  // namespace gpuop::plugin

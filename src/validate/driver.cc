#include "validate/driver.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/text.h"
#include "base/yaml.h"

namespace gpuop::validate {
namespace {

constexpr Duration kSmiLimit = 60s;

bool is_non_empty_file(const Root& root, const fs::path& inner) {
  const auto fd = root.open_at(inner, O_PATH);
  struct stat info{};
  return fd && ::fstat(fd->get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
}

std::string last_line(const ExitState& state) {
  std::string_view text = trim(state.err.empty() ? state.out : state.err);
  const auto cut = text.rfind('\n');
  return std::string(cut == std::string_view::npos ? text : text.substr(cut + 1));
}

std::vector<std::string> smi_argv(const fs::path& program, bool skip_gpu_init) {
  std::vector<std::string> argv{program.string()};
  if (skip_gpu_init) argv.emplace_back("--version");
  return argv;
}

}  // namespace

Result<ExitState> run_smi(const Command& command) {
  return run_command(command, kSmiLimit);
}

Result<std::string> check_smi(const Command& command, const RunSmi& run, const std::string& where) {
  const ExitState state = TRY(run(command));
  if (!state.ok()) {
    std::string text = "run nvidia-smi of " + where + ": it ended with code " + std::to_string(state.code);
    if (const std::string line = last_line(state); !line.empty()) text += ": " + line;
    return fail(Code::kUnavailable, std::move(text));
  }
  return state.out;
}

Result<> check_driver_mount(const DriverPaths& paths) {
  // A driver container that was replaced leaves this container with a mount of the old one's files: the
  // host's view shows it.
  struct stat ours{};
  struct stat hosts{};
  const fs::path on_host = paths.host / fs::path(paths.install_dir).relative_path();
  if (::stat(paths.install_dir_ctr.c_str(), &ours) != 0 || ::stat(on_host.c_str(), &hosts) != 0 ||
      (ours.st_dev == hosts.st_dev && ours.st_ino == hosts.st_ino))
    return {};
  return fail(Code::kConflict,
              "look for the driver: '" + paths.install_dir_ctr.string() +
                  "' is a mount of a driver container that is gone; this container has to start anew");
}

Result<std::optional<FoundDriver>> find_host_driver(const DriverPaths& paths, const RunSmi& run) {
  const auto root = Root::open(paths.host);
  if (!root) return std::nullopt;
  FoundDriver found;
  found.ready = {true, paths.host_root, "/host", paths.host_root, "/host"};
  found.wsl = is_non_empty_file(*root, "/usr/lib/wsl/lib/nvidia-smi");
  fs::path program = "/usr/lib/wsl/lib/nvidia-smi";
  if (!found.wsl) {
    const auto smi = hardware::find_program(*root, "nvidia-smi", hardware::host_binary_dirs());
    if (!smi) return std::nullopt;
    program = *smi;
  }
  Command command{smi_argv(program, paths.skip_gpu_init)};
  command.env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  command.chroot = paths.host;
  found.smi_output = TRY(check_smi(command, run, "the host"));
  return found;
}

Result<FoundDriver> find_container_driver(const DriverPaths& paths, bool managed, const RunSmi& run) {
  if (managed && !file_exists(paths.status_dir / ".driver-ctr-ready")) {
    return fail(Code::kNotFound, "wait for the driver container: '" +
                                     (paths.status_dir / ".driver-ctr-ready").string() +
                                     "' is not there yet");
  }
  TRY(check_driver_mount(paths));
  const Root root = TRY_IN(Root::open(paths.install_dir_ctr), "look for the driver");
  const fs::path library = TRY(hardware::find_library(root, "libnvidia-ml.so.1"));
  const fs::path program = TRY(hardware::find_program(root, "nvidia-smi"));
  Command command{smi_argv(paths.install_dir_ctr / program.relative_path(), paths.skip_gpu_init)};
  std::string preload = (paths.install_dir_ctr / library.relative_path()).string();
  if (const std::string old = env_or("LD_PRELOAD"); !old.empty()) preload += ":" + old;
  command.env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                 "LD_PRELOAD=" + preload};
  FoundDriver found;
  found.smi_output = TRY(check_smi(command, run, "the driver container"));
  const bool own_dev = root.open_at("/dev", O_PATH | O_DIRECTORY).has_value();
  found.ready =
      own_dev
          ? hardware::DriverReady{false, paths.install_dir, "/driver-root", paths.install_dir, "/driver-root"}
          : hardware::DriverReady{false, paths.install_dir, "/driver-root", paths.host_root, "/host"};
  return found;
}

Result<std::vector<std::string>> driver_container_features(const fs::path& status_dir) {
  const fs::path file = status_dir / ".driver-ctr-ready";
  const std::string text = TRY(read_file(file));
  std::vector<std::string> on;
  if (trim(text).empty()) return on;
  const YamlDocument document = TRY(parse_yaml_one(text, file.string()));
  if (!document.value.is_object())
    return fail(Code::kInvalid, "read '" + file.string() + "': expected a map of flags");
  for (const auto& [key, value] : document.value.get_object()) {
    if (!value.is_bool()) {
      return fail(Code::kInvalid, "read '" + file.string() + "': line " +
                                      std::to_string(document.line_of(key)) + ": " + std::string(key) +
                                      ": must be true or false");
    }
    if (value.get_bool()) on.emplace_back(key);
  }
  return on;
}

Result<bool> module_loaded(std::string_view name) {
  const std::string text = TRY(read_file(kernel_path("/proc/modules")));
  for (const auto& line : split(text, '\n')) {
    if (std::string_view(line).substr(0, line.find(' ')) == name) return true;
  }
  return false;
}

}  // namespace gpuop::validate

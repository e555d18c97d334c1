#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "shim/hooks.h"
#include "shim/rootfs.h"

namespace gpuop::shim {

namespace {

constexpr std::size_t kMaxState = 16u << 20;

// A hook's arguments: each flag with the values it was given, whole.
struct Arguments {
  std::map<std::string, std::vector<std::string>> values;
  std::string one(const std::string& flag) const {
    auto it = values.find(flag);
    return it == values.end() || it->second.empty() ? std::string() : it->second.back();
  }
  const std::vector<std::string>& all(const std::string& flag) const {
    static const std::vector<std::string> none;
    auto it = values.find(flag);
    return it == values.end() ? none : it->second;
  }
};

struct Hook {
  std::vector<std::string> flags;
  std::function<Result<>(const Root&, const Arguments&)> run;
};

Result<> run_chmod(const Root& root, const Arguments& arguments) {
  std::string text = arguments.one("mode");
  if (text.empty() || text.find_first_not_of("01234567") != std::string::npos || text.size() > 4) {
    return fail(Code::kInvalid, "chmod: invalid mode '" + text + "': must be octal");
  }
  return change_modes(root, static_cast<mode_t>(std::strtoul(text.c_str(), nullptr, 8)),
                      arguments.all("path"));
}

const std::map<std::string, Hook>& hooks() {
  static const std::map<std::string, Hook> table = {
      {"create-symlinks",
       {{"link"}, [](const Root& root, const Arguments& a) { return create_symlinks(root, a.all("link")); }}},
      {"update-ldcache",
       {{"folder", "ldconfig-path"},
        [](const Root& root, const Arguments& a) { return update_ldcache(root, a.all("folder")); }}},
      {"enable-cuda-compat",
       {{"host-driver-version", "host-cuda-version", "cuda-compat-container-root"},
        [](const Root& root, const Arguments& a) {
          CudaCompatOptions options{a.one("host-driver-version"), a.one("host-cuda-version"),
                                    "/usr/local/cuda/compat"};
          if (auto dir = a.one("cuda-compat-container-root"); !dir.empty()) options.container_root = dir;
          return enable_cuda_compat(root, options);
        }}},
      {"disable-device-node-modification",
       {{}, [](const Root& root, const Arguments&) { return disable_device_node_modification(root); }}},
      {"update-application-profile",
       {{}, [](const Root& root, const Arguments&) { return update_application_profile(root); }}},
      {"chmod", {{"mode", "path"}, run_chmod}},
      {"noop", {{}, [](const Root&, const Arguments&) { return Result<>{}; }}},
  };
  return table;
}

// Flags in the forms --flag VALUE, --flag=VALUE and -flag VALUE.
Result<Arguments> parse_arguments(const Hook& hook, const std::vector<std::string>& args) {
  std::vector<std::string> known = hook.flags;
  known.emplace_back("container-spec");
  Arguments arguments;
  for (std::size_t i = 1; i < args.size(); ++i) {
    std::string flag = args[i];
    if (!flag.starts_with('-')) return fail(Code::kInvalid, "unexpected argument '" + flag + "'");
    flag.erase(0, flag.starts_with("--") ? 2 : 1);
    auto equals = flag.find('=');
    std::string key = flag.substr(0, equals);
    if (std::ranges::find(known, key) == known.end()) {
      return fail(Code::kInvalid, "flag provided but not defined: -" + key + did_you_mean(key, known));
    }
    if (equals != std::string::npos) {
      arguments.values[key].push_back(flag.substr(equals + 1));
    } else if (i + 1 < args.size()) {
      arguments.values[key].push_back(args[++i]);
    } else {
      return fail(Code::kInvalid, "flag needs an argument: -" + key);
    }
  }
  return arguments;
}

// The container's root from its state: crun puts it there, for others it is in the bundle's config.json. Only
// "root" is looked at, so that fields we do not know never break a hook.
Result<fs::path> rootfs_of(const std::string& state_text) {
  Json state = TRY_IN(parse_json(state_text), "read the container's state");
  std::string_view direct = get_string(state, {"root"});
  if (!direct.empty()) return fs::path(direct);
  fs::path bundle(get_string(state, {"bundle"}));
  if (bundle.empty()) bundle = get_string(state, {"bundlePath"});
  if (!bundle.is_absolute())
    return fail(Code::kInvalid, "read the container's state: 'bundle' is missing or not absolute");
  std::string text = TRY(read_file(bundle / "config.json", kMaxState));
  Json config = TRY_IN(parse_json(text, 256), "read '" + (bundle / "config.json").string() + "'");
  std::string_view root = get_string(config, {"root", "path"});
  if (root.empty())
    return fail(Code::kInvalid, "read '" + (bundle / "config.json").string() + "': root.path is missing");
  return bundle / root;
}

Result<> run_named(const std::string& name, const Hook& hook, const std::vector<std::string>& args) {
  auto arguments = TRY(parse_arguments(hook, args));
  if (name == "noop") return {};
  std::string source = arguments.one("container-spec");
  std::string state = source.empty() || source == "-" ? TRY(read_fd(STDIN_FILENO, kMaxState))
                                                      : TRY(read_file(source, kMaxState));
  Root root = TRY(open_rootfs(TRY(rootfs_of(state))));
  return hook.run(root, arguments);
}

bool env_is_true(const char* name) {
  const char* value = secure_getenv(name);
  return value != nullptr && (std::string_view(value) == "true" || std::string_view(value) == "1");
}

}  // namespace

void secure_hook_process() {
  bool debug = env_is_true("NVIDIA_CTK_DEBUG") || env_is_true("NVIDIA_CDI_DEBUG");
  bool quiet = env_is_true("NVIDIA_CTK_QUIET") || env_is_true("NVIDIA_CDI_QUIET");
  clearenv();
  prctl(PR_SET_DUMPABLE, 0);
  alarm(30);
  if (chdir("/") != 0) log::debug("cannot leave the working folder");
  log::setup("nvidia-cdi-hook", quiet ? log::Level::kError : debug ? log::Level::kDebug : log::Level::kInfo);
}

int run_hook(const std::vector<std::string>& args) {
  if (args.empty() || args[0].starts_with('-')) {
    log::warn("No CDI hook specified");
    return 0;
  }
  auto hook = hooks().find(args[0]);
  if (hook == hooks().end()) {
    // A newer spec may name a hook that this build does not have: the container starts all the same.
    log::warn("Unsupported CDI hook: " + args[0]);
    return 0;
  }
  auto done = run_named(hook->first, hook->second, args);
  if (done) return 0;
  log::error(args[0] + ": " + done.error().text());
  return 1;
}

}  // namespace gpuop::shim

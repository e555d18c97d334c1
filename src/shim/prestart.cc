#include "shim/prestart.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/files.h"
#include "base/version.h"
#include "shim/inject.h"
#include "shim/request.h"
#include "shim/run_log.h"

namespace gpuop::shim {

namespace {

constexpr std::size_t kMaxState = 16u << 20;

int usage(int status) {
  std::fputs(
      "Usage of nvidia-container-runtime-hook:\n"
      "  -config string\n        configuration file\n  -debug\n        enable debug output\n"
      "  -version\n        print the version\n\nCommands:\n  prestart\n        run the prestart hook\n"
      "  poststart\n        no-op\n  poststop\n        no-op\n",
      stderr);
  return status;
}

Result<Json> bundle_config() {
  std::string text = TRY(read_fd(STDIN_FILENO, kMaxState));
  Json state = TRY_IN(parse_json(text), "read the container's state");
  std::string_view bundle = get_string(state, {"bundle"});
  if (bundle.empty()) bundle = get_string(state, {"bundlePath"});
  fs::path file = fs::path(bundle) / "config.json";
  Json oci = TRY_IN(parse_json(TRY(read_file(file, kMaxState)), 256), "read '" + file.string() + "'");
  for (std::string_view key : {"ociVersion", "process", "root"}) {
    if (!has(oci, {key}))
      return fail(Code::kInvalid, "read '" + file.string() + "': " + std::string(key) + " is missing");
  }
  return oci;
}

Result<> prestart(const std::string& config_file) {
  std::string chosen = config_file.empty() ? env_text("NVIDIA_CTK_CONFIG_FILE_PATH") : config_file;
  std::error_code error;
  fs::path path = chosen.empty() ? config_path(fs::read_symlink("/proc/self/exe", error)) : fs::path(chosen);
  if (!chosen.empty() && !file_exists(path))
    return fail(Code::kNotFound, "load configuration '" + chosen + "': no such file");
  Config config = TRY(load_config(path));
  TRY(check_config(config));
  Json oci = TRY(bundle_config());
  TRY(check_prestart(oci, config));
  return {};
}

}  // namespace

Result<bool> check_prestart(const Json& oci, const Config& config) {
  Container container = container_of(oci);
  Request request = device_request(container, config, false);
  if (request.kind == Request::Kind::kNone) return false;
  TRY(driver_capabilities(container, config));
  for (std::string_view which : {"CONFIG", "MONITOR"}) {
    std::string name = "NVIDIA_MIG_" + std::string(which) + "_DEVICES";
    if (!container.privileged && !container.variable(name).empty()) {
      return fail(Code::kPermission,
                  "cannot set MIG_" + std::string(which) + "_DEVICES in non privileged container");
    }
  }
  // This binary's own meaning of "auto" is legacy.
  std::string mode = config.mode == "auto" ? "legacy" : config.mode;
  std::string cure = "use the NVIDIA Container Runtime (e.g. specify the --runtime=nvidia flag) instead";
  if (mode != "legacy" && !config.skip_mode_detection) {
    return fail(
        Code::kUnsupported,
        "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) "
        "is not supported in mode '" +
            mode + "'; " + cure);
  }
  return fail(Code::kUnsupported,
              "this build injects GPUs when a container is created, not in a prestart hook; " + cure);
}

int prestart_main(const std::vector<std::string>& args) {
  std::string config_file;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string flag = args[i];
    if (!flag.starts_with('-')) {
      if (flag == "poststart" || flag == "poststop") return 0;
      if (flag != "prestart") return usage(2);
      auto done = prestart(config_file);
      if (done) return 0;
      std::fprintf(stderr, "nvidia-container-runtime-hook: %s\n", done.error().text().c_str());
      return 1;
    }
    flag.erase(0, flag.starts_with("--") ? 2 : 1);
    if (flag == "version") return std::printf("NVIDIA Container Runtime Hook version %s\n", GPUOP_VERSION), 0;
    if (flag == "debug") continue;
    if (flag == "config" && i + 1 < args.size()) {
      config_file = args[++i];
    } else if (flag.starts_with("config=")) {
      config_file = flag.substr(7);
    } else {
      return usage(2);
    }
  }
  return usage(2);
}

}  // namespace gpuop::shim

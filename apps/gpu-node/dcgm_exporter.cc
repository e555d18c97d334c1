// dcgm-exporter: the GPUs' figures as Prometheus metrics.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/version.h"
#include "driver_ready.h"
#include "hardware/driver_root.h"
#include "kube/config.h"
#include "roles.h"
#include "telemetry/exporter.h"

namespace gpuop {
namespace {

std::string local_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// What was asked for and this build does in its own way.
Result<> settle_backend(const telemetry::Options& options) {
  if (options.backend == "dcgm")
    return fail(Code::kUnsupported,
                "flag '--backend': 'dcgm': this exporter reads NVML itself and loads no DCGM library");
  if (options.backend == "fake" || options.fake_gpus)
    return fail(Code::kUnsupported,
                "flag '--fake-gpus': the fake GPUs of this project are a fake NVML "
                "library, found beneath the driver root");
  if (!options.remote.empty())
    log::warn("the host engine is not asked: this exporter reads NVML itself", {{"address", options.remote}});
  return {};
}

// The first socket that systemd hands over, or -1.
int systemd_socket(const std::map<std::string, std::string>& env) {
  auto pid = env.find("LISTEN_PID");
  auto fds = env.find("LISTEN_FDS");
  if (pid == env.end() || fds == env.end() || pid->second != std::to_string(::getpid()) || fds->second == "0")
    return -1;
  return 3;
}

bool needs_api(const telemetry::Options& options) {
  return options.configmap_data != "none" || (options.kubernetes && (options.pod_labels || options.pod_uid));
}

Result<std::unique_ptr<kube::Client>> make_client(Loop& loop) {
  auto config = TRY(kube::find_config());
  return kube::make_client(loop, config, {.user_agent = "dcgm-exporter", .field_manager = "dcgm-exporter"});
}

}  // namespace

int dcgm_exporter_main(int argc, char** argv) {
  auto env = environment_map();
  auto options = telemetry::parse_options(std::vector<std::string>(argv + 1, argv + argc), env);
  if (!options) {
    std::fprintf(stderr, "dcgm-exporter: %s\nSee dcgm-exporter --help.\n", options.error().text().c_str());
    return 1;
  }
  if (options->help) {
    std::fputs(telemetry::help_text().c_str(), stdout);
    return 0;
  }
  if (options->version) {
    std::puts("dcgm-exporter " GPUOP_VERSION);
    return 0;
  }
  log::setup("dcgm-exporter", options->debug ? log::Level::kDebug : log::Level::kInfo,
             options->log_format == "json" ? log::Format::kJson : log::Format::kText);

  Loop loop;
  int code = 0;
  std::unique_ptr<telemetry::Exporter> exporter;
  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT, SIGHUP}, [&](int number) {
    if (number != SIGHUP) {
      log::info("stopping", {{"signal", number}});
      loop.stop();
    } else if (exporter) {
      exporter->reload();
    }
  });
  auto fatal = [&](const Error& error) {
    log::error(error.text());
    code = 1;
    loop.stop();
  };

  if (auto settled = settle_backend(*options); !settled) {
    fatal(settled.error());
    return code;
  }
  if (auto passed = pass_driver_gate(loop, env); !passed) {
    if (passed.error().code() == Code::kCancelled) return 0;
    fatal(passed.error());
    return code;
  }
  telemetry::ExporterInputs inputs;
  inputs.nvml_library = hardware::nvml_library(env["DRIVER_ROOT_CTR_PATH"]);
  inputs.node_name = env["NODE_NAME"];
  inputs.local_name = local_name();
  if (options->systemd_socket) {
    inputs.listen_fd = systemd_socket(env);
    if (inputs.listen_fd < 0) {
      fatal(Error(Code::kInvalid, "flag '--web-systemd-socket': systemd hands over no socket"));
      return code;
    }
  }
  std::unique_ptr<kube::Client> client;
  if (needs_api(*options)) {
    auto made = make_client(loop);
    if (!made) {
      fatal(made.error());
      return code;
    }
    client = std::move(*made);
    inputs.client = client.get();
  }
  inputs.options = std::move(*options);
  exporter = std::make_unique<telemetry::Exporter>(loop, std::move(inputs), fatal);
  if (auto started = exporter->start(); !started) {
    fatal(started.error());
    return code;
  }
  if (const std::string& file = env["SERVING_FILE"]; !file.empty()) {
    if (auto told = write_file_atomic(file, ""); !told) fatal(told.error());
  }
  if (code == 0) loop.run();
  // A handle on a GPU that outlives us keeps its driver from unloading.
  if (!exporter->close(std::chrono::seconds(8))) log::warn("the driver did not let go in time");
  return code;
}

}  // namespace gpuop

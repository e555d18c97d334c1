// nvidia-device-plugin: advertises the node's GPUs to the kubelet.
#include <csignal>
#include <cstdio>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "driver_ready.h"
#include "plugin/service.h"
#include "roles.h"
#include "sharing/command_line.h"

namespace gpuop {
namespace {

// Kernel modules whose presence turns an option on that nobody set (device-plugin-gfd-mps.md §0).
void enable_by_modules(std::map<std::string, std::string>& env) {
  auto modules = read_file(kernel_path("/proc/modules"));
  if (!modules) return;
  auto loaded = [&](std::string_view name) {
    for (const std::string& line : split(*modules, '\n')) {
      if (line.starts_with(std::string(name) + " ")) return true;
    }
    return false;
  };
  auto enable = [&](const char* name) {
    if (env[name].empty()) env[name] = "true";
  };
  if (loaded("gdrdrv")) enable("GDRCOPY_ENABLED");
  if (loaded("nvidia_fs")) {
    enable("GDS_ENABLED");
    enable("MOFED_ENABLED");
  }
}

}  // namespace

int device_plugin_main(int argc, char** argv) {
  auto line =
      sharing::parse_command_line(sharing::Program::kPlugin, std::vector<std::string>(argv + 1, argv + argc));
  if (!line) {
    std::fprintf(stderr, "nvidia-device-plugin: %s\n", line.error().text().c_str());
    return 1;
  }
  if (line->help) {
    std::fputs(sharing::help_text(sharing::Program::kPlugin, "nvidia-device-plugin").c_str(), stdout);
    return 0;
  }
  if (line->version) {
    std::puts("nvidia-device-plugin " GPUOP_VERSION);
    return 0;
  }
  log::setup("nvidia-device-plugin");

  Loop loop;
  int code = 0;
  std::unique_ptr<plugin::Service> service;
  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT, SIGHUP}, [&](int number) {
    if (number != SIGHUP) {
      log::info("stopping", {{"signal", number}});
      loop.stop();
    } else if (service) {
      service->reload();
    }
  });
  auto fatal = [&](const Error& error) {
    log::error(error.text());
    code = 1;
    loop.stop();
  };

  plugin::ServiceOptions options;
  options.inputs.flags = line->flags;
  options.inputs.env = environment_map();
  if (auto passed = pass_driver_gate(loop, options.inputs.env); !passed) {
    if (passed.error().code() == Code::kCancelled) return 0;
    fatal(passed.error());
    return code;
  }
  enable_by_modules(options.inputs.env);

  service = std::make_unique<plugin::Service>(loop, std::move(options), fatal);
  if (auto started = service->start(); !started) {
    fatal(started.error());
    return code;
  }
  loop.run();
  return code;
}

}  // namespace gpuop

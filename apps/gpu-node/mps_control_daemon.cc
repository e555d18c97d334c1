// mps-control-daemon: runs NVIDIA's MPS control daemon for the GPUs that are shared that way.
#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/version.h"
#include "driver_ready.h"
#include "plugin/mps_daemon.h"
#include "roles.h"
#include "sharing/command_line.h"

namespace gpuop {

int mps_control_daemon_main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "mount-shm") {
    log::setup("mps-control-daemon");
    if (auto mounted = plugin::mount_shm("/mps"); !mounted) {
      log::error(mounted.error().text());
      return 1;
    }
    return 0;
  }
  auto line = sharing::parse_command_line(sharing::Program::kMps, arguments);
  if (!line) {
    std::fprintf(stderr, "mps-control-daemon: %s\n", line.error().text().c_str());
    return 1;
  }
  if (line->help) {
    std::fputs(sharing::help_text(sharing::Program::kMps, "mps-control-daemon").c_str(), stdout);
    std::fputs("\nmps-control-daemon mount-shm mounts the shared memory at /mps/shm and ends.\n", stdout);
    return 0;
  }
  if (line->version) {
    std::puts("mps-control-daemon " GPUOP_VERSION);
    return 0;
  }
  log::setup("mps-control-daemon");

  Loop loop;
  int code = 0;
  std::unique_ptr<plugin::MpsService> service;
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
  plugin::MpsServiceOptions options;
  options.inputs.flags = line->flags;
  options.inputs.env = environment_map();
  if (auto passed = pass_driver_gate(loop, options.inputs.env); !passed) {
    if (passed.error().code() == Code::kCancelled) return 0;
    fatal(passed.error());
    return code;
  }
  service = std::make_unique<plugin::MpsService>(loop, std::move(options), fatal);
  if (auto started = service->start(); !started) {
    fatal(started.error());
    return code;
  }
  loop.run();
  return code;
}

}  // namespace gpuop

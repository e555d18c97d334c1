// gpu-feature-discovery: labels the node with what its GPUs are.
#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/version.h"
#include "driver_ready.h"
#include "kube/config.h"
#include "labels/service.h"
#include "roles.h"
#include "sharing/command_line.h"

namespace gpuop {

int feature_discovery_main(int argc, char** argv) {
  constexpr auto program = sharing::Program::kFeatureDiscovery;
  auto line = sharing::parse_command_line(program, std::vector<std::string>(argv + 1, argv + argc));
  if (!line) {
    std::fprintf(stderr, "gpu-feature-discovery: %s\n", line.error().text().c_str());
    return 1;
  }
  if (line->help) {
    std::fputs(sharing::help_text(program, "gpu-feature-discovery").c_str(), stdout);
    return 0;
  }
  if (line->version) {
    std::puts("gpu-feature-discovery " GPUOP_VERSION);
    return 0;
  }
  log::setup("gpu-feature-discovery");

  Loop loop;
  int code = 0;
  std::unique_ptr<labels::Service> service;
  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGQUIT, SIGHUP}, [&](int number) {
    if (number != SIGHUP) {
      log::info("stopping", {{"signal", number}});
      loop.stop();
    } else if (service) {
      service->reload();
    }
  });
  auto end = [&](Result<> how) {
    if (!how) {
      log::error(how.error().text());
      code = 1;
    }
    loop.stop();
  };

  labels::ServiceOptions options;
  options.inputs.flags = line->flags;
  options.inputs.env = environment_map();
  if (auto passed = pass_driver_gate(loop, options.inputs.env); !passed) {
    if (passed.error().code() == Code::kCancelled) return 0;
    log::error(passed.error().text());
    return 1;
  }
  options.make_client = [&loop](const sharing::Settings& settings) -> Result<std::unique_ptr<kube::Client>> {
    auto config = TRY(kube::find_config(settings.kubeconfig));
    return kube::make_client(
        loop, config, {.user_agent = "gpu-feature-discovery", .field_manager = "gpu-feature-discovery"});
  };

  service = std::make_unique<labels::Service>(loop, std::move(options), end);
  loop.post([&] { service->start(); });
  loop.run();
  return code;
}

}  // namespace gpuop

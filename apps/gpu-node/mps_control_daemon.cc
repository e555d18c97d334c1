// mps-control-daemon: runs NVIDIA's MPS control daemon for the GPUs that are shared that way.
#include "base/log.h"
#include "operand.h"
#include "plugin/mps_daemon.h"
#include "roles.h"

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
  Operand operand;
  operand.program = sharing::Program::kMps;
  operand.name = "mps-control-daemon";
  operand.more_help = "\nmps-control-daemon mount-shm mounts the shared memory at /mps/shm and ends.\n";
  operand.start = [](Loop& loop, sharing::SettingsInputs inputs, const auto& end) -> Result<RunningOperand> {
    plugin::MpsServiceOptions options;
    options.inputs = std::move(inputs);
    auto service = std::make_shared<plugin::MpsService>(loop, std::move(options),
                                                        [end](const Error& error) { end(fail(error)); });
    TRY(service->start());
    return RunningOperand{[raw = service.get()] { raw->reload(); }, service};
  };
  return run_operand(operand, arguments);
}

}  // namespace gpuop

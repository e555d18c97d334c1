// nvidia-device-plugin: advertises the node's GPUs to the kubelet.
#include "base/files.h"
#include "base/text.h"
#include "operand.h"
#include "plugin/service.h"
#include "roles.h"

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
  Operand operand;
  operand.program = sharing::Program::kPlugin;
  operand.name = "nvidia-device-plugin";
  operand.start = [](Loop& loop, sharing::SettingsInputs inputs, const auto& end) -> Result<RunningOperand> {
    enable_by_modules(inputs.env);
    plugin::ServiceOptions options;
    options.inputs = std::move(inputs);
    auto service = std::make_shared<plugin::Service>(loop, std::move(options),
                                                     [end](const Error& error) { end(fail(error)); });
    TRY(service->start());
    return RunningOperand{[raw = service.get()] { raw->reload(); }, service};
  };
  return run_operand(operand, std::vector<std::string>(argv + 1, argv + argc));
}

}  // namespace gpuop

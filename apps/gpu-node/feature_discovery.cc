// gpu-feature-discovery: labels the node with what its GPUs are.
#include "kube/config.h"
#include "labels/service.h"
#include "operand.h"
#include "roles.h"

namespace gpuop {

int feature_discovery_main(int argc, char** argv) {
  Operand operand;
  operand.program = sharing::Program::kFeatureDiscovery;
  operand.name = "gpu-feature-discovery";
  operand.start = [](Loop& loop, sharing::SettingsInputs inputs, const auto& end) -> Result<RunningOperand> {
    labels::ServiceOptions options;
    options.inputs = std::move(inputs);
    options.make_client =
        [&loop](const sharing::Settings& settings) -> Result<std::unique_ptr<kube::Client>> {
      auto config = TRY(kube::find_config(settings.kubeconfig));
      return kube::make_client(
          loop, config, {.user_agent = "gpu-feature-discovery", .field_manager = "gpu-feature-discovery"});
    };
    auto service = std::make_shared<labels::Service>(loop, std::move(options), end);
    loop.post([raw = service.get()] { raw->start(); });
    return RunningOperand{[raw = service.get()] { raw->reload(); }, service};
  };
  return run_operand(operand, std::vector<std::string>(argv + 1, argv + argc));
}

}  // namespace gpuop

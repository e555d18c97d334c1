// A configuration file and what settings it leads to.
#include <cstdint>
#include <cstdlib>

#include "sharing/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuop::sharing;
  auto file = parse_config_file({reinterpret_cast<const char*>(data), size}, "f");
  if (!file) return 0;
  for (const auto* sharing : {&file->time_slicing, &file->mps}) {
    if (!*sharing) continue;
    if ((*sharing)->resources.empty()) std::abort();
    for (const auto& entry : (*sharing)->resources) {
      if (entry.replicas < 2 || entry.name.size() > 63 || entry.rename.size() > 63) std::abort();
    }
  }
  for (Program program : {Program::kPlugin, Program::kFeatureDiscovery, Program::kMps}) {
    SettingsInputs inputs;
    inputs.file = *file;
    auto settings = resolve_settings(program, inputs);
    if (!settings) std::abort();  // types were checked with the file
    settings_json(program, *settings);
    static_cast<void>(validate_plugin(*settings, {}));
  }
  return 0;
}

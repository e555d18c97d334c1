// Arguments and variables, separated by newlines; "NAME=value" lines are variables.
#include <cstdint>

#include "base/text.h"
#include "sharing/command_line.h"
#include "sharing/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuop;
  using namespace gpuop::sharing;
  SettingsInputs inputs;
  std::vector<std::string> arguments;
  for (const std::string& line : split({reinterpret_cast<const char*>(data), size}, '\n')) {
    auto equals = line.find('=');
    if (!line.starts_with('-') && equals != std::string::npos) {
      inputs.env[line.substr(0, equals)] = line.substr(equals + 1);
    } else {
      arguments.push_back(line);
    }
  }
  for (Program program :
       {Program::kPlugin, Program::kFeatureDiscovery, Program::kMps, Program::kConfigManager}) {
    auto parsed = parse_command_line(program, arguments);
    inputs.flags = parsed ? parsed->flags : std::map<std::string, std::vector<std::string>>();
    std::vector<std::string> notes;
    static_cast<void>(resolve_options(program, inputs, notes));
    static_cast<void>(resolve_settings(program, inputs));
  }
  return 0;
}

// The configuration files of operands that values of the chart hold as texts, read by the very parsers of the
// programs that will read them: what a program would end on is told before anything is installed. Helm sees
// only texts there. MIG manager is NVIDIA's program: its file is checked by mig-vgpu-sandbox.md §1.2.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "fleet/value_fields.h"

namespace gpuop::preflight {

// `values`: merged with the chart's defaults. What the program takes with a warning has `refused` false.
// Lines that the texts name are counted from the beginning of the configuration itself.
std::vector<fleet::FieldFault> config_text_faults(const Json& values);

// A file of MIG configurations: the names of those that it has.
struct MigConfigs {
  std::vector<std::string> names;
  std::vector<std::string> warnings;
};
Result<MigConfigs> parse_mig_configs(std::string_view text, std::string_view file);

}  // namespace gpuop::preflight

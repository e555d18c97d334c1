// The configuration files of operands that values of the chart hold as texts, read by the very parsers of the
// programs that will read them: what a program would end on is told before anything is installed. Helm sees
// only texts there. MIG manager is NVIDIA's program: its file is checked by mig-vgpu-sandbox.md §1.2.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "fleet/value_fields.h"

namespace gpuop::preflight {

// Everything that this room knows of values beyond fleet/values.h: config_text_faults() and
// extra_object_faults().
std::vector<fleet::FieldFault> value_faults(const Json& values);

// `values`: merged with the chart's defaults. What the program takes with a warning has `refused` false.
// Lines that the texts name are counted from the beginning of the configuration itself.
std::vector<fleet::FieldFault> config_text_faults(const Json& values);

// Of the objects in `extraObjects`: our own kinds field by field, as the API server and the operator take
// them, and ConfigMaps that hold the configurations that the values (or such a ClusterPolicy) name. Texts and
// objects with templates in them are helm's to read.
std::vector<fleet::FieldFault> extra_object_faults(const Json& values);

// A ConfigMap that is not the chart's, where `values`, or a ClusterPolicy's spec, name it as a configuration.
// Paths that begin with "data" are the ConfigMap's, others those of `values`.
std::vector<fleet::FieldFault> config_map_faults(const Json& values, const Json& config_map);

// The environment that the operator gives the container of `section` ("devicePlugin" or "gfd"), as far as the
// program reads it and it is known before an installation: it goes before the file.
std::map<std::string, std::string> program_env(const Json& values, std::string_view section);

// A file of MIG configurations: the names of those that it has.
struct MigConfigs {
  std::vector<std::string> names;
  std::vector<std::string> warnings;
};
Result<MigConfigs> parse_mig_configs(std::string_view text, std::string_view file);

}  // namespace gpuop::preflight

// Jobs of HPC schedulers: a folder with a file for each GPU (telemetry.md §6.1).
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "telemetry/page.h"

namespace gpuop::telemetry {

// "0" is GPU 0, "1.5" the GPU instance 5 of GPU 1; nullopt for every other name.
std::optional<EntityKey> job_file_entity(std::string_view name);
// The job ids of a file: one a line, trimmed, each once, in order.
std::vector<std::string> parse_jobs(std::string_view text);
// kNotFound when there is no folder. Files that vanish or cannot be read are left out.
Result<Jobs> read_jobs(const std::filesystem::path& dir);

}  // namespace gpuop::telemetry

// nvidia-ctk: the administrator's command of the container toolkit (container-toolkit-cdi.md §4).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpuop::ctk {

// A sub-command: what it does when it was chosen.
using Run = std::function<Result<>()>;

struct Chosen {
  Run run;
};

void add_cdi(CLI::App& app, Chosen& chosen);
void add_runtime(CLI::App& app, Chosen& chosen);
void add_config(CLI::App& app, Chosen& chosen);

// Lists come as several occurrences or with commas.
std::vector<std::string> comma_list(const std::vector<std::string>& given);
// To a file, or to standard output for "".
Result<> write_output(const std::string& path, const std::string& text);

}  // namespace gpuop::ctk

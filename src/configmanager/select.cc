#include "configmanager/select.h"

#include <algorithm>

#include "base/text.h"

namespace gpuop::configmanager {
namespace {

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Result<std::string> select_config(const SelectFacts& facts, std::string_view default_config,
                                  const std::vector<std::string>& fallbacks, bool* unknown_label) {
  if (unknown_label) *unknown_label = false;
  const auto& files = facts.candidates;
  if (files.empty()) return fail(Code::kNotFound, "no configuration files available");
  auto has = [&](std::string_view name) { return std::ranges::find(files, name) != files.end(); };
  std::string_view wanted = facts.label.empty() ? default_config : std::string_view(facts.label);
  if (!wanted.empty()) {
    if (has(wanted)) return std::string(wanted);
    if (unknown_label) *unknown_label = !facts.label.empty();
    return fail(Code::kNotFound,
                "specified config " + std::string(wanted) + " does not exist" + did_you_mean(wanted, files));
  }
  for (const std::string& fallback : fallbacks) {
    if (fallback == "named") {
      if (has("default")) return std::string("default");
    } else if (fallback == "single") {
      if (files.size() == 1) return files.front();
    } else if (fallback == "empty") {
      return std::string();
    } else {
      const std::vector<std::string> known = {"named", "single", "empty"};
      return fail(Code::kInvalid, "unknown fallback strategy: " + fallback + did_you_mean(fallback, known));
    }
  }
  return fail(Code::kNotFound, "no config was set, no default was provided, and all fallbacks failed");
}

std::optional<int> find_process(const std::vector<Process>& processes, std::string_view name) {
  for (const Process& process : processes) {
    if (process.argv0 == name) return process.pid;
  }
  for (const Process& process : processes) {
    if (base_name(process.argv0) == base_name(name) || base_name(process.exe) == base_name(name))
      return process.pid;
  }
  return std::nullopt;
}

}  // namespace gpuop::configmanager

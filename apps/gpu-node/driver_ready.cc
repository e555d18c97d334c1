#include "driver_ready.h"

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"

namespace gpuop {
namespace {

constexpr const char* kFolder = "/run/nvidia/validations";
constexpr Duration kNever = std::chrono::hours(24 * 365 * 50);

// KEY=value, perhaps quoted, perhaps behind `export`; anything else is left alone.
void source(std::string_view text, std::map<std::string, std::string>& env) {
  for (const std::string& line : split(text, '\n')) {
    std::string_view rest = trim(line);
    if (rest.starts_with("export ")) rest = trim(rest.substr(7));
    auto equals = rest.find('=');
    if (rest.empty() || rest.front() == '#' || equals == std::string_view::npos || equals == 0) continue;
    std::string_view value = rest.substr(equals + 1);
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
        value.back() == value.front()) {
      value = value.substr(1, value.size() - 2);
    }
    env[std::string(rest.substr(0, equals))] = std::string(value);
  }
}

}  // namespace

std::map<std::string, std::string> environment_map() {
  std::map<std::string, std::string> out;
  for (const std::string& entry : current_environment()) {
    auto equals = entry.find('=');
    if (equals != std::string::npos) out[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return out;
}

Result<> pass_driver_gate(Loop& loop, std::map<std::string, std::string>& env) {
  std::string file;
  if (auto named = env.find("DRIVER_READY_FILE"); named != env.end()) {
    file = named->second;
  } else if (file_exists(kFolder)) {
    file = std::string(kFolder) + "/driver-ready";
  }
  if (file.empty()) return {};
  if (!file_exists(file)) log::info("waiting for the driver", {{"file", file}});
  TRY(wait_for_file(loop, file, kNever));
  source(TRY(read_file(file)), env);
  return {};
}

}  // namespace gpuop

// base/log.h for the static host binaries: the same lines without a formatting library.
#include "base/log.h"

#include <unistd.h>

#include <chrono>

#include "base/json.h"
#include "base/text.h"
#include "base/time.h"

namespace gpuop::log {

namespace {

Level threshold = Level::kInfo;
Format shape = Format::kText;
std::string component_name;

constexpr std::string_view kNames[] = {"debug", "info", "warn", "error"};

std::string_view name_of(Level level) {
  return kNames[static_cast<int>(level)];
}

}  // namespace

void setup(std::string component, Level level, Format format) {
  component_name = std::move(component);
  threshold = level;
  shape = format;
}

Result<Level> parse_level(std::string_view name) {
  for (int i = 0; i < 4; ++i) {
    if (name == kNames[i]) return static_cast<Level>(i);
  }
  std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  return fail(Code::kInvalid, "log level '" + std::string(name) +
                                  "': must be one of debug, info, warn, error" + did_you_mean(name, names));
}

bool enabled(Level level) {
  return level >= threshold;
}

void write(Level level, std::string_view message, Fields fields) {
  if (!enabled(level)) return;
  std::string time = format_time(std::chrono::system_clock::now());
  std::string line;
  if (shape == Format::kJson) {
    JsonObject object{
        {"time", time}, {"level", name_of(level)}, {"component", component_name}, {"message", message}};
    for (const auto& field : fields) object[field.key] = field.value;
    line = to_text(object);
  } else {
    line = time + " " + std::string(name_of(level)) + " " + component_name + ": " + std::string(message);
    for (const auto& field : fields) line += " " + std::string(field.key) + "=" + to_text(Json(field.value));
  }
  line += "\n";
  // A log that cannot be written has nowhere to say so.
  [[maybe_unused]] auto n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace gpuop::log

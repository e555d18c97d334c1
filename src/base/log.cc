#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include "base/json.h"
#include "base/time.h"

// The lines are few and their form is fixed, so they are put together here rather than by a formatting
// library: the static host binaries log through the same code and stay free of it.
namespace gpuop::log {
namespace {

struct Setup {
  std::string component;
  Format format = Format::kText;
};
Setup& current() {
  static Setup setup;
  return setup;
}
std::atomic<Level> threshold{Level::kInfo};

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarn:
      return "warn";
    case Level::kError:
      return "error";
  }
  return "info";
}

bool needs_quotes(std::string_view text) {
  if (text.empty()) return true;
  for (unsigned char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f) return true;
  }
  return false;
}

void append_value(std::string& line, std::string_view text) {
  if (!needs_quotes(text)) {
    line += text;
    return;
  }
  line += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else if (static_cast<unsigned char>(c) < ' ') {
      line += '?';
    } else {
      line += c;
    }
  }
  line += '"';
}

}  // namespace

void setup(std::string component, Level level, Format format) {
  current().component = std::move(component);
  current().format = format;
  threshold = level;
}

Result<Level> parse_level(std::string_view name) {
  for (Level level : {Level::kDebug, Level::kInfo, Level::kWarn, Level::kError}) {
    if (name == level_name(level)) return level;
  }
  return fail(Code::kInvalid,
              "log level: must be one of debug, info, warn, error; got '" + std::string(name) + "'");
}

bool enabled(Level level) {
  return level >= threshold.load(std::memory_order_relaxed);
}

void write(Level level, std::string_view message, Fields fields) {
  if (!enabled(level)) return;
  const std::string when = format_micro_time(std::chrono::system_clock::now());
  std::string line;
  if (current().format == Format::kJson) {
    JsonObject object{{"time", when},
                      {"level", level_name(level)},
                      {"component", current().component},
                      {"message", message}};
    for (const auto& field : fields) object[field.key] = field.value;
    line = to_text(object);
  } else {
    line = when + " " + std::string(level_name(level)) + " ";
    if (!current().component.empty()) line += current().component + ": ";
    line += message;
    for (const auto& field : fields) {
      line += ' ';
      line += field.key;
      line += '=';
      append_value(line, field.value);
    }
  }
  line += '\n';
  // One write a line, so that lines of several processes on one pipe stay whole.
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (n <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace gpuop::log

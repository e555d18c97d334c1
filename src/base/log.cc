#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/log_zap.h"
#include "base/text.h"
#include "base/time.h"

// The lines are few and their form is fixed, so they are put together here rather than by a formatting
// library: the static host binaries log through the same code and stay free of it.
namespace gpuop::log {
namespace {

struct Setup {
  std::string component;
  Format format = Format::kText;
  std::optional<ZapTime> zap;
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
  current().zap.reset();
  threshold = level;
}

Result<Level> parse_level(std::string_view name) {
  for (Level level : {Level::kDebug, Level::kInfo, Level::kWarn, Level::kError}) {
    if (name == level_name(level)) return level;
  }
  return fail(Code::kInvalid,
              "log level: must be one of debug, info, warn, error; got '" + std::string(name) + "'");
}

Result<ZapTime> parse_zap_time(std::string_view name) {
  static const std::vector<std::string> kNames{"epoch",   "millis",  "nano",
                                               "iso8601", "rfc3339", "rfc3339nano"};
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<ZapTime>(i);
  return fail(Code::kInvalid, "time encoding: must be one of " + join(kNames, ", ") + "; got '" +
                                  std::string(name) + "'" + did_you_mean(name, kNames));
}

void use_zap_keys(ZapTime encoding) {
  current().zap = encoding;
}

std::string zap_time(Time when, ZapTime encoding) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
  // "…123456" with the point so many digits from the end.
  const auto with_point = [micros](std::size_t digits) {
    std::string text = std::to_string(micros);
    if (text.size() <= digits) text.insert(0, digits + 1 - text.size(), '0');
    return text.insert(text.size() - digits, ".");
  };
  const std::string micro_text = format_micro_time(when);  // 2026-01-02T03:04:05.123456Z
  switch (encoding) {
    case ZapTime::kEpoch:
      return with_point(6);
    case ZapTime::kMillis:
      return with_point(3);
    case ZapTime::kNano:
      return std::to_string(micros) + "000";
    case ZapTime::kIso8601:
      return "\"" + micro_text.substr(0, micro_text.size() - 4) + "Z\"";
    case ZapTime::kRfc3339:
      return "\"" + format_time(when) + "\"";
    case ZapTime::kRfc3339Nano:
      return "\"" + micro_text + "\"";
  }
  return with_point(6);
}

bool enabled(Level level) {
  return level >= threshold.load(std::memory_order_relaxed);
}

namespace {

constexpr std::string_view kLogger = "logger";

std::string zap_line(Level level, std::string_view message, Fields fields, ZapTime encoding) {
  JsonObject object{{kLogger, current().component}, {"msg", message}};
  for (const auto& field : fields) object[field.key] = field.value;
  return R"({"level":")" + std::string(level_name(level)) + R"(","ts":)" +
         zap_time(std::chrono::system_clock::now(), encoding) + "," + to_text(object).substr(1);
}

}  // namespace

void write(Level level, std::string_view message, Fields fields) {
  if (!enabled(level)) return;
  const std::string when = format_micro_time(std::chrono::system_clock::now());
  std::string line;
  if (current().format == Format::kJson && current().zap) {
    line = zap_line(level, message, fields, *current().zap);
  } else if (current().format == Format::kJson) {
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
      if (field.key == kLogger) continue;
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

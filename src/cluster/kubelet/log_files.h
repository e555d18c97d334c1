// Container logs in the CRI format, one line an entry: "2026-01-02T03:04:05.000000006Z stdout F text", tag F
// for a whole line and P for a piece that goes on.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace gpuop::cluster {

struct LogLine {
  std::string_view time, stream, text;
  bool partial = false;
};
// nullopt: not in the format.
std::optional<LogLine> parse_log_line(std::string_view line);

struct LogOptions {
  std::optional<std::int64_t> tail_lines;
  std::optional<Time> since;
  std::optional<std::int64_t> limit_bytes;
  bool timestamps = false;
  bool follow = false;
  bool previous = false;
};

// Turns raw log text into what a client reads, piece by piece: whole entries only, a cut last line waits for
// its rest. Keeps count of limit_bytes.
class LogCutter {
 public:
  explicit LogCutter(const LogOptions& options) : options_(options) {}
  std::string feed(std::string_view raw);
  bool full() const { return left_ && *left_ <= 0; }

 private:
  LogOptions options_;
  std::string rest_;
  bool inside_ = false;  // the last entry was a piece: no time stamp before the next
  bool skipping_ = false;
  std::optional<std::int64_t> left_ = options_.limit_bytes;
};

// Where the last `lines` whole lines of the file begin, in bytes; counts entries that end a line.
Result<std::int64_t> tail_offset(int fd, std::int64_t lines);
// The last bytes of a file that may be anything; empty when it cannot be read.
std::string file_tail(const std::filesystem::path& path, std::size_t bytes);
// The text with every byte that is not UTF-8 replaced by U+FFFD: what containers write goes into API objects.
std::string valid_utf8(std::string_view text);
// The text of the last lines, at most `lines` and `bytes`, for termination messages.
std::string log_tail(const std::filesystem::path& path, std::int64_t lines, std::size_t bytes);

}  // namespace gpuop::cluster

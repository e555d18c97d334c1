// Container logs as the CRI has them: "TIME stdout F line", a line that is too long in several "P" pieces.
#pragma once

#include <string>
#include <string_view>

#include "base/time.h"

namespace gpuop::cluster {

// One stream of one container.
class CriLogStream {
 public:
  explicit CriLogStream(std::string_view name) : name_(name) {}
  // Records for the whole lines in `bytes`; an unfinished one is kept, or written as a piece when it has
  // grown to 16 KiB.
  std::string add(std::string_view bytes, Time now);
  // What is left without a newline, at the end of the stream.
  std::string finish(Time now);

 private:
  std::string record(std::string_view tag, std::string_view text, Time now) const;
  std::string name_;
  std::string pending_;
};

// RFC 3339 in UTC with nanoseconds: "2026-01-02T03:04:05.000000006Z".
std::string format_nano_time(Time t);

}  // namespace gpuop::cluster

// What happened in a run, one line an event: "+12.345678901 ACTOR VERB OBJECT DETAIL". Two runs of the same
// fleet, faults and seed write the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/loop.h"

namespace gpuop::cluster {

class EventLog {
 public:
  // Times count from now on. Lines go to `sink` if there is one, else they are kept.
  explicit EventLog(Loop& loop, std::function<void(std::string_view line)> sink = nullptr);

  void line(std::string_view actor, std::string_view verb, std::string_view object, std::string_view detail);
  const std::string& text() const { return text_; }
  std::uint64_t lines() const { return lines_; }
  // Elapsed time of the run.
  Duration elapsed() const { return loop_.elapsed() - start_; }

 private:
  Loop& loop_;
  Duration start_;
  std::function<void(std::string_view)> sink_;
  std::string text_;
  std::uint64_t lines_ = 0;
};

}  // namespace gpuop::cluster

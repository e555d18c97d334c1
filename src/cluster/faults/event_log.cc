#include "cluster/faults/event_log.h"

#include <cstdio>

namespace gpuop::cluster {

EventLog::EventLog(Loop& loop, std::function<void(std::string_view)> sink)
    : loop_(loop), start_(loop.elapsed()), sink_(std::move(sink)) {}

void EventLog::line(std::string_view actor, std::string_view verb, std::string_view object,
                    std::string_view detail) {
  ++lines_;
  const std::int64_t at = elapsed().count();
  char when[40];
  std::snprintf(when, sizeof when, "+%lld.%09lld", static_cast<long long>(at / 1000000000),
                static_cast<long long>(at % 1000000000));
  std::string out = when;
  for (const std::string_view part : {actor, verb, object, detail}) {
    if (part.empty()) continue;
    out += ' ';
    out += part;
  }
  out += '\n';
  if (sink_) return sink_(out);
  text_ += out;
}

}  // namespace gpuop::cluster

// Points in time and spans, and the texts Kubernetes writes them as.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpuop {

using Duration = std::chrono::nanoseconds;
// Wall-clock time (UTC). Under a virtual loop it is whatever that loop's clock says.
using Time = std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds>;

using namespace std::chrono_literals;  // NOLINT: durations are written 250ms everywhere

// "2026-01-02T03:04:05Z", whole seconds: metav1.Time.
std::string format_time(Time t);
// "2026-01-02T03:04:05.000006Z", always six decimals: metav1.MicroTime.
std::string format_micro_time(Time t);
// Any RFC 3339 text, with or without fraction, Z or an offset.
Result<Time> parse_time(std::string_view text);

// Go duration text: "1h30m", "250ms", "1.5s", "0". Units ns us µs ms s m h.
Result<Duration> parse_go_duration(std::string_view text);
// The shortest Go form: "1h30m0s", "250ms", "0s".
std::string format_go_duration(Duration d);
// How kubectl prints ages: "5s", "3m20s", "12h", "2d4h" (kubernetes-api.md §7.3).
std::string human_age(Duration d);

}  // namespace gpuop

// Lines in JSON with the keys and times that upstream's operator gives them, for whoever collects its logs
// (operator.md §7.2): level, ts, logger, msg, then the fields. A field "logger" names the part that speaks;
// without one it is the component.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace gpuop::log {

enum class ZapTime { kEpoch, kMillis, kNano, kIso8601, kRfc3339, kRfc3339Nano };
// epoch, millis, nano, iso8601, rfc3339 or rfc3339nano.
Result<ZapTime> parse_zap_time(std::string_view name);

// From now on lines in JSON have this form.
void use_zap_keys(ZapTime encoding);

// A time as JSON: seconds, milliseconds (both with a fraction) or nanoseconds since 1970, or text.
std::string zap_time(Time when, ZapTime encoding);

}  // namespace gpuop::log

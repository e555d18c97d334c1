#include "base/time.h"

#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/text.h"

namespace gpuop {
namespace {

std::string format_date(Time t, std::int64_t& nanos) {
  using namespace std::chrono;
  const auto day = floor<days>(t);
  const year_month_day date(day);
  const auto in_day = t - day;
  const auto seconds_of_day = duration_cast<seconds>(in_day).count();
  nanos = (in_day - seconds(seconds_of_day)).count();
  char text[48];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(seconds_of_day / 3600), static_cast<int>(seconds_of_day / 60 % 60),
                static_cast<int>(seconds_of_day % 60));
  return text;
}

// Takes exactly `width` digits.
bool take_digits(std::string_view& text, std::size_t width, int& value) {
  if (text.size() < width) return false;
  value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    if (text[i] < '0' || text[i] > '9') return false;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(width);
  return true;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text[0]) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string format_time(Time t) {
  std::int64_t nanos = 0;
  return format_date(t, nanos) + "Z";
}

std::string format_micro_time(Time t) {
  std::int64_t nanos = 0;
  std::string text = format_date(t, nanos);
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%06dZ", static_cast<int>(nanos / 1000));
  return text + fraction;
}

Result<Time> parse_time(std::string_view text) {
  using namespace std::chrono;
  const auto bad = [whole = text] {
    return fail(Code::kInvalid, "'" + std::string(whole) + "': not an RFC 3339 time");
  };
  int y = 0, mo = 0, d = 0, h = 0, mi = 0, s = 0;
  if (!take_digits(text, 4, y) || !take(text, "-") || !take_digits(text, 2, mo) || !take(text, "-") ||
      !take_digits(text, 2, d) || !take(text, "Tt ") || !take_digits(text, 2, h) || !take(text, ":") ||
      !take_digits(text, 2, mi) || !take(text, ":") || !take_digits(text, 2, s)) {
    return bad();
  }
  std::int64_t nanos = 0;
  if (take(text, ".")) {
    std::int64_t scale = 100'000'000;
    bool any = false;
    while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
      nanos += (text[0] - '0') * scale;
      scale /= 10;
      any = true;
      text.remove_prefix(1);
    }
    if (!any) return bad();
  }
  seconds offset{0};
  if (!take(text, "Zz")) {
    if (text.empty() || (text[0] != '+' && text[0] != '-')) return bad();
    const int sign = text[0] == '-' ? -1 : 1;
    text.remove_prefix(1);
    int oh = 0, om = 0;
    if (!take_digits(text, 2, oh) || !take(text, ":") || !take_digits(text, 2, om) || oh > 23 || om > 59)
      return bad();
    offset = seconds(sign * (oh * 3600 + om * 60));
  }
  const year_month_day date{year(y), month(static_cast<unsigned>(mo)), day(static_cast<unsigned>(d))};
  // Nanoseconds since 1970 in 64 bits reach from 1678 to 2261.
  if (!text.empty() || !date.ok() || h > 23 || mi > 59 || s > 60 || y < 1678 || y > 2261) return bad();
  return Time(sys_days(date)) + hours(h) + minutes(mi) + seconds(s) + nanoseconds(nanos) - offset;
}

Result<Duration> parse_go_duration(std::string_view text) {
  const std::string whole(text);
  const auto bad = [&whole] {
    return fail(Code::kInvalid, "'" + whole + "': not a duration (expected a form like 1h30m, 15s, 250ms)");
  };
  bool negative = false;
  if (take(text, "-")) {
    negative = true;
  } else {
    take(text, "+");
  }
  if (text == "0") return Duration(0);
  if (text.empty()) return bad();
  long double total = 0;
  while (!text.empty()) {
    long double value = 0;
    long double scale = 1;
    bool any = false;
    bool fraction = false;
    while (!text.empty() && ((text[0] >= '0' && text[0] <= '9') || (text[0] == '.' && !fraction))) {
      if (text[0] == '.') {
        fraction = true;
      } else {
        any = true;
        value = value * 10 + (text[0] - '0');
        if (fraction) scale *= 10;
      }
      text.remove_prefix(1);
    }
    if (!any) return bad();
    long double unit = 0;
    std::size_t width = 2;
    if (text.starts_with("ns"))
      unit = 1;
    else if (text.starts_with("us"))
      unit = 1e3L;
    else if (text.starts_with("\u00b5s") || text.starts_with("\u03bcs"))
      unit = 1e3L, width = 3;
    else if (text.starts_with("ms"))
      unit = 1e6L;
    else if (text.starts_with("s"))
      unit = 1e9L, width = 1;
    else if (text.starts_with("m"))
      unit = 60e9L, width = 1;
    else if (text.starts_with("h"))
      unit = 3600e9L, width = 1;
    else
      return bad();
    text.remove_prefix(width);
    total += value / scale * unit;
  }
  if (total > 9.2e18L) {
    return fail(Code::kUnsupported, "'" + whole + "': is longer than 292 years, the longest duration");
  }
  const auto nanos = static_cast<std::int64_t>(std::llround(total));
  return Duration(negative ? -nanos : nanos);
}

std::string format_go_duration(Duration d) {
  std::int64_t nanos = d.count();
  if (nanos == 0) return "0s";
  std::string sign = nanos < 0 ? "-" : "";
  if (nanos < 0) nanos = -nanos;
  const auto decimal = [](std::int64_t value, std::int64_t unit) {
    std::string text = std::to_string(value / unit);
    std::string rest = std::to_string(unit + value % unit).substr(1);
    rest.erase(rest.find_last_not_of('0') + 1);
    return rest.empty() ? text : text + "." + rest;
  };
  if (nanos < 1000) return sign + std::to_string(nanos) + "ns";
  if (nanos < 1'000'000) return sign + decimal(nanos, 1000) + "\u00b5s";
  if (nanos < 1'000'000'000) return sign + decimal(nanos, 1'000'000) + "ms";
  const std::int64_t minutes = nanos / 60'000'000'000;
  std::string text = decimal(nanos % 60'000'000'000, 1'000'000'000) + "s";
  if (minutes > 0) text = std::to_string(minutes % 60) + "m" + text;
  if (minutes >= 60) text = std::to_string(minutes / 60) + "h" + text;
  return sign + text;
}

std::string human_age(Duration d) {
  const std::int64_t s = std::chrono::duration_cast<std::chrono::seconds>(d).count();
  if (s < -1) return "<invalid>";
  if (s < 0) return "0s";
  const auto two = [](std::int64_t a, const char* ua, std::int64_t b, const char* ub) {
    std::string text = std::to_string(a) + ua;
    if (b) text += std::to_string(b) + ub;
    return text;
  };
  const std::int64_t m = s / 60;
  const std::int64_t h = m / 60;
  if (s < 120) return std::to_string(s) + "s";
  if (m < 10) return two(m, "m", s % 60, "s");
  if (m < 180) return std::to_string(m) + "m";
  if (h < 8) return two(h, "h", m % 60, "m");
  if (h < 48) return std::to_string(h) + "h";
  if (h < 192) return two(h / 24, "d", h % 24, "h");
  if (h < 24 * 365 * 2) return std::to_string(h / 24) + "d";
  if (h < 24 * 365 * 8) return two(h / 24 / 365, "y", h / 24 % 365, "d");
  return std::to_string(h / 24 / 365) + "y";
}

}  // namespace gpuop

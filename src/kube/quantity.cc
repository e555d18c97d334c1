// resource.Quantity: fixed-point numbers with decimal, binary or exponent suffixes. Kept in billionths, which
// is as fine as Kubernetes keeps them; finer input is rounded away from zero.
#include <charconv>
#include <cmath>
#include <limits>

#include "kube/object.h"

namespace gpuop::kube {
namespace {

using Wide = __int128;
enum class Form { kDecimal, kBinary, kExponent };

struct Amount {
  Wide nano = 0;
  Form form = Form::kDecimal;
};

constexpr Wide kNano = 1'000'000'000;
// Kubernetes caps what does not fit into a signed 64-bit count of units.
constexpr Wide kMaxNano = Wide(std::numeric_limits<std::int64_t>::max()) * kNano;

std::unexpected<Error> bad(std::string_view text) {
  return fail(Code::kInvalid,
              "parse quantity '" + std::string(text) +
                  "': must be a number with an optional suffix (n u m k M G T P E, Ki Mi Gi Ti Pi "
                  "Ei, or e3)");
}

struct Suffix {
  std::string_view text;
  Form form;
  int power;  // of ten, or of 1024
};
constexpr Suffix kSuffixes[] = {
    {"", Form::kDecimal, 0},   {"n", Form::kDecimal, -9}, {"u", Form::kDecimal, -6},
    {"m", Form::kDecimal, -3}, {"k", Form::kDecimal, 3},  {"M", Form::kDecimal, 6},
    {"G", Form::kDecimal, 9},  {"T", Form::kDecimal, 12}, {"P", Form::kDecimal, 15},
    {"E", Form::kDecimal, 18}, {"Ki", Form::kBinary, 1},  {"Mi", Form::kBinary, 2},
    {"Gi", Form::kBinary, 3},  {"Ti", Form::kBinary, 4},  {"Pi", Form::kBinary, 5},
    {"Ei", Form::kBinary, 6},
};

bool read_suffix(std::string_view text, Form& form, int& power) {
  for (const Suffix& suffix : kSuffixes) {
    if (suffix.text != text) continue;
    form = suffix.form;
    power = suffix.power;
    return true;
  }
  if (text.size() < 2 || (text[0] != 'e' && text[0] != 'E')) return false;
  std::string_view digits = text.substr(1);
  if (digits[0] == '+') digits.remove_prefix(1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), power);
  if (error != std::errc() || end != digits.data() + digits.size()) return false;
  form = Form::kExponent;
  return power >= -1000 && power <= 1000;
}

// value * factor, or the cap.
Wide scale_up(Wide value, Wide factor) {
  if (value > kMaxNano / factor) return kMaxNano;
  return value * factor;
}

Result<Amount> parse_amount(std::string_view text) {
  std::string_view rest = text;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  // The digits as one whole number, and how many of them stand behind the point.
  Wide digits = 0;
  int behind = 0;
  int dropped = 0;  // digits that no longer fit, before the point
  bool any = false, point = false, inexact = false;
  std::size_t at = 0;
  for (; at < rest.size(); ++at) {
    const char c = rest[at];
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9') {
      any = true;
      if (digits > kMaxNano) {  // more precision than can matter
        inexact = inexact || c != '0';
        if (!point) ++dropped;
        continue;
      }
      digits = digits * 10 + (c - '0');
      if (point) ++behind;
    } else {
      break;
    }
  }
  Amount out;
  int power = 0;
  if (!any || !read_suffix(rest.substr(at), out.form, power)) return bad(text);
  if (out.form == Form::kBinary) {
    for (int i = 0; i < power; ++i) digits = scale_up(digits, 1024);
    power = 0;
  }
  for (power += 9 - behind + dropped; power > 0 && digits != 0 && digits < kMaxNano; --power) {
    digits = scale_up(digits, 10);
  }
  for (; power < 0 && digits != 0; ++power) {
    inexact = inexact || digits % 10 != 0;
    digits /= 10;
  }
  if (inexact) ++digits;
  if (digits > kMaxNano) digits = kMaxNano;
  out.nano = negative ? -digits : digits;
  return out;
}

Result<Amount> parse_amount(const Json& value) {
  if (value.is_int64()) return parse_amount(std::to_string(value.get_int64()));
  if (value.is_uint64()) return parse_amount(std::to_string(value.get_uint64()));
  if (value.is_string()) return parse_amount(std::string_view(value.get_string()));
  if (value.is_double() && std::isfinite(value.get_double())) {
    char text[512];
    const auto [end, error] =
        std::to_chars(text, text + sizeof text, value.get_double(), std::chars_format::fixed);
    if (error == std::errc()) return parse_amount(std::string_view(text, end));
  }
  return bad(to_text(value));
}

Wide divide_up(Wide value, Wide by) {
  const Wide whole = value / by;
  if (value % by == 0) return whole;
  return value > 0 ? whole + 1 : whole - 1;
}

std::string wide_text(Wide value) {
  if (value < 0) return "-" + wide_text(-value);
  std::string out;
  do {
    out.insert(out.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value != 0);
  return out;
}

}  // namespace

Result<__int128> parse_quantity_milli(const Json& value) {
  const Amount amount = TRY(parse_amount(value));
  return divide_up(amount.nano, 1'000'000);
}

Result<std::int64_t> parse_quantity(const Json& value) {
  const Amount amount = TRY(parse_amount(value));
  return static_cast<std::int64_t>(divide_up(amount.nano, kNano));
}

Result<std::string> canonical_quantity(const Json& value) {
  const Amount amount = TRY(parse_amount(value));
  if (amount.nano == 0) return std::string("0");
  const bool whole = amount.nano % kNano == 0;
  const Wide units = amount.nano / kNano;
  if (amount.form == Form::kBinary && whole && (units >= 1024 || units <= -1024)) {
    static constexpr const char* kNames[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    Wide rest = units;
    int power = 0;
    for (; power < 6 && rest % 1024 == 0; ++power) rest /= 1024;
    return wide_text(rest) + kNames[power];
  }
  Wide rest = amount.nano;
  int power = -9;
  for (; power < 18 && rest % 1000 == 0; power += 3) rest /= 1000;
  if (amount.form == Form::kExponent)
    return wide_text(rest) + (power == 0 ? "" : "e" + std::to_string(power));
  static constexpr const char* kNames[] = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
  return wide_text(rest) + kNames[(power + 9) / 3];
}

}  // namespace gpuop::kube

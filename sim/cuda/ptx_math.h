// Arithmetic of the interpreter that needs nothing but its operands.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "sim/cuda/ptx.h"

namespace gpuop::sim::ptx {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

inline bool is_signed(Type t) {
  return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64;
}
inline bool is_real(Type t) {
  return t == Type::kF32 || t == Type::kF64;
}

inline u64 truncate(u64 v, Type t) {
  switch (size_of(t)) {
    case 1:
      return t == Type::kPred ? v & 1 : v & 0xFF;
    case 2:
      return v & 0xFFFF;
    case 4:
      return v & 0xFFFFFFFFu;
    default:
      return v;
  }
}

// As the type says: sign-extended or zero-extended to 64 bits.
inline u64 extend(u64 v, Type t) {
  if (!is_signed(t)) return truncate(v, t);
  switch (size_of(t)) {
    case 1:
      return static_cast<u64>(static_cast<i64>(static_cast<std::int8_t>(v)));
    case 2:
      return static_cast<u64>(static_cast<i64>(static_cast<std::int16_t>(v)));
    case 4:
      return static_cast<u64>(static_cast<i64>(static_cast<std::int32_t>(v)));
    default:
      return v;
  }
}

inline float as_float(u64 v) {
  return std::bit_cast<float>(static_cast<u32>(v));
}
inline double as_double(u64 v) {
  return std::bit_cast<double>(v);
}
inline u64 from_float(float f) {
  return std::bit_cast<u32>(f);
}
inline u64 from_double(double d) {
  return std::bit_cast<u64>(d);
}

inline u64 extract(u64 a, u64 at, u64 length, u32 bits, bool sign) {
  at &= 0xFF;
  length &= 0xFF;
  u64 top = std::min<u64>(at + length, bits);  // one past the field
  u64 fill = sign && length != 0 ? a >> (top == 0 ? 0 : top - 1) & 1 : 0;
  u64 r = 0;
  for (u64 k = 0; k < bits; ++k) {
    u64 bit = k < length ? (at + k < bits ? a >> (at + k) & 1 : fill) : fill;
    r |= bit << k;
  }
  return r;
}

template <class V>
bool holds(Compare c, V a, V b) {
  switch (c) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a != b;
    case Compare::kLt:
    case Compare::kLo:
      return a < b;
    case Compare::kLe:
    case Compare::kLs:
      return a <= b;
    case Compare::kGt:
    case Compare::kHi:
      return a > b;
    case Compare::kGe:
    case Compare::kHs:
      return a >= b;
    default:
      return false;
  }
}

inline bool holds_real(Compare c, double a, double b) {
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (c) {
    case Compare::kEqu:
      return unordered || a == b;
    case Compare::kNeu:
      return unordered || a != b;
    case Compare::kLtu:
      return unordered || a < b;
    case Compare::kLeu:
      return unordered || a <= b;
    case Compare::kGtu:
      return unordered || a > b;
    case Compare::kGeu:
      return unordered || a >= b;
    case Compare::kNum:
      return !unordered;
    case Compare::kNan:
      return unordered;
    default:
      return !unordered && holds(c, a, b);
  }
}

inline u64 saturated(u64 v, Type from, Type to) {
  u32 bits = size_of(to) * 8;
  bool negative = is_signed(from) && static_cast<i64>(v) < 0;
  if (is_signed(to)) {
    i64 high = bits == 64 ? INT64_MAX : (i64{1} << (bits - 1)) - 1, low = -high - 1;
    if (negative) return static_cast<u64>(std::max(static_cast<i64>(v), low));
    return v > static_cast<u64>(high) ? static_cast<u64>(high) : v;
  }
  u64 high = bits == 64 ? ~u64{0} : (u64{1} << bits) - 1;
  return negative ? 0 : std::min(v, high);
}

// Out of range goes to the nearest end, NaN to zero, as the hardware does.
inline u64 to_integer(double v, Type t) {
  if (std::isnan(v)) return 0;
  u32 bits = size_of(t) * 8;
  if (is_signed(t)) {
    double edge = std::ldexp(1.0, static_cast<int>(bits) - 1);
    if (v >= edge) return (u64{1} << (bits - 1)) - 1;
    if (v < -edge) return ~((u64{1} << (bits - 1)) - 1);
    return static_cast<u64>(static_cast<i64>(v));
  }
  if (v <= 0) return 0;
  if (v >= std::ldexp(1.0, static_cast<int>(bits))) return bits == 64 ? ~u64{0} : (u64{1} << bits) - 1;
  return static_cast<u64>(v);
}

// Any function of three bits, bit by bit: `table` has its eight results.
inline u32 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 r = 0;
  for (u32 k = 0; k < 8; ++k) {
    if ((table >> k & 1) == 0) continue;
    r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  }
  return r;
}

// Which byte of {b, a} goes to place `k`: 0 to 7, 8 on top for its sign alone.
inline u32 permute_choice(Way way, u32 selector, u32 k) {
  u32 s = selector & 3;
  switch (way) {
    case Way::kF4e:
      return s + k;
    case Way::kB4e:
      return (s - k) & 7;
    case Way::kRc8:
      return s;
    case Way::kEcl:
      return std::max(s, k);
    case Way::kEcr:
      return std::min(s, k);
    case Way::kRc16:
      return (s & 1) * 2 + (k & 1);
    default:
      return selector >> (4 * k) & 15;
  }
}
inline u32 permute(Way way, u32 a, u32 b, u32 selector) {
  u64 bytes = u64{b} << 32 | a;
  u32 r = 0;
  for (u32 k = 0; k < 4; ++k) {
    u32 choice = permute_choice(way, selector, k);
    auto byte = static_cast<u32>(bytes >> (8 * (choice & 7)) & 0xFF);
    if (choice & 8) byte = byte & 0x80 ? 0xFF : 0;
    r |= byte << (8 * k);
  }
  return r;
}

// A shift through {high, low}.
inline u32 funnel(bool left, bool clamps, u32 low, u32 high, u32 by) {
  by = clamps ? std::min(by, 32u) : by & 31;
  u64 both = u64{high} << 32 | low;
  return static_cast<u32>(left ? (both << by) >> 32 : both >> by);
}

// The lane that a shuffle reads, and whether it is in range.
inline u32 shuffle_lane(Way way, u32 lane, u32 b, u32 c, bool* inside) {
  u32 segment = c >> 8 & 31, clamp = c & 31, by = b & 31;
  u32 most = (lane & segment) | (clamp & ~segment), least = lane & segment;
  u32 from = way == Way::kUp     ? lane - by
             : way == Way::kDown ? lane + by
             : way == Way::kBfly ? lane ^ by
                                 : least | (by & ~segment);
  *inside =
      way == Way::kUp ? lane >= by && static_cast<i64>(lane) - by >= static_cast<i64>(most) : from <= most;
  return *inside ? from & 31 : lane;
}

inline bool test_real(Way way, double v, bool subnormal) {
  switch (way) {
    case Way::kFinite:
      return std::isfinite(v);
    case Way::kInfinite:
      return std::isinf(v);
    case Way::kNumber:
      return !std::isnan(v);
    case Way::kNotANumber:
      return std::isnan(v);
    case Way::kSubnormal:
      return subnormal;
    default:
      return std::isfinite(v) && v != 0 && !subnormal;
  }
}

}  // namespace gpuop::sim::ptx

#include "sim/cuda/ptx_integer.h"

namespace gpuop::sim::ptx {

namespace {

// Sums that stop at the ends of their type.
u64 saturated_sum(u64 a, u64 b, Type type) {
  return saturated(a + b, Type::kS64, type);
}

}  // namespace

IntegerResult integer_result(const Instruction& i, const u64 (&raw)[kMaxOperands], bool carry) {
  u32 bits = size_of(i.type) * 8;
  bool sign = is_signed(i.type);
  auto get = [&](int k) { return extend(raw[k], i.type); };
  u64 a = get(1), b = get(2), r = 0;
  auto product = [&]() -> u64 {
    if (!(i.flags & kHi)) return a * b;
    __extension__ using wide = __int128;
    __extension__ using unsigned_wide = unsigned __int128;
    if (sign) return static_cast<u64>(static_cast<wide>(static_cast<i64>(a)) * static_cast<i64>(b) >> bits);
    return static_cast<u64>(static_cast<unsigned_wide>(a) * b >> bits);
  };
  Type out = i.type;
  if (i.flags & kWide) {
    out = bits == 16 ? (sign ? Type::kS32 : Type::kU32) : (sign ? Type::kS64 : Type::kU64);
  }
  auto word = [&](int k) { return static_cast<u32>(raw[k]); };
  bool left = false;
  auto carried = [&](bool c) { left = c; };
  switch (i.op) {
    case Op::kAdd:
      r = i.flags & kSat ? saturated_sum(a, b, i.type) : a + b;
      carried(truncate(r, i.type) < truncate(a, i.type));
      break;
    case Op::kSub:
      r = i.flags & kSat ? saturated_sum(a, ~b + 1, i.type) : a - b;
      carried(truncate(a, i.type) < truncate(b, i.type));
      break;
    case Op::kAddc: {
      u64 in = carry, x = truncate(a, i.type), sum = truncate(a + b + in, i.type);
      r = sum;
      carried(sum < x || (in && sum == x));
      break;
    }
    case Op::kSubc: {
      u64 in = carry, x = truncate(a, i.type), y = truncate(b, i.type);
      r = a - b - in;
      carried(x < y || (in && x == y));
      break;
    }
    case Op::kMul24:
    case Op::kMad24: {
      i64 x = sign ? static_cast<i64>(a << 40) >> 40 : static_cast<i64>(a & 0xFFFFFF);
      i64 y = sign ? static_cast<i64>(b << 40) >> 40 : static_cast<i64>(b & 0xFFFFFF);
      r = static_cast<u64>(x * y) >> (i.flags & kHi ? 16 : 0);
      if (i.op == Op::kMad24) r += get(3);
      break;
    }
    case Op::kSad: {
      bool less = sign ? static_cast<i64>(a) < static_cast<i64>(b) : a < b;
      r = get(3) + (less ? b - a : a - b);
      break;
    }
    case Op::kLop3:
      r = lop3(word(1), word(2), word(3), word(4));
      break;
    case Op::kPrmt:
      r = permute(i.way, word(1), word(2), word(3));
      break;
    case Op::kShf:
      r = funnel(i.way == Way::kLeft, i.clamps, word(1), word(2), word(3));
      break;
    case Op::kMul:
      r = product();
      break;
    case Op::kMad:
      r = product() + extend(raw[3], out);
      break;
    case Op::kDiv:
      // Division by zero has no defined result on the device; it does not fault.
      if (b == 0)
        r = ~u64{0};
      else if (sign)
        r = b == ~u64{0} ? ~a + 1 : static_cast<u64>(static_cast<i64>(a) / static_cast<i64>(b));
      else
        r = a / b;
      break;
    case Op::kRem:
      if (b == 0)
        r = a;
      else if (sign)
        r = b == ~u64{0} ? 0 : static_cast<u64>(static_cast<i64>(a) % static_cast<i64>(b));
      else
        r = a % b;
      break;
    case Op::kMin:
      r = sign ? static_cast<u64>(std::min(static_cast<i64>(a), static_cast<i64>(b))) : std::min(a, b);
      break;
    case Op::kMax:
      r = sign ? static_cast<u64>(std::max(static_cast<i64>(a), static_cast<i64>(b))) : std::max(a, b);
      break;
    case Op::kAbs:
      r = sign && static_cast<i64>(a) < 0 ? ~a + 1 : a;
      break;
    case Op::kNeg:
      r = ~a + 1;
      break;
    case Op::kAnd:
      r = a & b;
      break;
    case Op::kOr:
      r = a | b;
      break;
    case Op::kXor:
      r = a ^ b;
      break;
    case Op::kNot:
      r = ~a;
      break;
    case Op::kCnot:
      r = a == 0;
      break;
    case Op::kShl: {
      u64 by = word(2);
      r = by >= bits ? 0 : a << by;
      break;
    }
    case Op::kShr: {
      u64 by = word(2);
      if (sign)
        r = static_cast<u64>(static_cast<i64>(a) >> std::min<u64>(by, bits - 1));
      else
        r = by >= bits ? 0 : a >> by;
      break;
    }
    case Op::kPopc:
      r = static_cast<u64>(std::popcount(a)), out = Type::kU32;
      break;
    case Op::kClz:
      r = static_cast<u64>(std::countl_zero(a)) - (64 - bits), out = Type::kU32;
      break;
    case Op::kBrev:
      for (u32 k = 0; k < bits; ++k) r |= (a >> k & 1) << (bits - 1 - k);
      break;
    case Op::kBfe:
      r = extract(a, word(2), word(3), bits, sign);
      break;
    case Op::kBfi: {
      u64 at = word(3) & 0xFF, length = word(4) & 0xFF;
      r = b;
      for (u64 k = 0; k < length && at + k < bits; ++k) {
        r = (r & ~(u64{1} << (at + k))) | ((a >> k & 1) << (at + k));
      }
      break;
    }
    default:
      break;
  }
  return {r, out, left};
}

}  // namespace gpuop::sim::ptx

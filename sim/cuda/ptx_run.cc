#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <memory>

#include "sim/cuda/ptx.h"
#include "sim/cuda/ptx_math.h"
#include "sim/cuda/ptx_ops.h"

namespace gpuop::sim::ptx {

namespace {

float flush(float f, const Instruction& i) {
  return (i.flags & kFtz) && std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f;
}
template <class F>
F saturate(F f, const Instruction& i) {
  if (!(i.flags & kSat)) return f;
  return std::isnan(f) ? F(0) : std::clamp(f, F(0), F(1));
}

// Sets the rounding mode of an instruction for as long as it lives.
class Rounding {
 public:
  explicit Rounding(u32 flags) : changed_((flags & (kRz | kRm | kRp)) != 0 && !(flags & kInteger)) {
    if (changed_) std::fesetround(flags & kRz ? FE_TOWARDZERO : flags & kRm ? FE_DOWNWARD : FE_UPWARD);
  }
  ~Rounding() {
    if (changed_) std::fesetround(FE_TONEAREST);
  }

 private:
  bool changed_;
};

struct Thread {
  std::vector<u64> registers;
  std::string local;
  u32 pc = 0;
  Dim id;
  bool done = false;
};

class Block {
 public:
  Block(const Kernel& kernel, Dim grid, Dim block, Dim index, const std::string& parameters, u32 shared,
        Memory& memory, u64* budget)
      : kernel_(kernel),
        grid_(grid),
        block_(block),
        index_(index),
        parameters_(parameters),
        shared_(shared, '\0'),
        memory_(memory),
        budget_(budget) {}

  Outcome run() {
    u32 count = block_.x * block_.y * block_.z;
    std::vector<Thread> threads(count);
    for (u32 t = 0; t < count; ++t) {
      threads[t].id = {t % block_.x, t / block_.x % block_.y, t / block_.x / block_.y};
      threads[t].registers.assign(kernel_.registers, 0);
      threads[t].local.assign(kernel_.local_bytes, '\0');
    }
    // Each thread runs to its next barrier or its end; when all stand, they go on together.
    while (true) {
      bool alive = false;
      for (Thread& t : threads) {
        if (t.done) continue;
        Outcome o = step_until_barrier(t);
        if (o != Outcome::kDone) return o;
        alive = alive || !t.done;
      }
      if (!alive) return Outcome::kDone;
    }
  }

 private:
  u64 special(const Thread& t, Special s) const {
    u32 linear = t.id.x + block_.x * (t.id.y + block_.y * t.id.z);
    switch (s) {
      case Special::kTidX:
        return t.id.x;
      case Special::kTidY:
        return t.id.y;
      case Special::kTidZ:
        return t.id.z;
      case Special::kNtidX:
        return block_.x;
      case Special::kNtidY:
        return block_.y;
      case Special::kNtidZ:
        return block_.z;
      case Special::kCtaidX:
        return index_.x;
      case Special::kCtaidY:
        return index_.y;
      case Special::kCtaidZ:
        return index_.z;
      case Special::kNctaidX:
        return grid_.x;
      case Special::kNctaidY:
        return grid_.y;
      case Special::kNctaidZ:
        return grid_.z;
      case Special::kLaneid:
        return linear % 32;
      case Special::kWarpid:
        return linear / 32;
      case Special::kWarpSize:
        return 32;
      case Special::kClock:
        return *budget_;
      case Special::kSmid:
        return index_.x % 8;
    }
    return 0;
  }

  // The operand's bits, as wide as `type`.
  u64 value(const Thread& t, const Operand& o, Type type) const {
    switch (o.kind) {
      case Operand::Kind::kRegister: {
        u64 v = t.registers[o.index];
        return o.negated ? (v ^ 1) & 1 : truncate(v, type);
      }
      case Operand::Kind::kImmediate:
        if (type == Type::kF32) return from_float(static_cast<float>(o.real));
        if (type == Type::kF64) return from_double(o.real);
        return truncate(o.floating ? static_cast<u64>(static_cast<i64>(o.real)) : o.integer, type);
      case Operand::Kind::kSpecial:
        return truncate(special(t, o.special), type);
      case Operand::Kind::kAddress:
        return truncate(o.integer, type);
      default:
        return 0;
    }
  }

  void set(Thread& t, const Operand& o, u64 v, Type type) { t.registers[o.index] = truncate(v, type); }

  // The bytes an access means; nullptr with `outcome` set when it may not.
  unsigned char* bytes(Thread& t, const Instruction& i, const Operand& o, u32 size, Outcome* outcome) {
    u64 address = o.integer + (o.index == kNoRegister ? 0 : t.registers[o.index]);
    Space space = i.space;
    if (space == Space::kGeneric && o.index == kNoRegister) space = o.space;
    if (space == Space::kGeneric) {
      if (address >= kLocalWindow)
        space = Space::kLocal, address -= kLocalWindow;
      else if (address >= kSharedWindow)
        space = Space::kShared, address -= kSharedWindow;
      else
        space = Space::kGlobal;
    }
    auto inside = [&](const std::string& buffer) -> unsigned char* {
      if (address > buffer.size() || size > buffer.size() - address) return nullptr;
      return reinterpret_cast<unsigned char*>(const_cast<char*>(buffer.data())) + address;
    };
    unsigned char* p = nullptr;
    switch (space) {
      case Space::kShared:
        p = inside(shared_);
        break;
      case Space::kLocal:
        p = inside(t.local);
        break;
      case Space::kParam:
        p = inside(parameters_);
        break;
      default:
        p = memory_.at(address, size);
        break;
    }
    if (!p) {
      *outcome = Outcome::kIllegalAddress;
    } else if (address % size != 0) {
      *outcome = Outcome::kMisaligned;
      p = nullptr;
    }
    return p;
  }

  Outcome step_until_barrier(Thread& t) {
    while (t.pc < kernel_.code.size()) {
      if (*budget_ == 0) return Outcome::kTimeout;
      --*budget_;
      const Instruction& i = kernel_.code[t.pc++];
      if (i.predicate != kNoRegister && ((t.registers[i.predicate] & 1) != 0) == i.predicate_negated)
        continue;
      switch (i.op) {
        case Op::kBra:
          t.pc = i.operands[0].index;
          break;
        case Op::kRet:
        case Op::kExit:
          t.done = true;
          return Outcome::kDone;
        case Op::kTrap:
          return Outcome::kTrap;
        case Op::kBar:
          return Outcome::kDone;
        case Op::kLd:
        case Op::kSt:
        case Op::kAtom:
        case Op::kRed: {
          Outcome o = memory_access(t, i);
          if (o != Outcome::kDone) return o;
          break;
        }
        case Op::kFence:
        case Op::kNop:
          break;
        default:
          compute(t, i);
          break;
      }
    }
    t.done = true;
    return Outcome::kDone;
  }

  Outcome memory_access(Thread& t, const Instruction& i) {
    u32 size = size_of(i.type);
    Outcome outcome = Outcome::kDone;
    if (i.op == Op::kLd || i.op == Op::kSt) {
      const Operand& memory = i.operands[i.op == Op::kLd ? i.vector : 0];
      unsigned char* p = bytes(t, i, memory, size * i.vector, &outcome);
      if (!p) return outcome;
      for (u32 k = 0; k < i.vector; ++k) {
        u64 raw = 0;
        if (i.op == Op::kLd) {
          std::memcpy(&raw, p + k * size, size);
          t.registers[i.operands[k].index] = extend(raw, i.type);
        } else {
          raw = value(t, i.operands[1 + k], i.type);
          std::memcpy(p + k * size, &raw, size);
        }
      }
      return Outcome::kDone;
    }
    int first = i.op == Op::kAtom ? 1 : 0;
    unsigned char* p = bytes(t, i, i.operands[first], size, &outcome);
    if (!p) return outcome;
    u64 old = 0;
    std::memcpy(&old, p, size);
    u64 operand = value(t, i.operands[first + 1], i.type);
    u64 fresh = atomic(i, old, operand, i.atomic == Atomic::kCas ? value(t, i.operands[3], i.type) : 0);
    std::memcpy(p, &fresh, size);
    if (i.op == Op::kAtom) set(t, i.operands[0], old, i.type);
    return Outcome::kDone;
  }

  static u64 atomic(const Instruction& i, u64 old, u64 v, u64 other) {
    bool less = is_signed(i.type)
                    ? static_cast<i64>(extend(v, i.type)) < static_cast<i64>(extend(old, i.type))
                    : v < old;
    switch (i.atomic) {
      case Atomic::kAdd:
        if (i.type == Type::kF32) return from_float(as_float(old) + as_float(v));
        if (i.type == Type::kF64) return from_double(as_double(old) + as_double(v));
        return old + v;
      case Atomic::kMin:
        return less ? v : old;
      case Atomic::kMax:
        return less ? old : v;
      case Atomic::kExch:
        return v;
      case Atomic::kCas:
        return old == v ? other : old;
      case Atomic::kAnd:
        return old & v;
      case Atomic::kOr:
        return old | v;
      case Atomic::kXor:
        return old ^ v;
      case Atomic::kInc:
        return old >= v ? 0 : old + 1;
      case Atomic::kDec:
        return old == 0 || old > v ? v : old - 1;
      default:
        return old;
    }
  }

  void compute(Thread& t, const Instruction& i) {
    if (i.op == Op::kSetp) return compare(t, i);
    if (i.op == Op::kCvt) return convert(t, i);
    if (i.op == Op::kCvta) return convert_address(t, i);
    if (i.op == Op::kSelp) {
      bool first = value(t, i.operands[3], Type::kPred) & 1;
      return set(t, i.operands[0], value(t, i.operands[first ? 1 : 2], i.type), i.type);
    }
    if (i.op == Op::kMov) {
      const Operand& from = i.operands[1];
      return set(t, i.operands[0], value(t, from, i.type), i.type);
    }
    if (is_real(i.type)) return i.type == Type::kF32 ? real<float>(t, i) : real<double>(t, i);
    integer(t, i);
  }

  template <class F>
  void real(Thread& t, const Instruction& i) {
    Rounding rounding(i.flags);
    auto get = [&](int k) -> F {
      u64 raw = value(t, i.operands[k], i.type);
      if constexpr (sizeof(F) == 4)
        return flush(as_float(raw), i);
      else
        return as_double(raw);
    };
    // Read before the operation: the compiler must not compute ahead of the rounding mode.
    volatile F a = i.count > 1 ? get(1) : F(0), b = i.count > 2 ? get(2) : F(0),
               c = i.count > 3 ? get(3) : F(0);
    volatile F r = 0;
    switch (i.op) {
      case Op::kAdd:
        r = a + b;
        break;
      case Op::kSub:
        r = a - b;
        break;
      case Op::kMul:
        r = a * b;
        break;
      case Op::kMad:
      case Op::kFma:
        r = std::fma(F(a), F(b), F(c));
        break;
      case Op::kDiv:
        r = a / b;
        break;
      case Op::kMin:
        r = std::fmin(F(a), F(b));
        break;
      case Op::kMax:
        r = std::fmax(F(a), F(b));
        break;
      case Op::kAbs:
        r = std::fabs(F(a));
        break;
      case Op::kNeg:
        r = -a;
        break;
      case Op::kSqrt:
        r = std::sqrt(F(a));
        break;
      case Op::kRsqrt:
        r = F(1) / std::sqrt(F(a));
        break;
      case Op::kRcp:
        r = F(1) / a;
        break;
      case Op::kSin:
        r = std::sin(F(a));
        break;
      case Op::kCos:
        r = std::cos(F(a));
        break;
      case Op::kEx2:
        r = std::exp2(F(a));
        break;
      case Op::kLg2:
        r = std::log2(F(a));
        break;
      default:
        break;
    }
    F out = saturate(F(r), i);
    if constexpr (sizeof(F) == 4)
      set(t, i.operands[0], from_float(flush(out, i)), i.type);
    else
      set(t, i.operands[0], from_double(out), i.type);
  }

  void integer(Thread& t, const Instruction& i) {
    u32 bits = size_of(i.type) * 8;
    bool sign = is_signed(i.type);
    auto get = [&](int k) { return extend(value(t, i.operands[k], i.type), i.type); };
    u64 a = i.count > 1 ? get(1) : 0, b = i.count > 2 ? get(2) : 0, c = 0, r = 0;
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
    switch (i.op) {
      case Op::kAdd:
        r = a + b;
        break;
      case Op::kSub:
        r = a - b;
        break;
      case Op::kMul:
        r = product();
        break;
      case Op::kMad:
        c = extend(value(t, i.operands[3], out), out);
        r = product() + c;
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
        u64 by = value(t, i.operands[2], Type::kU32);
        r = by >= bits ? 0 : a << by;
        break;
      }
      case Op::kShr: {
        u64 by = value(t, i.operands[2], Type::kU32);
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
        r = extract(a, value(t, i.operands[2], Type::kU32), value(t, i.operands[3], Type::kU32), bits, sign);
        break;
      case Op::kBfi: {
        u64 at = value(t, i.operands[3], Type::kU32) & 0xFF,
            length = value(t, i.operands[4], Type::kU32) & 0xFF;
        r = b;
        for (u64 k = 0; k < length && at + k < bits; ++k) {
          r = (r & ~(u64{1} << (at + k))) | ((a >> k & 1) << (at + k));
        }
        break;
      }
      default:
        break;
    }
    set(t, i.operands[0], r, out);
  }

  void compare(Thread& t, const Instruction& i) {
    u64 a = value(t, i.operands[1], i.type), b = value(t, i.operands[2], i.type);
    bool r;
    if (i.type == Type::kF32)
      r = holds_real(i.compare, flush(as_float(a), i), flush(as_float(b), i));
    else if (i.type == Type::kF64)
      r = holds_real(i.compare, as_double(a), as_double(b));
    else if (is_signed(i.type))
      r = holds(i.compare, static_cast<i64>(extend(a, i.type)), static_cast<i64>(extend(b, i.type)));
    else
      r = holds(i.compare, a, b);
    if (i.combine != Combine::kNone) {
      bool c = value(t, i.operands[3], Type::kPred) & 1;
      r = i.combine == Combine::kAnd ? r && c : i.combine == Combine::kOr ? r || c : r != c;
    }
    set(t, i.operands[0], r ? 1 : 0, Type::kPred);
  }

  // type: to, type2: from.
  void convert(Thread& t, const Instruction& i) {
    u64 raw = value(t, i.operands[1], i.type2);
    u64 out = 0;
    if (is_real(i.type2)) {
      double v = i.type2 == Type::kF32 ? static_cast<double>(flush(as_float(raw), i)) : as_double(raw);
      if (i.flags & kInteger || !is_real(i.type)) {
        u32 f = i.flags;
        v = f & kRz ? std::trunc(v) : f & kRm ? std::floor(v) : f & kRp ? std::ceil(v) : std::nearbyint(v);
      }
      if (is_real(i.type)) {
        Rounding rounding(i.flags);
        volatile double exact = saturate(v, i);
        out = i.type == Type::kF32 ? from_float(static_cast<float>(exact)) : from_double(exact);
      } else {
        out = to_integer(v, i.type);
      }
    } else {
      u64 v = extend(raw, i.type2);
      if (is_real(i.type)) {
        Rounding rounding(i.flags);
        volatile i64 s = static_cast<i64>(v);
        volatile u64 u = v;
        bool sign = is_signed(i.type2);
        if (i.type == Type::kF32)
          out = from_float(sign ? static_cast<float>(s) : static_cast<float>(u));
        else
          out = from_double(sign ? static_cast<double>(s) : static_cast<double>(u));
      } else {
        out = i.flags & kSat ? saturated(v, i.type2, i.type) : v;
      }
    }
    // A conversion fills the whole destination register.
    t.registers[i.operands[0].index] = is_real(i.type) ? out : extend(out, i.type);
  }

  void convert_address(Thread& t, const Instruction& i) {
    u64 v = value(t, i.operands[1], i.type);
    u64 window = i.space == Space::kShared ? kSharedWindow : i.space == Space::kLocal ? kLocalWindow : 0;
    set(t, i.operands[0], i.flags & kTo ? v - window : v + window, i.type);
  }

  const Kernel& kernel_;
  Dim grid_, block_, index_;
  const std::string& parameters_;
  std::string shared_;
  Memory& memory_;
  u64* budget_;
};

}  // namespace

Outcome run(const Kernel& kernel, Dim grid, Dim block, const std::string& parameters,
            std::uint32_t shared_bytes, Memory& memory, std::uint64_t limit) {
  u64 budget = limit;
  for (u32 z = 0; z < grid.z; ++z) {
    for (u32 y = 0; y < grid.y; ++y) {
      for (u32 x = 0; x < grid.x; ++x) {
        Block cta(kernel, grid, block, {x, y, z}, parameters, kernel.shared_bytes + shared_bytes, memory,
                  &budget);
        Outcome o = cta.run();
        if (o != Outcome::kDone) return o;
      }
    }
  }
  return Outcome::kDone;
}

}  // namespace gpuop::sim::ptx

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <memory>

#include "sim/cuda/ptx.h"
#include "sim/cuda/ptx_integer.h"
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
  enum class State { kRuns, kAtBarrier, kAtWarpStep, kDone } state = State::kRuns;
  bool carry = false;
};

constexpr u32 kWarpThreads = 32;

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
    // Each thread runs to its next barrier, to an instruction of its whole warp, or to its end. Warps whose
    // threads stand at the same instruction do it; when none can go on, the barrier opens.
    while (true) {
      for (Thread& t : threads) {
        if (t.state != Thread::State::kRuns) continue;
        Outcome o = step_until_stop(t);
        if (o != Outcome::kDone) return o;
      }
      bool went = false, waits = false, at_barrier = false;
      for (u32 first = 0; first < count; first += kWarpThreads)
        went = warp_step(&threads[first], std::min(kWarpThreads, count - first)) || went;
      if (went) continue;
      for (const Thread& t : threads) {
        waits = waits || t.state == Thread::State::kAtWarpStep;
        at_barrier = at_barrier || t.state == Thread::State::kAtBarrier;
      }
      // Threads that wait for others of their warp which wait at the barrier hang on hardware, too.
      if (waits) return Outcome::kTimeout;
      if (!at_barrier) return Outcome::kDone;
      for (Thread& t : threads) {
        if (t.state == Thread::State::kAtBarrier) t.state = Thread::State::kRuns;
      }
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
      case Special::kNsmid:
        return 8;
      case Special::kNwarpid:
        return (block_.x * block_.y * block_.z + kWarpThreads - 1) / kWarpThreads;
      case Special::kGridid:
        return 1;
      case Special::kLanemaskEq:
        return u64{1} << linear % kWarpThreads;
      case Special::kLanemaskLt:
        return (u64{1} << linear % kWarpThreads) - 1;
      case Special::kLanemaskLe:
        return (u64{2} << linear % kWarpThreads) - 1;
      case Special::kLanemaskGt:
        return ~((u64{2} << linear % kWarpThreads) - 1);
      case Special::kLanemaskGe:
        return ~((u64{1} << linear % kWarpThreads) - 1);
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

  // Ends with the thread's state telling why; an outcome other than kDone ends the grid.
  Outcome step_until_stop(Thread& t) {
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
          t.state = Thread::State::kDone;
          return Outcome::kDone;
        case Op::kTrap:
          return Outcome::kTrap;
        case Op::kBar:
          t.state = Thread::State::kAtBarrier;
          return Outcome::kDone;
        case Op::kShfl:
        case Op::kVote:
        case Op::kRedux:
        case Op::kWarpBar:
          --t.pc;  // done when its warp is there
          t.state = Thread::State::kAtWarpStep;
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
    t.state = Thread::State::kDone;
    return Outcome::kDone;
  }

  // Does the instruction that threads of one warp stand at, for each group whose members are all there (those
  // that ended are not waited for). False: none could.
  bool warp_step(Thread* lanes, u32 count) {
    bool went = false;
    for (u32 l = 0; l < count; ++l) {
      if (lanes[l].state != Thread::State::kAtWarpStep) continue;
      const Instruction& i = kernel_.code[lanes[l].pc];
      const Operand& mask = i.operands[i.count - 1];
      u32 members = static_cast<u32>(value(lanes[l], mask, Type::kB32)) | u32{1} << l, there = 0;
      bool complete = true;
      for (u32 m = 0; m < count; ++m) {
        if ((members >> m & 1) == 0 || lanes[m].state == Thread::State::kDone) continue;
        complete = complete && lanes[m].state == Thread::State::kAtWarpStep && lanes[m].pc == lanes[l].pc;
        there |= u32{1} << m;
      }
      if (!complete) continue;
      collective(i, lanes, there);
      for (u32 m = 0; m < count; ++m) {
        if ((there >> m & 1) == 0) continue;
        ++lanes[m].pc;
        lanes[m].state = Thread::State::kRuns;
      }
      went = true;
    }
    return went;
  }

  // One instruction of several lanes together: all are read before any is written.
  void collective(const Instruction& i, Thread* lanes, u32 there) {
    u64 before[kWarpThreads] = {}, all = 0;
    bool first = true;
    for (u32 l = 0; l < kWarpThreads; ++l) {
      if ((there >> l & 1) == 0 || i.op == Op::kWarpBar) continue;
      bool vote = i.op == Op::kVote;
      before[l] = value(lanes[l], i.operands[1], vote ? Type::kPred : i.type);
      if (vote) all |= before[l] << l;
      if (i.op == Op::kRedux) all = first ? before[l] : atomic(i, all, before[l], 0);
      first = false;
    }
    for (u32 l = 0; l < kWarpThreads; ++l) {
      if ((there >> l & 1) == 0) continue;
      if (i.op == Op::kShfl) shuffle(i, lanes[l], l, before, there);
      if (i.op == Op::kVote) set(lanes[l], i.operands[0], voted(i.way, all, there), i.type);
      if (i.op == Op::kRedux) set(lanes[l], i.operands[0], all, i.type);
    }
  }

  void shuffle(const Instruction& i, Thread& t, u32 lane, const u64 (&values)[kWarpThreads], u32 there) {
    bool inside = false;
    auto word = [&](int k) { return static_cast<u32>(value(t, i.operands[k], Type::kB32)); };
    u32 from = shuffle_lane(i.way, lane, word(2), word(3), &inside);
    // From a lane that is not there nothing defined comes; ours is the thread's own.
    set(t, i.operands[0], there >> from & 1 ? values[from] : values[lane], i.type);
    if (i.paired != kNoRegister) t.registers[i.paired] = inside;
  }

  static u64 voted(Way way, u64 votes, u32 there) {
    switch (way) {
      case Way::kAny:
        return votes != 0;
      case Way::kAll:
        return votes == there;
      case Way::kUni:
        return votes == there || votes == 0;
      default:
        return votes;
    }
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
          std::memcpy(&raw, p + std::size_t{k} * size, size);
          t.registers[i.operands[k].index] = extend(raw, i.type);
        } else {
          raw = value(t, i.operands[1 + k], i.type);
          std::memcpy(p + std::size_t{k} * size, &raw, size);
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
    if (i.op == Op::kMov) return move(t, i);
    if (i.op == Op::kActivemask) return set(t, i.operands[0], ~u64{0}, Type::kB32);
    if (i.op == Op::kIsspacep)
      return set(t, i.operands[0], lies_in(value(t, i.operands[1], Type::kU64), i.space), Type::kPred);
    if (i.op == Op::kTestp) return test(t, i);
    if (is_real(i.type)) return i.type == Type::kF32 ? real<float>(t, i) : real<double>(t, i);
    integer(t, i);
  }

  void move(Thread& t, const Instruction& i) {
    u32 bits = size_of(i.type) * 8 / i.vector;
    u64 part = bits >= 64 ? ~u64{0} : (u64{1} << bits) - 1;
    if (i.flags & kUnpack) {
      u64 v = value(t, i.operands[i.vector], i.type);
      for (u32 k = 0; k < i.vector; ++k) t.registers[i.operands[k].index] = v >> (k * bits) & part;
    } else if (i.flags & kPack) {
      u64 v = 0;
      for (u32 k = 0; k < i.vector; ++k) v |= (value(t, i.operands[1 + k], Type::kB64) & part) << (k * bits);
      set(t, i.operands[0], v, i.type);
    } else {
      set(t, i.operands[0], value(t, i.operands[1], i.type), i.type);
    }
  }

  static bool lies_in(u64 address, Space space) {
    bool local = address >= kLocalWindow, shared = !local && address >= kSharedWindow;
    return space == Space::kLocal ? local : space == Space::kShared ? shared : !local && !shared;
  }

  void test(Thread& t, const Instruction& i) {
    u64 raw = value(t, i.operands[1], i.type);
    bool single = i.type == Type::kF32;
    double v = single ? static_cast<double>(as_float(raw)) : as_double(raw);
    bool subnormal =
        std::fpclassify(v) == FP_SUBNORMAL || (single && std::fpclassify(as_float(raw)) == FP_SUBNORMAL);
    set(t, i.operands[0], test_real(i.way, v, subnormal), Type::kPred);
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
      case Op::kTanh:
        r = std::tanh(F(a));
        break;
      case Op::kCopysign:
        r = std::copysign(F(b), F(a));
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
    u64 raw[kMaxOperands] = {};
    for (int k = 1; k < i.count && k < kMaxOperands; ++k) raw[k] = value(t, i.operands[k], Type::kB64);
    IntegerResult r = integer_result(i, raw, t.carry);
    if (i.flags & kCarry) t.carry = r.carry;
    set(t, i.operands[0], r.value, r.type);
  }

  void compare(Thread& t, const Instruction& i) {
    u64 a = value(t, i.operands[1], i.type), b = value(t, i.operands[2], i.type);
    bool r = false;
    if (i.type == Type::kF32)
      r = holds_real(i.compare, flush(as_float(a), i), flush(as_float(b), i));
    else if (i.type == Type::kF64)
      r = holds_real(i.compare, as_double(a), as_double(b));
    else if (is_signed(i.type))
      r = holds(i.compare, static_cast<i64>(extend(a, i.type)), static_cast<i64>(extend(b, i.type)));
    else
      r = holds(i.compare, a, b);
    bool c = i.combine != Combine::kNone && (value(t, i.operands[3], Type::kPred) & 1);
    set(t, i.operands[0], combined(i.combine, r, c), Type::kPred);
    if (i.paired != kNoRegister) t.registers[i.paired] = combined(i.combine, !r, c);
  }

  static bool combined(Combine how, bool r, bool c) {
    switch (how) {
      case Combine::kAnd:
        return r && c;
      case Combine::kOr:
        return r || c;
      case Combine::kXor:
        return r != c;
      default:
        return r;
    }
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

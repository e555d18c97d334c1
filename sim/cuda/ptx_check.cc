#include "sim/cuda/ptx_check.h"

#include "sim/cuda/ptx_ops.h"

namespace gpuop::sim::ptx {

std::string wrong_modifiers(const std::string& opcode, const Instruction& i) {
  bool integer = kind_of(i.type) == 'i';
  auto no = [&](const char* why) { return std::string(why) + " '" + opcode + "'"; };
  if ((i.op == Op::kMul || i.op == Op::kMad) && integer) {
    int kinds = ((i.flags & kLo) != 0) + ((i.flags & kHi) != 0) + ((i.flags & kWide) != 0);
    if (kinds != 1) return no("One of .lo, .hi and .wide is required for");
    if ((i.flags & kWide) && size_of(i.type) > 4) return no(".wide needs 16- or 32-bit types:");
  }
  if ((i.op == Op::kMul || i.op == Op::kMad) && !integer && (i.flags & (kLo | kHi | kWide))) {
    return no(".lo, .hi and .wide are for integers:");
  }
  if (i.op == Op::kSetp && i.compare == Compare::kNone) return no("Comparison missing in");
  if (i.op == Op::kAtom || i.op == Op::kRed) {
    if (i.atomic == Atomic::kNone) return no("Operation missing in");
    if (size_of(i.type) < 4) return no("Atomics need 32- or 64-bit types:");
    if (i.op == Op::kRed && (i.atomic == Atomic::kCas || i.atomic == Atomic::kExch))
      return no("Not a reduction:");
    if (kind_of(i.type) == 'f' && i.atomic != Atomic::kAdd) return no("Not an operation on reals:");
  }
  bool words = i.op == Op::kLop3 || i.op == Op::kPrmt || i.op == Op::kShf || i.op == Op::kMul24 ||
               i.op == Op::kMad24 || i.op == Op::kActivemask || i.op == Op::kShfl || i.op == Op::kRedux;
  if (words && size_of(i.type) != 4) return no("Needs a 32-bit type:");
  if ((i.op == Op::kAddc || i.op == Op::kSubc || (i.flags & kCarry)) && (!integer || size_of(i.type) < 4))
    return no("Carries are of 32- and 64-bit integers:");
  bool ways = i.op == Op::kShf || i.op == Op::kTestp || i.op == Op::kShfl || i.op == Op::kVote;
  if (ways && i.way == Way::kNone) return no("Mode missing in");
  if (i.op == Op::kVote && (i.way == Way::kBallot) != (i.type == Type::kB32)) return no("Wrong type for");
  if (i.op == Op::kRedux && (i.atomic == Atomic::kNone || i.atomic > Atomic::kXor))
    return no("Operation missing in");
  if (i.op == Op::kIsspacep && i.space == Space::kGeneric) return no("State space missing in");
  if (i.op == Op::kTanh && i.type != Type::kF32) return no("Needs .f32:");
  if (i.op == Op::kBfe && size_of(i.type) < 4) return no("Needs 32- or 64-bit types:");
  if (i.op != Op::kLd && i.op != Op::kSt && i.op != Op::kCvt && i.op != Op::kMov && size_of(i.type) == 1 &&
      i.type != Type::kPred && i.type != Type::kNone) {
    return no("8-bit types are for loads, stores and conversions:");
  }
  if (i.vector > 1 && i.vector * size_of(i.type) > 16) return no("Vector is too wide:");
  return {};
}

std::string wrong_operands(const std::string& opcode, const Instruction& i) {
  auto wrong = [&](const char* why) { return "Arguments mismatch for instruction '" + opcode + "': " + why; };
  using K = Operand::Kind;
  auto kind = [&](int k) { return i.operands[k].kind; };
  if (i.op == Op::kLd || i.op == Op::kSt) {
    if (i.count != i.vector + 1) return wrong("vector size");
    int memory = i.op == Op::kLd ? i.vector : 0;
    for (int k = 0; k < i.count; ++k) {
      if (k == memory ? kind(k) != K::kAddress : i.op == Op::kLd && kind(k) != K::kRegister)
        return wrong("address");
      if (k != memory && kind(k) == K::kAddress) return wrong("address");
    }
    if (i.op == Op::kSt && (i.space == Space::kParam || i.space == Space::kConst))
      return wrong("read-only space");
    return {};
  }
  if (i.op == Op::kAtom || i.op == Op::kRed) {
    int memory = i.op == Op::kAtom ? 1 : 0;
    if (kind(memory) != K::kAddress) return wrong("address");
    if (i.op == Op::kAtom && kind(0) != K::kRegister) return wrong("destination");
    if (i.op == Op::kAtom && (i.atomic == Atomic::kCas) != (i.count == 4)) return wrong("operands");
    return {};
  }
  if (i.op == Op::kBra) {
    if (kind(0) != K::kLabel) return wrong("label");
    return {};
  }
  if (i.op == Op::kBar || i.op == Op::kNop) return {};
  if (i.op == Op::kWarpBar) return i.count == 1 ? std::string() : wrong("member mask");
  if (i.flags & (kPack | kUnpack)) {
    if (i.count != i.vector + 1) return wrong("vector size");
    for (int k = 0; k < i.count; ++k) {
      bool source = i.flags & kPack ? k > 0 : k == i.count - 1;
      if (kind(k) == K::kAddress || (!source && kind(k) != K::kRegister)) return wrong("vector parts");
    }
    return {};
  }
  if (i.count > 0 && kind(0) != K::kRegister) return wrong("destination");
  for (int k = 1; k < i.count; ++k) {
    if (kind(k) == K::kAddress && i.op != Op::kMov && i.op != Op::kCvta) return wrong("address as a value");
    if (kind(k) == K::kAddress && i.operands[k].index != kNoRegister) return wrong("memory operand");
  }
  if (i.op == Op::kSetp && (i.combine != Combine::kNone) != (i.count == 4))
    return wrong("predicate to combine with");
  return {};
}

}  // namespace gpuop::sim::ptx

#include "sim/cuda/ptx_ops.h"

namespace gpuop::sim::ptx {

namespace {

constexpr std::string_view kRound = "rn rz rm rp ftz sat";
constexpr std::string_view kSum = "rn rz rm rp ftz sat cc";
constexpr std::string_view kCompares =
    "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz";
constexpr std::string_view kMemory =
    "global shared local param const v2 v4 volatile relaxed acquire release weak gpu cta sys cluster nc ca "
    "cg cs lu cv wb wt";
constexpr std::string_view kAtomics =
    "global shared add min max exch cas and or xor inc dec relaxed acquire release acq_rel gpu cta sys";

constexpr OpForm kForms[] = {
    {"mov", Op::kMov, 2, 2, 1, "ifbp", ""},
    {"add", Op::kAdd, 3, 3, 1, "if", kSum},
    {"sub", Op::kSub, 3, 3, 1, "if", kSum},
    {"addc", Op::kAddc, 3, 3, 1, "i", "cc"},
    {"subc", Op::kSubc, 3, 3, 1, "i", "cc"},
    {"mul", Op::kMul, 3, 3, 1, "if", "lo hi wide rn rz rm rp ftz sat"},
    {"mad", Op::kMad, 4, 4, 1, "if", "lo hi wide rn rz rm rp ftz sat"},
    {"fma", Op::kFma, 4, 4, 1, "f", kRound},
    {"div", Op::kDiv, 3, 3, 1, "if", "rn rz rm rp ftz approx full"},
    {"rem", Op::kRem, 3, 3, 1, "i", ""},
    {"min", Op::kMin, 3, 3, 1, "if", "ftz NaN"},
    {"max", Op::kMax, 3, 3, 1, "if", "ftz NaN"},
    {"abs", Op::kAbs, 2, 2, 1, "if", "ftz"},
    {"neg", Op::kNeg, 2, 2, 1, "if", "ftz"},
    {"and", Op::kAnd, 3, 3, 1, "bp", ""},
    {"or", Op::kOr, 3, 3, 1, "bp", ""},
    {"xor", Op::kXor, 3, 3, 1, "bp", ""},
    {"not", Op::kNot, 2, 2, 1, "bp", ""},
    {"cnot", Op::kCnot, 2, 2, 1, "b", ""},
    {"shl", Op::kShl, 3, 3, 1, "b", ""},
    {"shr", Op::kShr, 3, 3, 1, "bi", ""},
    {"setp", Op::kSetp, 3, 4, 1, "ifb", kCompares},
    {"selp", Op::kSelp, 4, 4, 1, "ifb", ""},
    {"cvt", Op::kCvt, 2, 2, 2, "if", "rn rz rm rp rni rzi rmi rpi ftz sat"},
    {"cvta", Op::kCvta, 2, 2, 1, "i", "to global shared local const param"},
    {"ld", Op::kLd, 2, 2, 1, "ifb", kMemory},
    {"ldu", Op::kLd, 2, 2, 1, "ifb", kMemory},
    {"st", Op::kSt, 2, 2, 1, "ifb", kMemory},
    {"atom", Op::kAtom, 3, 4, 1, "ifb", kAtomics},
    {"red", Op::kRed, 2, 2, 1, "ifb", kAtomics},
    {"bra", Op::kBra, 1, 1, 0, "", "uni"},
    {"ret", Op::kRet, 0, 0, 0, "", "uni"},
    {"exit", Op::kExit, 0, 0, 0, "", ""},
    {"trap", Op::kTrap, 0, 0, 0, "", ""},
    {"bar", Op::kBar, 1, 2, 0, "", "sync cta warp"},
    {"barrier", Op::kBar, 1, 2, 0, "", "sync cta aligned"},
    {"membar", Op::kFence, 0, 0, 0, "", "cta gl sys"},
    {"fence", Op::kFence, 0, 0, 0, "", "sc acq_rel cta gpu sys cluster"},
    {"sqrt", Op::kSqrt, 2, 2, 1, "f", "approx rn rz rm rp ftz"},
    {"rsqrt", Op::kRsqrt, 2, 2, 1, "f", "approx ftz"},
    {"rcp", Op::kRcp, 2, 2, 1, "f", "approx rn rz rm rp ftz"},
    {"sin", Op::kSin, 2, 2, 1, "f", "approx ftz"},
    {"cos", Op::kCos, 2, 2, 1, "f", "approx ftz"},
    {"ex2", Op::kEx2, 2, 2, 1, "f", "approx ftz"},
    {"lg2", Op::kLg2, 2, 2, 1, "f", "approx ftz"},
    {"popc", Op::kPopc, 2, 2, 1, "b", ""},
    {"clz", Op::kClz, 2, 2, 1, "b", ""},
    {"brev", Op::kBrev, 2, 2, 1, "b", ""},
    {"bfe", Op::kBfe, 4, 4, 1, "i", ""},
    {"bfi", Op::kBfi, 5, 5, 1, "b", ""},
    {"lop3", Op::kLop3, 5, 5, 1, "b", ""},
    {"prmt", Op::kPrmt, 4, 4, 1, "b", "f4e b4e rc8 ecl ecr rc16"},
    {"shf", Op::kShf, 4, 4, 1, "b", "l r wrap clamp"},
    {"mul24", Op::kMul24, 3, 3, 1, "i", "lo hi"},
    {"mad24", Op::kMad24, 4, 4, 1, "i", "lo hi"},
    {"sad", Op::kSad, 4, 4, 1, "i", ""},
    {"copysign", Op::kCopysign, 3, 3, 1, "f", ""},
    {"testp", Op::kTestp, 2, 2, 1, "f", "finite infinite number notanumber normal subnormal"},
    {"tanh", Op::kTanh, 2, 2, 1, "f", "approx"},
    {"isspacep", Op::kIsspacep, 2, 2, 0, "", "global shared local const param"},
    {"activemask", Op::kActivemask, 1, 1, 1, "b", ""},
    {"shfl", Op::kShfl, 5, 5, 1, "b", "sync up down bfly idx"},
    {"vote", Op::kVote, 3, 3, 1, "bp", "sync any all uni ballot"},
    {"redux", Op::kRedux, 3, 3, 1, "ib", "sync add min max and or xor"},
    {"nanosleep", Op::kNop, 1, 1, 1, "i", ""},
    {"brkpt", Op::kTrap, 0, 0, 0, "", ""},
    {"nop", Op::kNop, 0, 0, 0, "", ""},
};

struct NamedType {
  std::string_view name;
  Type type;
};
constexpr NamedType kTypes[] = {
    {"pred", Type::kPred}, {"b8", Type::kB8},   {"b16", Type::kB16}, {"b32", Type::kB32}, {"b64", Type::kB64},
    {"u8", Type::kU8},     {"u16", Type::kU16}, {"u32", Type::kU32}, {"u64", Type::kU64}, {"s8", Type::kS8},
    {"s16", Type::kS16},   {"s32", Type::kS32}, {"s64", Type::kS64}, {"f32", Type::kF32}, {"f64", Type::kF64},
};

}  // namespace

const OpForm* find_form(std::string_view name) {
  for (const OpForm& f : kForms) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

Type type_named(std::string_view name) {
  for (const NamedType& t : kTypes) {
    if (t.name == name) return t.type;
  }
  return Type::kNone;
}

char kind_of(Type type) {
  switch (type) {
    case Type::kPred:
      return 'p';
    case Type::kF32:
    case Type::kF64:
      return 'f';
    case Type::kB8:
    case Type::kB16:
    case Type::kB32:
    case Type::kB64:
      return 'b';
    case Type::kNone:
      return '?';
    default:
      return 'i';
  }
}

std::uint32_t size_of(Type t) {
  switch (t) {
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
      return 2;
    case Type::kB32:
    case Type::kU32:
    case Type::kS32:
    case Type::kF32:
      return 4;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    default:
      return 1;
  }
}

}  // namespace gpuop::sim::ptx

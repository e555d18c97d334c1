// PTX: parsed from text, run on the CPU. The subset that drivers' own samples and hand-written kernels use:
// integer and floating-point arithmetic, comparisons, predicates, branches, memory of every space, atomics
// and barriers. What is not known is an error with its line, never a guess.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpuop::sim::ptx {

enum class Type : std::uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF32,
  kF64
};
std::uint32_t size_of(Type t);  // bytes; a predicate is 1

enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam, kConst };

enum class Op : std::uint8_t {
  kMov,
  kAdd,
  kSub,
  kMul,
  kMad,
  kFma,
  kDiv,
  kRem,
  kMin,
  kMax,
  kAbs,
  kNeg,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kSetp,
  kSelp,
  kCvt,
  kCvta,
  kLd,
  kSt,
  kAtom,
  kRed,
  kBra,
  kRet,
  kExit,
  kTrap,
  kBar,
  kFence,
  kSqrt,
  kRsqrt,
  kRcp,
  kSin,
  kCos,
  kEx2,
  kLg2,
  kPopc,
  kClz,
  kBrev,
  kBfe,
  kBfi,
  kLop3,
  kPrmt,
  kShf,
  kMul24,
  kMad24,
  kSad,
  kCopysign,
  kTestp,
  kTanh,
  kIsspacep,
  kAddc,
  kSubc,
  kActivemask,
  kShfl,  // of all threads of a warp together, as the next three
  kVote,
  kRedux,
  kWarpBar,
  kNop,
};

// What a modifier adds to an instruction.
enum Flag : std::uint32_t {
  kLo = 1u << 0,
  kHi = 1u << 1,
  kWide = 1u << 2,
  kTo = 1u << 3,
  kSat = 1u << 4,
  kFtz = 1u << 5,
  kRn = 1u << 6,
  kRz = 1u << 7,
  kRm = 1u << 8,
  kRp = 1u << 9,
  kInteger = 1u << 10,  // rni, rzi, …
  kCarry = 1u << 11,    // .cc: leaves a carry for the next instruction
  kWarp = 1u << 12,     // bar.warp
  kPack = 1u << 13,     // mov of parts into one register …
  kUnpack = 1u << 14,   // … and back
};
// Which of the ways that an instruction with kinds of its own goes: shf, prmt, testp, shfl, vote.
enum class Way : std::uint8_t {
  kNone,
  kLeft,
  kRight,
  kClamp,
  kF4e,
  kB4e,
  kRc8,
  kEcl,
  kEcr,
  kRc16,
  kFinite,
  kInfinite,
  kNumber,
  kNotANumber,
  kNormal,
  kSubnormal,
  kUp,
  kDown,
  kBfly,
  kIdx,
  kAny,
  kAll,
  kUni,
  kBallot,
};
enum class Compare : std::uint8_t {
  kNone,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLo,
  kLs,
  kHi,
  kHs,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan
};
enum class Combine : std::uint8_t { kNone, kAnd, kOr, kXor };
enum class Atomic : std::uint8_t { kNone, kAdd, kMin, kMax, kExch, kCas, kAnd, kOr, kXor, kInc, kDec };

enum class Special : std::uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kWarpSize,
  kClock,
  kSmid,
  kLanemaskEq,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskGt,
  kLanemaskGe,
  kNwarpid,
  kNsmid,
  kGridid
};

struct Operand {
  enum class Kind : std::uint8_t { kNone, kRegister, kImmediate, kSpecial, kAddress, kLabel };
  Kind kind = Kind::kNone;
  bool floating = false;    // the immediate was written as one
  bool negated = false;     // !%p
  std::uint32_t index = 0;  // register, or instruction a label stands for
  Special special = Special::kTidX;
  std::uint64_t integer = 0;  // immediate, or offset of an address
  double real = 0;
  // An address: [register + offset], or [variable + offset] when `index` is kNoRegister.
  Space space = Space::kGeneric;  // of the variable
};
constexpr std::uint32_t kNoRegister = 0xFFFFFFFFu;

struct Instruction {
  Op op = Op::kNop;
  Type type = Type::kNone, type2 = Type::kNone;  // cvt: to, from
  Space space = Space::kGeneric;
  Compare compare = Compare::kNone;
  Combine combine = Combine::kNone;
  Atomic atomic = Atomic::kNone;
  Way way = Way::kNone;
  bool clamps = false;  // shf
  std::uint32_t flags = 0;
  std::uint32_t predicate = kNoRegister;
  bool predicate_negated = false;
  std::uint32_t paired = kNoRegister;  // the predicate behind '|' of setp and shfl
  std::uint8_t vector = 1;             // ld/st: 1, 2, 4; mov: parts
  std::uint8_t count = 0;
  Operand operands[8];
  int line = 0;
};

struct Parameter {
  std::string name;
  std::uint32_t offset = 0, size = 0;
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t registers = 0;
  std::uint32_t shared_bytes = 0, local_bytes = 0;
  std::uint32_t max_threads = 1024;
  std::vector<Instruction> code;
};

// A variable at module level, in .global or .const.
struct Variable {
  std::string name;
  std::uint64_t size = 0;
  std::string initial;        // first bytes; the rest is zero
  std::uint64_t address = 0;  // given by load
};

struct Module {
  int version_major = 0, version_minor = 0;
  int target = 0;  // 80 for sm_80
  std::vector<Variable> variables;
  std::vector<Kernel> kernels;
};

// Parses one module. False: `log` says what is wrong, with lines, as the real compiler's log does.
// Global variables' addresses in the code are their index << 32; bind_variables puts the real ones in.
bool parse(std::string_view text, Module* out, std::string* log);
// Puts the variables' addresses (Variable::address) into the code.
void bind_variables(Module& module);

struct Dim {
  std::uint32_t x = 1, y = 1, z = 1;
};

// Where kernels' global accesses go.
class Memory {
 public:
  virtual ~Memory() = default;
  // The bytes behind a device address; nullptr when they are not all inside one allocation.
  virtual unsigned char* at(std::uint64_t address, std::uint64_t size) = 0;
};

enum class Outcome { kDone, kIllegalAddress, kMisaligned, kTrap, kTimeout };

// Windows of the generic address space.
constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 56;
constexpr std::uint64_t kLocalWindow = std::uint64_t{1} << 57;

// Runs a grid. `parameters`: Kernel::parameter_bytes bytes. `shared_bytes`: dynamic shared memory on top.
// At most `limit` instructions over all threads, then kTimeout.
Outcome run(const Kernel& kernel, Dim grid, Dim block, const std::string& parameters,
            std::uint32_t shared_bytes, Memory& memory, std::uint64_t limit);

}  // namespace gpuop::sim::ptx

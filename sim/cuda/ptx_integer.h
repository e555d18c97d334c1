// Integer instructions: their result follows from their operands alone.
#pragma once

#include "sim/cuda/ptx.h"
#include "sim/cuda/ptx_math.h"

namespace gpuop::sim::ptx {

constexpr int kMaxOperands = 8;

struct IntegerResult {
  u64 value = 0;
  Type type = Type::kNone;  // of the destination: wider for .wide, 32 bits for counts
  bool carry = false;       // left by sums and differences
};
// `raw`: the operands by place, not yet as wide as the type says; `carry`: what the last .cc left.
IntegerResult integer_result(const Instruction& i, const u64 (&raw)[kMaxOperands], bool carry);

}  // namespace gpuop::sim::ptx

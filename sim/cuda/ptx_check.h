// What an instruction's parts must be together. "" when they are; else what is wrong.
#pragma once

#include <string>

#include "sim/cuda/ptx.h"

namespace gpuop::sim::ptx {

// Modifiers and types.
std::string wrong_modifiers(const std::string& opcode, const Instruction& i);
// Kinds of operands at their places.
std::string wrong_operands(const std::string& opcode, const Instruction& i);

}  // namespace gpuop::sim::ptx

// What each instruction may look like.
#pragma once

#include <string>
#include <string_view>

#include "sim/cuda/ptx.h"

namespace gpuop::sim::ptx {

struct OpForm {
  std::string_view name;
  Op op;
  int low, high;               // operands
  int types;                   // types to be named
  std::string_view kinds;      // of the types: i integer, f real, b bits, p predicate
  std::string_view modifiers;  // words, blank-separated; those that any type may have
};

// nullptr: not an instruction that we know.
const OpForm* find_form(std::string_view name);
// kNone: not a type.
Type type_named(std::string_view name);
char kind_of(Type type);  // 'i', 'f', 'b', 'p'
// Puts one word from behind a dot into the instruction; `types` counts those that were types. "", or what is
// wrong with it.
std::string apply_modifier(const OpForm& form, const std::string& m, Instruction& i, int* types);

}  // namespace gpuop::sim::ptx

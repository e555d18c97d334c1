// toml++, for .cc files only, and the one way to include it. Version 3.3 takes for granted what it should
// check, so that a hostile file ends the program ("[*x]") or leaves what happens next undefined (some
// characters up to U+FEFE in a key). Here its assertions are an exception that readers catch like its own,
// and the characters no spaces.
#pragma once

#include <stdexcept>

namespace gpuop::detail {
[[noreturn]] inline void toml_malformed() {
  throw std::runtime_error("malformed TOML");
}
}  // namespace gpuop::detail

#undef NDEBUG  // toml++ would make its assertions assumptions
#define TOML_ASSERT(expr) ((expr) ? void() : ::gpuop::detail::toml_malformed())

#include <toml++/impl/preprocessor.h>
// In this order.
#include <toml++/impl/forward_declarations.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()

#include <toml++/toml.h>

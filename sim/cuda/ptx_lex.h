// Words of a PTX text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpuop::sim::ptx {

struct Token {
  enum class Kind { kWord, kInteger, kReal, kString, kMark, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;  // word, string, or the one character of a mark
  std::uint64_t integer = 0;
  double real = 0;
  int line = 1;
};

// False: `error` and `line` say where. The last token is kEnd.
bool lex(std::string_view text, std::vector<Token>* out, std::string* error, int* line);

}  // namespace gpuop::sim::ptx

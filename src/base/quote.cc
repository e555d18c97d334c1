#include "base/quote.h"

namespace gpuop {

std::string in_quotes(std::string_view text, std::string_view control) {
  constexpr std::string_view kPlain = "\"\\\n\t\r";
  constexpr std::string_view kLetter = "\"\\ntr";
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (const auto at = kPlain.find(c); at != std::string_view::npos) {
      out += '\\';
      out += kLetter[at];
    } else if (byte < 0x20 || byte == 0x7f) {
      out += control;
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace gpuop

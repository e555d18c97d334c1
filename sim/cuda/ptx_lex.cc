#include "sim/cuda/ptx_lex.h"

#include <cstdlib>
#include <cstring>

namespace gpuop::sim::ptx {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool starts_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' || c == '.';
}
// Dots belong to words: opcodes, directives and %tid.x are read whole.
bool in_word(char c) {
  return starts_word(c) || is_digit(c) || c == ':';
}

class Lexer {
 public:
  Lexer(std::string_view text, std::vector<Token>* out) : text_(text), out_(out) {}

  bool run(std::string* error, int* line) {
    while (skip_blanks()) {
      if (!failed_.empty()) break;
      if (at_ >= text_.size()) break;
      char c = text_[at_];
      if (is_digit(c))
        number();
      else if (c == '"')
        quoted();
      else if (starts_word(c))
        word();
      else if (std::strchr(",;[]{}()<>+-@!=|:", c))
        mark();
      else
        fail(std::string("unexpected character '") + c + "'");
      if (!failed_.empty()) break;
    }
    *line = line_;
    *error = failed_;
    out_->push_back(Token{Token::Kind::kEnd, "", 0, 0, line_});
    return failed_.empty();
  }

 private:
  bool skip_blanks() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++at_;
      } else if (text_.substr(at_).starts_with("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_).starts_with("/*")) {
        std::size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) {
          fail("comment without end");
          return true;
        }
        for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n';
      } else {
        return true;
      }
    }
    return false;
  }

  void fail(std::string why) {
    if (failed_.empty()) failed_ = std::move(why);
  }

  Token& put(Token::Kind kind, std::string text) {
    out_->push_back(Token{kind, std::move(text), 0, 0, line_});
    return out_->back();
  }

  void mark() { put(Token::Kind::kMark, std::string(1, text_[at_++])); }

  void quoted() {
    std::size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) return fail("string without end");
    put(Token::Kind::kString, std::string(text_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
  }

  void word() {
    std::size_t from = at_;
    while (at_ < text_.size() && in_word(text_[at_])) {
      // "::" is part of a modifier (bar.warp.sync, ld.global.L1::…); a single ':' ends a label.
      if (text_[at_] == ':') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] == ':')
          ++at_;
        else
          break;
      }
      ++at_;
    }
    put(Token::Kind::kWord, std::string(text_.substr(from, at_ - from)));
  }

  void bits(int digits, bool single) {
    std::string hex(text_.substr(at_ + 2, static_cast<std::size_t>(digits)));
    bool good = hex.size() == static_cast<std::size_t>(digits);
    for (char c : hex) good = good && is_hex(c);
    if (!good) return fail("malformed floating-point constant");
    std::uint64_t raw = std::strtoull(hex.c_str(), nullptr, 16);
    Token& t = put(Token::Kind::kReal, "");
    if (single) {
      auto narrow = static_cast<std::uint32_t>(raw);
      float f;
      std::memcpy(&f, &narrow, sizeof f);
      t.real = f;
    } else {
      std::memcpy(&t.real, &raw, sizeof t.real);
    }
    at_ += 2 + static_cast<std::size_t>(digits);
  }

  void number() {
    std::string_view rest = text_.substr(at_);
    if (rest.size() > 1 && rest[0] == '0' && (rest[1] == 'f' || rest[1] == 'F')) return bits(8, true);
    if (rest.size() > 1 && rest[0] == '0' && (rest[1] == 'd' || rest[1] == 'D')) return bits(16, false);
    std::size_t end = 0;
    bool hex = rest.size() > 1 && rest[0] == '0' && (rest[1] == 'x' || rest[1] == 'X');
    if (hex) {
      end = 2;
      while (end < rest.size() && is_hex(rest[end])) ++end;
    } else {
      while (end < rest.size() && is_digit(rest[end])) ++end;
    }
    bool real = false;
    if (!hex && end < rest.size() && rest[end] == '.' && end + 1 < rest.size() && is_digit(rest[end + 1])) {
      real = true;
      for (++end; end < rest.size() && is_digit(rest[end]);) ++end;
    }
    if (!hex && end < rest.size() && (rest[end] == 'e' || rest[end] == 'E')) {
      std::size_t e = end + 1;
      if (e < rest.size() && (rest[e] == '+' || rest[e] == '-')) ++e;
      if (e < rest.size() && is_digit(rest[e])) {
        real = true;
        for (end = e; end < rest.size() && is_digit(rest[end]);) ++end;
      }
    }
    std::string digits(rest.substr(0, end));
    if (end > 40 || (hex && (end < 3 || end > 18))) return fail("malformed number");
    Token& t = put(real ? Token::Kind::kReal : Token::Kind::kInteger, digits);
    if (real)
      t.real = std::strtod(digits.c_str(), nullptr);
    else
      t.integer = std::strtoull(digits.c_str(), nullptr, hex ? 16 : digits[0] == '0' ? 8 : 10);
    if (!real && end < rest.size() && rest[end] == 'U') ++end;
    at_ += end;
    if (at_ < text_.size() && (in_word(text_[at_]) && text_[at_] != ':' && text_[at_] != '.')) {
      fail("malformed number '" + digits + text_[at_] + "'");
    }
  }

  std::string_view text_;
  std::vector<Token>* out_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::string failed_;
};

}  // namespace

bool lex(std::string_view text, std::vector<Token>* out, std::string* error, int* line) {
  return Lexer(text, out).run(error, line);
}

}  // namespace gpuop::sim::ptx

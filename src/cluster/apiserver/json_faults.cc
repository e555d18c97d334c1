#include "cluster/apiserver/json_faults.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/json.h"

namespace gpuop::cluster::api {

namespace {

constexpr std::string_view kEnd = "unexpected end of JSON input";
constexpr int kMaxDepth = 10000;

std::string quoted(char c) {
  if (c == '\'') return R"('\'')";
  if (c == '"') return R"('"')";
  if (c == '\n') return R"('\n')";
  if (c == '\t') return R"('\t')";
  if (c == '\r') return R"('\r')";
  return std::string("'") + c + "'";
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Walks a text once. What it tells of is the first fault, and each object's keys.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::string run() {
    if (!value(0)) return fault_;
    blanks();
    if (at_ < text_.size()) return "invalid character " + quoted(text_[at_]) + " after top-level value";
    return {};
  }
  std::vector<std::string> duplicates;

 private:
  bool wrong(std::string_view where) {
    fault_ = at_ >= text_.size() ? std::string(kEnd)
                                 : "invalid character " + quoted(text_[at_]) + " " + std::string(where);
    return false;
  }
  void blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool at(char c) const { return at_ < text_.size() && text_[at_] == c; }

  bool value(int depth) {
    blanks();
    if (depth > kMaxDepth) {
      fault_ = "exceeded max depth";
      return false;
    }
    if (at('{')) return object(depth);
    if (at('[')) return array(depth);
    if (at('"')) return text();
    if (at('-') || (at_ < text_.size() && is_digit(text_[at_]))) return number();
    for (std::string_view word : {"true", "false", "null"})
      if (at(word[0])) return literal(word);
    return wrong("looking for beginning of value");
  }

  bool literal(std::string_view word) {
    for (char c : word) {
      if (!at(c)) return wrong("in literal " + std::string(word) + " (expecting " + quoted(c) + ")");
      ++at_;
    }
    return true;
  }

  bool digits(std::string_view where) {
    if (at_ >= text_.size() || !is_digit(text_[at_])) return wrong(where);
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return true;
  }

  bool number() {
    if (at('-')) ++at_;
    if (at('0')) {
      ++at_;
    } else if (!digits("in numeric literal")) {
      return false;
    }
    if (at('.')) {
      ++at_;
      if (!digits("after decimal point in numeric literal")) return false;
    }
    if (at('e') || at('E')) {
      ++at_;
      if (at('+') || at('-')) ++at_;
      if (!digits("in exponent of numeric literal")) return false;
    }
    return true;
  }

  bool escape() {
    ++at_;
    if (at_ < text_.size() && text_[at_] == 'u') {
      for (int i = 0; i < 4; ++i) {
        ++at_;
        if (at_ >= text_.size() || std::isxdigit(static_cast<unsigned char>(text_[at_])) == 0)
          return wrong("in \\u hexadecimal character escape");
      }
    } else if (at_ >= text_.size() ||
               std::string_view("\"\\/bfnrt").find(text_[at_]) == std::string_view::npos) {
      return wrong("in string escape code");
    }
    ++at_;
    return true;
  }

  bool text() {
    ++at_;
    while (true) {
      if (at_ >= text_.size()) return wrong("");
      char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) return wrong("in string literal");
      if (c != '\\') {
        ++at_;
      } else if (!escape()) {
        return false;
      }
    }
    ++at_;
    return true;
  }

  bool object(int depth) {
    ++at_;
    blanks();
    if (at('}')) {
      ++at_;
      return true;
    }
    std::set<std::string> keys;
    std::size_t kept = path_.size();
    while (true) {
      blanks();
      if (!at('"')) return wrong("looking for beginning of object key string");
      std::size_t from = at_;
      if (!text()) return false;
      std::string key = key_text(text_.substr(from, at_ - from));
      path_ += (path_.empty() ? "" : ".") + key;
      if (!keys.insert(key).second) duplicates.push_back(path_);
      blanks();
      if (!at(':')) return wrong("after object key");
      ++at_;
      if (!value(depth + 1)) return false;
      path_.resize(kept);
      blanks();
      if (at('}')) {
        ++at_;
        return true;
      }
      if (!at(',')) return wrong("after object key:value pair");
      ++at_;
    }
  }

  bool array(int depth) {
    ++at_;
    blanks();
    if (at(']')) {
      ++at_;
      return true;
    }
    std::size_t kept = path_.size();
    for (std::size_t i = 0;; ++i) {
      path_ += "[" + std::to_string(i) + "]";
      if (!value(depth + 1)) return false;
      path_.resize(kept);
      blanks();
      if (at(']')) {
        ++at_;
        return true;
      }
      if (!at(',')) return wrong("after array element");
      ++at_;
    }
  }

  static std::string key_text(std::string_view literal) {
    Result<Json> read = parse_json(literal);
    return read ? str(as_text(*read)) : std::string(literal);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string fault_, path_;
};

}  // namespace

std::string json_fault(std::string_view text) {
  return Scanner(text).run();
}

std::vector<std::string> duplicate_keys(std::string_view text) {
  Scanner scanner(text);
  scanner.run();
  return std::move(scanner.duplicates);
}

std::string body_summary(std::string_view text) {
  constexpr std::size_t kShown = 30;
  if (text.empty()) return "<empty>";
  bool cut = text.size() > kShown;
  std::string out(text.substr(0, kShown));
  if (text[0] != '{') {
    static constexpr char kHex[] = "0123456789abcdef";
    std::string hex;
    for (char c : out) {
      hex.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      hex.push_back(kHex[static_cast<unsigned char>(c) & 15]);
    }
    out = std::move(hex);
  }
  return cut ? out + " ..." : out;
}

}  // namespace gpuop::cluster::api

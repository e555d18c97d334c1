#include "base/yaml.h"

#include "base/yaml_api.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>
#include <sstream>

#include "base/text.h"

namespace gpuop {
namespace {

constexpr std::size_t kMaxDepth = 64;
// A short text can name an enormous tree through aliases; this many nodes is far beyond any manifest.
constexpr std::size_t kMaxNodes = 200'000;
// The same for the paths that lines are kept by: long keys, named again and again.
constexpr std::size_t kMaxPathBytes = 32u << 20;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (auto word : words) {
    if (text == word) return true;
  }
  return false;
}

// [-+]?[0-9]+, and YAML 1.1's 0x / 0o / leading-zero octal, as Kubernetes' reader takes them.
std::optional<Json> plain_integer(std::string_view text) {
  std::string_view digits = text;
  bool negative = false;
  if (digits.starts_with('-') || digits.starts_with('+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty()) return std::nullopt;
  int base = 10;
  if (digits.starts_with("0x"))
    base = 16, digits.remove_prefix(2);
  else if (digits.starts_with("0o"))
    base = 8, digits.remove_prefix(2);
  else if (digits.starts_with("0b"))
    base = 2, digits.remove_prefix(2);
  else if (digits.size() > 1 && digits[0] == '0')
    base = 8, digits.remove_prefix(1);
  if (digits.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (char c : digits) {
    int digit = 99;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else if (c >= 'A' && c <= 'F')
      digit = c - 'A' + 10;
    if (digit >= base) return std::nullopt;
    if (value > (UINT64_MAX - static_cast<std::uint64_t>(digit)) / static_cast<std::uint64_t>(base))
      return std::nullopt;
    value = value * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit);
  }
  if (negative) {
    if (value > static_cast<std::uint64_t>(INT64_MAX) + 1) return std::nullopt;
    return Json(static_cast<std::int64_t>(~value + 1));
  }
  if (value <= INT64_MAX) return Json(static_cast<std::int64_t>(value));
  return Json(value);
}

std::optional<Json> plain_float(std::string_view text) {
  if (is_one_of(text, {".inf", ".Inf", ".INF", "+.inf", "-.inf", ".nan", ".NaN", ".NAN"}))
    return std::nullopt;
  bool digit = false;
  for (char c : text) {
    if (c >= '0' && c <= '9') {
      digit = true;
    } else if (!is_one_of(std::string_view(&c, 1), {".", "e", "E", "+", "-"})) {
      return std::nullopt;
    }
  }
  if (!digit || text[0] == 'e' || text[0] == 'E') return std::nullopt;
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (*end || !std::isfinite(value)) return std::nullopt;
  return Json(value);
}

Json plain_scalar(const std::string& text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return false;
  if (auto value = plain_integer(text)) return *value;
  if (auto value = plain_float(text)) return *value;
  return Json(text);
}

// What plain_scalar() leaves alone for people's sake, and an API server's reader does not: single letters,
// and digits that are parted (1_000).
Json strict_scalar(const std::string& text) {
  if (is_one_of(text, {"y", "Y"})) return true;
  if (is_one_of(text, {"n", "N"})) return false;
  const bool parted = !text.empty() && text.find('_') != std::string::npos &&
                      std::string_view("0123456789+-.").find(text[0]) != std::string_view::npos;
  Json number = parted ? plain_scalar(replace_all(text, "_", "")) : Json(nullptr);
  return number.is_number() ? number : plain_scalar(text);
}

// How many bytes the character at the beginning of `text` has; 0 where it is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  // Too long for what they say, surrogates, and beyond the last character.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f))
    return 0;
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

struct Converter {
  YamlDocument& document;
  bool strict = false;  // see yaml_api.h
  std::size_t nodes = 0;
  std::size_t path_bytes = 0;

  Result<Json> convert(const YAML::Node& node, const std::string& path, std::size_t depth) {
    if (depth > kMaxDepth)
      return fault_at(node, "nested deeper than " + std::to_string(kMaxDepth) + " levels");
    if (++nodes > kMaxNodes) return fault_at(node, "more than " + std::to_string(kMaxNodes) + " nodes");
    if ((path_bytes += path.size()) > kMaxPathBytes)
      return fail(Code::kInvalid, "keys are too long for so many nodes");
    if (node.Mark().line >= 0) document.lines.emplace(path, node.Mark().line + 1);
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return Json(nullptr);
      case YAML::NodeType::Scalar:
        // UTF-32 can say what is no character.
        if (!is_utf8(node.Scalar())) return fault_at(node, "no character of Unicode");
        return scalar(node);
      case YAML::NodeType::Sequence: {
        JsonArray array;
        std::size_t index = 0;
        for (const auto& item : node) {
          array.push_back(TRY(convert(item, path + "[" + std::to_string(index) + "]", depth + 1)));
          ++index;
        }
        return Json(std::move(array));
      }
      case YAML::NodeType::Map:
        return map(node, path, depth);
    }
    return Json(nullptr);
  }

  static std::unexpected<Error> fault_at(const YAML::Node& node, const std::string& what) {
    const int line = node.Mark().line;
    return fail(Code::kInvalid, (line >= 0 ? "line " + std::to_string(line + 1) + ": " : "") + what);
  }

  // Keys of JSON are text; what YAML takes for something else is written as JSON would.
  std::string key_text(const YAML::Node& node) const {
    if (!strict) return node.Scalar();
    const Json value = scalar(node);
    if (value.is_string() || value.is_null()) return node.Scalar();
    if (!value.is_double()) return boost::json::serialize(value);
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(value.get_double()));
    return {text, end.ptr};
  }

  Json scalar(const YAML::Node& node) const {
    const std::string& tag = node.Tag();
    if (strict && tag == "tag:yaml.org,2002:binary")
      return Json(base64_decode(node.Scalar()).value_or(node.Scalar()));
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return Json(node.Scalar());  // quoted or block text
    return strict ? strict_scalar(node.Scalar()) : plain_scalar(node.Scalar());
  }

  Result<Json> map(const YAML::Node& node, const std::string& path, std::size_t depth) {
    JsonObject object;
    std::vector<YAML::Node> merged;
    for (const auto& pair : node) {
      if (!pair.first.IsScalar()) {
        return fail(Code::kInvalid,
                    "line " + std::to_string(pair.first.Mark().line + 1) + ": a key must be plain text");
      }
      if (!is_utf8(pair.first.Scalar())) return fault_at(pair.first, "no character of Unicode");
      const std::string key = key_text(pair.first);
      if (key == "<<" && pair.first.Tag() != "!") {
        merged.push_back(pair.second);
        continue;
      }
      const std::string inner = path.empty() ? key : path + "." + key;
      if (object.contains(key)) document.duplicate_keys.push_back(inner);
      auto value = TRY(convert(pair.second, inner, depth + 1));
      // A value that YAML writes on the next lines is at its key's line for the reader.
      if (pair.first.Mark().line >= 0) document.lines[inner] = pair.first.Mark().line + 1;
      object[key] = std::move(value);
    }
    for (const auto& from : merged) {
      for (const auto& source : from.IsSequence() ? std::vector<YAML::Node>(from.begin(), from.end())
                                                  : std::vector<YAML::Node>{from}) {
        const Json value = TRY(convert(source, path, depth + 1));
        if (!value.is_object()) return fail(Code::kInvalid, "'<<' must name a map");
        for (const auto& [key, item] : value.get_object()) {
          if (!object.contains(key)) object[key] = item;
        }
      }
    }
    return Json(std::move(object));
  }
};

void emit(std::string& out, const Json& value, int indent, bool in_list);

// As uids are: 8-4-4-4-12.
bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return false;
  }
  return true;
}

bool plain_is_safe(std::string_view text) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ') return false;
  if (text == ".") return true;
  if (!plain_scalar(std::string(text)).is_string() || is_one_of(text, {"y", "Y", "n", "N", "=", "<<"}))
    return false;
  // A date would come back as a time under YAML 1.1.
  if (text.size() >= 8 && text[0] >= '0' && text[0] <= '9' && text.find('-') != std::string_view::npos &&
      !is_uuid(text))
    return false;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`.+").find(text[0]) != std::string_view::npos) return false;
  if (text.starts_with("\xef\xbb\xbf")) return false;  // taken for the mark of UTF-8 where a file begins so
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < ' ' || c == 0x7f) return false;
    if (c == ':' && (i + 1 == text.size() || text[i + 1] == ' ')) return false;
    if (c == '#' && i > 0 && text[i - 1] == ' ') return false;
  }
  return true;
}

// Within quotes, as JSON; what JSON lets stand and YAML does not is escaped too.
std::string quoted(std::string_view text) {
  return replace_all(boost::json::serialize(Json(text)), "\x7f", "\\u007f");
}

// Block text only within a map or list: at the top its lines would stand where the document's own marks do.
void emit_string(std::string& out, std::string_view text, int indent) {
  const bool block = indent > 0 && text.find('\n') != std::string_view::npos &&
                     text.find_first_of("\r\t") == std::string_view::npos && text[0] != ' ' &&
                     text[0] != '\n';
  if (block) {
    std::size_t trailing = 0;
    while (trailing < text.size() && text[text.size() - 1 - trailing] == '\n') ++trailing;
    bool printable = true;
    for (char c : text)
      printable = printable && (c == '\n' || (static_cast<unsigned char>(c) >= ' ' && c != 0x7f));
    if (printable && trailing <= 1) {
      out += trailing ? "|" : "|-";
      for (const auto& line : split(text.substr(0, text.size() - trailing), '\n')) {
        out += '\n';
        if (!line.empty()) out += std::string(static_cast<std::size_t>(indent), ' ') + line;
      }
      return;
    }
  }
  if (plain_is_safe(text)) {
    out += text;
  } else {
    out += quoted(text);
  }
}

void emit_value(std::string& out, const Json& value, int indent) {
  if (value.is_object() && !value.get_object().empty()) {
    out += '\n';
    emit(out, value, indent, false);
  } else if (value.is_array() && !value.get_array().empty()) {
    out += '\n';
    // Lists stay at their key's column, as kubectl writes them.
    emit(out, value, indent - 2, false);
  } else {
    out += ' ';
    if (value.is_string())
      emit_string(out, value.get_string(), indent);
    else
      out += boost::json::serialize(value);
    out += '\n';
  }
}

// With its colon, on one line. YAML reads a key without its question mark only up to 1,024 characters.
void emit_key(std::string& out, std::string_view key, const std::string& pad) {
  const std::string text = plain_is_safe(key) ? std::string(key) : quoted(key);
  constexpr std::size_t kLongest = 1000;
  out += text.size() > kLongest ? "? " + text + "\n" + pad + ":" : text + ":";
}

void emit(std::string& out, const Json& value, int indent, bool in_list) {
  const std::string pad(static_cast<std::size_t>(indent), ' ');
  bool first = true;
  if (value.is_object()) {
    for (const auto& [key, item] : value.get_object()) {
      if (!(first && in_list)) out += pad;
      first = false;
      emit_key(out, key, pad);
      emit_value(out, item, indent + 2);
    }
  } else {
    for (const auto& item : value.get_array()) {
      if (!(first && in_list)) out += pad;
      first = false;
      out += '-';
      const bool nested =
          (item.is_object() && !item.get_object().empty()) || (item.is_array() && !item.get_array().empty());
      if (nested) {
        out += ' ';
        emit(out, item, indent + 2, true);
      } else {
        emit_value(out, item, indent + 2);
      }
    }
  }
}

// yaml-cpp 0.7 never ends on text that has a lone ',' or ']' where a document begins: it makes one empty
// document after another of it. A first reading, that keeps nothing, finds the place where it stands still,
// and refuses what is too much before anything is made of it.
class StandstillCheck final : public YAML::EventHandler {
 public:
  static void run(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    StandstillCheck check;
    while (parser.HandleNextDocument(check)) {
    }
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos == last_) throw YAML::ParserException(mark, "unexpected character");
    last_ = mark.pos;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { count(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { count(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override {
    count(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    count(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    count(mark);
  }
  void OnMapEnd() override {}

 private:
  // Keys count here too, so a document may have twice as many as are made of it; of all documents together.
  void count(const YAML::Mark& mark) {
    if (++nodes_ > 2 * kMaxNodes)
      throw YAML::ParserException(mark, "more than " + std::to_string(2 * kMaxNodes) + " keys and values");
  }

  std::size_t nodes_ = 0;
  int last_ = -1;
};

// What no reader of YAML takes: "line 3, column 5: …"; "" for nothing. UTF-16 and UTF-32 begin with a mark
// and are the library's to read.
std::string bad_character(std::string_view text) {
  if (text.starts_with("\xfe\xff") || text.starts_with("\xff\xfe")) return "";
  if (text.starts_with(std::string_view("\0\0\xfe\xff", 4))) return "";
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i < text.size(); ++column) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    const bool control = (first < ' ' && first != '\t' && first != '\n' && first != '\r') || first == 0x7f;
    if (length == 0 || control) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "0x%02x", first);
      return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": the byte " +
             code.data() + (control ? " is a control character, which YAML does not allow" : " is not UTF-8");
    }
    if (first == '\n') {
      ++line;
      column = 0;
    }
    i += length;
  }
  return "";
}

// What the library's words do not say.
std::string hint_of(std::string_view text, const YAML::Exception& error) {
  const auto lines = split(text, '\n');
  const auto at = static_cast<std::size_t>(std::max(error.mark.line, 0));
  if (at >= lines.size()) return "";
  const auto indent = lines[at].find_first_not_of(" \t");
  const bool tab = lines[at].substr(0, indent).contains('\t');
  return tab ? " (the line is indented by a tab, which YAML does not allow)" : "";
}

}  // namespace

int YamlDocument::line_of(std::string_view path) const {
  std::string at(path);
  while (true) {
    if (const auto found = lines.find(at); found != lines.end()) return found->second;
    const auto cut = at.find_last_of(".[");
    if (cut == std::string::npos) break;
    at.resize(cut);
  }
  const auto root = lines.find("");
  return root == lines.end() ? 1 : root->second;
}

static Result<std::vector<YamlDocument>> parse(std::string_view text, std::string_view file, bool strict) {
  const std::string doing = "read '" + std::string(file) + "'";
  std::vector<YamlDocument> documents;
  if (const std::string bad = bad_character(text); !bad.empty())
    return fail(Code::kInvalid, doing + ": " + bad);
  try {
    const std::string copy(text);
    StandstillCheck::run(copy);
    for (const YAML::Node& node : YAML::LoadAll(copy)) {
      YamlDocument document;
      Converter converter{document, strict};
      document.value = TRY_IN(converter.convert(node, "", 0), doing);
      if (!document.value.is_null()) documents.push_back(std::move(document));
    }
  } catch (const YAML::DeepRecursion& error) {
    return fail(Code::kInvalid,
                doing + ": line " + std::to_string(error.mark.line + 1) + ": nested too deep");
  } catch (const YAML::Exception& error) {
    return fail(Code::kInvalid, doing + ": line " + std::to_string(error.mark.line + 1) + ", column " +
                                    std::to_string(error.mark.column + 1) + ": " + error.msg +
                                    hint_of(text, error));
  } catch (const std::exception& error) {
    return fail(Code::kInvalid, doing + ": " + error.what());
  }
  return documents;
}

Result<std::vector<YamlDocument>> parse_yaml(std::string_view text, std::string_view file) {
  return parse(text, file, false);
}
Result<std::vector<YamlDocument>> parse_api_yaml(std::string_view text, std::string_view file) {
  return parse(text, file, true);
}

Result<YamlDocument> parse_yaml_one(std::string_view text, std::string_view file) {
  auto documents = TRY(parse_yaml(text, file));
  if (documents.size() != 1) {
    return fail(Code::kInvalid, "read '" + std::string(file) + "': expected one document, found " +
                                    std::to_string(documents.size()));
  }
  return std::move(documents.front());
}

std::string to_yaml(const Json& value) {
  std::string out;
  if ((value.is_object() && !value.get_object().empty()) ||
      (value.is_array() && !value.get_array().empty())) {
    emit(out, value, 0, false);
  } else {
    emit_value(out, value, 0);
    out.erase(0, 1);
  }
  return out;
}

}  // namespace gpuop

#include "cdi/block_yaml.h"

#include <charconv>
#include <vector>

namespace gpuop::cdi {

namespace {

constexpr int kMaxDepth = 32;

struct Line {
  std::size_t indent = 0;
  std::string_view content;  // not empty, no spaces at its ends
};

bool is_item(std::string_view content) {
  return content == "-" || content.starts_with("- ");
}

class Reader {
 public:
  explicit Reader(std::vector<Line> lines) : lines_(std::move(lines)) {}

  std::optional<Json> document() {
    if (lines_.empty()) return std::nullopt;
    auto value = block(lines_[0].indent, 0);
    if (!value || at_ != lines_.size()) return std::nullopt;
    return value;
  }

 private:
  std::optional<Json> block(std::size_t indent, int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    return is_item(lines_[at_].content) ? list(indent, depth) : map(indent, depth);
  }

  bool here(std::size_t indent) const { return at_ < lines_.size() && lines_[at_].indent == indent; }
  bool deeper(std::size_t indent) const { return at_ < lines_.size() && lines_[at_].indent > indent; }

  std::optional<Json> list(std::size_t indent, int depth) {
    JsonArray items;
    while (here(indent) && is_item(lines_[at_].content)) {
      Line& line = lines_[at_];
      std::size_t skip = line.content.find_first_not_of(' ', 1);
      if (skip == std::string_view::npos) return std::nullopt;  // "-" alone: rare enough
      std::string_view rest = line.content.substr(skip);
      if (is_item(rest)) return std::nullopt;
      if (key_end(rest)) {
        // A map that begins on the dash's line: its keys stand where this one does.
        line = {indent + skip, rest};
        auto value = map(indent + skip, depth + 1);
        if (!value) return std::nullopt;
        items.push_back(std::move(*value));
        continue;
      }
      ++at_;
      auto value = scalar(rest);
      if (!value || deeper(indent)) return std::nullopt;
      items.push_back(std::move(*value));
    }
    return Json(std::move(items));
  }

  std::optional<Json> map(std::size_t indent, int depth) {
    JsonObject object;
    while (here(indent) && !is_item(lines_[at_].content)) {
      std::string_view content = lines_[at_].content;
      auto colon = key_end(content);
      if (!colon) return std::nullopt;
      auto key = scalar(content.substr(0, *colon));
      if (!key || !key->is_string()) return std::nullopt;
      std::string_view rest = content.substr(*colon + 1);
      rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
      ++at_;
      std::optional<Json> value;
      if (!rest.empty()) {
        value = scalar(rest);
        if (deeper(indent)) return std::nullopt;  // a scalar that goes on
      } else if (deeper(indent)) {
        value = block(lines_[at_].indent, depth + 1);
      } else if (here(indent) && is_item(lines_[at_].content)) {
        value = list(indent, depth + 1);
      } else {
        value = Json(nullptr);
      }
      if (!value || !object.emplace(key->get_string(), std::move(*value)).second) return std::nullopt;
    }
    // What is left at this indent belongs to nobody.
    if (here(indent) || object.empty()) {
      if (!(here(indent) && is_item(lines_[at_].content) && !object.empty())) return std::nullopt;
    }
    return Json(std::move(object));
  }

  // The position of the colon that ends a key; nullopt when the text is no "key: value".
  static std::optional<std::size_t> key_end(std::string_view text) {
    if (text.front() == '"' || text.front() == '\'') {
      auto end = text.find(text.front(), 1);
      if (end == std::string_view::npos || text.substr(0, end).find('\\') != std::string_view::npos)
        return std::nullopt;
      if (end + 1 >= text.size() || text[end + 1] != ':') return std::nullopt;
      if (end + 2 < text.size() && text[end + 2] != ' ') return std::nullopt;
      return end + 1;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ')) return i;
    }
    return std::nullopt;
  }

  static std::optional<Json> quoted(std::string_view text) {
    char quote = text.front();
    if (text.size() < 2 || text.back() != quote) return std::nullopt;
    std::string_view inner = text.substr(1, text.size() - 2);
    if (inner.find(quote) != std::string_view::npos) return std::nullopt;
    if (quote == '"' && inner.find('\\') != std::string_view::npos) return std::nullopt;
    return Json(inner);
  }

  static std::optional<Json> plain(std::string_view text) {
    static constexpr std::string_view kSpecial = "[]{}&*!|<>=%@`?,#:\"'";
    if (kSpecial.find(text.front()) != std::string_view::npos || text.back() == ':') return std::nullopt;
    // Blanks at the end do not count, and control characters are the general reader's business.
    if (text.back() == ' ' || text.find('\t') != std::string_view::npos) return std::nullopt;
    if (text.find(": ") != std::string_view::npos || text.find(" #") != std::string_view::npos)
      return std::nullopt;
    char first = text.front();
    bool like_a_number = (first >= '0' && first <= '9') || first == '+' || first == '-' || first == '.';
    if (like_a_number) return number(text);
    if (text == "true") return Json(true);
    if (text == "false") return Json(false);
    if (text == "null" || text == "~") return Json(nullptr);
    // Other spellings of these words, and of infinity, are for the general reader.
    if (text.size() <= 5) {
      static constexpr std::string_view kWords[] = {"True", "TRUE", "False", "FALSE", "Null", "NULL", "nan",
                                                    "NaN",  "NAN",  "yes",   "Yes",   "YES",  "no",   "No",
                                                    "NO",   "on",   "On",    "ON",    "off",  "Off",  "OFF"};
      for (auto word : kWords) {
        if (text == word) return std::nullopt;
      }
    }
    return Json(text);
  }

  // A decimal integer, or a text of digits with at least two dots ("0.5.0"); nothing else is sure.
  static std::optional<Json> number(std::string_view text) {
    if (text.find_first_not_of("0123456789") == std::string_view::npos) {
      if (text.size() > 1 && text[0] == '0') return std::nullopt;
      std::int64_t value = 0;
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
      return Json(value);
    }
    if (text.front() < '0' || text.front() > '9' ||
        text.find_first_not_of("0123456789.") != std::string_view::npos) {
      // "--folder" and the like: a dash and a letter.
      if (text.starts_with("--") && text.size() > 2 && text != "---" && text[2] >= 'a' && text[2] <= 'z')
        return Json(text);
      return std::nullopt;
    }
    auto dot = text.find('.');
    if (text.find('.', dot + 1) == std::string_view::npos) return std::nullopt;
    return Json(text);
  }

  static std::optional<Json> scalar(std::string_view text) {
    if (text.empty()) return std::nullopt;
    if (text == "{}") return Json(JsonObject{});
    if (text == "[]") return Json(JsonArray{});
    if (text.front() == '"' || text.front() == '\'') return quoted(text);
    return plain(text);
  }

  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<Json> parse_block_yaml(std::string_view text) {
  std::vector<Line> lines;
  lines.reserve(text.size() / 24);
  bool begun = false;
  while (!text.empty()) {
    auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    for (char c : line) {
      // Tabs, carriage returns, and everything beyond ASCII: the general reader knows the rules.
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) return std::nullopt;
    }
    std::size_t indent = line.find_first_not_of(' ');
    if (indent == std::string_view::npos || line[indent] == '#') continue;
    line = line.substr(indent, line.find_last_not_of(' ') + 1 - indent);
    if (line.starts_with("---") || line.starts_with("...")) {
      if (line != "---" || indent != 0 || begun) return std::nullopt;
      begun = true;
      continue;
    }
    begun = true;
    lines.push_back({indent, line});
  }
  return Reader(std::move(lines)).document();
}

}  // namespace gpuop::cdi

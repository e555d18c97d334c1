#include "toolkit/toml_edit.h"

#include <algorithm>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "shim/toml.h"

namespace gpuop::toolkit {

namespace {

// Positions in the text before the first table header.
struct Found {
  std::size_t bracket = 0;  // of the list's '['
  std::size_t close = 0;    // of its ']'
  bool has_items = false;
  bool trailing_comma = false;
};

// Past a string that begins at `at`; the text has been parsed before, so it ends.
std::size_t skip_string(std::string_view text, std::size_t at) {
  char quote = text[at];
  std::string triple(3, quote);
  if (text.substr(at, 3) == triple) {
    auto end = text.find(triple, at + 3);
    return end == std::string_view::npos ? text.size() : end + 3;
  }
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      return i + 1;
    }
  }
  return text.size();
}

std::size_t skip_comment(std::string_view text, std::size_t at) {
  auto end = text.find('\n', at);
  return end == std::string_view::npos ? text.size() : end;
}

std::optional<Found> read_list(std::string_view text, std::size_t bracket) {
  Found found;
  found.bracket = bracket;
  for (std::size_t i = bracket + 1; i < text.size();) {
    char c = text[i];
    if (c == '#') {
      i = skip_comment(text, i);
    } else if (c == '"' || c == '\'') {
      found.has_items = true;
      found.trailing_comma = false;
      i = skip_string(text, i);
    } else if (c == ']') {
      found.close = i;
      return found;
    } else {
      if (c == ',') found.trailing_comma = true;
      ++i;
    }
  }
  return std::nullopt;
}

// Past a value: brackets balance, strings and comments do not count.
std::size_t end_of_statement(std::string_view text, std::size_t at) {
  int depth = 0;
  while (at < text.size()) {
    char c = text[at];
    if (c == '#') {
      at = skip_comment(text, at);
    } else if (c == '"' || c == '\'') {
      at = skip_string(text, at);
    } else {
      if (c == '[' || c == '{') ++depth;
      if (c == ']' || c == '}') --depth;
      ++at;
      if (c == '\n' && depth <= 0) return at;
    }
  }
  return at;
}

bool names_key(std::string_view line, std::string_view key) {
  line = trim(line);
  for (std::string_view quote : {"", "\"", "'"}) {
    std::string written = std::string(quote) + std::string(key) + std::string(quote);
    if (!line.starts_with(written)) continue;
    std::string_view rest = trim(line.substr(written.size()));
    if (rest.starts_with('=')) return true;
  }
  return false;
}

std::string new_line(std::string_view key, std::string_view value) {
  return std::string(key) + " = [" + toml_string(value) + "]\n";
}

std::string edited(std::string_view text, std::string_view key, std::string_view value) {
  std::size_t first_statement = std::string_view::npos;
  for (std::size_t at = 0; at < text.size();) {
    std::string_view line = text.substr(at, skip_comment(text, at) - at);
    std::string_view bare = trim(line);
    if (bare.empty() || bare.starts_with('#')) {
      at += line.size() + (at + line.size() < text.size() ? 1 : 0);
      continue;
    }
    if (first_statement == std::string_view::npos) first_statement = at;
    if (bare.starts_with('[')) break;
    if (names_key(line, key)) {
      auto list = read_list(text, text.find('[', at));
      if (!list) break;
      std::string addition = (list->has_items && !list->trailing_comma ? ", "
                              : list->has_items                        ? " "
                                                                       : "") +
                             toml_string(value);
      // After the last item, which may have a comment behind it on its line: in front of the closing bracket.
      std::size_t put = list->close;
      while (put > list->bracket + 1 && (text[put - 1] == ' ' || text[put - 1] == '\t')) --put;
      if (text[put - 1] == '\n') {
        // A list over several lines: a line of its own; the last item's comma goes right behind the item.
        return std::string(text.substr(0, put)) + "  " +
               std::string(list->has_items && !list->trailing_comma ? ", " : "") + toml_string(value) + "\n" +
               std::string(text.substr(put));
      }
      return std::string(text.substr(0, put)) + addition + std::string(text.substr(put));
    }
    at = end_of_statement(text, at);
  }
  std::size_t put = first_statement == std::string_view::npos ? text.size() : first_statement;
  std::string before(text.substr(0, put));
  if (!before.empty() && before.back() != '\n') before += '\n';
  return before + new_line(key, value) + std::string(text.substr(put));
}

}  // namespace

Result<std::string> add_to_top_level_list(std::string_view text, std::string_view key,
                                          std::string_view value) {
  Json before = TRY(parse_toml(text, "config.toml"));
  JsonArray list = get_array(before, {key});
  if (std::ranges::any_of(list, [&](const Json& item) { return as_text(item) == value; }))
    return std::string(text);
  if (has(before, {key}) && !find(before, {key})->is_array()) {
    return fail(Code::kInvalid, std::string(key) + ": must be a list; got " + to_text(*find(before, {key})));
  }
  std::string after_text = edited(text, key, value);
  Json wanted = before;
  list.emplace_back(value);
  set(wanted, {key}, list);
  auto after = parse_toml(after_text, "config.toml");
  if (!after || to_canonical_text(*after) != to_canonical_text(wanted)) {
    return fail(Code::kInvalid, "add \"" + std::string(value) + "\" to " + std::string(key) +
                                    ": cannot do it without changing the rest of the file; add it by hand");
  }
  return after_text;
}

}  // namespace gpuop::toolkit

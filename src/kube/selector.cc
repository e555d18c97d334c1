// Label selectors: the text of query parameters and flags, and metav1.LabelSelector objects.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "kube/object.h"

namespace gpuop::kube {
namespace {

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool is_lower_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Letters, digits, '-', '_', '.', with a letter or digit at both ends; at most 63.
bool is_qualified_part(std::string_view text) {
  if (text.empty() || text.size() > 63 || !is_alnum(text.front()) || !is_alnum(text.back())) return false;
  return std::ranges::all_of(text, [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

// The tokens of selector text. Words run to white space or a special character.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // "" at the end of the text.
  std::string_view peek() {
    const std::size_t kept = at_;
    const std::string_view token = next();
    at_ = kept;
    return token;
  }

  std::string_view next() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    if (at_ == text_.size()) return {};
    const std::size_t from = at_;
    if (is_special(text_[at_])) {
      const char first = text_[at_++];
      const char second = at_ < text_.size() ? text_[at_] : '\0';
      if ((first == '=' && second == '=') || (first == '!' && second == '=')) ++at_;
      return text_.substr(from, at_ - from);
    }
    while (at_ < text_.size() && !is_space(text_[at_]) && !is_special(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }

  static bool is_word(std::string_view token) { return !token.empty() && !is_special(token[0]); }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
  static bool is_special(char c) {
    return c == '=' || c == '!' || c == '(' || c == ')' || c == ',' || c == '<' || c == '>';
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::unexpected<Error> bad(std::string_view text, const std::string& why) {
  return fail(Code::kInvalid, "parse label selector '" + std::string(text) + "': " + why);
}

std::string found(std::string_view token) {
  return "found '" + std::string(token) + "'";
}

// The values between parentheses; "(a,,b)" has an empty one.
Result<std::vector<std::string>> parse_values(Lexer& lexer, std::string_view text) {
  if (const auto token = lexer.next(); token != "(") return bad(text, found(token) + " expected: '('");
  std::vector<std::string> values;
  bool have_value = false;
  while (true) {
    const std::string_view token = lexer.next();
    if (Lexer::is_word(token)) {
      if (have_value) return bad(text, found(token) + ", expected: ',' or ')'");
      values.emplace_back(token);
      have_value = true;
    } else if (token == "," || token == ")") {
      if (!have_value) values.emplace_back();
      if (token == ")") return values;
      have_value = false;
    } else {
      return bad(text, found(token) + ", expected: ',' or ')'");
    }
  }
}

std::string quoted_set(const std::vector<std::string>& values) {
  return "(" + join(values, ",") + ")";
}

}  // namespace

bool is_label_key(std::string_view key) {
  const std::size_t slash = key.find('/');
  if (slash == std::string_view::npos) return is_qualified_part(key);
  return is_dns_subdomain(key.substr(0, slash)) && is_qualified_part(key.substr(slash + 1));
}

bool is_label_value(std::string_view value) {
  return value.empty() || is_qualified_part(value);
}

bool is_dns_label(std::string_view text) {
  if (text.empty() || text.size() > 63 || !is_lower_alnum(text.front()) || !is_lower_alnum(text.back())) {
    return false;
  }
  return std::ranges::all_of(text, [](char c) { return is_lower_alnum(c) || c == '-'; });
}

bool is_dns_subdomain(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t dot = std::min(text.find('.', from), text.size());
    const std::string_view part = text.substr(from, dot - from);
    if (part.empty() || !is_lower_alnum(part.front()) || !is_lower_alnum(part.back())) return false;
    if (!std::ranges::all_of(part, [](char c) { return is_lower_alnum(c) || c == '-'; })) return false;
    from = dot + 1;
  }
  return true;
}

Result<LabelSelector> LabelSelector::parse(std::string_view text) {
  LabelSelector out;
  Lexer lexer(text);
  if (lexer.peek().empty()) return out;
  while (true) {
    Term term;
    std::string_view token = lexer.next();
    const bool negated = token == "!";
    if (negated) token = lexer.next();
    if (!Lexer::is_word(token))
      return bad(text, found(token) + (out.terms_.empty() && !negated
                                           ? ", expected: !, identifier, or 'end of string'"
                                           : ", expected: identifier after ','"));
    term.key = token;
    if (!is_label_key(token)) return bad(text, "'" + term.key + "' is not a label key");
    const std::string_view op = lexer.peek();
    if (negated || op.empty() || op == ",") {
      term.op = negated ? Term::Op::kAbsent : Term::Op::kExists;
    } else if (op == "in" || op == "notin") {
      lexer.next();
      term.op = op == "in" ? Term::Op::kIn : Term::Op::kNotIn;
      term.values = TRY(parse_values(lexer, text));
    } else if (op == "=" || op == "==" || op == "!=") {
      lexer.next();
      term.op = op == "!=" ? Term::Op::kNotIn : Term::Op::kIn;
      // "a=" means the empty value.
      const std::string_view value = lexer.peek();
      if (!value.empty() && value != "," && !Lexer::is_word(value))
        return bad(text, found(value) + ", expected: identifier");
      term.values.emplace_back(Lexer::is_word(value) ? lexer.next() : std::string_view());
    } else if (op == ">" || op == "<") {
      lexer.next();
      term.op = op == ">" ? Term::Op::kGreater : Term::Op::kLess;
      term.values.emplace_back(lexer.next());
      if (!parse_int(term.values[0]))
        return bad(text, "values[0]: Invalid value: " + to_text(Json(term.values[0])) +
                             ": for 'Gt', 'Lt' operators, the value must be an integer");
    } else {
      return bad(text, found(op) + ", expected: in, notin, =, ==, !=, gt, lt");
    }
    for (const std::string& value : term.values) {
      if (term.op != Term::Op::kGreater && term.op != Term::Op::kLess && !is_label_value(value)) {
        return bad(text, "'" + value + "' is not a label value");
      }
    }
    out.terms_.push_back(std::move(term));
    token = lexer.next();
    if (token.empty()) return out;
    if (token != ",") return bad(text, found(token) + ", expected: ',' or 'end of string'");
  }
}

Result<LabelSelector> LabelSelector::from_object(const Json& selector) {
  LabelSelector out;
  if (selector.is_null()) {
    out.nothing_ = true;
    return out;
  }
  if (!selector.is_object()) return fail(Code::kInvalid, "read label selector: must be an object");
  for (const auto& [key, value] : get_object(selector, {"matchLabels"})) {
    if (!value.is_string()) {
      return fail(Code::kInvalid, "read label selector: matchLabels['" + str(key) + "']: must be a string");
    }
    out.terms_.push_back({str(key), Term::Op::kIn, {str(as_text(value))}});
  }
  for (const Json& expression : get_array(selector, {"matchExpressions"})) {
    Term term;
    term.key = get_string(expression, {"key"});
    const std::string op = str(get_string(expression, {"operator"}));
    if (op == "In") {
      term.op = Term::Op::kIn;
    } else if (op == "NotIn") {
      term.op = Term::Op::kNotIn;
    } else if (op == "Exists") {
      term.op = Term::Op::kExists;
    } else if (op == "DoesNotExist") {
      term.op = Term::Op::kAbsent;
    } else {
      const std::array<std::string, 4> known = {"In", "NotIn", "Exists", "DoesNotExist"};
      return fail(Code::kInvalid, "read label selector: matchExpressions['" + term.key +
                                      "'].operator: must be one of In, NotIn, Exists, DoesNotExist; got '" +
                                      op + "'" + did_you_mean(op, known));
    }
    for (const Json& value : get_array(expression, {"values"})) term.values.push_back(str(as_text(value)));
    const bool takes_values = term.op == Term::Op::kIn || term.op == Term::Op::kNotIn;
    if (takes_values == term.values.empty()) {
      return fail(Code::kInvalid, "read label selector: matchExpressions['" + term.key + "'].values: must " +
                                      (takes_values ? "not " : "") + "be empty with operator " + op);
    }
    out.terms_.push_back(std::move(term));
  }
  return out;
}

bool LabelSelector::matches(const JsonObject& labels) const {
  if (nothing_) return false;
  return std::ranges::all_of(terms_, [&](const Term& term) {
    const Json* value = find(labels, term.key);
    const auto is_listed = [&] {
      return std::ranges::find(term.values, as_text(*value)) != term.values.end();
    };
    switch (term.op) {
      case Term::Op::kIn:
        return value != nullptr && is_listed();
      case Term::Op::kNotIn:
        return value == nullptr || !is_listed();
      case Term::Op::kExists:
        return value != nullptr;
      case Term::Op::kAbsent:
        return value == nullptr;
      case Term::Op::kGreater:
      case Term::Op::kLess: {
        const auto have = value == nullptr ? std::nullopt : parse_int(as_text(*value));
        const auto limit = parse_int(term.values[0]);
        if (!have || !limit) return false;
        return term.op == Term::Op::kGreater ? *have > *limit : *have < *limit;
      }
    }
    return false;
  });
}

std::string LabelSelector::text() const {
  std::vector<std::string> parts;
  for (const Term& term : terms_) {
    switch (term.op) {
      case Term::Op::kIn:
        parts.push_back(term.values.size() == 1 ? term.key + "=" + term.values[0]
                                                : term.key + " in " + quoted_set(term.values));
        break;
      case Term::Op::kNotIn:
        parts.push_back(term.values.size() == 1 ? term.key + "!=" + term.values[0]
                                                : term.key + " notin " + quoted_set(term.values));
        break;
      case Term::Op::kExists:
        parts.push_back(term.key);
        break;
      case Term::Op::kAbsent:
        parts.push_back("!" + term.key);
        break;
      case Term::Op::kGreater:
        parts.push_back(term.key + ">" + term.values[0]);
        break;
      case Term::Op::kLess:
        parts.push_back(term.key + "<" + term.values[0]);
        break;
    }
  }
  return join(parts, ",");
}

}  // namespace gpuop::kube

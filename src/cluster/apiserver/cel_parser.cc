// The text of a rule, read.
#include <map>
#include <optional>

#include "base/text.h"
#include "cluster/apiserver/cel_node.h"

namespace gpuop::cluster::api {

namespace {

constexpr int kMaxDepth = 60;

struct Token {
  enum class Kind { kEnd, kName, kText, kNumber, kSign };
  Kind kind = Kind::kEnd;
  std::string text;
  Json value;
  std::size_t at = 0;
};

Result<std::vector<Token>> tokens_of(std::string_view text) {
  std::vector<Token> all;
  std::size_t i = 0;
  auto fault = [&](const std::string& why) {
    return fail(Code::kInvalid, cel_fault(text, i, "Syntax error: " + why));
  };
  while (i < text.size()) {
    char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
      continue;
    }
    Token token;
    token.at = i;
    if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
      std::size_t start = i;
      while (i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_'))
        ++i;
      token.kind = Token::Kind::kName;
      token.text = std::string(text.substr(start, i - start));
      bool raw =
          (token.text == "r" || token.text == "R") && i < text.size() && (text[i] == '\'' || text[i] == '"');
      if (!raw) {
        all.push_back(std::move(token));
        continue;
      }
      char quote = text[i++];
      std::size_t end = text.find(quote, i);
      if (end == std::string_view::npos) return fault("string is not closed");
      token.kind = Token::Kind::kText;
      token.value = Json(text.substr(i, end - i));
      i = end + 1;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      std::size_t start = i;
      bool real = false;
      while (i < text.size() && (std::isdigit(static_cast<unsigned char>(text[i])) != 0 || text[i] == '.')) {
        if (text[i] == '.') {
          if (i + 1 >= text.size() || std::isdigit(static_cast<unsigned char>(text[i + 1])) == 0) break;
          real = true;
        }
        ++i;
      }
      std::string digits(text.substr(start, i - start));
      if (i < text.size() && text[i] == 'u') ++i;
      token.kind = Token::Kind::kNumber;
      if (real) {
        token.value = std::strtod(digits.c_str(), nullptr);
      } else {
        std::optional<std::int64_t> number = parse_int(digits);
        if (!number) return fault("number out of range");
        token.value = *number;
      }
    } else if (c == '\'' || c == '"') {
      std::string out;
      ++i;
      while (i < text.size() && text[i] != c) {
        if (text[i] == '\\' && i + 1 < text.size()) {
          ++i;
          char e = text[i];
          out.push_back(e == 'n' ? '\n' : e == 't' ? '\t' : e == 'r' ? '\r' : e);
        } else {
          out.push_back(text[i]);
        }
        ++i;
      }
      if (i >= text.size()) return fault("string is not closed");
      ++i;
      token.kind = Token::Kind::kText;
      token.value = Json(out);
    } else {
      static constexpr std::string_view kTwo[] = {"==", "!=", "<=", ">=", "&&", "||"};
      token.kind = Token::Kind::kSign;
      for (std::string_view two : kTwo)
        if (text.substr(i, 2) == two) token.text = std::string(two);
      if (token.text.empty()) {
        if (std::string_view("<>!?:+-*/%()[]{}.,").find(c) == std::string_view::npos)
          return fault(std::string("unexpected '") + c + "'");
        token.text = std::string(1, c);
      }
      i += token.text.size();
    }
    all.push_back(std::move(token));
  }
  Token end;
  end.at = text.size();
  all.push_back(end);
  return all;
}

class Parser {
 public:
  Parser(std::string_view text, std::vector<Token> tokens) : text_(text), tokens_(std::move(tokens)) {}

  Result<CelNodePtr> whole() {
    CelNodePtr node = TRY(expression());
    if (peek().kind != Token::Kind::kEnd) return fault("unexpected '" + shown(peek()) + "'");
    return node;
  }

 private:
  const Token& peek() const { return tokens_[at_]; }
  bool is(std::string_view sign) const { return peek().kind == Token::Kind::kSign && peek().text == sign; }
  bool take(std::string_view sign) {
    if (!is(sign)) return false;
    ++at_;
    return true;
  }
  static std::string shown(const Token& token) {
    return token.kind == Token::Kind::kEnd ? "end" : token.text.empty() ? to_text(token.value) : token.text;
  }
  std::unexpected<Error> fault(const std::string& why) const {
    return fail(Code::kInvalid, cel_fault(text_, peek().at, "Syntax error: " + why));
  }
  static CelNodePtr make(CelNode::Kind kind, std::string text, std::size_t at) {
    auto node = std::make_unique<CelNode>();
    node->kind = kind;
    node->text = std::move(text);
    node->at = at;
    return node;
  }

  Result<CelNodePtr> expression() {
    if (++depth_ > kMaxDepth) return fault("nested too deeply");
    CelNodePtr test = TRY(binary(0));
    const std::size_t sign = peek().at;
    if (take("?")) {
      CelNodePtr choice = make(CelNode::Kind::kChoice, "?:", sign);
      choice->parts.push_back(std::move(test));
      choice->parts.push_back(TRY(expression()));
      if (!take(":")) return fault("expected ':'");
      choice->parts.push_back(TRY(expression()));
      test = std::move(choice);
    }
    --depth_;
    return test;
  }

  static int level_of(const Token& token) {
    static const std::map<std::string_view, int> levels = {
        {"||", 0}, {"&&", 1}, {"==", 2}, {"!=", 2}, {"<", 2}, {"<=", 2}, {">", 2},
        {">=", 2}, {"in", 2}, {"+", 3},  {"-", 3},  {"*", 4}, {"/", 4},  {"%", 4}};
    if (token.kind == Token::Kind::kName && token.text != "in") return -1;
    auto found = levels.find(token.text);
    return found == levels.end() || token.kind == Token::Kind::kText ? -1 : found->second;
  }

  Result<CelNodePtr> binary(int level) {
    if (level > 4) return unary();
    CelNodePtr left = TRY(binary(level + 1));
    while (level_of(peek()) == level) {
      CelNodePtr node = make(CelNode::Kind::kBinary, peek().text, peek().at);
      ++at_;
      node->parts.push_back(std::move(left));
      node->parts.push_back(TRY(binary(level + 1)));
      left = std::move(node);
    }
    return left;
  }

  Result<CelNodePtr> unary() {
    if (is("!") || is("-")) {
      if (++depth_ > kMaxDepth) return fault("nested too deeply");
      CelNodePtr node = make(CelNode::Kind::kUnary, peek().text, peek().at);
      ++at_;
      node->parts.push_back(TRY(unary()));
      --depth_;
      return node;
    }
    return postfix();
  }

  Result<std::vector<CelNodePtr>> arguments() {
    std::vector<CelNodePtr> all;
    if (take(")")) return all;
    do {
      all.push_back(TRY(expression()));
    } while (take(","));
    if (!take(")")) return fault("expected ')'");
    return all;
  }

  Result<CelNodePtr> postfix() {
    CelNodePtr node = TRY(primary());
    while (true) {
      const std::size_t sign = peek().at;
      if (take(".")) {
        if (peek().kind != Token::Kind::kName) return fault("expected a field name");
        std::string name = peek().text;
        ++at_;
        CelNodePtr next = make(is("(") ? CelNode::Kind::kMethod : CelNode::Kind::kSelect, unescaped(name),
                               is("(") ? peek().at : sign);
        next->parts.push_back(std::move(node));
        if (take("("))
          for (CelNodePtr& argument : TRY(arguments())) next->parts.push_back(std::move(argument));
        node = std::move(next);
      } else if (take("[")) {
        CelNodePtr next = make(CelNode::Kind::kIndex, "[]", sign);
        next->parts.push_back(std::move(node));
        next->parts.push_back(TRY(expression()));
        if (!take("]")) return fault("expected ']'");
        node = std::move(next);
      } else {
        return node;
      }
    }
  }

  // Names that are not identifiers are written with escapes.
  static std::string unescaped(std::string name) {
    for (auto [code, text] :
         {std::pair{"__dot__", "."}, {"__dash__", "-"}, {"__slash__", "/"}, {"__underscores__", "__"}})
      name = replace_all(std::move(name), code, text);
    static constexpr std::string_view kReserved[] = {
        "true",     "false",   "null",      "in",       "as",  "break",  "const",
        "continue", "else",    "for",       "function", "if",  "import", "let",
        "loop",     "package", "namespace", "return",   "var", "void",   "while"};
    for (std::string_view word : kReserved)
      if (name == "__" + std::string(word) + "__") return std::string(word);
    return name;
  }

  Result<CelNodePtr> primary() {
    const Token& token = peek();
    if (token.kind == Token::Kind::kText || token.kind == Token::Kind::kNumber) {
      CelNodePtr node = make(CelNode::Kind::kLiteral, "", token.at);
      node->value = token.value;
      ++at_;
      return node;
    }
    if (token.kind == Token::Kind::kName) return name();
    if (take("(")) {
      CelNodePtr node = TRY(expression());
      if (!take(")")) return fault("expected ')'");
      return node;
    }
    const std::size_t sign = token.at;
    if (take("[")) {
      CelNodePtr node = make(CelNode::Kind::kList, "", sign);
      if (take("]")) return node;
      do {
        node->parts.push_back(TRY(expression()));
      } while (take(","));
      if (!take("]")) return fault("expected ']'");
      return node;
    }
    if (take("{")) {
      CelNodePtr node = make(CelNode::Kind::kMap, "", sign);
      if (take("}")) return node;
      do {
        node->parts.push_back(TRY(expression()));
        if (!take(":")) return fault("expected ':'");
        node->parts.push_back(TRY(expression()));
      } while (take(","));
      if (!take("}")) return fault("expected '}'");
      return node;
    }
    return fault("unexpected '" + shown(token) + "'");
  }

  Result<CelNodePtr> name() {
    std::string text = peek().text;
    const std::size_t at = peek().at;
    ++at_;
    const std::size_t sign = peek().at;
    if (take("(")) {
      CelNodePtr node = make(CelNode::Kind::kCall, text, sign);
      for (CelNodePtr& argument : TRY(arguments())) node->parts.push_back(std::move(argument));
      if (text == "has" && (node->parts.size() != 1 || node->parts[0]->kind != CelNode::Kind::kSelect))
        return fail(Code::kInvalid, cel_fault(text_, sign, "invalid argument to has() macro"));
      return node;
    }
    CelNodePtr node = make(CelNode::Kind::kLiteral, "", at);
    if (text == "true" || text == "false") {
      node->value = text == "true";
    } else if (text != "null") {
      node = make(CelNode::Kind::kName, text, at);
    }
    return node;
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string cel_fault(std::string_view text, std::size_t at, const std::string& message) {
  std::size_t line = 1;
  std::size_t start = 0;
  for (std::size_t i = 0; i < at && i < text.size(); ++i) {
    if (text[i] != '\n') continue;
    ++line;
    start = i + 1;
  }
  const std::string_view shown = text.substr(start, text.find('\n', start) - start);
  std::size_t column = 0;  // in characters
  for (std::size_t i = start; i < at && i < text.size(); ++i)
    column += (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 ? 1 : 0;
  return "ERROR: <input>:" + std::to_string(line) + ":" + std::to_string(column + 1) + ": " + message +
         "\n | " + std::string(shown) + "\n | " + std::string(column, '.') + "^";
}

bool is_cel_macro(std::string_view method) {
  return method == "all" || method == "exists" || method == "exists_one" || method == "map" ||
         method == "filter";
}

Result<CelNodePtr> parse_cel(std::string_view text) {
  std::vector<Token> tokens = TRY(tokens_of(text));
  return Parser(text, std::move(tokens)).whole();
}

}  // namespace gpuop::cluster::api

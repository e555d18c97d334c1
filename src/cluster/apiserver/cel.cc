#include "cluster/apiserver/cel.h"

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/text.h"
#include "cluster/apiserver/schema.h"

namespace gpuop::cluster::api {

namespace {

constexpr int kMaxDepth = 60;
constexpr int kMaxSteps = 200000;  // of one evaluation; beyond it the rule costs too much

struct Token {
  enum class Kind { kEnd, kName, kText, kNumber, kSign };
  Kind kind = Kind::kEnd;
  std::string text;
  Json value;
  std::size_t column = 0;
};

Result<std::vector<Token>> tokens_of(std::string_view text) {
  std::vector<Token> all;
  std::size_t i = 0;
  auto fault = [&](std::string why) {
    return fail(Code::kInvalid, "col " + std::to_string(i + 1) + ": " + why);
  };
  while (i < text.size()) {
    char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
      continue;
    }
    Token token;
    token.column = i + 1;
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
  end.column = text.size() + 1;
  all.push_back(end);
  return all;
}

struct Node {
  enum class Kind { kLiteral, kName, kSelect, kIndex, kCall, kMethod, kUnary, kBinary, kChoice, kList, kMap };
  Kind kind = Kind::kLiteral;
  std::string text;  // name, field, function or operator
  Json value;
  std::vector<std::unique_ptr<Node>> parts;  // for methods the first is the target
};
using NodePtr = std::unique_ptr<Node>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<NodePtr> whole() {
    NodePtr node = TRY(expression());
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
    return fail(Code::kInvalid, "col " + std::to_string(peek().column) + ": " + why);
  }
  static NodePtr make(Node::Kind kind, std::string text) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->text = std::move(text);
    return node;
  }

  Result<NodePtr> expression() {
    if (++depth_ > kMaxDepth) return fault("nested too deeply");
    NodePtr test = TRY(binary(0));
    if (take("?")) {
      NodePtr choice = make(Node::Kind::kChoice, "?:");
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

  Result<NodePtr> binary(int level) {
    if (level > 4) return unary();
    NodePtr left = TRY(binary(level + 1));
    while (level_of(peek()) == level) {
      NodePtr node = make(Node::Kind::kBinary, peek().text);
      ++at_;
      node->parts.push_back(std::move(left));
      node->parts.push_back(TRY(binary(level + 1)));
      left = std::move(node);
    }
    return left;
  }

  Result<NodePtr> unary() {
    if (is("!") || is("-")) {
      if (++depth_ > kMaxDepth) return fault("nested too deeply");
      NodePtr node = make(Node::Kind::kUnary, peek().text);
      ++at_;
      node->parts.push_back(TRY(unary()));
      --depth_;
      return node;
    }
    return postfix();
  }

  Result<std::vector<NodePtr>> arguments() {
    std::vector<NodePtr> all;
    if (take(")")) return all;
    do {
      all.push_back(TRY(expression()));
    } while (take(","));
    if (!take(")")) return fault("expected ')'");
    return all;
  }

  Result<NodePtr> postfix() {
    NodePtr node = TRY(primary());
    while (true) {
      if (take(".")) {
        if (peek().kind != Token::Kind::kName) return fault("expected a field name");
        std::string name = peek().text;
        ++at_;
        NodePtr next = make(is("(") ? Node::Kind::kMethod : Node::Kind::kSelect, unescaped(name));
        next->parts.push_back(std::move(node));
        if (take("("))
          for (NodePtr& argument : TRY(arguments())) next->parts.push_back(std::move(argument));
        if (next->kind == Node::Kind::kMethod && !known_method(next->text))
          return fault("undeclared reference to '" + next->text + "'");
        node = std::move(next);
      } else if (take("[")) {
        NodePtr next = make(Node::Kind::kIndex, "[]");
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
    return name;
  }

  static bool known_method(std::string_view name) {
    for (std::string_view known :
         {"startsWith", "endsWith", "contains", "matches", "size", "all", "exists", "exists_one", "map",
          "filter", "lowerAscii", "upperAscii", "trim", "split", "join"})
      if (name == known) return true;
    return false;
  }

  Result<NodePtr> primary() {
    const Token& token = peek();
    if (token.kind == Token::Kind::kText || token.kind == Token::Kind::kNumber) {
      NodePtr node = make(Node::Kind::kLiteral, "");
      node->value = token.value;
      ++at_;
      return node;
    }
    if (token.kind == Token::Kind::kName) return name();
    if (take("(")) {
      NodePtr node = TRY(expression());
      if (!take(")")) return fault("expected ')'");
      return node;
    }
    if (take("[")) {
      NodePtr node = make(Node::Kind::kList, "");
      if (take("]")) return node;
      do {
        node->parts.push_back(TRY(expression()));
      } while (take(","));
      if (!take("]")) return fault("expected ']'");
      return node;
    }
    if (take("{")) {
      NodePtr node = make(Node::Kind::kMap, "");
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

  Result<NodePtr> name() {
    std::string text = peek().text;
    ++at_;
    if (take("(")) {
      if (text != "has" && text != "size" && text != "int" && text != "string" && text != "double" &&
          text != "bool" && text != "type")
        return fault("undeclared reference to '" + text + "'");
      NodePtr node = make(Node::Kind::kCall, text);
      for (NodePtr& argument : TRY(arguments())) node->parts.push_back(std::move(argument));
      if (node->parts.size() != 1) return fault("'" + text + "' takes one argument");
      if (text == "has" && node->parts[0]->kind != Node::Kind::kSelect)
        return fault("invalid argument to has() macro");
      return node;
    }
    NodePtr node = make(Node::Kind::kLiteral, "");
    if (text == "true" || text == "false") {
      node->value = text == "true";
    } else if (text != "null") {
      node = make(Node::Kind::kName, text);
    }
    return node;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Every free name must be self, oldSelf, a macro's variable or a type.
Result<> check_names(const Node& node, std::vector<std::string>& bound, bool& old_self) {
  if (node.kind == Node::Kind::kName) {
    if (node.text == "oldSelf") old_self = true;
    bool known = node.text == "self" || node.text == "oldSelf" ||
                 std::find(bound.begin(), bound.end(), node.text) != bound.end();
    if (!known) return fail(Code::kInvalid, "undeclared reference to '" + node.text + "' (in container '')");
    return {};
  }
  bool macro = node.kind == Node::Kind::kMethod &&
               (node.text == "all" || node.text == "exists" || node.text == "exists_one" ||
                node.text == "map" || node.text == "filter");
  if (!macro) {
    for (const NodePtr& part : node.parts) TRY(check_names(*part, bound, old_self));
    return {};
  }
  if (node.parts.size() < 3 || node.parts.size() > 4 || node.parts[1]->kind != Node::Kind::kName)
    return fail(Code::kInvalid, "'" + node.text + "' takes a variable and an expression");
  TRY(check_names(*node.parts[0], bound, old_self));
  bound.push_back(node.parts[1]->text);
  for (std::size_t i = 2; i < node.parts.size(); ++i) TRY(check_names(*node.parts[i], bound, old_self));
  bound.pop_back();
  return {};
}

class Machine {
 public:
  Machine(const Json& self, const Json* old_self) {
    names_.emplace_back("self", self);
    if (old_self != nullptr) names_.emplace_back("oldSelf", *old_self);
  }

  Result<Json> run(const Node& node) {
    if (++steps_ > kMaxSteps) return fail(Code::kInvalid, "operation cancelled: actual cost limit exceeded");
    switch (node.kind) {
      case Node::Kind::kLiteral:
        return node.value;
      case Node::Kind::kName:
        return name(node);
      case Node::Kind::kSelect:
        return select(TRY(run(*node.parts[0])), node.text);
      case Node::Kind::kIndex:
        return index(TRY(run(*node.parts[0])), TRY(run(*node.parts[1])));
      case Node::Kind::kCall:
        return call(node);
      case Node::Kind::kMethod:
        return method(node);
      case Node::Kind::kUnary:
        return unary(node);
      case Node::Kind::kBinary:
        return binary(node);
      case Node::Kind::kChoice:
        return run(*node.parts[TRY(truth(*node.parts[0])) ? 1 : 2]);
      case Node::Kind::kList: {
        JsonArray list;
        for (const NodePtr& part : node.parts) list.push_back(TRY(run(*part)));
        return Json(std::move(list));
      }
      case Node::Kind::kMap: {
        JsonObject map;
        for (std::size_t i = 0; i + 1 < node.parts.size(); i += 2) {
          Json key = TRY(run(*node.parts[i]));
          map[key.is_string() ? str(as_text(key)) : to_text(key)] = TRY(run(*node.parts[i + 1]));
        }
        return Json(std::move(map));
      }
    }
    return fail(Code::kInvalid, "unknown expression");
  }

 private:
  static std::unexpected<Error> no_overload() { return fail(Code::kInvalid, "no such overload"); }

  Result<bool> truth(const Node& node) {
    Json value = TRY(run(node));
    if (!value.is_bool()) return no_overload();
    return value.get_bool();
  }

  Result<Json> name(const Node& node) {
    for (auto it = names_.rbegin(); it != names_.rend(); ++it)
      if (it->first == node.text) return it->second;
    if (node.text == "oldSelf") return Json(nullptr);
    return fail(Code::kInvalid, "no such attribute: " + node.text);
  }

  static Result<Json> select(const Json& target, const std::string& key) {
    const JsonObject* map = target.if_object();
    if (map == nullptr) return no_overload();
    const Json* value = map->if_contains(key);
    if (value == nullptr) return fail(Code::kInvalid, "no such key: " + key);
    return *value;
  }

  static Result<Json> index(const Json& target, const Json& key) {
    if (const JsonArray* list = target.if_array()) {
      if (!key.is_int64()) return no_overload();
      std::int64_t i = key.get_int64();
      if (i < 0 || i >= static_cast<std::int64_t>(list->size()))
        return fail(Code::kInvalid, "index out of bounds: " + std::to_string(i));
      return (*list)[static_cast<std::size_t>(i)];
    }
    if (!key.is_string()) return no_overload();
    return select(target, str(as_text(key)));
  }

  Result<Json> call(const Node& node) {
    const Node& argument = *node.parts[0];
    if (node.text == "has") {
      Json target = TRY(run(*argument.parts[0]));
      const JsonObject* map = target.if_object();
      return Json(map != nullptr && map->contains(argument.text));
    }
    Json value = TRY(run(argument));
    if (node.text == "size") return size(value);
    if (node.text == "string") return value.is_string() ? value : Json(to_text(value));
    if (node.text == "bool") return value.is_bool() ? value : Json(as_text(value) == "true");
    if (node.text == "int") return to_int(value);
    if (node.text == "double") return to_double(value);
    return Json(value.is_string()  ? "string"
                : value.is_bool()  ? "bool"
                : value.is_int64() ? "int"
                : value.is_array() ? "list"
                                   : "map");
  }

  static Result<Json> to_int(const Json& value) {
    if (value.is_int64()) return value;
    if (value.is_double() && std::fabs(value.get_double()) < 9e18)
      return Json(static_cast<std::int64_t>(value.get_double()));
    std::optional<std::int64_t> number = parse_int(as_text(value));
    if (!number) return fail(Code::kInvalid, "type conversion error");
    return Json(*number);
  }

  static Result<Json> to_double(const Json& value) {
    if (value.is_number())
      return Json(value.is_int64() ? static_cast<double>(value.get_int64()) : value.get_double());
    return fail(Code::kInvalid, "type conversion error");
  }

  static Result<Json> size(const Json& value) {
    if (value.is_array()) return Json(static_cast<std::int64_t>(value.get_array().size()));
    if (value.is_object()) return Json(static_cast<std::int64_t>(value.get_object().size()));
    if (!value.is_string()) return no_overload();
    std::int64_t count = 0;
    for (char c : as_text(value)) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
    return Json(count);
  }

  Result<Json> method(const Node& node) {
    Json target = TRY(run(*node.parts[0]));
    if (node.text == "size") return size(target);
    if (node.text == "all" || node.text == "exists" || node.text == "exists_one" || node.text == "map" ||
        node.text == "filter")
      return macro(node, target);
    if (node.text == "join") return joined(node, target);
    if (!target.is_string()) return no_overload();
    std::string_view text = as_text(target);
    if (node.text == "lowerAscii") return Json(to_lower(text));
    if (node.text == "trim") return Json(trim(text));
    if (node.text == "upperAscii") {
      std::string upper(text);
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      return Json(upper);
    }
    if (node.parts.size() < 2) return no_overload();
    Json argument = TRY(run(*node.parts[1]));
    if (!argument.is_string()) return no_overload();
    std::string_view other = as_text(argument);
    if (node.text == "startsWith") return Json(text.starts_with(other));
    if (node.text == "endsWith") return Json(text.ends_with(other));
    if (node.text == "contains") return Json(text.find(other) != std::string_view::npos);
    if (node.text == "split") {
      JsonArray parts;
      if (other.size() == 1)
        for (const std::string& part : split(text, other[0])) parts.push_back(Json(part));
      return Json(std::move(parts));
    }
    Result<std::shared_ptr<const Pattern>> pattern = Pattern::compile(std::string(other));
    if (!pattern) return fail(Code::kInvalid, "error parsing regexp: " + pattern.error().text());
    return Json((*pattern)->found_in(text));
  }

  Result<Json> joined(const Node& node, const Json& target) {
    if (!target.is_array()) return no_overload();
    std::string separator = node.parts.size() > 1 ? str(as_text(TRY(run(*node.parts[1])))) : "";
    std::string out;
    for (const Json& part : target.get_array()) out += (out.empty() ? "" : separator) + str(as_text(part));
    return Json(out);
  }

  Result<Json> macro(const Node& node, const Json& target) {
    JsonArray items;
    if (const JsonArray* list = target.if_array()) {
      items = *list;
    } else if (const JsonObject* map = target.if_object()) {
      for (const auto& entry : *map) items.push_back(Json(entry.key()));
    } else {
      return no_overload();
    }
    JsonArray out;
    int hits = 0;
    std::optional<Error> doubt;  // an error counts only where no item decides
    for (const Json& item : items) {
      names_.emplace_back(node.parts[1]->text, item);
      Result<Json> answer = run(*node.parts[2]);
      bool keep = answer && answer->is_bool() && answer->get_bool();
      if (node.text == "map" && answer) {
        if (node.parts.size() == 4) {
          if (keep) answer = run(*node.parts[3]);
          if (answer && keep) out.push_back(*answer);
        } else {
          out.push_back(*answer);
        }
      }
      names_.pop_back();
      if (!answer) {
        if (node.text != "all" && node.text != "exists") return answer;
        doubt = answer.error();
        continue;
      }
      if (node.text == "map") continue;
      if (!answer->is_bool()) return no_overload();
      if (keep) ++hits;
      if (node.text == "filter" && keep) out.push_back(item);
      if (node.text == "all" && !keep) return Json(false);
      if (node.text == "exists" && keep) return Json(true);
    }
    if (doubt) return fail(*doubt);
    if (node.text == "all") return Json(true);
    if (node.text == "exists") return Json(false);
    if (node.text == "exists_one") return Json(hits == 1);
    return Json(std::move(out));
  }

  Result<Json> unary(const Node& node) {
    Json value = TRY(run(*node.parts[0]));
    if (node.text == "!") return value.is_bool() ? Result<Json>(Json(!value.get_bool())) : no_overload();
    if (value.is_int64())
      return value.get_int64() == INT64_MIN ? no_overload() : Result<Json>(Json(-value.get_int64()));
    if (value.is_double()) return Json(-value.get_double());
    return no_overload();
  }

  Result<Json> logical(const Node& node) {
    // Either side may decide alone; an error counts only when the other does not.
    bool decides = node.text == "||";
    Result<bool> left = truth(*node.parts[0]);
    if (left && *left == decides) return Json(decides);
    Result<bool> right = truth(*node.parts[1]);
    if (right && *right == decides) return Json(decides);
    if (!left) return fail(left.error());
    if (!right) return fail(right.error());
    return Json(!decides);
  }

  Result<Json> binary(const Node& node) {
    if (node.text == "&&" || node.text == "||") return logical(node);
    Json left = TRY(run(*node.parts[0]));
    Json right = TRY(run(*node.parts[1]));
    if (node.text == "==") return Json(equal(left, right));
    if (node.text == "!=") return Json(!equal(left, right));
    if (node.text == "in") return contains(left, right);
    if (left.is_number() && right.is_number()) return arithmetic(node.text, left, right);
    if (left.is_string() && right.is_string()) return on_texts(node.text, as_text(left), as_text(right));
    if (left.is_array() && right.is_array() && node.text == "+") {
      for (const Json& item : right.get_array()) left.get_array().push_back(item);
      return left;
    }
    return no_overload();
  }

  static bool equal(const Json& left, const Json& right) {
    if (left.is_number() && right.is_number()) {
      if (left.is_int64() && right.is_int64()) return left.get_int64() == right.get_int64();
      return number(left) == number(right);
    }
    return left == right;
  }

  static double number(const Json& value) {
    return value.is_int64()    ? static_cast<double>(value.get_int64())
           : value.is_uint64() ? static_cast<double>(value.get_uint64())
                               : value.get_double();
  }

  static Result<Json> contains(const Json& item, const Json& in) {
    if (const JsonArray* list = in.if_array())
      return Json(
          std::any_of(list->begin(), list->end(), [&](const Json& other) { return equal(item, other); }));
    if (const JsonObject* map = in.if_object()) return Json(item.is_string() && map->contains(as_text(item)));
    return no_overload();
  }

  static Result<Json> on_texts(const std::string& sign, std::string_view left, std::string_view right) {
    if (sign == "+") return Json(std::string(left) + std::string(right));
    if (sign == "<") return Json(left < right);
    if (sign == "<=") return Json(left <= right);
    if (sign == ">") return Json(left > right);
    if (sign == ">=") return Json(left >= right);
    return no_overload();
  }

  static Result<Json> arithmetic(const std::string& sign, const Json& left, const Json& right) {
    if (sign == "<") return Json(number(left) < number(right));
    if (sign == "<=") return Json(number(left) <= number(right));
    if (sign == ">") return Json(number(left) > number(right));
    if (sign == ">=") return Json(number(left) >= number(right));
    if (!left.is_int64() || !right.is_int64()) {
      double a = number(left);
      double b = number(right);
      if (sign == "+") return Json(a + b);
      if (sign == "-") return Json(a - b);
      if (sign == "*") return Json(a * b);
      if (sign == "/") return Json(a / b);
      return no_overload();
    }
    std::int64_t a = left.get_int64();
    std::int64_t b = right.get_int64();
    std::int64_t out = 0;
    bool over = false;
    if (sign == "+") {
      over = __builtin_add_overflow(a, b, &out);
    } else if (sign == "-") {
      over = __builtin_sub_overflow(a, b, &out);
    } else if (sign == "*") {
      over = __builtin_mul_overflow(a, b, &out);
    } else {
      if (b == 0) return fail(Code::kInvalid, sign == "/" ? "division by zero" : "modulus by zero");
      over = a == INT64_MIN && b == -1;
      if (!over) out = sign == "/" ? a / b : a % b;
    }
    if (over) return fail(Code::kInvalid, "integer overflow");
    return Json(out);
  }

  std::vector<std::pair<std::string, Json>> names_;
  int steps_ = 0;
};

class Program : public CelProgram {
 public:
  Program(NodePtr root, bool old_self) : root_(std::move(root)), old_self_(old_self) {}
  bool mentions_old_self() const override { return old_self_; }
  Result<Json> evaluate(const Json& self, const Json* old_self) const override {
    return Machine(self, old_self).run(*root_);
  }

 private:
  NodePtr root_;
  bool old_self_;
};

}  // namespace

Result<std::shared_ptr<const CelProgram>> CelProgram::compile(std::string_view text) {
  if (trim(text).empty()) return fail(Code::kInvalid, "rule is empty");
  NodePtr root = TRY(Parser(TRY(tokens_of(text))).whole());
  bool old_self = false;
  std::vector<std::string> bound;
  TRY(check_names(*root, bound, old_self));
  return std::shared_ptr<const CelProgram>(std::make_shared<Program>(std::move(root), old_self));
}

}  // namespace gpuop::cluster::api

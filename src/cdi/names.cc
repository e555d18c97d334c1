#include "cdi/spec.h"

namespace gpuop::cdi {

namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::unexpected<Error> bad(std::string_view what, std::string_view text, std::string_view why) {
  return fail(Code::kInvalid,
              "invalid " + std::string(what) + " '" + std::string(text) + "': " + std::string(why));
}

// The one grammar of vendors, classes and device names: which characters may start, and which may be inside.
Result<> check_name(std::string_view what, std::string_view text, bool digit_first, std::string_view inside) {
  if (text.empty()) return bad(what, text, "it is empty");
  if (!is_letter(text[0]) && !(digit_first && is_digit(text[0]))) {
    return bad(what, text, digit_first ? "should start with letter or digit" : "should start with letter");
  }
  for (char c : text.substr(1)) {
    if (!is_letter(c) && !is_digit(c) && inside.find(c) == std::string_view::npos) {
      return bad(what, text, "bad character '" + std::string(1, c) + "'");
    }
  }
  if (!is_letter(text.back()) && !is_digit(text.back()))
    return bad(what, text, "should end with letter or digit");
  return {};
}

}  // namespace

Result<> check_vendor(std::string_view text) {
  return check_name("vendor", text, false, "_-.");
}
Result<> check_class(std::string_view text) {
  return check_name("class", text, false, "_-.");
}
Result<> check_device_name(std::string_view text) {
  return check_name("device name", text, true, "_-.:");
}

Result<QualifiedName> parse_qualified_name(std::string_view text) {
  auto doing = "parse CDI device '" + std::string(text) + "'";
  if (text.empty() || text[0] == '/')
    return fail(Code::kInvalid, doing + ": not a qualified name: missing vendor");
  auto equals = text.find('=');
  if (equals == std::string_view::npos)
    return fail(Code::kInvalid, doing + ": not a qualified name: missing device name");
  auto slash = text.substr(0, equals).find('/');
  if (slash == std::string_view::npos) return fail(Code::kInvalid, doing + ": missing vendor or class");
  QualifiedName name{std::string(text.substr(0, slash)),
                     std::string(text.substr(slash + 1, equals - slash - 1)),
                     std::string(text.substr(equals + 1))};
  if (name.device_class.empty()) return fail(Code::kInvalid, doing + ": missing class");
  if (name.name.empty()) return fail(Code::kInvalid, doing + ": missing device name");
  TRY_IN(check_vendor(name.vendor), doing);
  TRY_IN(check_class(name.device_class), doing);
  TRY_IN(check_device_name(name.name), doing);
  return name;
}

bool is_qualified_name(std::string_view text) {
  return parse_qualified_name(text).has_value();
}

std::string Spec::vendor() const {
  return kind.substr(0, kind.find('/'));
}

std::string Spec::device_class() const {
  auto slash = kind.find('/');
  return slash == std::string::npos ? std::string() : kind.substr(slash + 1);
}

std::string file_stem(const Spec& spec) {
  return spec.vendor() + "-" + spec.device_class();
}

}  // namespace gpuop::cdi

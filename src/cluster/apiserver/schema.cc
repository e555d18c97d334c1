#include "cluster/apiserver/schema.h"

#include <algorithm>
#include <boost/regex.hpp>
#include <cmath>

#include "base/text.h"
#include "base/time.h"
#include "cluster/apiserver/cel.h"

namespace gpuop::cluster::api {

namespace {

class BoostPattern : public Pattern {
 public:
  explicit BoostPattern(const boost::regex& program) : program_(program) {}
  bool found_in(std::string_view text) const override {
    try {
      return boost::regex_search(text.begin(), text.end(), program_);
    } catch (const std::exception&) {  // too complex for this text
      return false;
    }
  }

 private:
  boost::regex program_;
};

std::string child(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}
std::string item(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

std::size_t code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::optional<std::int64_t> count_of(const Json& source, std::string_view key) {
  const Json* value = find(source, {key});
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  return value->get_int64();
}

std::optional<double> number_of(const Json& source, std::string_view key) {
  const Json* value = find(source, {key});
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->is_int64() ? static_cast<double>(value->get_int64()) : get_double(source, {key});
}

double as_number(const Json& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return value.get_double();
}

bool is_integer(const Json& value) {
  if (value.is_int64() || value.is_uint64()) return true;
  return value.is_double() && std::floor(value.get_double()) == value.get_double();
}

std::string_view type_word(Schema::Type type) {
  switch (type) {
    case Schema::Type::kObject:
      return "object";
    case Schema::Type::kArray:
      return "array";
    case Schema::Type::kString:
      return "string";
    case Schema::Type::kInteger:
      return "integer";
    case Schema::Type::kNumber:
      return "number";
    case Schema::Type::kBoolean:
      return "boolean";
    case Schema::Type::kAny:
      return "any";
  }
  return "any";
}

bool good_ipv4(std::string_view text) {
  std::vector<std::string> parts = split(text, '.');
  return parts.size() == 4 && std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
           auto n = parse_int(part);
           return n && *n >= 0 && *n <= 255;
         });
}

// Formats that are checked; all others are notes to readers.
bool good_format(std::string_view format, const Json& value) {
  if (value.is_int64() && format == "int32")
    return value.get_int64() >= INT32_MIN && value.get_int64() <= INT32_MAX;
  if (!value.is_string()) return true;
  std::string_view text = as_text(value);
  if (format == "date-time") return parse_time(text).has_value();
  if (format == "date") return parse_time(std::string(text) + "T00:00:00Z").has_value();
  if (format == "byte") return base64_decode(text).has_value();
  if (format == "ipv4") return good_ipv4(text);
  if (format == "duration") return parse_go_duration(text).has_value();
  if (format == "uuid") {
    if (text.size() != 36) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      bool dash = i == 8 || i == 13 || i == 18 || i == 23;
      if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return false;
    }
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<const Pattern>> Pattern::compile(const std::string& text) {
  try {
    return std::shared_ptr<const Pattern>(
        std::make_shared<BoostPattern>(boost::regex(text, boost::regex::perl)));
  } catch (const std::exception& e) {
    return fail(Code::kInvalid, e.what());
  }
}

// --- reading -----------------------------------------------------------------------------------------------

std::shared_ptr<const Schema> Schema::compile(const Json& source, const std::string& path,
                                              FieldErrors& errors) {
  auto schema = std::make_shared<Schema>();
  if (!source.is_object()) {
    errors.push_back(required(path));
    return schema;
  }
  schema->read(source, path, errors);
  return schema;
}

void Schema::read(const Json& source, const std::string& path, FieldErrors& errors) {
  static const std::map<std::string_view, Type> types = {
      {"object", Type::kObject},   {"array", Type::kArray},   {"string", Type::kString},
      {"integer", Type::kInteger}, {"number", Type::kNumber}, {"boolean", Type::kBoolean}};
  std::string_view word = get_string(source, {"type"});
  auto known = types.find(word);
  if (known != types.end()) {
    type = known->second;
  } else if (!word.empty()) {
    errors.push_back(unsupported(child(path, "type"), Json(word),
                                 {"array", "boolean", "integer", "number", "object", "string"}));
  }
  nullable = get_bool(source, {"nullable"});
  int_or_string =
      get_bool(source, {"x-kubernetes-int-or-string"}) || get_string(source, {"format"}) == "int-or-string";
  preserve_unknown = get_bool(source, {"x-kubernetes-preserve-unknown-fields"});
  embedded = get_bool(source, {"x-kubernetes-embedded-resource"});
  std::string_view list = get_string(source, {"x-kubernetes-list-type"});
  list_type = list == "set" ? ListType::kSet : list == "map" ? ListType::kMap : ListType::kAtomic;
  map_atomic = get_string(source, {"x-kubernetes-map-type"}) == "atomic";
  for (const Json& key : get_array(source, {"x-kubernetes-list-map-keys"}))
    map_keys.push_back(str(as_text(key)));

  auto note = [&](const std::shared_ptr<const Schema>& below) {
    has_rules_ = has_rules_ || below->has_rules_;
    has_defaults_ = has_defaults_ || below->has_defaults_;
  };
  auto typed = [&](const Json& part, const std::string& where, std::string_view what) {
    bool free = get_bool(part, {"x-kubernetes-int-or-string"}) ||
                get_bool(part, {"x-kubernetes-preserve-unknown-fields"}) ||
                get_string(part, {"format"}) == "int-or-string";
    if (get_string(part, {"type"}).empty() && !free)
      errors.push_back(required(where + ".type", "must not be empty for specified " + str(what)));
  };
  for (const auto& [key, value] : get_object(source, {"properties"})) {
    if (!(path.empty() && key == "metadata"))
      typed(value, child(path, "properties[" + std::string(key) + "]"), "object fields");
    auto below = compile(value, child(path, "properties[" + std::string(key) + "]"), errors);
    note(below);
    properties.emplace(key, below);
  }
  if (const Json* below = find(source, {"items"})) {
    items = compile(*below, child(path, "items"), errors);
    note(items);
  }
  if (const Json* below = find(source, {"additionalProperties"})) {
    if (below->is_bool()) {
      additional_any = below->get_bool();
    } else {
      additional = compile(*below, child(path, "additionalProperties"), errors);
      note(additional);
    }
  }
  if (!properties.empty() && additional != nullptr)
    errors.push_back(forbidden_field(child(path, "additionalProperties"),
                                     "additionalProperties and properties are mutual exclusive"));
  if (const Json* value = find(source, {"default"})) {
    default_value = *value;
    has_defaults_ = true;
    check_default(*value, path, errors);
  }
  auto read_list = [&](std::string_view key, std::vector<std::shared_ptr<const Schema>>& into) {
    for (const Json& below : get_array(source, {key})) {
      FieldErrors ignored;  // inside of combinations types may be left out
      into.push_back(compile(below, path, ignored));
    }
  };
  read_list("allOf", all_of_);
  read_list("anyOf", any_of_);
  read_list("oneOf", one_of_);
  if (const Json* below = find(source, {"not"})) {
    FieldErrors ignored;
    not_ = compile(*below, path, ignored);
  }
  for (const Json& name : get_array(source, {"required"})) required_.push_back(str(as_text(name)));
  for (const Json& value : get_array(source, {"enum"})) enum_.push_back(value);
  if (type == Type::kArray && items == nullptr)
    errors.push_back(required(child(path, "items"), "must be specified"));
  if (get_bool(source, {"uniqueItems"}))
    errors.push_back(
        forbidden_field(child(path, "uniqueItems"),
                        "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"));
  read_limits(source, path, errors);
  read_rules(source, path, errors);
}

// A default must be a value that the schema takes.
void Schema::check_default(const Json& value, const std::string& path, FieldErrors& errors) const {
  FieldErrors faults;
  if (!value.is_null() || !nullable) check_type(value, "", faults);
  for (FieldError& fault : faults) {
    fault.field = child(path, "default");
    errors.push_back(std::move(fault));
  }
}

void Schema::read_limits(const Json& source, const std::string& path, FieldErrors& errors) {
  limits_.minimum = number_of(source, "minimum");
  limits_.maximum = number_of(source, "maximum");
  limits_.multiple_of = number_of(source, "multipleOf");
  limits_.exclusive_minimum = get_bool(source, {"exclusiveMinimum"});
  limits_.exclusive_maximum = get_bool(source, {"exclusiveMaximum"});
  limits_.min_length = count_of(source, "minLength");
  limits_.max_length = count_of(source, "maxLength");
  limits_.min_items = count_of(source, "minItems");
  limits_.max_items = count_of(source, "maxItems");
  limits_.min_properties = count_of(source, "minProperties");
  limits_.max_properties = count_of(source, "maxProperties");
  format_ = str(get_string(source, {"format"}));
  pattern_ = str(get_string(source, {"pattern"}));
  if (pattern_.empty()) return;
  Result<std::shared_ptr<const Pattern>> program = Pattern::compile(pattern_);
  if (program) {
    pattern_program_ = *program;
  } else {
    errors.push_back(invalid(child(path, "pattern"), Json(pattern_),
                             "must be a valid regular expression, but isn't: " + program.error().text()));
  }
}

void Schema::read_rules(const Json& source, const std::string& path, FieldErrors& errors) {
  std::size_t index = 0;
  for (const Json& entry : get_array(source, {"x-kubernetes-validations"})) {
    ValidationRule rule;
    rule.rule = str(get_string(entry, {"rule"}));
    rule.message = str(get_string(entry, {"message"}));
    rule.message_expression = str(get_string(entry, {"messageExpression"}));
    rule.reason = str(get_string(entry, {"reason"}));
    rule.field_path = str(get_string(entry, {"fieldPath"}));
    rule.optional_old_self = get_bool(entry, {"optionalOldSelf"});
    std::string here = child(path, item("x-kubernetes-validations", index++));
    if (!compile_rule(rule, path, here, errors)) continue;
    rules_.push_back(std::move(rule));
    has_rules_ = true;
  }
}

namespace {

// A rule as the server's own type would print it, with the signs that HTML minds as codes.
FieldError invalid_rule(const ValidationRule& rule, const Json& reason, const std::string& field,
                        const std::string& why) {
  JsonObject shown{{"Rule", rule.rule},
                   {"Message", rule.message},
                   {"MessageExpression", rule.message_expression},
                   {"Reason", reason},
                   {"FieldPath", rule.field_path},
                   {"OptionalOldSelf", rule.optional_old_self ? Json(true) : Json(nullptr)}};
  std::string text = to_text(Json(std::move(shown)));
  for (const auto& [sign, code] : {std::pair{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}})
    text = replace_all(std::move(text), sign, code);
  return {field, "FieldValueInvalid", "Invalid value: " + text + ": " + why};
}

}  // namespace

bool Schema::compile_rule(ValidationRule& rule, const std::string& path, const std::string& at,
                          FieldErrors& errors) const {
  const Json reason = rule.reason.empty() ? Json(nullptr) : Json(rule.reason);
  if (rule.reason.empty()) rule.reason = "FieldValueInvalid";
  if (trim(rule.rule).empty()) {
    errors.push_back(required(at + ".rule", "rule is not specified"));
    return false;
  }
  const bool root = path.empty() || path.ends_with("openAPIV3Schema");
  const CelType self = cel_type_of(*this, root || embedded, "selfType");
  const auto sentence = [](const Error& error) {
    return (error.code() == Code::kInvalid ? "compilation failed: " : "") + error.text();
  };
  auto program = CelProgram::compile(rule.rule, self, CelType::Kind::kBool);
  if (!program) {
    errors.push_back(invalid_rule(rule, reason, at + ".rule", sentence(program.error())));
    return false;
  }
  rule.program = *program;
  rule.transition = rule.program->mentions_old_self();
  if (rule.message_expression.empty()) return true;
  auto message = CelProgram::compile(rule.message_expression, self, CelType::Kind::kText);
  if (message) {
    rule.message_program = *message;
  } else {
    errors.push_back(invalid_rule(rule, reason, at + ".messageExpression",
                                  "messageExpression " + sentence(message.error())));
  }
  return true;
}

// --- pruning and defaults
// ------------------------------------------------------------------------------------

void Schema::prune(Json& value, const std::string& path, bool root, std::vector<std::string>& unknown) const {
  if (JsonArray* list = value.if_array()) {
    if (items == nullptr) return;
    for (std::size_t i = 0; i < list->size(); ++i) items->prune((*list)[i], item(path, i), false, unknown);
    return;
  }
  JsonObject* map = value.if_object();
  if (map == nullptr || additional_any) return;
  for (auto it = map->begin(); it != map->end();) {
    std::string_view key = it->key();
    bool own = (root || embedded) && (key == "apiVersion" || key == "kind" || key == "metadata");
    auto known = properties.find(key);
    if (own) {
      ++it;
    } else if (known != properties.end()) {
      const Schema& below = *known->second;
      if (it->value().is_null() && !below.nullable && !below.default_value && below.type != Type::kAny) {
        it = map->stable_erase(it);
        continue;
      }
      below.prune(it->value(), child(path, key), false, unknown);
      ++it;
    } else if (additional != nullptr) {
      additional->prune(it->value(), child(path, key), false, unknown);
      ++it;
    } else if (preserve_unknown) {
      ++it;
    } else {
      unknown.push_back(child(path, key));
      it = map->stable_erase(it);
    }
  }
}

void Schema::apply_defaults(Json& value) const {
  if (!has_defaults_) return;
  if (JsonArray* list = value.if_array()) {
    if (items != nullptr)
      for (Json& entry : *list) items->apply_defaults(entry);
    return;
  }
  JsonObject* map = value.if_object();
  if (map == nullptr) return;
  for (const auto& [key, below] : properties) {
    Json* here = map->if_contains(key);
    if (below->default_value && (here == nullptr || (here->is_null() && !below->nullable))) {
      (*map)[key] = *below->default_value;
      here = map->if_contains(key);
    }
    if (here != nullptr) below->apply_defaults(*here);
  }
  if (additional != nullptr)
    for (auto& entry : *map) additional->apply_defaults(entry.value());
}

// --- validation
// ----------------------------------------------------------------------------------------------

bool Schema::check_type(const Json& value, const std::string& path, FieldErrors& errors) const {
  if (int_or_string) {
    if (is_integer(value) || value.is_string()) return true;
    errors.push_back(wrong_type(path, "integer,string", value));
    return false;
  }
  bool fits = type == Type::kAny || (type == Type::kObject && value.is_object()) ||
              (type == Type::kArray && value.is_array()) || (type == Type::kString && value.is_string()) ||
              (type == Type::kBoolean && value.is_bool()) || (type == Type::kNumber && value.is_number()) ||
              (type == Type::kInteger && value.is_number() && is_integer(value));
  if (!fits) errors.push_back(wrong_type(path, type_word(type), value));
  return fits;
}

void Schema::validate(const Json& value, const Json* old, const std::string& path, bool root,
                      FieldErrors& errors) const {
  if (errors.size() > 100) return;
  if (old != nullptr && *old == value) return;  // what was there already is tolerated
  if (value.is_null() && nullable) return;
  if (!check_type(value, path, errors)) return;
  if (value.is_object()) {
    check_object(value, old, path, root, errors);
  } else if (value.is_array()) {
    check_array(value, old, path, errors);
  } else {
    check_scalar(value, path, errors);
  }
  if (!enum_.empty() && std::find(enum_.begin(), enum_.end(), value) == enum_.end()) {
    std::vector<std::string> words;
    words.reserve(enum_.size());
    for (const Json& word : enum_) words.push_back(word.is_string() ? str(as_text(word)) : to_text(word));
    errors.push_back(unsupported(path, value, words));
  }
  check_combinations(value, path, errors);
}

void Schema::check_scalar(const Json& value, const std::string& path, FieldErrors& errors) const {
  auto say = [&](const std::string& detail) {
    errors.push_back(invalid(path, value, path + " in body " + detail));
  };
  auto shown = [](double number) { return number_text(number); };
  if (value.is_string()) {
    std::string_view text = as_text(value);
    auto length = static_cast<std::int64_t>(code_points(text));
    // The first fault of a text is the one that is told.
    if (limits_.max_length && length > *limits_.max_length) {
      errors.push_back(too_long(path, static_cast<std::size_t>(*limits_.max_length)));
    } else if (limits_.min_length && length < *limits_.min_length) {
      say("should be at least " + std::to_string(*limits_.min_length) + " chars long");
    } else if (pattern_program_ && !pattern_program_->found_in(text)) {
      say("should match '" + pattern_ + "'");
    }
  } else if (value.is_number()) {
    double number = as_number(value);
    if (limits_.minimum &&
        (number < *limits_.minimum || (limits_.exclusive_minimum && number == *limits_.minimum)))
      say(std::string("should be greater than ") + (limits_.exclusive_minimum ? "" : "or equal to ") +
          shown(*limits_.minimum));
    if (limits_.maximum &&
        (number > *limits_.maximum || (limits_.exclusive_maximum && number == *limits_.maximum)))
      say(std::string("should be less than ") + (limits_.exclusive_maximum ? "" : "or equal to ") +
          shown(*limits_.maximum));
    if (limits_.multiple_of && *limits_.multiple_of > 0 &&
        std::fabs(std::remainder(number, *limits_.multiple_of)) > 1e-9)
      say("should be a multiple of " + shown(*limits_.multiple_of));
  }
  if (!format_.empty() && !good_format(format_, value)) {
    std::string text = "Invalid value: " + to_text(value) + ": " + path + " in body must be of type " +
                       format_ + ": " + to_text(value);
    errors.push_back({path, "FieldValueTypeInvalid", text});
  }
}

void Schema::check_object(const Json& value, const Json* old, const std::string& path, bool root,
                          FieldErrors& errors) const {
  const JsonObject& map = value.get_object();
  const JsonObject* before = old == nullptr ? nullptr : old->if_object();
  auto old_of = [&](std::string_view key) { return before == nullptr ? nullptr : before->if_contains(key); };
  for (const std::string& name : required_)
    if (!map.contains(name)) errors.push_back(required(child(path, name)));
  auto count = static_cast<std::int64_t>(map.size());
  if (limits_.min_properties && count < *limits_.min_properties)
    errors.push_back(invalid(
        path, count,
        path + " in body should have at least " + std::to_string(*limits_.min_properties) + " properties"));
  if (limits_.max_properties && count > *limits_.max_properties)
    errors.push_back({path, "FieldValueTooMany",
                      "Too many: " + std::to_string(count) + ": must have at most " +
                          std::to_string(*limits_.max_properties) +
                          (*limits_.max_properties == 1 ? " item" : " items")});
  for (const auto& [key, below] : map) {
    if ((root || embedded) && (key == "apiVersion" || key == "kind" || key == "metadata")) continue;
    std::string_view name(key.data(), key.size());
    auto known = properties.find(name);
    if (known != properties.end()) {
      known->second->validate(below, old_of(name), child(path, name), false, errors);
    } else if (additional != nullptr) {
      additional->validate(below, old_of(name), child(path, name), false, errors);
    }
  }
}

void Schema::check_array(const Json& value, const Json* old, const std::string& path,
                         FieldErrors& errors) const {
  const JsonArray& list = value.get_array();
  const JsonArray* before = old == nullptr ? nullptr : old->if_array();
  auto count = static_cast<std::int64_t>(list.size());
  if (limits_.min_items && count < *limits_.min_items)
    errors.push_back(
        invalid(path, count,
                path + " in body should have at least " + std::to_string(*limits_.min_items) + " items"));
  if (limits_.max_items && count > *limits_.max_items)
    errors.push_back({path, "FieldValueTooMany",
                      "Too many: " + std::to_string(count) + ": must have at most " +
                          std::to_string(*limits_.max_items) +
                          (*limits_.max_items == 1 ? " item" : " items")});
  std::map<std::string, bool> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list_type != ListType::kAtomic) {
      Json identity = list[i];
      if (list_type == ListType::kMap) {
        JsonObject keys;
        for (const std::string& key : map_keys)
          if (const Json* part = find(list[i], {key})) keys[key] = *part;
        identity = std::move(keys);
      }
      if (!seen.emplace(to_text(identity), true).second) errors.push_back(duplicate(item(path, i), identity));
    }
    const Json* before_item = before != nullptr && i < before->size() ? &(*before)[i] : nullptr;
    if (items != nullptr) items->validate(list[i], before_item, item(path, i), false, errors);
  }
}

void Schema::check_combinations(const Json& value, const std::string& path, FieldErrors& errors) const {
  auto passes = [&](const Schema& schema) {
    FieldErrors inner;
    schema.validate(value, nullptr, path, false, inner);
    return inner.empty();
  };
  for (const auto& schema : all_of_) schema->validate(value, nullptr, path, false, errors);
  std::string where = "\"" + path + "\" ";
  if (!any_of_.empty() && !int_or_string &&
      std::none_of(any_of_.begin(), any_of_.end(), [&](const auto& s) { return passes(*s); }))
    errors.push_back(invalid("<nil>", Json(""), where + "must validate at least one schema (anyOf)"));
  if (!one_of_.empty()) {
    auto fits = std::count_if(one_of_.begin(), one_of_.end(), [&](const auto& s) { return passes(*s); });
    if (fits != 1)
      errors.push_back(invalid(
          "<nil>", Json(""),
          where + "must validate one and only one schema (oneOf). " +
              (fits == 0 ? "Found none valid" : "Found " + std::to_string(fits) + " valid alternatives")));
  }
  if (not_ != nullptr && passes(*not_))
    errors.push_back(invalid("<nil>", Json(""), where + "must not validate the schema (not)"));
}

// --- rules
// -----------------------------------------------------------------------------------------------------

void Schema::check_one(const ValidationRule& rule, const Json& value, const Json* old,
                       const std::string& path, FieldErrors& errors) const {
  if (rule.transition && old == nullptr && !rule.optional_old_self) return;
  std::string field = path.empty() ? "<nil>" : path;
  if (!rule.field_path.empty())
    field = path.empty() ? rule.field_path.substr(rule.field_path[0] == '.' ? 1 : 0) : path + rule.field_path;
  std::string shown = "Invalid value: \"" + std::string(type_word(type)) + "\": ";
  Result<Json> answer = rule.program->evaluate(value, old);
  if (!answer) {
    errors.push_back({field, "FieldValueInvalid", shown + "rule evaluation error: " + answer.error().text()});
    return;
  }
  if (answer->is_bool() && answer->get_bool()) return;
  std::string message = rule.message;
  if (rule.message_program) {
    Result<Json> text = rule.message_program->evaluate(value, old);
    if (text && text->is_string()) message = str(as_text(*text));
  }
  if (message.empty()) message = "failed rule: " + rule.rule;
  if (rule.reason == "FieldValueRequired") {
    errors.push_back(required(field, message));
  } else if (rule.reason == "FieldValueForbidden") {
    errors.push_back(forbidden_field(field, message));
  } else if (rule.reason == "FieldValueDuplicate") {
    errors.push_back(duplicate(field, value));
  } else {
    errors.push_back({field, "FieldValueInvalid", shown + message});
  }
}

void Schema::check_rules(const Json& value, const Json* old, const std::string& path,
                         FieldErrors& errors) const {
  if (!has_rules_ || value.is_null()) return;
  for (const ValidationRule& rule : rules_) check_one(rule, value, old, path, errors);
  if (const JsonObject* map = value.if_object()) {
    const JsonObject* before = old == nullptr ? nullptr : old->if_object();
    for (const auto& [key, below] : *map) {
      std::string_view name(key.data(), key.size());
      const Json* old_below = before == nullptr ? nullptr : before->if_contains(name);
      auto known = properties.find(name);
      if (known != properties.end()) {
        known->second->check_rules(below, old_below, child(path, name), errors);
      } else if (additional != nullptr) {
        additional->check_rules(below, old_below, child(path, name), errors);
      }
    }
  } else if (const JsonArray* list = value.if_array(); list != nullptr && items != nullptr) {
    // Only lists with keys let an old item be found again.
    const JsonArray* before = old == nullptr || list_type != ListType::kMap ? nullptr : old->if_array();
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Json* old_item = nullptr;
      if (before != nullptr)
        for (const Json& candidate : *before) {
          bool same = std::all_of(map_keys.begin(), map_keys.end(), [&](const std::string& key) {
            const Json* a = find(candidate, {key});
            const Json* b = find((*list)[i], {key});
            return a != nullptr && b != nullptr && *a == *b;
          });
          if (same) old_item = &candidate;
        }
      items->check_rules((*list)[i], old_item, item(path, i), errors);
    }
  }
}

}  // namespace gpuop::cluster::api

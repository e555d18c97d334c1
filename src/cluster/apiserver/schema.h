// OpenAPI v3 schemas of custom resources: pruning, defaults, validation (kubernetes-api.md §12).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cluster/apiserver/status.h"

namespace gpuop::cluster::api {

class CelProgram;

// A regular expression, searched unanchored.
class Pattern {
 public:
  static Result<std::shared_ptr<const Pattern>> compile(const std::string& text);
  virtual ~Pattern() = default;
  // False also where matching would take too long.
  virtual bool found_in(std::string_view text) const = 0;
};

struct ValidationRule {
  std::string rule, message, message_expression, reason, field_path;
  bool transition = false;  // mentions oldSelf
  bool optional_old_self = false;
  std::shared_ptr<const CelProgram> program;
  std::shared_ptr<const CelProgram> message_program;
};

class Schema {
 public:
  enum class Type { kAny, kObject, kArray, kString, kInteger, kNumber, kBoolean };
  enum class ListType { kAtomic, kSet, kMap };

  // Structural faults are reported with paths below `path`; the schema is usable when there are none.
  static std::shared_ptr<const Schema> compile(const Json& source, const std::string& path,
                                               FieldErrors& errors);

  // Removes fields that the schema does not know; their paths are put into `unknown`. `root`: apiVersion,
  // kind and metadata belong to every object.
  void prune(Json& value, const std::string& path, bool root, std::vector<std::string>& unknown) const;
  void apply_defaults(Json& value) const;
  // `old` may be null: unchanged parts that were already wrong are tolerated.
  void validate(const Json& value, const Json* old, const std::string& path, bool root,
                FieldErrors& errors) const;
  // The rules, everywhere; run only when validate() found nothing.
  void check_rules(const Json& value, const Json* old, const std::string& path, FieldErrors& errors) const;

  bool has_rules() const { return has_rules_; }
  std::string_view format() const { return format_; }

  Type type = Type::kAny;
  ListType list_type = ListType::kAtomic;
  std::vector<std::string> map_keys;
  bool map_atomic = false;
  bool nullable = false, int_or_string = false, preserve_unknown = false, embedded = false;
  std::map<std::string, std::shared_ptr<const Schema>, std::less<>> properties;
  std::shared_ptr<const Schema> items;
  std::shared_ptr<const Schema> additional;  // additionalProperties' schema
  bool additional_any = false;               // additionalProperties: true
  std::optional<Json> default_value;

 private:
  struct Limits {
    std::optional<double> minimum, maximum, multiple_of;
    bool exclusive_minimum = false, exclusive_maximum = false;
    std::optional<std::int64_t> min_length, max_length, min_items, max_items, min_properties, max_properties;
  };
  void read(const Json& source, const std::string& path, FieldErrors& errors);
  void check_default(const Json& value, const std::string& path, FieldErrors& errors) const;
  void read_limits(const Json& source, const std::string& path, FieldErrors& errors);
  void read_rules(const Json& source, const std::string& path, FieldErrors& errors);
  bool compile_rule(ValidationRule& rule, const std::string& path, const std::string& at,
                    FieldErrors& errors) const;
  bool check_type(const Json& value, const std::string& path, FieldErrors& errors) const;
  void check_scalar(const Json& value, const std::string& path, FieldErrors& errors) const;
  void check_object(const Json& value, const Json* old, const std::string& path, bool root,
                    FieldErrors& errors) const;
  void check_array(const Json& value, const Json* old, const std::string& path, FieldErrors& errors) const;
  void check_combinations(const Json& value, const std::string& path, FieldErrors& errors) const;
  void check_one(const ValidationRule& rule, const Json& value, const Json* old, const std::string& path,
                 FieldErrors& errors) const;

  std::vector<std::string> required_;
  std::vector<Json> enum_;
  std::string pattern_, format_;
  std::shared_ptr<const Pattern> pattern_program_;
  Limits limits_;
  std::vector<std::shared_ptr<const Schema>> all_of_, any_of_, one_of_;
  std::shared_ptr<const Schema> not_;
  std::vector<ValidationRule> rules_;
  bool has_rules_ = false;     // here or anywhere below
  bool has_defaults_ = false;  // likewise
};

}  // namespace gpuop::cluster::api

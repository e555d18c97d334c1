// API errors: the Status object (kubernetes-api.md §5).
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cluster/apiserver/types.h"

namespace gpuop::cluster::api {

struct Cause {
  std::string reason, message, field;
};

struct Status {
  int code = 500;
  std::string reason = "InternalError";
  std::string message;
  std::string name, group, kind, uid;
  std::vector<Cause> causes;
  int retry_after = 0;
  std::string continue_token;  // 410 of a list
  bool has_details = false;    // shows details even where there are none

  Json json() const;
};

template <class T = void>
using Answer = std::expected<T, Status>;
using Refusal = std::unexpected<Status>;

Refusal refuse(int code, std::string_view reason, std::string message);
Refusal bad_request(std::string message);
Refusal not_found(const ResourceType& type, std::string_view name);
Refusal no_such_path();
Refusal method_not_allowed(std::string message = {});
Refusal forbidden(const ResourceType& type, std::string_view name, std::string_view why);
Refusal conflict(const ResourceType& type, std::string_view name, std::string_view why);
Refusal already_exists(const ResourceType& type, std::string_view name);
Refusal stale(const ResourceType& type, std::string_view name);  // the object has been modified
Refusal expired(std::string message);
Refusal internal(std::string message);

// One fault of an object's field; `text` is what stands after the path.
struct FieldError {
  std::string field;
  std::string reason;  // "FieldValueRequired", …
  std::string text;    // "Required value"
};
using FieldErrors = std::vector<FieldError>;

FieldError required(std::string field, std::string_view detail = {});
FieldError invalid(std::string field, const Json& value, std::string_view detail);
FieldError forbidden_field(std::string field, std::string_view detail);
FieldError duplicate(std::string field, const Json& value);
FieldError not_found_field(std::string field, const Json& value);
FieldError unsupported(std::string field, const Json& value, const std::vector<std::string>& supported);
FieldError too_long(std::string field, std::size_t limit);
FieldError wrong_type(std::string field, std::string_view type, const Json& value);

// A number as messages show it: "0.7".
std::string number_text(double number);

// 422 for an object of kind `kind` ("ClusterPolicy") in `group`.
Refusal invalid_object(std::string_view group, std::string_view kind, std::string_view name,
                       FieldErrors errors);
Refusal invalid_object(const ResourceType& type, std::string_view name, FieldErrors errors);

}  // namespace gpuop::cluster::api

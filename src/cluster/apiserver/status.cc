#include "cluster/apiserver/status.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace gpuop::cluster::api {

namespace {

std::string in_quotes(std::string_view text) {
  return to_text(Json(text));
}

// A value as messages show it: texts in quotes, the rest as JSON.
std::string shown(const Json& value) {
  std::string text = value.is_double() ? number_text(value.get_double()) : to_text(value);
  if (text.size() > 1024) {
    text.resize(1024);
    text += "…";
  }
  return text;
}

Status base(int code, std::string_view reason, std::string message) {
  Status status;
  status.code = code;
  status.reason = std::string(reason);
  status.message = std::move(message);
  return status;
}

Refusal about(int code, std::string_view reason, std::string message, const ResourceType& type,
              std::string_view name) {
  Status status = base(code, reason, std::move(message));
  status.name = std::string(name);
  status.group = type.group;
  status.kind = type.plural;
  return std::unexpected(std::move(status));
}

}  // namespace

Json Status::json() const {
  JsonObject metadata;
  if (!continue_token.empty()) metadata["continue"] = continue_token;
  JsonObject out{{"kind", "Status"},
                 {"apiVersion", "v1"},
                 {"metadata", std::move(metadata)},
                 {"status", code < 400 ? "Success" : "Failure"}};
  if (!message.empty()) out["message"] = message;
  if (!reason.empty()) out["reason"] = reason;
  JsonObject details;
  if (!name.empty()) details["name"] = name;
  if (!group.empty()) details["group"] = group;
  if (!kind.empty()) details["kind"] = kind;
  if (!uid.empty()) details["uid"] = uid;
  if (!causes.empty()) {
    JsonArray list;
    for (const Cause& cause : causes) {
      JsonObject entry;
      if (!cause.reason.empty()) entry["reason"] = cause.reason;
      if (!cause.message.empty()) entry["message"] = cause.message;
      if (!cause.field.empty()) entry["field"] = cause.field;
      list.push_back(std::move(entry));
    }
    details["causes"] = std::move(list);
  }
  if (retry_after > 0) details["retryAfterSeconds"] = retry_after;
  if (!details.empty() || has_details || code == 404 || code == 405) out["details"] = std::move(details);
  out["code"] = code;
  return out;
}

Refusal refuse(int code, std::string_view reason, std::string message) {
  return std::unexpected(base(code, reason, std::move(message)));
}
Refusal bad_request(std::string message) {
  return refuse(400, "BadRequest", std::move(message));
}
Refusal not_found(const ResourceType& type, std::string_view name) {
  return about(404, "NotFound", type.qualified() + " " + in_quotes(name) + " not found", type, name);
}
Refusal no_such_path() {
  return refuse(404, "NotFound", "the server could not find the requested resource");
}
Refusal method_not_allowed(std::string message) {
  if (message.empty()) message = "the server does not allow this method on the requested resource";
  return refuse(405, "MethodNotAllowed", std::move(message));
}
Refusal forbidden(const ResourceType& type, std::string_view name, std::string_view why) {
  std::string what = name.empty() ? type.qualified() : type.qualified() + " " + in_quotes(name);
  return about(403, "Forbidden", what + " is forbidden: " + std::string(why), type, name);
}
Refusal conflict(const ResourceType& type, std::string_view name, std::string_view why) {
  return about(409, "Conflict",
               "Operation cannot be fulfilled on " + type.qualified() + " " + in_quotes(name) + ": " +
                   std::string(why),
               type, name);
}
Refusal already_exists(const ResourceType& type, std::string_view name) {
  return about(409, "AlreadyExists", type.qualified() + " " + in_quotes(name) + " already exists", type,
               name);
}
Refusal stale(const ResourceType& type, std::string_view name) {
  return conflict(
      type, name,
      "the object has been modified; please apply your changes to the latest version and try again");
}
Refusal expired(std::string message) {
  return refuse(410, "Expired", std::move(message));
}
Refusal internal(std::string message) {
  return refuse(500, "InternalError", "Internal error occurred: " + std::move(message));
}

std::string number_text(double number) {
  char text[40];
  auto [end, fault] = std::to_chars(text, text + sizeof text, number);
  return fault == std::errc() ? std::string(text, end) : std::to_string(number);
}

FieldError required(std::string field, std::string_view detail) {
  std::string text = "Required value";
  if (!detail.empty()) text.append(": ").append(detail);
  return {std::move(field), "FieldValueRequired", std::move(text)};
}
FieldError invalid(std::string field, const Json& value, std::string_view detail) {
  return {std::move(field), "FieldValueInvalid",
          "Invalid value: " + shown(value) + ": " + std::string(detail)};
}
FieldError forbidden_field(std::string field, std::string_view detail) {
  return {std::move(field), "FieldValueForbidden", "Forbidden: " + std::string(detail)};
}
FieldError duplicate(std::string field, const Json& value) {
  return {std::move(field), "FieldValueDuplicate", "Duplicate value: " + shown(value)};
}
FieldError not_found_field(std::string field, const Json& value) {
  return {std::move(field), "FieldValueNotFound", "Not found: " + shown(value)};
}
FieldError unsupported(std::string field, const Json& value, const std::vector<std::string>& supported) {
  std::string text = "Unsupported value: " + shown(value) + ": supported values: ";
  for (std::size_t i = 0; i < supported.size(); ++i) text += (i == 0 ? "" : ", ") + in_quotes(supported[i]);
  return {std::move(field), "FieldValueNotSupported", std::move(text)};
}
FieldError too_long(std::string field, std::size_t limit) {
  return {std::move(field), "FieldValueTooLong",
          "Too long: may not be more than " + std::to_string(limit) + " bytes"};
}
FieldError wrong_type(std::string field, std::string_view type, const Json& value) {
  std::string_view seen = value.is_string()   ? "string"
                          : value.is_bool()   ? "boolean"
                          : value.is_object() ? "object"
                          : value.is_array()  ? "array"
                          : value.is_double() ? "number"
                          : value.is_null()   ? "null"
                                              : "integer";
  std::string text = "Invalid value: " + in_quotes(seen) + ": " + field + " in body must be of type " +
                     std::string(type) + ": " + in_quotes(seen);
  return {std::move(field), "FieldValueTypeInvalid", std::move(text)};
}

Refusal invalid_object(std::string_view group, std::string_view kind, std::string_view name,
                       FieldErrors errors) {
  Status status;
  status.code = 422;
  status.reason = "Invalid";
  status.group = std::string(group);
  status.kind = std::string(kind);
  status.name = std::string(name);
  std::string qualified(kind);
  if (!group.empty()) qualified.append(".").append(group);
  // Equal faults are told of once, and listed as often as they were found.
  std::vector<std::string> texts;
  for (const FieldError& error : errors) {
    std::string one = error.field.empty() ? error.text : error.field + ": " + error.text;
    if (std::find(texts.begin(), texts.end(), one) == texts.end()) texts.push_back(std::move(one));
    status.causes.push_back({error.reason, error.text, error.field});
  }
  std::string text = join(texts, ", ");
  if (texts.size() > 1) text = "[" + text + "]";
  status.message = qualified + " " + in_quotes(name) + " is invalid: " + text;
  return std::unexpected(std::move(status));
}
Refusal invalid_object(const ResourceType& type, std::string_view name, FieldErrors errors) {
  return invalid_object(type.group, type.kind, name, std::move(errors));
}

}  // namespace gpuop::cluster::api

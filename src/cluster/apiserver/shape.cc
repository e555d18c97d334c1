#include "cluster/apiserver/shape.h"

#include "base/text.h"
#include "base/time.h"
#include "kube/object.h"

namespace gpuop::cluster::api {

namespace {

std::string_view json_word(const Json& value) {
  if (value.is_string()) return "string";
  if (value.is_bool()) return "bool";
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  return "number";
}

std::string_view go_word(const Field& field) {
  switch (field.kind) {
    case FieldKind::kInt:
      return "int64";
    case FieldKind::kBool:
      return "bool";
    case FieldKind::kText:
    case FieldKind::kBytes:
      return "string";
    default:
      return field.type_name;
  }
}

class Reader {
 public:
  explicit Reader(ShapeReport& report) : report_(report) {}

  Json message(const Json& value, const Message& shape, const std::string& path,
               std::string_view owner = {}) {
    const JsonObject* in = value.if_object();
    if (in == nullptr) {
      wrong(owner.empty() ? std::string_view(shape.name) : owner, path, value, "v1." + shape.name);
      return JsonObject();
    }
    JsonObject out;
    out.reserve(in->size());
    for (const auto& [key, item] : *in) {
      auto found = shape.by_name.find(std::string_view(key.data(), key.size()));
      if (found == shape.by_name.end()) {
        if (path.empty() && (key == "apiVersion" || key == "kind")) {
          out.emplace(key, item);
          continue;
        }
        report_.unknown.push_back(path.empty() ? std::string(key) : path + "." + std::string(key));
        continue;
      }
      if (item.is_null()) continue;
      field(item, *found->second, shape, path, out);
    }
    return out;
  }

 private:
  // Go's decoder names fields, not places in lists.
  static std::string without_places(const std::string& path) {
    std::string out;
    for (std::size_t i = 0; i < path.size(); ++i) {
      if (path[i] == '[')
        i = std::min(path.find(']', i), path.size() - 1);
      else
        out.push_back(path[i]);
    }
    return out;
  }

  void wrong(std::string_view owner, const std::string& path, const Json& value, std::string_view wanted) {
    if (!report_.fault.empty()) return;
    std::string number = value.is_double() ? " " + number_text(value.get_double()) : std::string();
    report_.fault = "json: cannot unmarshal " + std::string(json_word(value)) + number +
                    " into Go struct field " + std::string(owner) + "." + without_places(path) + " of type " +
                    std::string(wanted);
  }

  void field(const Json& value, const Field& shape, const Message& owner, const std::string& path,
             JsonObject& out) {
    std::string here = path.empty() ? shape.name : path + "." + shape.name;
    if (shape.shape == Shape::kList) {
      list(value, shape, owner, here, out);
    } else if (shape.shape == Shape::kMap) {
      map(value, shape, owner, here, out);
    } else {
      Json item = single(value, shape, owner, here);
      if (!dropped(item, shape)) out.emplace(shape.name, std::move(item));
    }
  }

  static bool dropped(const Json& item, const Field& shape) {
    if (item.is_null()) return true;
    if (shape.keep_zero) return false;
    if (item.is_string()) return item.get_string().empty();
    if (item.is_bool()) return !item.get_bool();
    if (item.is_int64()) return item.get_int64() == 0 && shape.kind != FieldKind::kIntOrString;
    return false;
  }

  void list(const Json& value, const Field& shape, const Message& owner, const std::string& here,
            JsonObject& out) {
    const JsonArray* in = value.if_array();
    if (in == nullptr) return wrong(owner.name, here, value, "[]" + std::string(go_word(shape)));
    if (in->empty()) return;
    JsonArray items;
    items.reserve(in->size());
    for (std::size_t i = 0; i < in->size(); ++i)
      items.push_back(single((*in)[i], shape, owner, here + "[" + std::to_string(i) + "]"));
    out.emplace(shape.name, std::move(items));
  }

  void map(const Json& value, const Field& shape, const Message& owner, const std::string& here,
           JsonObject& out) {
    const JsonObject* in = value.if_object();
    if (in == nullptr) return wrong(owner.name, here, value, "map[string]" + std::string(go_word(shape)));
    if (in->empty()) return;
    JsonObject items;
    items.reserve(in->size());
    for (const auto& [key, item] : *in) {
      Json read = item.is_null() ? (shape.kind == FieldKind::kText ? Json("") : Json(nullptr))
                                 : single(item, shape, owner, here);
      if (!read.is_null()) items.emplace(key, std::move(read));
    }
    if (!items.empty()) out.emplace(shape.name, std::move(items));
  }

  Json single(const Json& value, const Field& shape, const Message& owner, const std::string& here) {
    switch (shape.kind) {
      case FieldKind::kText:
        if (!value.is_string()) wrong(owner.name, here, value, "string");
        return value;
      case FieldKind::kBytes:
        return bytes(value, owner, here);
      case FieldKind::kInt:
        return integer(value, owner, here);
      case FieldKind::kBool:
        if (!value.is_bool()) wrong(owner.name, here, value, "bool");
        return value;
      case FieldKind::kTime:
      case FieldKind::kMicroTime:
        return time(value, shape, owner, here);
      case FieldKind::kQuantity:
        return quantity(value, owner, here);
      case FieldKind::kIntOrString:
        if (!value.is_string() && !value.is_int64()) wrong(owner.name, here, value, "intstr.IntOrString");
        return value;
      case FieldKind::kMessage:
        if (is_text_list(*shape.message)) return value;
        return message(value, *shape.message, here, owner.name);
      case FieldKind::kRaw:
      case FieldKind::kOpen:
        return value;
    }
    return value;
  }

  // Two messages stand for plain lists of texts in JSON.
  static bool is_text_list(const Message& message) {
    return message.name == "ExtraValue" || message.name == "AttestationValue";
  }

  // Where Go's decoder stops.
  static std::size_t base64_stop(std::string_view text) {
    std::size_t at =
        text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
    return at == std::string_view::npos ? text.size() / 4 * 4 : at;
  }

  Json bytes(const Json& value, const Message& owner, const std::string& here) {
    if (!value.is_string()) {
      wrong(owner.name, here, value, "[]uint8");
    } else if (!base64_decode(as_text(value)) && report_.fault.empty()) {
      report_.fault = "illegal base64 data at input byte " + std::to_string(base64_stop(as_text(value)));
    }
    return value;
  }

  // Moments to the microsecond have six digits of it, no more and no fewer: '"789Z" as "Z07:00"'.
  static std::string micro_time_fault(std::string_view text) {
    constexpr std::string_view kShape = "dddd-dd-ddTdd:dd:dd";
    for (std::size_t i = 0; i < kShape.size(); ++i) {
      const bool fits =
          i < text.size() && (kShape[i] == 'd' ? text[i] >= '0' && text[i] <= '9' : text[i] == kShape[i]);
      if (!fits)
        return i < 4 ? to_text(Json(text)) + " as \"2006\""
                     : to_text(Json(text.substr(i))) + " as \"T15:04:05\"";
    }
    std::string_view rest = text.substr(kShape.size());
    const std::size_t digits = rest.starts_with(".") ? rest.find_first_not_of("0123456789", 1) : 0;
    if (digits == std::string_view::npos || digits < 7) return to_text(Json(rest)) + " as \".000000\"";
    rest.remove_prefix(7);
    return rest.empty() || (rest[0] != 'Z' && rest[0] != '+' && rest[0] != '-')
               ? to_text(Json(rest)) + " as \"Z07:00\""
               : "";
  }

  Json integer(const Json& value, const Message& owner, const std::string& here) {
    if (value.is_int64()) return value;
    if (value.is_double()) {
      double number = value.get_double();
      if (number > -9e15 && number < 9e15 && number == static_cast<double>(static_cast<std::int64_t>(number)))
        return static_cast<std::int64_t>(number);
    }
    wrong(owner.name, here, value, here.ends_with("Seconds") ? "int64" : "int32");
    return value;
  }

  Json time(const Json& value, const Field& shape, const Message& owner, const std::string& here) {
    if (!value.is_string()) {
      wrong(owner.name, here, value, "Time");
      return nullptr;
    }
    if (as_text(value).empty()) return nullptr;
    if (std::string why = shape.kind == FieldKind::kMicroTime ? micro_time_fault(as_text(value)) : "";
        !why.empty()) {
      if (report_.fault.empty())
        report_.fault = "parsing time " + to_text(value) +
                        " as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse " + why;
      return nullptr;
    }
    Result<Time> at = parse_time(as_text(value));
    if (!at) {
      if (report_.fault.empty())
        report_.fault = "parsing time " + to_text(value) + " as \"2006-01-02T15:04:05Z07:00\": " + here;
      return nullptr;
    }
    return Json(shape.kind == FieldKind::kTime ? format_time(*at) : format_micro_time(*at));
  }

  Json quantity(const Json& value, const Message& owner, const std::string& here) {
    if (!value.is_string() && !value.is_number()) {
      wrong(owner.name, here, value, "resource.Quantity");
      return value;
    }
    Result<std::string> text = kube::canonical_quantity(value);
    if (text) return Json(*text);
    if (report_.fault.empty())
      report_.fault =
          "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    return value;
  }

  ShapeReport& report_;
};

void drop_nulls(Json& value) {
  if (JsonObject* object = value.if_object()) {
    for (auto it = object->begin(); it != object->end();) {
      if (it->value().is_null()) {
        it = object->stable_erase(it);
      } else {
        drop_nulls(it->value());
        ++it;
      }
    }
  } else if (JsonArray* array = value.if_array()) {
    for (Json& item : *array) drop_nulls(item);
  }
}

}  // namespace

Json normalize(const Json& value, const Message& message, ShapeReport& report) {
  return Reader(report).message(value, message, "");
}

Json normalize_open(const Json& value, ShapeReport& report) {
  Json out = value;
  drop_nulls(out);
  const Json* metadata = find(value, {"metadata"});
  if (metadata != nullptr && !metadata->is_null()) {
    static const Message* meta = find_message("meta", "ObjectMeta");
    ShapeReport inner;
    set(out, {"metadata"}, normalize(*metadata, *meta, inner));
    for (const std::string& path : inner.unknown) report.unknown.push_back("metadata." + path);
    if (report.fault.empty()) report.fault = inner.fault;
  }
  return out;
}

std::string package_of(std::string_view api_version) {
  std::size_t slash = api_version.find('/');
  if (slash == std::string_view::npos) return "core";
  std::string_view group = api_version.substr(0, slash);
  return std::string(group.substr(0, group.find('.')));
}

}  // namespace gpuop::cluster::api

// Protobuf request bodies, read by the tables (kubernetes-api.md §4, Appendix A).
#include <optional>

#include "base/text.h"
#include "base/time.h"
#include "cluster/apiserver/shape.h"

namespace gpuop::cluster::api {

namespace {

constexpr int kMaxDepth = 40;

Refusal broken(std::string_view why) {
  return bad_request("the body of the request was not a protobuf object: " + std::string(why));
}

// One field as it stands on the wire.
struct WireField {
  int number = 0;
  int type = 0;  // 0 varint, 1 fixed64, 2 bytes, 5 fixed32
  std::uint64_t value = 0;
  std::string_view bytes;
};

class Wire {
 public:
  explicit Wire(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }

  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (rest_.empty() || shift > 63) return std::nullopt;
      auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }

  std::optional<WireField> next() {
    std::optional<std::uint64_t> tag = varint();
    if (!tag || *tag >> 3 == 0 || *tag >> 3 > 0x1fffffff) return std::nullopt;
    WireField field;
    field.number = static_cast<int>(*tag >> 3);
    field.type = static_cast<int>(*tag & 7);
    std::size_t size = 0;
    switch (field.type) {
      case 0: {
        std::optional<std::uint64_t> value = varint();
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
      case 1:
        size = 8;
        break;
      case 5:
        size = 4;
        break;
      case 2: {
        std::optional<std::uint64_t> length = varint();
        if (!length || *length > rest_.size()) return std::nullopt;
        size = static_cast<std::size_t>(*length);
        break;
      }
      default:
        return std::nullopt;
    }
    if (size > rest_.size()) return std::nullopt;
    field.bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return field;
  }

 private:
  std::string_view rest_;
};

// Texts must be UTF-8, without long forms and surrogates: JSON could not carry the rest.
bool valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    auto c = static_cast<unsigned char>(text[i]);
    std::size_t more = c < 0x80 ? 0 : c >> 5 == 6 ? 1 : c >> 4 == 14 ? 2 : c >> 3 == 30 ? 3 : 9;
    if (more == 9 || i + more >= text.size()) return false;
    std::uint32_t point = more == 0 ? c : c & (0x3f >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3f);
    }
    constexpr std::uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (point < kLeast[more] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return false;
    i += more + 1;
  }
  return true;
}

Answer<Json> text_value(std::string_view bytes) {
  if (!valid_utf8(bytes)) return broken("a text is not UTF-8");
  return Json(bytes);
}

Answer<Json> read_time(std::string_view bytes, bool micro) {
  std::int64_t seconds = 0;
  std::int64_t nanos = 0;
  bool any = false;
  for (Wire wire(bytes); !wire.done();) {
    std::optional<WireField> field = wire.next();
    if (!field) return broken("a time is cut short");
    if (field->number == 1) seconds = static_cast<std::int64_t>(field->value), any = true;
    if (field->number == 2) nanos = static_cast<std::int64_t>(field->value);
  }
  if (!any && nanos == 0) return Json(nullptr);
  // The years that RFC 3339 can write and our clock can hold.
  if (seconds < -62135596800 || seconds > 253402300799 || nanos < 0 || nanos > 999999999)
    return broken("a time is out of range");
  if (seconds < -9000000000 || seconds > 9000000000) return Json(nullptr);
  Time at{std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanos)};
  return Json(micro ? format_micro_time(at) : format_time(at));
}

Answer<Json> read_int_or_string(std::string_view bytes) {
  std::uint64_t type = 0;
  Json number = 0;
  Json text = "";
  for (Wire wire(bytes); !wire.done();) {
    std::optional<WireField> field = wire.next();
    if (!field) return broken("an IntOrString is cut short");
    if (field->number == 1) type = field->value;
    if (field->number == 2) number = static_cast<std::int64_t>(static_cast<std::int32_t>(field->value));
    if (field->number == 3) text = TRY(text_value(field->bytes));
  }
  return type == 0 ? number : text;
}

// The one text or bytes field of a wrapper message (Quantity, FieldsV1, RawExtension).
Answer<std::string_view> read_wrapped(std::string_view bytes) {
  std::string_view inner;
  for (Wire wire(bytes); !wire.done();) {
    std::optional<WireField> field = wire.next();
    if (!field) return broken("a message is cut short");
    if (field->number == 1) inner = field->bytes;
  }
  return inner;
}

Answer<Json> read_text_list(std::string_view bytes) {
  JsonArray items;
  for (Wire wire(bytes); !wire.done();) {
    std::optional<WireField> field = wire.next();
    if (!field) return broken("a list is cut short");
    if (field->number == 1) items.push_back(TRY(text_value(field->bytes)));
  }
  return Json(std::move(items));
}

Answer<Json> read_message(std::string_view bytes, const Message& message, int depth);

Answer<Json> read_single(const WireField& wire, const Field& field, int depth) {
  bool number = field.kind == FieldKind::kInt || field.kind == FieldKind::kBool;
  if (number != (wire.type == 0) || (!number && wire.type != 2))
    return broken("field '" + field.name + "' has the wrong wire type");
  switch (field.kind) {
    case FieldKind::kInt:
      return Json(static_cast<std::int64_t>(wire.value));
    case FieldKind::kBool:
      return Json(wire.value != 0);
    case FieldKind::kText:
      return text_value(wire.bytes);
    case FieldKind::kBytes:
      return Json(base64_encode(wire.bytes));
    case FieldKind::kTime:
      return read_time(wire.bytes, false);
    case FieldKind::kMicroTime:
      return read_time(wire.bytes, true);
    case FieldKind::kIntOrString:
      return read_int_or_string(wire.bytes);
    case FieldKind::kQuantity:
      return text_value(TRY(read_wrapped(wire.bytes)));
    case FieldKind::kRaw: {
      std::string_view raw = TRY(read_wrapped(wire.bytes));
      if (raw.empty()) return Json(nullptr);
      Result<Json> value = parse_json(raw);
      if (!value) return broken("field '" + field.name + "' is not JSON");
      return *value;
    }
    case FieldKind::kMessage:
      if (field.message->name == "ExtraValue" || field.message->name == "AttestationValue")
        return read_text_list(wire.bytes);
      return read_message(wire.bytes, *field.message, depth + 1);
    case FieldKind::kOpen:
      break;
  }
  return refuse(415, "UnsupportedMediaType",
                "field '" + field.name + "' (" + field.type_name +
                    ") cannot be read from protobuf by this server; send the object as JSON");
}

Answer<> read_map_entry(std::string_view bytes, const Field& field, JsonObject& map, int depth) {
  std::string key;
  Json value = field.kind == FieldKind::kText || field.kind == FieldKind::kBytes ? Json("") : Json(nullptr);
  for (Wire wire(bytes); !wire.done();) {
    std::optional<WireField> part = wire.next();
    if (!part) return broken("a map is cut short");
    if (part->number == 1) key = std::string(as_text(TRY(text_value(part->bytes))));
    if (part->number == 2) value = TRY(read_single(*part, field, depth));
  }
  map[key] = std::move(value);
  return {};
}

Answer<> read_list_item(const WireField& wire, const Field& field, JsonArray& list, int depth) {
  bool number = field.kind == FieldKind::kInt || field.kind == FieldKind::kBool;
  if (!number || wire.type != 2) {
    list.push_back(TRY(read_single(wire, field, depth)));
    return {};
  }
  for (Wire packed(wire.bytes); !packed.done();) {
    std::optional<std::uint64_t> value = packed.varint();
    if (!value) return broken("a packed list is cut short");
    list.push_back(field.kind == FieldKind::kBool ? Json(*value != 0)
                                                  : Json(static_cast<std::int64_t>(*value)));
  }
  return {};
}

JsonArray& array_in(JsonObject& object, const std::string& name) {
  Json& slot = object[name];
  return slot.is_array() ? slot.get_array() : slot.emplace_array();
}

JsonObject& object_in(JsonObject& object, const std::string& name) {
  Json& slot = object[name];
  return slot.is_object() ? slot.get_object() : slot.emplace_object();
}

Answer<> read_field(const WireField& wire, const Field& field, JsonObject& out, int depth) {
  if (field.shape == Shape::kList) return read_list_item(wire, field, array_in(out, field.name), depth);
  if (field.shape == Shape::kMap) {
    if (wire.type != 2) return broken("field '" + field.name + "' has the wrong wire type");
    return read_map_entry(wire.bytes, field, object_in(out, field.name), depth);
  }
  Json value = TRY(read_single(wire, field, depth));
  if (field.inlined) {
    for (auto& [key, item] : value.get_object()) out[key] = std::move(item);
  } else if (value.is_object() && out.contains(field.name) && out[field.name].is_object()) {
    // A message may come in pieces; later pieces add to it.
    for (auto& [key, item] : value.get_object()) out[field.name].get_object()[key] = std::move(item);
  } else {
    out[field.name] = std::move(value);
  }
  return {};
}

Answer<Json> read_message(std::string_view bytes, const Message& message, int depth) {
  if (depth > kMaxDepth) return broken("it is nested too deeply");
  JsonObject out;
  for (Wire wire(bytes); !wire.done();) {
    std::optional<WireField> part = wire.next();
    if (!part) return broken("message " + message.name + " is cut short");
    const Field* field = message.by_number(part->number);
    if (field != nullptr) TRY(read_field(*part, *field, out, depth));
  }
  return Json(std::move(out));
}

}  // namespace

Answer<ProtobufBody> decode_protobuf(std::string_view body, std::string_view package_hint,
                                     const Message* expected) {
  if (!body.starts_with(kProtobufMagic)) return broken("it does not start with the expected prefix");
  static const Message* unknown = find_message("runtime", "Unknown");
  std::string_view raw;
  ProtobufBody out;
  for (Wire wire(body.substr(kProtobufMagic.size())); !wire.done();) {
    std::optional<WireField> part = wire.next();
    if (!part) return broken("the envelope is cut short");
    if (part->number == 2) raw = part->bytes;
    if (part->number == 1) {
      Json type = TRY(read_message(part->bytes, *unknown->by_number(1)->message, 0));
      out.api_version = std::string(get_string(type, {"apiVersion"}));
      out.kind = std::string(get_string(type, {"kind"}));
    }
  }
  const Message* message = nullptr;
  if (expected != nullptr && (out.kind.empty() || out.kind == expected->name)) message = expected;
  if (message == nullptr && out.kind == "DeleteOptions") message = find_message("meta", out.kind);
  if (message == nullptr)
    message = find_message(out.api_version.empty() ? std::string(package_hint) : package_of(out.api_version),
                           out.kind);
  if (message == nullptr)
    return refuse(
        415, "UnsupportedMediaType",
        "kind '" + out.kind + "' cannot be read from protobuf by this server; send the object as JSON");
  out.value = TRY(read_message(raw, *message, 0));
  return out;
}

}  // namespace gpuop::cluster::api

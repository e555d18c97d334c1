#include "base/files.h"
#include "cdi/spec.h"

namespace gpuop::cdi {

namespace {

JsonArray texts(const std::vector<std::string>& list) {
  return JsonArray(list.begin(), list.end());
}

void put(JsonObject& object, std::string_view key, const std::string& value) {
  if (!value.empty()) object[key] = value;
}
void put(JsonObject& object, std::string_view key, const std::vector<std::string>& list) {
  if (!list.empty()) object[key] = texts(list);
}
template <class T>
void put(JsonObject& object, std::string_view key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

JsonObject to_object(const DeviceNode& node) {
  JsonObject object;
  object["path"] = node.path;
  put(object, "hostPath", node.host_path);
  put(object, "type", node.type);
  if (node.major != 0) object["major"] = node.major;
  if (node.minor != 0) object["minor"] = node.minor;
  put(object, "fileMode", node.file_mode);
  put(object, "permissions", node.permissions);
  put(object, "uid", node.uid);
  put(object, "gid", node.gid);
  return object;
}

JsonObject to_object(const Hook& hook) {
  JsonObject object;
  object["hookName"] = hook.name;
  object["path"] = hook.path;
  put(object, "args", hook.args);
  put(object, "env", hook.env);
  put(object, "timeout", hook.timeout);
  return object;
}

JsonObject to_object(const Mount& mount) {
  JsonObject object;
  object["hostPath"] = mount.host_path;
  object["containerPath"] = mount.container_path;
  put(object, "options", mount.options);
  put(object, "type", mount.type);
  return object;
}

JsonObject to_object(const NetDevice& device) {
  return JsonObject{{"hostInterfaceName", device.host_interface_name}, {"name", device.name}};
}

JsonObject to_object(const IntelRdt& rdt) {
  JsonObject object;
  put(object, "closID", rdt.clos_id);
  put(object, "l3CacheSchema", rdt.l3_cache_schema);
  put(object, "memBwSchema", rdt.mem_bw_schema);
  if (rdt.schemata) object["schemata"] = texts(*rdt.schemata);
  if (rdt.enable_monitoring) object["enableMonitoring"] = true;
  return object;
}

template <class T>
void put_list(JsonObject& object, std::string_view key, const std::vector<T>& list) {
  if (list.empty()) return;
  JsonArray array;
  for (const auto& item : list) array.emplace_back(to_object(item));
  object[key] = std::move(array);
}

JsonObject to_object(const Annotations& annotations) {
  JsonObject object;
  for (const auto& [key, value] : annotations) object[key] = value;
  return object;
}

bool digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789_") == std::string_view::npos;
}

// Numbers, "0:1" (sexagesimal in YAML 1.1) and dates, as the readers of CDI files know them.
bool reads_as_number(std::string_view text) {
  if (text.front() == '-' || text.front() == '+') text.remove_prefix(1);
  if (text.empty()) return false;
  if (text == ".inf" || text == ".nan" || text == ".Inf" || text == ".NaN") return true;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'o' || text[1] == 'b')) {
    return text.find_first_not_of("0123456789abcdefABCDEF_", 2) == std::string_view::npos;
  }
  bool date = text.size() >= 8 && text[4] == '-' && digits(text.substr(0, 4)) &&
              isdigit(static_cast<unsigned char>(text[5])) != 0;
  if (date) return true;
  if (auto colon = text.find(':'); colon != std::string_view::npos) {
    return digits(text.substr(0, colon)) &&
           text.find_first_not_of("0123456789:.", colon) == std::string_view::npos;
  }
  if (auto e = text.find_first_of("eE"); e != std::string_view::npos && e > 0) {
    std::string_view exponent = text.substr(e + 1);
    if (!exponent.empty() && (exponent[0] == '-' || exponent[0] == '+')) exponent.remove_prefix(1);
    if (!digits(exponent)) return false;
    text = text.substr(0, e);
  }
  auto dot = text.find('.');
  if (dot == std::string_view::npos) return digits(text);
  std::string_view whole = text.substr(0, dot);
  std::string_view fraction = text.substr(dot + 1);
  return (whole.empty() || digits(whole)) && (fraction.empty() || digits(fraction)) && text.size() > 1;
}

// Whether a YAML reader would take the plain text for something else than this text.
bool needs_quotes(std::string_view text) {
  if (text.empty()) return true;
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return true;
  static constexpr std::string_view kFirst = "-?:,[]{}#&*!|>'\"%@`=<";
  if (kFirst.find(text.front()) != std::string_view::npos) {
    bool dash_word = (text.front() == '-' || text.front() == '?' || text.front() == ':') && text.size() > 1 &&
                     text[1] != ' ' && text != "---" && text[1] != '.' && !(text[1] >= '0' && text[1] <= '9');
    if (!dash_word) return true;
  }
  if (text.find(": ") != std::string_view::npos || text.find(" #") != std::string_view::npos) return true;
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return true;
  }
  static constexpr std::string_view kWords[] = {
      "null", "Null", "NULL", "~",  "true", "True", "TRUE", "false", "False", "FALSE", "yes", "Yes", "YES",
      "no",   "No",   "NO",   "on", "On",   "ON",   "off",  "Off",   "OFF",   "y",     "Y",   "n",   "N"};
  for (auto word : kWords) {
    if (text == word) return true;
  }
  return reads_as_number(text);
}

std::string scalar(std::string_view text) {
  if (!needs_quotes(text)) return std::string(text);
  return to_text(Json(text));  // a JSON string is a YAML double-quoted one
}

std::string scalar(const Json& value) {
  return value.is_string() ? scalar(as_text(value)) : to_text(value);
}

void emit(std::string& out, const Json& value, std::size_t column);

std::size_t next_stop(std::size_t column) {
  return column / 4 * 4 + 4;
}

bool is_block(const Json& value) {
  return (value.is_object() && !value.get_object().empty()) ||
         (value.is_array() && !value.get_array().empty());
}

void emit_member(std::string& out, std::string_view key, const Json& value, std::size_t column) {
  out += scalar(key) + ":";
  if (is_block(value)) {
    out += "\n";
    emit(out, value, next_stop(column));
  } else {
    out += " " + scalar(value) + "\n";
  }
}

// A block whose lines start at `column`.
void emit(std::string& out, const Json& value, std::size_t column) {
  if (value.is_object()) {
    for (const auto& member : value.get_object()) {
      out.append(column, ' ');
      emit_member(out, member.key(), member.value(), column);
    }
    return;
  }
  for (const auto& item : value.get_array()) {
    out.append(column, ' ');
    out += "- ";
    if (!item.is_object() || item.get_object().empty()) {
      out += scalar(item) + "\n";
      continue;
    }
    bool first = true;
    for (const auto& member : item.get_object()) {
      if (!first) out.append(column + 2, ' ');
      first = false;
      emit_member(out, member.key(), member.value(), column + 2);
    }
  }
}

}  // namespace

Json to_json(const Edits& edits) {
  JsonObject object;
  put(object, "env", edits.env);
  put_list(object, "deviceNodes", edits.device_nodes);
  put_list(object, "netDevices", edits.net_devices);
  put_list(object, "hooks", edits.hooks);
  put_list(object, "mounts", edits.mounts);
  if (edits.intel_rdt) object["intelRdt"] = to_object(*edits.intel_rdt);
  if (!edits.additional_gids.empty()) {
    object["additionalGids"] = JsonArray(edits.additional_gids.begin(), edits.additional_gids.end());
  }
  return object;
}

Json to_json(const Spec& spec) {
  JsonObject object;
  object["cdiVersion"] = spec.version;
  object["kind"] = spec.kind;
  if (!spec.annotations.empty()) object["annotations"] = to_object(spec.annotations);
  JsonArray devices;
  for (const auto& device : spec.devices) {
    JsonObject entry;
    entry["name"] = device.name;
    if (!device.annotations.empty()) entry["annotations"] = to_object(device.annotations);
    entry["containerEdits"] = to_json(device.edits);
    devices.emplace_back(std::move(entry));
  }
  object["devices"] = std::move(devices);
  object["containerEdits"] = to_json(spec.edits);
  return object;
}

std::string to_yaml_text(const Spec& spec) {
  std::string out = "---\n";
  emit(out, to_json(spec), 0);
  return out;
}

std::string to_json_text(const Spec& spec) {
  return to_text(to_json(spec));
}

Result<bool> save_spec(Spec spec, fs::path file) {
  spec.version = minimum_version(spec);
  auto doing = "write CDI spec '" + file.string() + "'";
  TRY_IN(validate_for_writing(spec), doing);
  if (!file.has_extension() || (file.extension() != ".json" && file.extension() != ".yaml")) {
    if (file.extension() == ".yml")
      return fail(Code::kInvalid, doing + ": CDI readers ignore .yml; use .yaml or .json");
    file += ".yaml";
  }
  TRY_IN(make_dirs(file.parent_path()), doing);
  return TRY_IN(
      write_file_atomic(file, file.extension() == ".json" ? to_json_text(spec) : to_yaml_text(spec), 0644),
      doing);
}

}  // namespace gpuop::cdi

#include <algorithm>
#include <limits>

#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cdi/block_yaml.h"
#include "cdi/spec.h"

namespace gpuop::cdi {

namespace {

// Reads the fields of one object; each field that is asked for is known, any other is an error at the end.
// The first fault is kept: callers read on and ask once.
class Fields {
 public:
  Fields(const Json& value, std::string path, std::optional<Error>& error)
      : path_(std::move(path)), error_(error) {
    if (value.is_object()) {
      object_ = &value.get_object();
    } else if (!value.is_null()) {
      fault(path_, "must be an object");
    }
  }
  ~Fields() {
    if (object_ == nullptr || error_) return;
    for (const auto& member : *object_) {
      std::string key(member.key());
      if (std::ranges::find(known_, key) == known_.end()) {
        fault(at(key), "unknown field \"" + key + "\"" + did_you_mean(key, known_));
        return;
      }
    }
  }
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  const Json* get(std::string_view key) {
    known_.emplace_back(key);
    if (object_ == nullptr) return nullptr;
    const Json* value = object_->if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  void text(std::string_view key, std::string& to) {
    const Json* value = get(key);
    if (value == nullptr) return;
    if (!value->is_string()) return fault(at(key), "must be text");
    to = as_text(*value);
  }
  template <class Int>
  void number(std::string_view key, Int& to) {
    const Json* value = get(key);
    if (value == nullptr) return;
    if (auto read = whole<Int>(*value)) {
      to = *read;
    } else {
      fault(at(key), "must be a whole number in range");
    }
  }
  template <class Int>
  void number(std::string_view key, std::optional<Int>& to) {
    if (get(key) == nullptr) return;
    known_.pop_back();
    Int read{};
    number(key, read);
    to = read;
  }
  void flag(std::string_view key, bool& to) {
    const Json* value = get(key);
    if (value == nullptr) return;
    if (!value->is_bool()) return fault(at(key), "must be true or false");
    to = value->get_bool();
  }
  template <class Read>
  void list(std::string_view key, Read read) {
    const Json* value = get(key);
    if (value == nullptr) return;
    if (!value->is_array()) return fault(at(key), "must be a list");
    std::size_t i = 0;
    for (const auto& item : value->get_array()) read(item, at(key) + "[" + std::to_string(i++) + "]");
  }
  void texts(std::string_view key, std::vector<std::string>& to) {
    list(key, [&](const Json& item, const std::string& where) {
      if (!item.is_string()) return fault(where, "must be text");
      to.emplace_back(as_text(item));
    });
  }
  void annotations(Annotations& to) {
    const Json* value = get("annotations");
    if (value == nullptr) return;
    if (!value->is_object()) return fault(at("annotations"), "must be an object");
    for (const auto& member : value->get_object()) {
      if (!member.value().is_string()) return fault(at("annotations"), "values must be text");
      to.emplace(member.key(), as_text(member.value()));
    }
  }
  std::string at(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  }
  void fault(const std::string& where, const std::string& why) {
    if (!error_) error_ = Error(Code::kInvalid, where + ": " + why), where_ = where;
  }
  template <class Int>
  static std::optional<Int> whole(const Json& value) {
    if (value.is_int64()) {
      auto n = value.get_int64();
      if (std::in_range<Int>(n)) return static_cast<Int>(n);
    } else if (value.is_uint64() && std::in_range<Int>(value.get_uint64())) {
      return static_cast<Int>(value.get_uint64());
    }
    return std::nullopt;
  }

 private:
  const JsonObject* object_ = nullptr;
  std::string path_;
  std::optional<Error>& error_;
  std::string where_;
  std::vector<std::string> known_;
};

Edits read_edits(const Json& value, const std::string& path, std::optional<Error>& error) {
  Edits edits;
  Fields fields(value, path, error);
  fields.texts("env", edits.env);
  fields.list("deviceNodes", [&](const Json& item, const std::string& where) {
    DeviceNode node;
    {
      Fields f(item, where, error);
      f.text("path", node.path);
      f.text("hostPath", node.host_path);
      f.text("type", node.type);
      f.number("major", node.major);
      f.number("minor", node.minor);
      f.number("fileMode", node.file_mode);
      f.text("permissions", node.permissions);
      f.number("uid", node.uid);
      f.number("gid", node.gid);
    }
    edits.device_nodes.push_back(std::move(node));
  });
  fields.list("netDevices", [&](const Json& item, const std::string& where) {
    NetDevice device;
    {
      Fields f(item, where, error);
      f.text("hostInterfaceName", device.host_interface_name);
      f.text("name", device.name);
    }
    edits.net_devices.push_back(std::move(device));
  });
  fields.list("hooks", [&](const Json& item, const std::string& where) {
    Hook hook;
    {
      Fields f(item, where, error);
      f.text("hookName", hook.name);
      f.text("path", hook.path);
      f.texts("args", hook.args);
      f.texts("env", hook.env);
      f.number("timeout", hook.timeout);
    }
    edits.hooks.push_back(std::move(hook));
  });
  fields.list("mounts", [&](const Json& item, const std::string& where) {
    Mount mount;
    {
      Fields f(item, where, error);
      f.text("hostPath", mount.host_path);
      f.text("containerPath", mount.container_path);
      f.texts("options", mount.options);
      f.text("type", mount.type);
    }
    edits.mounts.push_back(std::move(mount));
  });
  if (const Json* rdt = fields.get("intelRdt")) {
    edits.intel_rdt.emplace();
    Fields f(*rdt, fields.at("intelRdt"), error);
    f.text("closID", edits.intel_rdt->clos_id);
    f.text("l3CacheSchema", edits.intel_rdt->l3_cache_schema);
    f.text("memBwSchema", edits.intel_rdt->mem_bw_schema);
    if (f.get("schemata") != nullptr) {
      edits.intel_rdt->schemata.emplace();
      f.texts("schemata", *edits.intel_rdt->schemata);
    }
    f.flag("enableMonitoring", edits.intel_rdt->enable_monitoring);
  }
  fields.list("additionalGids", [&](const Json& item, const std::string& where) {
    auto gid = Fields::whole<std::uint32_t>(item);
    if (!gid) return fields.fault(where, "must be a group id");
    edits.additional_gids.push_back(*gid);
  });
  return edits;
}

Result<Spec> spec_of(const Json& value) {
  std::optional<Error> error;
  Spec spec;
  {
    Fields fields(value, "", error);
    fields.text("cdiVersion", spec.version);
    fields.text("kind", spec.kind);
    fields.annotations(spec.annotations);
    fields.list("devices", [&](const Json& item, const std::string& where) {
      Device device;
      {
        Fields f(item, where, error);
        f.text("name", device.name);
        f.annotations(device.annotations);
        if (const Json* edits = f.get("containerEdits"))
          device.edits = read_edits(*edits, f.at("containerEdits"), error);
      }
      spec.devices.push_back(std::move(device));
    });
    if (const Json* edits = fields.get("containerEdits"))
      spec.edits = read_edits(*edits, "containerEdits", error);
  }
  if (error) return fail(std::move(*error));
  TRY(validate(spec));
  return spec;
}

std::size_t count_members(const Json& value) {
  std::size_t count = 0;
  if (value.is_array()) {
    for (const auto& item : value.get_array()) count += count_members(item);
  } else if (value.is_object()) {
    count = value.get_object().size();
    for (const auto& member : value.get_object()) count += count_members(member.value());
  }
  return count;
}

// Colons outside strings: one for each member that was written, those that a later duplicate hid among them.
std::size_t count_colons(std::string_view text) {
  std::size_t count = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == ':') {
      ++count;
    }
  }
  return count;
}

Result<Spec> parse_as_yaml(std::string_view text, std::string_view file) {
  auto documents = TRY(parse_yaml(text, file));
  auto doing = "read CDI spec '" + std::string(file) + "'";
  if (documents.empty() || documents[0].value.is_null())
    return fail(Code::kInvalid, doing + ": no Spec data");
  const auto& document = documents[0];
  if (!document.duplicate_keys.empty()) {
    const auto& key = document.duplicate_keys.front();
    return fail(Code::kInvalid, doing + ": line " + std::to_string(document.line_of(key)) +
                                    ": duplicate key \"" + key + "\"");
  }
  auto spec = spec_of(document.value);
  if (!spec) {
    // The error begins with the field's path, which tells the line.
    std::string_view why = spec.error().text();
    int line = document.line_of(why.substr(0, why.find(": ")));
    return fail(std::move(spec).error().in(doing + (line > 0 ? ": line " + std::to_string(line) : "")));
  }
  return spec;
}

}  // namespace

Result<Spec> parse_spec(std::string_view text, std::string_view file) {
  // The quicker ways; the general reader has the better messages, so anything odd goes there.
  if (trim(text).starts_with('{')) {
    if (auto value = parse_json(text); value && count_members(*value) == count_colons(text)) {
      if (auto spec = spec_of(*value)) return spec;
    }
  } else if (auto value = parse_block_yaml(text)) {
    if (auto spec = spec_of(*value)) return spec;
  }
  return parse_as_yaml(text, file);
}

Result<Spec> read_spec(const fs::path& file) {
  auto text = TRY_IN(read_file(file, 16u << 20), "read CDI spec");
  return parse_spec(text, file.string());
}

}  // namespace gpuop::cdi

#include "sharing/config_file.h"

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "base/yaml.h"
#include "sharing/options.h"

namespace gpuop::sharing {
namespace {

constexpr std::string_view kPrefix = "nvidia.com/";
constexpr std::size_t kMaxName = 63;

bool dns_1123_label(std::string_view label) {
  auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (label.empty() || !alnum(label.front()) || !alnum(label.back())) return false;
  return std::ranges::all_of(label, [&](char c) { return alnum(c) || c == '-'; });
}

std::string in_quotes(std::string_view text) {
  return "'" + std::string(text) + "'";
}

// A scalar as the text that upstream's reader makes of it when a string is wanted.
std::optional<std::string> scalar_text(const Json& value) {
  if (value.is_string()) return str(as_text(value));
  if (value.is_bool() || value.is_number()) return to_text(value);
  return std::nullopt;
}

class Reader {
 public:
  Reader(const YamlDocument& document, ConfigFile& out) : document_(document), out_(out) {}

  Result<> read() {
    const Json& root = document_.value;
    if (root.is_null()) return {};
    const JsonObject& top = *TRY(object(root, ""));
    known(top, "", {"version", "flags", "resources", "sharing", "imex"});
    if (const Json* version = field(top, "version"); version && !version->is_null()) {
      auto text = scalar_text(*version);
      if (!text) return wrong("version", "must be a string");
      if (!text->empty() && *text != "v1") return fail(Code::kInvalid, "unknown version: " + *text);
    }
    if (const Json* flags = present(top, "flags")) TRY(read_flags(*flags));
    if (const Json* resources = present(top, "resources")) TRY(read_resources(*resources));
    if (const Json* sharing = present(top, "sharing")) TRY(read_sharing(*sharing));
    if (const Json* imex = present(top, "imex")) TRY(read_imex(*imex));
    return {};
  }

 private:
  std::unexpected<Error> wrong(std::string_view path, std::string why) const {
    std::string where(path);
    if (int line = document_.line_of(path); line > 0) where = "line " + std::to_string(line) + ": " + where;
    return fail(Code::kInvalid, where + ": " + std::move(why));
  }
  void warn(std::string_view path, const std::string& text) {
    int line = document_.line_of(path);
    out_.warnings.push_back((line > 0 ? "line " + std::to_string(line) + ": " : std::string()) + text);
  }

  // A key matches exactly or, failing that, without case.
  static const Json* field(const JsonObject& object, std::string_view name) {
    if (const Json* exact = find(object, name)) return exact;
    for (const auto& [key, value] : object) {
      if (to_lower(key) == to_lower(name)) return &value;
    }
    return nullptr;
  }
  static const Json* present(const JsonObject& object, std::string_view name) {
    const Json* value = field(object, name);
    return value && !value->is_null() ? value : nullptr;
  }
  Result<const JsonObject*> object(const Json& value, std::string_view path) const {
    if (!value.is_object()) return wrong(path.empty() ? "document" : path, "must be a map");
    return &value.get_object();
  }
  static std::string below(std::string_view path, std::string_view key) {
    return path.empty() ? std::string(key) : std::string(path) + "." + std::string(key);
  }
  void known(const JsonObject& object, std::string_view path, const std::vector<std::string>& names) {
    for (const auto& [key, value] : object) {
      bool found =
          std::ranges::any_of(names, [&](const std::string& n) { return to_lower(n) == to_lower(key); });
      std::string full = below(path, key);
      if (!found) warn(full, "unknown key " + in_quotes(full) + " is ignored" + did_you_mean(key, names));
    }
  }

  Result<> read_flags(const Json& value) {
    const JsonObject& flags = *TRY(object(value, "flags"));
    std::map<std::string, std::vector<std::string>> names;  // group ("", "plugin", "gfd") to its keys
    names[""] = {"plugin", "gfd"};
    for (const Option& option : file_options()) {
      if (option.file_key.empty()) continue;
      auto dot = option.file_key.find('.');
      bool grouped = dot != std::string_view::npos;
      names[std::string(grouped ? option.file_key.substr(0, dot) : "")].emplace_back(
          option.file_key.substr(grouped ? dot + 1 : 0));
    }
    known(flags, "flags", names[""]);
    for (std::string_view group : {"plugin", "gfd"}) {
      if (const Json* part = present(flags, group)) {
        std::string path = "flags." + std::string(group);
        known(*TRY(object(*part, path)), path, names[std::string(group)]);
      }
    }
    for (const Option& option : file_options()) {
      if (!option.file_key.empty()) TRY(read_flag(flags, option));
    }
    return {};
  }

  Result<> read_flag(const JsonObject& flags, const Option& option) {
    const JsonObject* group = &flags;
    std::string_view key = option.file_key;
    if (auto dot = key.find('.'); dot != std::string_view::npos) {
      const Json* part = present(flags, key.substr(0, dot));
      if (!part) return {};
      group = &part->get_object();
      key = key.substr(dot + 1);
    }
    const Json* value = present(*group, key);
    if (!value) return {};
    std::string path = "flags." + std::string(option.file_key);
    out_.flags[std::string(option.file_key)] = TRY(flag_value(*value, option, path));
    return {};
  }

  Result<Json> flag_value(const Json& value, const Option& option, const std::string& path) const {
    switch (option.type) {
      case OptionType::kBool:
        if (!value.is_bool()) return wrong(path, "must be true or false; got " + to_text(value));
        return value;
      case OptionType::kDuration: {
        if (value.is_int64() || value.is_uint64()) return value;  // a bare number counts nanoseconds
        if (value.is_double()) return Json(static_cast<std::int64_t>(value.get_double()));
        if (!value.is_string()) return wrong(path, "must be a duration such as '60s'; got " + to_text(value));
        auto parsed = parse_duration_value(as_text(value));
        if (!parsed) return wrong(path, parsed.error().text());
        return *parsed;
      }
      case OptionType::kString: {
        auto text = scalar_text(value);
        if (!text) return wrong(path, "must be a string; got " + to_text(value));
        return Json(*text);
      }
      default:
        return strategies(value, path);
    }
  }

  // A string is one strategy, however many commas it holds.
  Result<Json> strategies(const Json& value, const std::string& path) const {
    if (value.is_string()) return Json(JsonArray{value});
    bool good = value.is_array() &&
                std::ranges::all_of(value.get_array(), [](const Json& item) { return item.is_string(); });
    if (good) return value;
    return wrong(path, "invalid deviceListStrategy: " + to_text(value));
  }

  Result<> read_resources(const Json& value) {
    const JsonObject& resources = *TRY(object(value, "resources"));
    known(resources, "resources", {"gpus", "mig"});
    for (auto [key, out] : {std::pair("gpus", &out_.gpu_patterns), std::pair("mig", &out_.mig_patterns)}) {
      const Json* list = present(resources, key);
      if (!list) continue;
      std::string path = below("resources", key);
      if (!list->is_array()) return wrong(path, "must be a list");
      for (std::size_t i = 0; i < list->get_array().size(); ++i) {
        out->push_back(TRY(pattern(list->get_array()[i], path + "[" + std::to_string(i) + "]")));
      }
    }
    return {};
  }

  Result<ResourcePattern> pattern(const Json& value, const std::string& path) {
    const JsonObject& entry = *TRY(object(value, path));
    known(entry, path, {"pattern", "name"});
    const Json* text = present(entry, "pattern");
    const Json* name = present(entry, "name");
    if (!text || !scalar_text(*text) || scalar_text(*text)->empty())
      return wrong(path, "resources need a pattern");
    if (!name || !scalar_text(*name)) return wrong(path, "resources need a name");
    auto full = qualified_resource_name(*scalar_text(*name));
    if (!full) return wrong(path + ".name", full.error().text());
    return ResourcePattern{*scalar_text(*text), *full};
  }

  Result<> read_sharing(const Json& value) {
    const JsonObject& sharing = *TRY(object(value, "sharing"));
    known(sharing, "sharing", {"timeSlicing", "mps"});
    if (const Json* part = present(sharing, "timeSlicing")) {
      out_.time_slicing = TRY(replicated(*part, "sharing.timeSlicing"));
    }
    if (const Json* part = present(sharing, "mps")) out_.mps = TRY(replicated(*part, "sharing.mps"));
    if (out_.time_slicing && out_.mps) {
      warn("sharing", "sharing strategy conflict: both timeSlicing and mps are given; mps is used");
    }
    return {};
  }

  Result<ReplicatedResources> replicated(const Json& value, const std::string& path) {
    const JsonObject& object = *TRY(this->object(value, path));
    known(object, path, {"renameByDefault", "failRequestsGreaterThanOne", "resources"});
    ReplicatedResources out;
    if (const Json* flag = present(object, "renameByDefault")) {
      if (!flag->is_bool()) return wrong(path + ".renameByDefault", "must be true or false");
      out.rename_by_default = flag->get_bool();
    }
    if (const Json* flag = present(object, "failRequestsGreaterThanOne")) {
      if (!flag->is_bool()) return wrong(path + ".failRequestsGreaterThanOne", "must be true or false");
      out.fail_requests_greater_than_one = flag->get_bool();
    }
    const Json* resources = present(object, "resources");
    if (resources && !resources->is_array()) return wrong(path + ".resources", "must be a list");
    if (!resources || resources->get_array().empty())
      return wrong(path + ".resources", "no resources specified");
    for (std::size_t i = 0; i < resources->get_array().size(); ++i) {
      std::string item = path + ".resources[" + std::to_string(i) + "]";
      add(out, TRY(shared(resources->get_array()[i], item, out.rename_by_default)), item);
    }
    return out;
  }

  // A name listed twice: the larger number of replicas wins.
  void add(ReplicatedResources& out, SharedResource entry, const std::string& path) {
    for (SharedResource& earlier : out.resources) {
      if (earlier.name != entry.name) continue;
      earlier.replicas = std::max(earlier.replicas, entry.replicas);
      warn(path, in_quotes(path) + ": resource " + in_quotes(entry.name) + " is listed twice; " +
                     std::to_string(earlier.replicas) + " replicas, the larger number, are used");
      return;
    }
    out.resources.push_back(std::move(entry));
  }

  Result<SharedResource> shared(const Json& value, const std::string& path, bool rename_by_default) {
    const JsonObject& entry = *TRY(object(value, path));
    known(entry, path, {"name", "rename", "devices", "replicas"});
    SharedResource out;
    const Json* name = present(entry, "name");
    if (!name || !scalar_text(*name)) return wrong(path, "no resource name specified");
    auto full = qualified_resource_name(*scalar_text(*name));
    if (!full) return wrong(path + ".name", full.error().text());
    out.name = *full;

    const Json* replicas = present(entry, "replicas");
    if (!replicas) return wrong(path, "no replicas specified");
    if (!replicas->is_int64())
      return wrong(path + ".replicas", "must be a whole number; got " + to_text(*replicas));
    if (replicas->get_int64() < 2) return wrong(path + ".replicas", "number of replicas must be >= 2");
    if (replicas->get_int64() > 100000) return wrong(path + ".replicas", "must be 100000 or less");
    out.replicas = static_cast<int>(replicas->get_int64());

    if (const Json* devices = present(entry, "devices"))
      out.devices = TRY(selection(*devices, path + ".devices"));

    const Json* rename = present(entry, "rename");
    if (rename && !scalar_text(*rename)) return wrong(path + ".rename", "must be a string");
    std::string renamed = rename ? *scalar_text(*rename) : std::string();
    if (renamed.empty() && rename_by_default) renamed = out.name + ".shared";
    if (!renamed.empty()) {
      auto checked = qualified_resource_name(renamed);
      if (!checked) return wrong(path + (rename ? ".rename" : ".name"), checked.error().text());
      out.rename = *checked;
    }
    return out;
  }

  Result<DeviceSelection> selection(const Json& value, const std::string& path) const {
    DeviceSelection out;
    if (value.is_string()) {
      if (as_text(value) == "all") return out;
      return wrong(path, "invalid devices " + in_quotes(as_text(value)) +
                             ": must be 'all', a count, or a list of indices and UUIDs");
    }
    out.all = false;
    if (value.is_int64() || value.is_uint64()) {
      std::int64_t count = value.is_int64() ? value.get_int64() : 0;
      if (count <= 0 || count > 100000) {
        return wrong(path, "invalid devices " + to_text(value) + ": a count of devices must be > 0");
      }
      out.count = static_cast<int>(count);
      return out;
    }
    if (!value.is_array()) return wrong(path, "must be 'all', a count, or a list; got " + to_text(value));
    for (const Json& item : value.get_array()) {
      auto text = scalar_text(item);
      bool number = item.is_int64() && item.get_int64() >= 0;
      if (!text || !(number || (item.is_string() && device_reference(*text)))) {
        return wrong(path, "unsupported device " + to_text(item) + ": must be an index, 'N:M' or a UUID");
      }
      out.list.push_back(*text);
    }
    return out;
  }

  static bool device_reference(std::string_view text) {
    auto number = [](std::string_view part) {
      return !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    };
    auto uuid = [](std::string_view part) {
      if (part.size() != 36) return false;
      for (std::size_t i = 0; i < part.size(); ++i) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash != (part[i] == '-')) return false;
        if (!dash && !std::isxdigit(static_cast<unsigned char>(part[i]))) return false;
      }
      return true;
    };
    if (number(text)) return true;
    if (auto colon = text.find(':'); colon != std::string_view::npos) {
      return number(text.substr(0, colon)) && number(text.substr(colon + 1));
    }
    if (text.starts_with("MIG-GPU-")) {
      auto parts = split(text.substr(8), '/');
      return parts.size() == 3 && uuid(parts[0]) && number(parts[1]) && number(parts[2]);
    }
    return (text.starts_with("GPU-") || text.starts_with("MIG-")) && uuid(text.substr(4));
  }

  Result<> read_imex(const Json& value) {
    const JsonObject& imex = *TRY(object(value, "imex"));
    known(imex, "imex", {"channelIDs", "required"});
    if (const Json* ids = present(imex, "channelIDs")) {
      if (!ids->is_array()) return wrong("imex.channelIDs", "must be a list of numbers");
      out_.imex_channel_ids.emplace();
      for (const Json& id : ids->get_array()) {
        if (!id.is_int64())
          return wrong("imex.channelIDs", "must be a list of numbers; got " + to_text(*ids));
        out_.imex_channel_ids->push_back(id.get_int64());
      }
    }
    if (const Json* required = present(imex, "required")) {
      if (!required->is_bool()) return wrong("imex.required", "must be true or false");
      out_.imex_required = required->get_bool();
    }
    return {};
  }

  const YamlDocument& document_;
  ConfigFile& out_;
};

}  // namespace

Result<std::string> qualified_resource_name(std::string_view name) {
  std::string full(name);
  if (!name.starts_with(kPrefix)) full.insert(0, kPrefix);
  if (full.size() > kMaxName) {
    return fail(Code::kInvalid, "fully-qualified resource name must be 63 characters or less: " + full);
  }
  for (const std::string& label : split(std::string_view(full).substr(kPrefix.size()), '.')) {
    if (!dns_1123_label(label)) {
      return fail(Code::kInvalid, "incorrect format for resource name '" + full +
                                      "': after 'nvidia.com/' only lower-case letters, digits, '-' and '.'");
    }
  }
  return full;
}

Result<ConfigFile> parse_config_file(std::string_view text, std::string_view file) {
  ConfigFile out;
  std::string doing = "unable to parse config file: '" + std::string(file) + "'";
  auto documents = TRY_IN(parse_yaml(text, file), "unable to parse config file");
  if (documents.empty()) return out;
  const YamlDocument& document = documents.front();
  for (const std::string& key : document.duplicate_keys) {
    out.warnings.push_back("key '" + key + "' occurs twice; the last one counts");
  }
  if (documents.size() > 1) out.warnings.push_back("only the first of several documents is read");
  auto read = Reader(document, out).read();
  if (!read) return fail(std::move(read).error().in(doing));
  return out;
}

}  // namespace gpuop::sharing

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include "base/text.h"
#include "base/yaml.h"
#include "preflight/config_texts.h"

namespace gpuop::preflight {
namespace {

constexpr const char* kList = "mig-configs";

// "7g" → 7 for the unit "g"; nullopt for what is none.
std::optional<std::int64_t> amount(std::string_view text, std::string_view unit) {
  if (!text.ends_with(unit)) return std::nullopt;
  text.remove_suffix(unit.size());
  const bool digits = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return digits ? parse_int(text) : std::nullopt;
}

bool is_attribute(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || !letter(text.front()) || text.back() == '.') return false;
  return std::ranges::all_of(text, [&](char c) { return letter(c) || c == '.' || (c >= '0' && c <= '9'); });
}

// [Cc.]Gg.MEMgb[(+|-)attribute[,attribute…]] (§1.4).
bool is_profile(std::string_view text) {
  const auto sign = text.find_first_of("+-");
  if (sign != std::string_view::npos) {
    const auto attributes = split(text.substr(sign + 1), ',');
    const std::set<std::string> unique(attributes.begin(), attributes.end());
    if (unique.size() != attributes.size() || !std::ranges::all_of(attributes, is_attribute)) return false;
  }
  auto parts = split(text.substr(0, sign), '.');
  if (parts.size() == 2) parts.insert(parts.begin(), "");
  if (parts.size() != 3) return false;
  const auto slices = amount(parts[1], "g");
  const auto compute = parts[0].empty() ? slices : amount(parts[0], "c");
  return slices && compute && *compute <= *slices && amount(parts[2], "gb");
}

class Reader {
 public:
  explicit Reader(const YamlDocument& document) : document_(document) {}

  Result<std::vector<std::string>> names() const {
    if (!document_.value.is_object()) return wrong("", "must be a map");
    const JsonObject& top = document_.value.get_object();
    if (!top.empty() && !top.contains("version"))
      return wrong("", "unable to parse with missing 'version' field");
    TRY(only(top, "", {"version", kList}));
    const Json* version = find(document_.value, {"version"});
    if (version && (!version->is_string() || as_text(*version) != "v1"))
      return wrong("version", "unknown version: " + plain_text(*version) + "; must be v1");
    const Json* configs = find(document_.value, {kList});
    std::vector<std::string> out;
    if (!configs) return out;
    if (!configs->is_object()) return wrong(kList, "must be a map of names");
    if (configs->get_object().empty()) return wrong(kList, "at least one entry is required");
    for (const auto& [name, entries] : configs->get_object()) {
      TRY(config(entries, std::string(kList) + "." + std::string(name)));
      out.emplace_back(name);
    }
    return out;
  }

 private:
  std::unexpected<Error> wrong(const std::string& path, const std::string& why) const {
    const int line = document_.line_of(path);
    return fail(Code::kInvalid, (line > 0 ? "line " + std::to_string(line) + ": " : std::string()) + path +
                                    (path.empty() ? "" : ": ") + why);
  }

  Result<> only(const JsonObject& object, const std::string& path,
                const std::vector<std::string>& known) const {
    for (const auto& [key, value] : object) {
      if (std::ranges::find(known, std::string(key)) == known.end())
        return wrong(path.empty() ? str(key) : path + "." + str(key),
                     "unexpected field: " + str(key) + did_you_mean(key, known));
    }
    return {};
  }

  Result<> config(const Json& entries, const std::string& path) const {
    if (!entries.is_array()) return wrong(path, "must be a list");
    if (entries.get_array().empty()) return wrong(path, "at least one entry is required");
    std::size_t i = 0;
    for (const Json& entry : entries.get_array())
      TRY(this->entry(entry, path + "[" + std::to_string(i++) + "]"));
    return {};
  }

  Result<> entry(const Json& entry, const std::string& path) const {
    if (!entry.is_object()) return wrong(path, "must be a map");
    TRY(only(entry.get_object(), path, {"device-filter", "devices", "mig-enabled", "mig-devices"}));
    TRY(devices(entry, path));
    const Json* enabled = find(entry, {"mig-enabled"});
    if (!enabled) return wrong(path, "missing required field: mig-enabled");
    if (!enabled->is_bool()) return wrong(path + ".mig-enabled", "must be true or false");
    const Json* parts = find(entry, {"mig-devices"});
    if (!parts && enabled->get_bool())
      return wrong(path, "missing required field 'mig-devices' when 'mig-enabled' is true");
    if (!parts || parts->is_null()) return {};
    if (!parts->is_object()) return wrong(path + ".mig-devices", "must be a map of profiles to counts");
    if (!parts->get_object().empty() && !enabled->get_bool())
      return wrong(path + ".mig-devices", "MIG devices included when 'mig-enabled' is false");
    return counts(parts->get_object(), path + ".mig-devices");
  }

  Result<> devices(const Json& entry, const std::string& path) const {
    const Json* devices = find(entry, {"devices"});
    if (!devices) return wrong(path, "missing required field: devices");
    const bool numbers =
        devices->is_array() &&
        std::ranges::all_of(devices->get_array(), [](const Json& one) { return one.is_int64(); });
    if (numbers || (devices->is_string() && as_text(*devices) == "all")) return {};
    return wrong(path + ".devices", "must be all or a list of GPU indices; got " + to_text(*devices));
  }

  Result<> counts(const JsonObject& parts, const std::string& path) const {
    bool some = parts.empty();
    for (const auto& [profile, count] : parts) {
      if (!is_profile(profile))
        return wrong(path, "invalid format for '" + str(profile) + "': must be a profile such as 1g.10gb");
      if (!count.is_int64() || count.get_int64() < 0)
        return wrong(path + "." + str(profile),
                     "invalid count for '" + str(profile) + "': " + to_text(count));
      some = some || count.get_int64() > 0;
    }
    if (!some) return wrong(path, "all counts for all MigProfiles are 0");
    return {};
  }

  const YamlDocument& document_;
};

}  // namespace

Result<MigConfigs> parse_mig_configs(std::string_view text, std::string_view file) {
  MigConfigs out;
  const auto documents = TRY(parse_yaml(text, file));
  if (documents.empty()) return out;
  auto names = Reader(documents.front()).names();
  if (!names) return fail(std::move(names).error().in("read '" + std::string(file) + "'"));
  out.names = std::move(*names);
  for (const auto& key : documents.front().duplicate_keys)
    out.warnings.push_back("key '" + key + "' is written twice; the last one counts");
  return out;
}

}  // namespace gpuop::preflight

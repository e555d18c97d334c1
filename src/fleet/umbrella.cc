#include "fleet/umbrella.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "fleet/value_schema.h"

namespace gpuop::fleet {
namespace {

// Keys of ours that values of other charts have as well.
bool is_common(std::string_view key) {
  static const std::set<std::string_view> kCommon = {
      "cdi",          "extraObjects", "fleet", "global",
      "hostPaths",    "mig",          "nfd",   "node-feature-discovery",
      "nodeSelector", "operator",     "psa",   "platform",
      "psp",          "validator"};
  return kCommon.contains(key);
}

struct Counted {
  std::size_t operands = 0;
  std::size_t ours = 0;
  std::size_t all = 0;
};

Counted count(const JsonObject& values, const Json& schema) {
  Counted out;
  for (const auto& [key, value] : values) {
    if (key == "global" || key == "enabled") continue;
    ++out.all;
    if (!has(schema, {"properties", key})) continue;
    ++out.ours;
    if (!is_common(key)) ++out.operands;
  }
  return out;
}

// "gpu-operator", "gpuOperator", "nvidia_gpu_operator".
bool is_our_name(std::string_view key) {
  std::string letters;
  for (const char c : to_lower(key)) {
    if (c != '-' && c != '_') letters += c;
  }
  return letters.ends_with("gpuoperator");
}

bool looks_like_ours(const Json& value, const Json& schema) {
  if (!value.is_object()) return false;
  const Counted found = count(value.get_object(), schema);
  return found.operands >= 2 && found.ours * 2 > found.all;
}

Result<std::string> only_one(const std::vector<std::string>& keys) {
  if (keys.empty()) return std::string();
  if (keys.size() == 1) return keys.front();
  return fail(Code::kInvalid, "more than one key may hold the values of this chart: " + join(keys, ", ") +
                                  "; name the one with --values-key");
}

}  // namespace

Result<std::string> values_key(std::span<const YamlDocument> files, const Json& schema) {
  const Json all = merged_values(files, JsonObject{});
  if (!all.is_object() || count(all.get_object(), schema).operands > 0) return std::string();
  std::vector<std::string> named;
  std::vector<std::string> alike;
  for (const auto& [key, value] : all.get_object()) {
    if (has(schema, {"properties", key})) continue;
    if (is_our_name(key)) named.emplace_back(key);
    if (looks_like_ours(value, schema)) alike.emplace_back(key);
  }
  return only_one(named.empty() ? alike : named);
}

void tell_of_values_key(std::vector<ValuesFinding>& findings, std::span<const YamlDocument> files,
                        const Json& schema) {
  for (auto& one : findings) {
    if (one.kind != ValuesFinding::Kind::kUnknown) continue;
    const Json* value = find(files[one.file].value, {one.path});
    if (value && value->is_object() && count(value->get_object(), schema).operands > 0)
      one.text += "; --values-key " + one.path +
                  " checks what lies below it, where another chart's values have ours there";
  }
}

Result<std::vector<YamlDocument>> values_below(std::span<const YamlDocument> files, std::string_view key) {
  std::vector<YamlDocument> out;
  bool any = false;
  std::vector<std::string> there;
  for (const auto& file : files) {
    const Json* at = &file.value;
    for (const auto& part : split(key, '.')) {
      if (at && at->is_object()) {
        for (const auto& [name, value] : at->get_object()) there.emplace_back(name);
      }
      at = at ? find(*at, {part}) : nullptr;
    }
    any = any || at;
    YamlDocument below;
    below.value = at && !at->is_null() ? *at : Json(JsonObject{});
    const std::string start = std::string(key) + ".";
    for (const auto& [path, line] : file.lines) {
      if (path == key) below.lines[""] = line;
      if (path.starts_with(start)) below.lines[path.substr(start.size())] = line;
    }
    for (const auto& path : file.duplicate_keys) {
      if (path.starts_with(start)) below.duplicate_keys.push_back(path.substr(start.size()));
    }
    out.push_back(std::move(below));
  }
  if (!any)
    return fail(Code::kInvalid, "there is no key '" + std::string(key) + "'" +
                                    did_you_mean(key.substr(key.rfind('.') + 1), there));
  return out;
}

std::vector<ValuesFinding> told_below(std::vector<ValuesFinding> findings, const std::string& key) {
  std::erase_if(findings, [](const auto& one) {
    return one.kind == ValuesFinding::Kind::kUnknown && one.path == "enabled";
  });
  for (auto& one : findings) {
    one.path = one.path.empty() ? key : below(key, one.path);
    const std::string meant = " (did you mean '" + one.meant + "'?)";
    if (one.meant.empty() || !one.text.ends_with(meant)) continue;
    one.text.resize(one.text.size() - meant.size());
    one.text += " (did you mean '" + below(key, one.meant) + "'?)";
  }
  return findings;
}

}  // namespace gpuop::fleet

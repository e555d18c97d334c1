#include "features/config.h"

#include <algorithm>
#include <map>
#include <regex>

#include "base/json.h"
#include "base/text.h"
#include "base/yaml.h"
#include "features/master.h"

namespace gpuop::features {
namespace {

Result<std::vector<std::string>> text_list(const Json& value, const std::string& path) {
  std::vector<std::string> out;
  if (value.is_null()) return out;
  if (!value.is_array()) return fail(Code::kInvalid, path + ": must be a list");
  for (const auto& item : value.get_array()) {
    if (item.is_string())
      out.emplace_back(as_text(item));
    else if (item.is_int64())
      out.push_back(std::to_string(item.get_int64()));
    else
      return fail(Code::kInvalid, path + ": must be a list of texts");
  }
  return out;
}

Result<std::string> text_value(const Json& value, const std::string& path) {
  if (!value.is_string()) return fail(Code::kInvalid, path + ": must be text");
  return std::string(as_text(value));
}

Result<Duration> duration_value(const Json& value, const std::string& path) {
  if (value.is_int64()) return Duration(value.get_int64());
  if (!value.is_string()) return fail(Code::kInvalid, path + ": must be a duration");
  return TRY_IN(parse_go_duration(as_text(value)), path);
}

using Setter = std::function<Result<>(const Json& value, const std::string& path)>;
using Setters = std::map<std::string, Setter>;  // by lower-case key

// Calls the setter of each key of `object`; what has none is warned of.
Result<> walk(const Json& object, const std::string& path, const Setters& setters,
              const std::vector<std::string>& names, std::vector<std::string>& warnings) {
  if (object.is_null()) return {};
  if (!object.is_object()) return fail(Code::kInvalid, path + ": must be a map");
  for (const auto& [key, value] : object.get_object()) {
    const std::string inner = path.empty() ? std::string(key) : path + "." + std::string(key);
    const auto found = setters.find(to_lower(key));
    if (found == setters.end()) {
      warnings.push_back("configuration key " + inner + ": unknown, has no effect" +
                         did_you_mean(key, names));
    } else {
      TRY(found->second(value, inner));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> check_owner_refs(const std::vector<std::string>& refs) {
  std::vector<std::string> out;
  for (const std::string name : {"node", "pod", "ds"}) {
    const auto count = std::count(refs.begin(), refs.end(), name);
    if (count > 1) return fail(Code::kInvalid, "duplicate owner reference source \"" + name + "\"");
    if (count == 1) out.push_back(name);
  }
  for (const auto& ref : refs) {
    if (std::find(out.begin(), out.end(), ref) == out.end()) {
      return fail(Code::kInvalid,
                  "invalid owner reference source \"" + ref + "\" (must be one of: node, pod, ds)");
    }
  }
  return out;
}

bool source_enabled(const std::vector<std::string>& list, std::string_view source) {
  bool on = false;
  for (const auto& entry : list) {
    if (entry == "all")
      on = source != "fake";
    else if (entry == source)
      on = true;
    else if (entry.starts_with('-') && std::string_view(entry).substr(1) == source)
      on = false;
  }
  return on;
}

Result<> merge_config(WorkerConfig& config, std::string_view text, std::string_view file) {
  if (trim(text).empty()) return {};
  const auto document = parse_yaml(text, file);
  if (!document) return fail(document.error().in("failed to parse config file"));
  if (document->empty()) return {};
  const auto texts = [](std::vector<std::string>& into) {
    return [&into](const Json& value, const std::string& path) -> Result<> {
      into = TRY(text_list(value, path));
      return {};
    };
  };
  const auto flag = [](bool& into) {
    return [&into](const Json& value, const std::string& path) -> Result<> {
      if (!value.is_bool()) return fail(Code::kInvalid, path + ": must be true or false");
      into = value.get_bool();
      return {};
    };
  };
  bool no_owner_refs = false;
  const Setter ignored = [](const Json&, const std::string&) -> Result<> { return {}; };
  const Setters core{
      {"sleepinterval",
       [&](const Json& value, const std::string& path) -> Result<> {
         config.sleep_interval = TRY(duration_value(value, path));
         if (config.sleep_interval > 0s && config.sleep_interval < 1s) {
           config.warnings.push_back(path + ": shorter than a second; using 1s");
           config.sleep_interval = 1s;
         }
         return {};
       }},
      {"featuresources", texts(config.feature_sources)},
      {"labelsources", texts(config.label_sources)},
      {"sources", texts(config.label_sources)},
      {"labelwhitelist",
       [&](const Json& value, const std::string& path) -> Result<> {
         config.label_white_list = TRY(text_value(value, path));
         try {
           std::regex check(config.label_white_list);
         } catch (const std::regex_error& error) {
           return fail(Code::kInvalid, path + ": not a regular expression: " + error.what());
         }
         return {};
       }},
      {"nopublish", flag(config.no_publish)},
      {"noownerrefs", flag(no_owner_refs)},
      {"ownerrefs", texts(config.owner_refs)},
      {"nopublishfeatures", texts(config.no_publish_features)},
      {"klog", ignored},
  };
  const Setters pci{{"deviceclasswhitelist", texts(config.pci_class_whitelist)},
                    {"devicelabelfields", texts(config.pci_label_fields)}};
  const Setters kernel{{"kconfigfile",
                        [&](const Json& value, const std::string& path) -> Result<> {
                          config.kconfig_file = TRY(text_value(value, path));
                          return {};
                        }},
                       {"configopts", texts(config.kernel_config_options)}};
  const auto section = [&config](const Setters& setters, std::vector<std::string> names) -> Setter {
    return [&config, &setters, names](const Json& value, const std::string& path) {
      return walk(value, path, setters, names, config.warnings);
    };
  };
  // Sources whose options have no effect here, but are upstream's: taken in silence.
  const Setters sources{{"pci", section(pci, {"deviceClassWhitelist", "deviceLabelFields"})},
                        {"kernel", section(kernel, {"kconfigFile", "configOpts"})},
                        {"cpu", ignored},
                        {"local", ignored},
                        {"usb", ignored},
                        {"custom", ignored},
                        {"fake", ignored}};
  const Setters top{
      {"core", section(core, {"sleepInterval", "featureSources", "labelSources", "labelWhiteList",
                              "noPublish", "ownerRefs", "noOwnerRefs", "noPublishFeatures", "klog"})},
      {"sources", section(sources, {"pci", "kernel", "cpu", "local", "usb", "custom"})}};
  if (auto walked = walk(document->front().value, "", top, {"core", "sources"}, config.warnings); !walked) {
    return fail(walked.error().in("failed to parse config file: '" + std::string(file) + "'"));
  }
  if (no_owner_refs) config.owner_refs.clear();
  config.owner_refs = TRY(check_owner_refs(config.owner_refs));
  return {};
}

Result<> merge_master_config(MasterOptions& options, std::string_view text, std::string_view file,
                             std::vector<std::string>& warnings) {
  if (trim(text).empty()) return {};
  const auto document = parse_yaml(text, file);
  if (!document) return fail(document.error().in("failed to parse config file"));
  if (document->empty()) return {};
  const auto texts = [](std::vector<std::string>& into) {
    return [&into](const Json& value, const std::string& path) -> Result<> {
      into = TRY(text_list(value, path));
      return {};
    };
  };
  const Setters restrictions{
      {"removalgraceperiod", [&](const Json& value, const std::string& path) -> Result<> {
         options.removal_grace = TRY(duration_value(value, path));
         return {};
       }}};
  const Setters top{{"extralabelns", texts(options.extra_label_ns)},
                    {"denylabelns", texts(options.deny_label_ns)},
                    {"restrictions", [&](const Json& value, const std::string& path) {
                       return walk(value, path, restrictions, {"removalGracePeriod"}, warnings);
                     }}};
  if (auto walked =
          walk(document->front().value, "", top, {"extraLabelNs", "denyLabelNs", "restrictions"}, warnings);
      !walked) {
    return fail(walked.error().in("failed to parse config file: '" + std::string(file) + "'"));
  }
  return {};
}

}  // namespace gpuop::features

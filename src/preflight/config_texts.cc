#include "preflight/config_texts.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "base/yaml.h"
#include "features/config.h"
#include "fleet/value_schema.h"
#include "sharing/settings.h"
#include "telemetry/counters.h"

namespace gpuop::preflight {
namespace {

using fleet::below;
using sharing::Program;

constexpr const char* kMetrics = "dcgm-metrics.csv";
constexpr const char* kMigFile = "config.yaml";

bool is_on(const Json& values, const char* section) {
  return get_bool(values, {section, "enabled"}, true);
}

std::vector<std::string> keys_of(const JsonObject& object) {
  std::vector<std::string> out;
  for (const auto& [key, value] : object) out.emplace_back(key);
  return out;
}

constexpr const char* kPluginConfig = "devicePlugin.config";
constexpr const char* kMigConfig = "migManager.config";

class Texts {
 public:
  explicit Texts(const Json& values) : values_(values) {}

  std::vector<fleet::FieldFault> run() {
    plugin();
    mig();
    metrics();
    discovery();
    return std::move(found_);
  }

  std::vector<fleet::FieldFault> run(const Json& config_map) {
    const auto name = get_string(config_map, {"metadata", "name"});
    const JsonObject& data = get_object(config_map, {"data"});
    const auto holds = [&](const char* section) {
      return !name.empty() && is_on(values_, section) &&
             get_string(values_, {section, "config", "name"}) == name;
    };
    if (holds("devicePlugin")) plugin_data("data", data, readers(false));
    if (holds("migManager")) mig_data("data", data);
    if (holds("dcgmExporter")) metrics_data("data", data);
    return std::move(found_);
  }

 private:
  void refuse(const std::string& path, const std::string& text) { found_.push_back({path, text}); }
  void warn(const std::string& path, const std::string& text) { found_.push_back({path, text, false}); }

  // --- device plugin, GPU feature discovery, MPS daemon ---

  sharing::SettingsInputs inputs(const char* section) const {
    sharing::SettingsInputs out;
    out.env = program_env(values_, section);
    return out;
  }

  // What the program says of its settings; "" for nothing.
  static std::string complaint(Program program, const sharing::SettingsInputs& inputs,
                               std::vector<std::string>& notes) {
    const auto settings = sharing::resolve_settings(program, inputs);
    if (!settings) return settings.error().text();
    notes = settings->notes;
    const auto good = program == Program::kPlugin ? sharing::validate_plugin(*settings, {})
                                                  : sharing::validate_feature_discovery(*settings);
    return good ? "" : good.error().text();
  }

  struct Reads {
    Program program;
    const char* section;
    const char* name;
    bool sound = true;  // its environment alone is
  };

  // Those that are on and read the file.
  std::vector<Reads> readers(bool tell) {
    std::vector<Reads> out = {{Program::kPlugin, "devicePlugin", "device plugin"},
                              {Program::kFeatureDiscovery, "gfd", "GPU feature discovery"}};
    std::erase_if(out, [&](const Reads& reader) { return !is_on(values_, reader.section); });
    for (Reads& reader : out) {
      std::vector<std::string> ignored;
      const std::string text = complaint(reader.program, inputs(reader.section), ignored);
      reader.sound = text.empty();
      if (!reader.sound && tell)
        refuse(std::string(reader.section) + ".env", text + "; " + reader.name + " does not start");
    }
    return out;
  }

  void plugin() {
    const auto programs = readers(true);
    const std::string path = std::string(kPluginConfig) + ".data";
    const JsonObject& data = get_object(values_, {"devicePlugin", "config", "data"});
    if (data.empty()) return;
    if (!get_bool(values_, {"devicePlugin", "config", "create"}))
      return warn(path, "does nothing without devicePlugin.config.create=true");
    plugin_data(path, data, programs);
  }

  void plugin_data(const std::string& path, const JsonObject& data, const std::vector<Reads>& programs) {
    for (const auto& [key, value] : data)
      plugin_file(below(path, key), str(key), plain_text(value), programs);
    const std::string wanted(get_string(values_, {"devicePlugin", "config", "default"}));
    if (!wanted.empty() && !data.contains(wanted))
      refuse(std::string(kPluginConfig) + ".default",
             missing(wanted, keys_of(data)) +
                 "; the device plugin starts on no node that has no label "
                 "nvidia.com/device-plugin.config");
  }

  static std::string missing(const std::string& wanted, const std::vector<std::string>& there) {
    return "'" + wanted + "' is not in the data" + did_you_mean(wanted, there) + "; it has " +
           join(there, ", ");
  }

  void plugin_file(const std::string& path, const std::string& name, const std::string& text,
                   const std::vector<Reads>& readers) {
    const auto file = sharing::parse_config_file(text, name);
    if (!file)
      return refuse(path,
                    file.error().text() + "; neither device plugin nor GPU feature discovery starts with it");
    std::vector<std::string> said = file->warnings;
    for (const Reads& reader : readers) {
      if (!reader.sound) continue;
      sharing::SettingsInputs with = inputs(reader.section);
      with.file = *file;
      std::vector<std::string> notes;
      const std::string wrong = complaint(reader.program, with, notes);
      if (!wrong.empty()) return refuse(path, wrong + "; " + reader.name + " does not start with it");
      for (auto& note : notes) {
        if (std::ranges::find(said, note) == said.end()) said.push_back(std::move(note));
      }
    }
    for (const auto& each : said) warn(path, each);
  }

  // --- MIG manager ---

  void mig() {
    const std::string path = std::string(kMigConfig) + ".data";
    const JsonObject& data = get_object(values_, {"migManager", "config", "data"});
    if (data.empty() || !is_on(values_, "migManager")) return;
    if (get_string(values_, {"migManager", "config", "name"}).empty())
      return warn(path, "does nothing without migManager.config.name");
    mig_data(path, data);
  }

  void mig_data(const std::string& path, const JsonObject& data) {
    const Json* text = data.if_contains(kMigFile);
    if (!text)
      return refuse(path, std::string("must have the key ") + kMigFile +
                              ", which MIG manager reads; it has " + join(keys_of(data), ", "));
    const auto configs = parse_mig_configs(plain_text(*text), kMigFile);
    const std::string at = below(path, kMigFile);
    if (!configs) return refuse(at, configs.error().text() + "; MIG manager refuses it");
    for (const auto& warning : configs->warnings) warn(at, warning);
    const std::string wanted(get_string(values_, {"migManager", "config", "default"}));
    if (wanted.empty() || std::ranges::find(configs->names, wanted) != configs->names.end()) return;
    warn(std::string(kMigConfig) + ".default",
         missing(wanted, configs->names) +
             "; MIG manager fails on nodes that have no label nvidia.com/mig.config. "
             "Instead: add it to mig-configs, or set the default to \"\"");
  }

  // --- metrics ---

  void metrics() {
    const std::string path = "dcgmExporter.config.data";
    const Json* data = find(values_, {"dcgmExporter", "config", "data"});
    if (!data || plain_text(*data).empty() || !is_on(values_, "dcgmExporter")) return;
    if (data->is_object() && data->get_object().empty()) return;
    if (get_string(values_, {"dcgmExporter", "config", "name"}).empty() ||
        !get_bool(values_, {"dcgmExporter", "config", "create"}))
      return warn(path, "does nothing without dcgmExporter.config.create=true and a name");
    if (!data->is_object()) return metrics_file(path, plain_text(*data));
    metrics_data(path, data->get_object());
  }

  void metrics_data(const std::string& path, const JsonObject& files) {
    const auto keys = keys_of(files);
    for (const auto& key : keys) {
      const std::vector<std::string> known = {kMetrics};
      if (key != kMetrics)
        warn(below(path, key),
             std::string("does nothing; the key must be ") + kMetrics + did_you_mean(key, known));
    }
    const Json* text = files.if_contains(kMetrics);
    if (!text) return refuse(path, std::string("must be a text, or a map with the key ") + kMetrics);
    metrics_file(below(path, kMetrics), plain_text(*text));
  }

  void metrics_file(const std::string& path, const std::string& text) {
    const auto counters = telemetry::parse_counters(text, kMetrics);
    if (!counters) return refuse(path, counters.error().text() + "; the exporter does not start with it");
    for (const auto& warning : counters->warnings) warn(path, warning);
  }

  // --- node feature discovery ---

  void discovery() {
    const char* section = "node-feature-discovery";
    const Json* config = find(values_, {section, "worker", "config"});
    if (!config || !is_on(values_, "nfd") || !get_bool(values_, {section, "worker", "enable"}, true)) return;
    features::WorkerConfig into;
    const auto read = features::merge_config(into, plain_text(*config), "nfd-worker.conf");
    const std::string path = std::string(section) + ".worker.config";
    if (!read) return refuse(path, read.error().text() + "; nfd-worker does not start with it");
    for (const auto& warning : into.warnings) warn(path, warning);
  }

  const Json& values_;
  std::vector<fleet::FieldFault> found_;
};

}  // namespace

std::vector<fleet::FieldFault> config_text_faults(const Json& values) {
  return Texts(values).run();
}

std::vector<fleet::FieldFault> config_map_faults(const Json& values, const Json& config_map) {
  return Texts(values).run(config_map);
}

std::vector<fleet::FieldFault> value_faults(const Json& values) {
  auto out = config_text_faults(values);
  for (auto& fault : extra_object_faults(values)) out.push_back(std::move(fault));
  return out;
}

}  // namespace gpuop::preflight

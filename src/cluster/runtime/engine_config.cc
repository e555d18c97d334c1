#include "cluster/runtime/engine_config.h"

#include <algorithm>

#include "base/files.h"
#include "base/text.h"
#include "cluster/runtime/containerd_config.h"

namespace gpuop::cluster {
namespace {

std::vector<std::string> texts(const JsonArray& list) {
  std::vector<std::string> out;
  for (const Json& item : list) out.push_back(str(as_text(item)));
  return out;
}

// CRI-O takes a runtime's table as a whole from the last file that has it.
void read_crio_runtimes(EngineConfig& config, const Json& document) {
  for (const auto& [name, table] : get_object(document, {"crio", "runtime", "runtimes"})) {
    RuntimeHandler handler;
    handler.type = str(get_string(table, {"runtime_type"}, "oci"));
    handler.binary_name = str(get_string(table, {"runtime_path"}));
    // Without a path the program is looked for by the runtime's name.
    if (handler.binary_name.empty() && name != "runc" && name != "crun") handler.binary_name = str(name);
    // Kubernetes' annotations reach the specification as they are.
    handler.pod_annotations = handler.container_annotations = {"*"};
    handler.privileged_without_host_devices = get_bool(table, {"privileged_without_host_devices"});
    config.handlers[str(name)] = std::move(handler);
  }
}

Result<EngineConfig> load_crio_config(const Engine& engine) {
  std::vector<std::pair<std::string, Json>> documents;
  std::vector<fs::path> files{engine.config};
  const fs::path folder = engine.config.parent_path() / "crio.conf.d";
  const auto names = list_dir(folder);
  for (const std::string& name : names.value_or(std::vector<std::string>{})) files.push_back(folder / name);
  for (const fs::path& file : files) {
    if (!file_exists(file)) continue;
    const std::string text = TRY_IN(read_file(file, 4u << 20), "load CRI-O configuration");
    documents.emplace_back(file.string(), TRY(parse_toml(text, file.string())));
  }
  return decide_crio_config(engine, documents);
}

Result<EngineConfig> load_docker_config(const Engine& engine) {
  if (!file_exists(engine.config)) return decide_docker_config(engine, JsonObject{});
  const std::string text = TRY_IN(read_file(engine.config, 4u << 20), "load Docker configuration");
  auto json = parse_json(text);
  if (!json) {
    return fail(Code::kInvalid, "unable to configure the Docker daemon with file " + engine.config.string() +
                                    ": " + json.error().text());
  }
  auto config = decide_docker_config(engine, *json);
  if (config) config->files = {engine.config.string()};
  return config;
}

}  // namespace

bool at_least(const std::string& version, int major, int minor) {
  const std::vector<std::string> parts = split(version, '.');
  auto part = [&](std::size_t at) { return parts.size() > at ? parse_int(parts[at]).value_or(0) : 0; };
  return part(0) != major ? part(0) > major : part(1) >= minor;
}

const RuntimeHandler* EngineConfig::handler(const std::string& name) const {
  auto found = handlers.find(name.empty() ? default_handler : name);
  return found == handlers.end() ? nullptr : &found->second;
}

Result<Engine> find_engine(const std::string& name, const std::string& version) {
  static const std::vector<Engine> kEngines{
      {"containerd", "2.1.0", "containerd", "/etc/containerd/config.toml", "/var/lib/containerd",
       "/run/containerd", "/run/containerd/containerd.sock", "containerd", false},
      {"crio", "1.34.0", "cri-o", "/etc/crio/crio.conf", "/var/lib/containers", "/run/crio",
       "/run/crio/crio.sock", "crio", false},
      {"docker", "28.3.0", "docker", "/etc/docker/daemon.json", "/var/lib/docker", "/run/docker",
       "/run/docker.sock", "docker", true, false}};
  std::vector<std::string> names;
  for (const Engine& known : kEngines) {
    names.push_back(known.name);
    if (known.name != name) continue;
    Engine engine = known;
    if (!version.empty()) engine.version = version;
    return engine;
  }
  return fail(Code::kInvalid, "container runtime '" + name + "': must be one of " + join(names, ", ") +
                                  did_you_mean(name, names));
}

Result<EngineConfig> decide_crio_config(const Engine& engine,
                                        const std::vector<std::pair<std::string, Json>>& documents) {
  EngineConfig config;
  config.default_handler = at_least(engine.version, 1, 31) ? "crun" : "runc";
  RuntimeHandler plain;
  plain.type = "oci";
  plain.pod_annotations = plain.container_annotations = {"*"};
  config.handlers = {{"runc", plain}, {"crun", plain}};
  for (const auto& [file, document] : documents) {
    config.files.push_back(file);
    read_crio_runtimes(config, document);
    if (auto name = get_string(document, {"crio", "runtime", "default_runtime"}); !name.empty())
      config.default_handler = str(name);
    if (has(document, {"crio", "runtime", "cdi_spec_dirs"}))
      config.cdi_dirs = texts(get_array(document, {"crio", "runtime", "cdi_spec_dirs"}));
  }
  if (config.handlers.contains(config.default_handler)) return config;
  return fail(Code::kInvalid, "validating runtime config: default_runtime set to \"" +
                                  config.default_handler + "\", but no such entry in runtimes");
}

Result<EngineConfig> decide_docker_config(const Engine& engine, const Json& document) {
  EngineConfig config;
  config.passes_cdi = engine.passes_cdi;
  config.enable_cdi = get_bool(document, {"features", "cdi"}, at_least(engine.version, 28, 2));
  if (has(document, {"cdi-spec-dirs"})) config.cdi_dirs = texts(get_array(document, {"cdi-spec-dirs"}));
  for (const auto& [name, table] : get_object(document, {"runtimes"})) {
    RuntimeHandler handler;
    handler.type = str(get_string(table, {"runtimeType"}, handler.type));
    handler.binary_name = str(get_string(table, {"path"}));
    if (handler.binary_name.empty() && !has(table, {"runtimeType"})) {
      return fail(Code::kInvalid,
                  "runtime " + str(name) + ": either a runtimeType or a path must be configured");
    }
    config.handlers[str(name)] = std::move(handler);
  }
  if (auto name = get_string(document, {"default-runtime"}); !name.empty())
    config.default_handler = str(name);
  if (config.handlers.contains(config.default_handler)) return config;
  return fail(Code::kInvalid, "specified default runtime '" + config.default_handler + "' does not exist");
}

Result<EngineConfig> load_engine_config(const Engine& engine) {
  if (engine.name == "crio") return load_crio_config(engine);
  if (engine.name == "docker") return load_docker_config(engine);
  return load_containerd_config(engine.config, engine.version);
}

}  // namespace gpuop::cluster

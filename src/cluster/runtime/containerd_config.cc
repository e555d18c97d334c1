#include "cluster/runtime/containerd_config.h"

#include <glob.h>

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/toml_library.h"

namespace gpuop::cluster {
namespace {

constexpr std::size_t kDeepest = 64;
constexpr std::size_t kMostFiles = 256;

Result<Json> to_json(const toml::node& node, std::size_t depth) {
  if (depth > kDeepest) return fail(Code::kInvalid, "tables are nested too deeply");
  if (const auto* table = node.as_table()) {
    JsonObject out;
    for (const auto& [key, value] : *table) out[std::string_view(key.str())] = TRY(to_json(value, depth + 1));
    return Json(std::move(out));
  }
  if (const auto* array = node.as_array()) {
    JsonArray out;
    for (const auto& value : *array) out.push_back(TRY(to_json(value, depth + 1)));
    return Json(std::move(out));
  }
  if (const auto* text = node.as_string()) return Json(std::string_view(text->get()));
  if (const auto* number = node.as_integer()) return Json(number->get());
  if (const auto* number = node.as_floating_point()) return Json(number->get());
  if (const auto* flag = node.as_boolean()) return Json(flag->get());
  return Json(nullptr);  // dates: no key of containerd's is one
}

// Objects merge, everything else is replaced; lists too.
void merge_over(Json& base, const Json& over) {
  if (!base.is_object() || !over.is_object()) {
    base = over;
    return;
  }
  for (const auto& [key, value] : over.get_object()) merge_over(base.get_object()[key], value);
}

// The table of the CRI runtime plugin under the name that a version gives it.
std::string_view plugin_name(std::int64_t version) {
  if (version == 1) return "cri";
  if (version == 2) return "io.containerd.grpc.v1.cri";
  return "io.containerd.cri.v1.runtime";
}

Result<std::int64_t> version_of(const Json& document, const std::string& file, int newest) {
  const Json* version = find(document, {"version"});
  if (!version) return 1;
  if (!version->is_int64())
    return fail(Code::kInvalid, "load '" + file + "': version: must be a whole number");
  if (version->get_int64() < 1 || version->get_int64() > newest) {
    return fail(Code::kInvalid,
                "load '" + file + "': version: expected containerd config version equal to or less than `" +
                    std::to_string(newest) + "`, got `" + std::to_string(version->get_int64()) + "`");
  }
  return version->get_int64();
}

std::vector<std::string> strings(const Json& root, Keys keys) {
  std::vector<std::string> out;
  for (const Json& item : get_array(root, keys)) {
    if (item.is_string()) out.push_back(str(as_text(item)));
  }
  return out;
}

RuntimeHandler handler_of(const std::string& name, const Json& table, std::vector<std::string>& warnings) {
  RuntimeHandler handler;
  handler.type = str(get_string(table, {"runtime_type"}));
  if (handler.type.empty()) {
    handler.type = "io.containerd.runc.v2";
    warnings.push_back("runtime '" + name + "': runtime_type is empty; io.containerd.runc.v2 is used");
  }
  handler.binary_name = str(get_string(table, {"options", "BinaryName"}));
  // Version 1 files had it beside the options.
  if (handler.binary_name.empty()) handler.binary_name = str(get_string(table, {"options", "Runtime"}));
  handler.pod_annotations = strings(table, {"pod_annotations"});
  handler.container_annotations = strings(table, {"container_annotations"});
  handler.privileged_without_host_devices = get_bool(table, {"privileged_without_host_devices"});
  return handler;
}

}  // namespace

Result<Json> parse_toml(std::string_view text, std::string_view file) {
  try {
    toml::table table = toml::parse(text, file);
    return TRY_IN(to_json(table, 0), "load '" + std::string(file) + "'");
  } catch (const toml::parse_error& error) {
    return fail(Code::kInvalid, "load '" + std::string(file) + "': line " +
                                    std::to_string(error.source().begin.line) + ", column " +
                                    std::to_string(error.source().begin.column) + ": " +
                                    std::string(error.description()));
  } catch (const std::exception& error) {
    return fail(Code::kInvalid, "load '" + std::string(file) + "': " + error.what());
  }
}

Result<EngineConfig> decide_containerd_config(const std::vector<std::pair<std::string, Json>>& documents,
                                              const std::string& containerd) {
  EngineConfig config;
  const bool whole_tables = !at_least(containerd, 2, 1);
  Json merged = JsonObject{};
  for (const auto& [file, document] : documents) {
    config.files.push_back(file);
    std::int64_t version = TRY(version_of(document, file, at_least(containerd, 2, 0) ? 3 : 2));
    std::string_view ours = plugin_name(version);
    for (const auto& [name, table] : get_object(document, {"plugins"})) {
      if (std::string_view(name) == ours) {
        if (whole_tables) merged = JsonObject{};
        merge_over(merged, table);
      } else if (name == plugin_name(1) || name == plugin_name(2) || name == plugin_name(3)) {
        config.warnings.push_back("'" + file + "': plugins.\"" + str(name) +
                                  "\" is not read in a file of version " + std::to_string(version) +
                                  "; its name there is \"" + str(ours) + "\"");
      }
    }
  }
  for (const auto& [name, table] : get_object(merged, {"containerd", "runtimes"})) {
    if (!table.is_object()) {
      return fail(Code::kInvalid,
                  "load containerd configuration: containerd.runtimes." + str(name) + ": must be a table");
    }
    config.handlers[str(name)] = handler_of(str(name), table, config.warnings);
  }
  if (auto name = get_string(merged, {"containerd", "default_runtime_name"}); !name.empty()) {
    config.default_handler = str(name);
  }
  if (!config.handlers.contains(config.default_handler)) {
    return fail(Code::kInvalid,
                "load containerd configuration: invalid plugin config: `containerd.default_runtime_name` "
                "is '" +
                    config.default_handler + "', which no runtime has");
  }
  config.enable_cdi = get_bool(merged, {"enable_cdi"}, at_least(containerd, 2, 0));
  if (has(merged, {"cdi_spec_dirs"})) config.cdi_dirs = strings(merged, {"cdi_spec_dirs"});
  return config;
}

namespace {

std::vector<std::string> expand(const fs::path& folder, const std::string& import) {
  fs::path pattern = fs::path(import).is_absolute() ? fs::path(import) : folder / import;
  if (import.find_first_of("*?[") == std::string::npos) return {pattern.string()};
  std::vector<std::string> out;
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) out.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  return out;
}

Result<> read_with_imports(const fs::path& file, std::set<std::string>& seen,
                           std::vector<std::pair<std::string, Json>>& documents) {
  if (!seen.insert(file.lexically_normal().string()).second) return {};
  if (seen.size() > kMostFiles) return fail(Code::kInvalid, "load '" + file.string() + "': too many imports");
  std::string text = TRY_IN(read_file(file, 4u << 20), "load containerd configuration");
  Json document = TRY(parse_toml(text, file.string()));
  std::vector<std::string> imports = strings(document, {"imports"});
  documents.emplace_back(file.string(), std::move(document));
  for (const std::string& import : imports) {
    for (const std::string& path : expand(file.parent_path(), import))
      TRY(read_with_imports(path, seen, documents));
  }
  return {};
}

}  // namespace

Result<EngineConfig> load_containerd_config(const fs::path& main, const std::string& version) {
  std::vector<std::pair<std::string, Json>> documents;
  if (!file_exists(main)) return decide_containerd_config(documents, version);
  std::set<std::string> seen;
  TRY(read_with_imports(main, seen, documents));
  return decide_containerd_config(documents, version);
}

}  // namespace gpuop::cluster

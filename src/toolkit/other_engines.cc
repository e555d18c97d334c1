#include <algorithm>

#include "base/text.h"
#include "shim/toml.h"
#include "toolkit/engine.h"

namespace gpuop::toolkit {

namespace {

Result<Json> toml_tree(const FileText& text, std::string_view doing) {
  if (!text) return Json(JsonObject{});
  return TRY_IN(parse_toml(*text, "configuration"), doing);
}

std::vector<std::string> sorted_keys(const JsonObject& object) {
  std::vector<std::string> keys;
  for (const auto& member : object) keys.emplace_back(member.key());
  std::ranges::sort(keys);
  return keys;
}

// Docker's own form: keys sorted, four spaces, no newline at the end.
void docker_text(std::string& out, const Json& value, std::size_t margin) {
  std::string inner(margin + 4, ' ');
  if (value.is_object() && !value.get_object().empty()) {
    out += "{\n";
    bool first = true;
    for (const auto& key : sorted_keys(value.get_object())) {
      out += (first ? "" : ",\n") + inner + to_text(Json(key)) + ": ";
      first = false;
      docker_text(out, value.get_object().at(key), margin + 4);
    }
    out += "\n" + std::string(margin, ' ') + "}";
  } else if (value.is_array() && !value.get_array().empty()) {
    out += "[\n";
    bool first = true;
    for (const auto& item : value.get_array()) {
      out += (first ? "" : ",\n") + inner;
      first = false;
      docker_text(out, item, margin + 4);
    }
    out += "\n" + std::string(margin, ' ') + "]";
  } else {
    out += to_text(value);
  }
}

std::string docker_text(const Json& value) {
  std::string out;
  docker_text(out, value, 0);
  return out;
}

Result<Json> docker_tree(const FileText& text) {
  constexpr std::string_view kDoing = "configure Docker";
  if (!text) return Json(JsonObject{});
  Json tree = TRY_IN(parse_json(*text), kDoing);
  if (!tree.is_object()) return fail(Code::kInvalid, std::string(kDoing) + ": daemon.json must be an object");
  for (std::string_view key : {"runtimes", "features"}) {
    const Json* value = find(tree, {key});
    if (value != nullptr && !value->is_object()) {
      return fail(Code::kInvalid, std::string(kDoing) + ": " + std::string(key) +
                                      ": must be an object; got " + to_text(*value));
    }
  }
  return tree;
}

void add_path(std::vector<std::string>& paths, std::string_view path) {
  if (!path.empty() && std::ranges::find(paths, path) == paths.end()) paths.emplace_back(path);
}

}  // namespace

Result<EngineFiles> crio_setup(const EngineFiles& now, const FileText& source,
                               const EngineSettings& settings) {
  constexpr std::string_view kDoing = "configure CRI-O";
  Json from = TRY(toml_tree(source, kDoing));
  Json tree = TRY(toml_tree(now.drop_in, kDoing));
  std::string fallback(get_string(from, {"crio", "runtime", "default_runtime"}));
  Json options = JsonObject{};
  for (const std::string& name : {fallback, std::string("runc"), std::string("crun")}) {
    if (name.empty() || name.starts_with("nvidia")) continue;
    const Json* table = find(from, {"crio", "runtime", "runtimes", name});
    if (table == nullptr || !table->is_object()) continue;
    options = *table;
    break;
  }
  for (const auto& runtime : settings.runtimes) {
    Json table = options;
    set(table, {"runtime_path"}, runtime.path);
    set(table, {"runtime_type"}, "oci");
    set(tree, {"crio", "runtime", "runtimes", runtime.name}, std::move(table));
  }
  if (settings.set_as_default) set(tree, {"crio", "runtime", "default_runtime"}, settings.default_name);
  return EngineFiles{now.main, "\n" + to_toml(tree)};
}

Result<EngineFiles> crio_cleanup(const EngineFiles& now, const EngineSettings& settings) {
  // Handlers stay: existing containers must still be managed.
  if (!settings.set_as_default || !now.drop_in) return now;
  Json tree = TRY(toml_tree(now.drop_in, "clean up CRI-O's configuration"));
  remove(tree, {"crio", "runtime", "default_runtime"});
  return EngineFiles{now.main, "\n" + to_toml(tree)};
}

Result<EngineFiles> docker_setup(const EngineFiles& now, const FileText&, const EngineSettings& settings) {
  Json tree = TRY(docker_tree(now.main));
  Json before = tree;
  for (const auto& runtime : settings.runtimes) {
    set(tree, {"runtimes", runtime.name}, JsonObject{{"args", JsonArray{}}, {"path", runtime.path}});
  }
  if (settings.set_as_default) set(tree, {"default-runtime"}, settings.default_name);
  if (settings.enable_cdi) set(tree, {"features", "cdi"}, true);
  if (tree == before) return now;
  return EngineFiles{docker_text(tree), now.drop_in};
}

Result<EngineFiles> docker_cleanup(const EngineFiles& now, const EngineSettings& settings) {
  if (!now.main) return now;
  Json tree = TRY(docker_tree(now.main));
  Json before = tree;
  for (const auto& runtime : settings.runtimes) {
    remove(tree, {"runtimes", runtime.name});
    if (get_string(tree, {"default-runtime"}) == runtime.name) set(tree, {"default-runtime"}, "runc");
  }
  if (has(tree, {"runtimes"}) && get_object(tree, {"runtimes"}).empty()) remove(tree, {"runtimes"});
  if (tree == before) return now;
  return EngineFiles{docker_text(tree), now.drop_in};
}

std::vector<std::string> low_level_runtimes(std::string_view engine, const FileText& config) {
  std::vector<std::string> paths;
  if (config && engine == "containerd") {
    if (auto tree = parse_toml(*config, "config.toml")) {
      for (std::string_view plugin : {"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"}) {
        std::string fallback(get_string(*tree, {"plugins", plugin, "containerd", "default_runtime_name"}));
        for (const std::string& name : {fallback, std::string("runc"), std::string("crun")}) {
          if (name.starts_with("nvidia")) continue;
          add_path(paths, get_string(*tree, {"plugins", plugin, "containerd", "runtimes", name, "options",
                                             "BinaryName"}));
        }
      }
    }
  } else if (config && engine == "crio") {
    if (auto tree = parse_toml(*config, "crio.conf")) {
      std::string fallback(get_string(*tree, {"crio", "runtime", "default_runtime"}));
      for (const std::string& name : {fallback, std::string("runc"), std::string("crun")}) {
        if (!name.starts_with("nvidia"))
          add_path(paths, get_string(*tree, {"crio", "runtime", "runtimes", name, "runtime_path"}));
      }
    }
  } else if (config) {
    if (auto tree = parse_json(*config)) {
      for (std::string_view name : {"runc", "crun"})
        add_path(paths, get_string(*tree, {"runtimes", name, "path"}));
    }
  }
  add_path(paths, "runc");
  add_path(paths, "crun");
  return paths;
}

}  // namespace gpuop::toolkit

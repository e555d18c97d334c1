#include <algorithm>

#include "base/text.h"
#include "shim/toml.h"
#include "toolkit/engine.h"
#include "toolkit/toml_edit.h"

namespace gpuop::toolkit {

namespace {

constexpr std::string_view kDoing = "configure containerd";

struct Parsed {
  Json tree = JsonObject{};
  std::int64_t version = 2;
};

std::string plugin_key(std::int64_t version) {
  if (version == 1) return "cri";
  return version == 2 ? "io.containerd.grpc.v1.cri" : "io.containerd.cri.v1.runtime";
}

Result<Parsed> parse(const FileText& text, bool legacy) {
  Parsed parsed;
  if (!text || trim(*text).empty()) {
    parsed.version = legacy ? 1 : 2;
    return parsed;
  }
  if (text->find("{{") != std::string::npos) {
    return fail(
        Code::kInvalid,
        std::string(kDoing) +
            ": the file is a template ({{ … }}): k3s, RKE2 and the like make the real one from it; put the "
            "configuration into the distribution's own drop-in directory instead");
  }
  parsed.tree = TRY_IN(parse_toml(*text, "config.toml"), kDoing);
  const Json* version = find(parsed.tree, {"version"});
  if (version == nullptr) {
    parsed.version = 1;
  } else if (version->is_int64()) {
    parsed.version = version->get_int64();
  } else {
    return fail(Code::kInvalid,
                std::string(kDoing) + ": version: must be an integer; got " + to_text(*version));
  }
  return parsed;
}

const Json* runtime_table(const Json& tree, const std::string& plugin, std::string_view name) {
  return find(tree, {"plugins", plugin, "containerd", "runtimes", name});
}

// The options that a new runtime starts from: those of the default runtime (unless it is ours), runc or crun.
Json copied_options(const Json& tree, const std::string& plugin, const EngineSettings& settings) {
  std::string fallback(get_string(tree, {"plugins", plugin, "containerd", "default_runtime_name"}));
  for (const std::string& name : {fallback, std::string("runc"), std::string("crun")}) {
    if (name.empty() || name.starts_with("nvidia")) continue;
    if (const Json* table = runtime_table(tree, plugin, name); table != nullptr && table->is_object())
      return *table;
  }
  return JsonObject{{"privileged_without_host_devices", false},
                    {"runtime_engine", ""},
                    {"runtime_root", ""},
                    {"runtime_type", settings.runtime_type}};
}

void merge(Json& into, const Json& from) {
  for (const auto& member : from.as_object()) {
    Json& value = into.as_object()[member.key()];
    if (value.is_object() && member.value().is_object()) {
      merge(value, member.value());
    } else {
      value = member.value();
    }
  }
}

Json runtime_of(const Json& options, const EngineSettings::Runtime& runtime, const EngineSettings& settings,
                std::int64_t version) {
  Json table = options;
  if (get_string(table, {"runtime_type"}).empty()) set(table, {"runtime_type"}, settings.runtime_type);
  // Keys in capitals are the shim's own options; the rest are the runtime table's.
  for (const auto& member : settings.overrides.as_object()) {
    bool option = !member.key().empty() && member.key().front() >= 'A' && member.key().front() <= 'Z';
    Json one = JsonObject{{member.key(), member.value()}};
    if (option) one = JsonObject{{"options", std::move(one)}};
    merge(table, one);
  }
  set(table, {"options", "BinaryName"}, runtime.path);
  if (version == 1) set(table, {"options", "Runtime"}, runtime.path);
  if (!settings.annotation_prefixes.empty()) {
    JsonArray annotations;
    for (const auto& prefix : settings.annotation_prefixes) annotations.emplace_back(prefix + "*");
    for (const auto& old : get_array(options, {"container_annotations"})) annotations.push_back(old);
    set(table, {"container_annotations"}, std::move(annotations));
  }
  return table;
}

void set_default(Json& tree, const std::string& plugin, const EngineSettings& settings) {
  if (settings.set_as_default) {
    set(tree, {"plugins", plugin, "containerd", "default_runtime_name"}, settings.default_name);
    return;
  }
  std::string_view now = get_string(tree, {"plugins", plugin, "containerd", "default_runtime_name"});
  bool ours =
      std::ranges::any_of(settings.runtimes, [&](const auto& runtime) { return runtime.name == now; });
  if (ours) remove(tree, {"plugins", plugin, "containerd", "default_runtime_name"});
}

Json drop_in_tree(const Parsed& source, std::int64_t version, const EngineSettings& settings) {
  std::string plugin = plugin_key(version);
  Json tree = JsonObject{{"version", version}};
  // Before 2.1 containerd replaces a plugin's table by the importing file's: what the main file says must
  // come along.
  if (source.version == version) {
    if (const Json* table = find(source.tree, {"plugins", plugin})) set(tree, {"plugins", plugin}, *table);
  }
  Json options = copied_options(tree, plugin, settings);
  for (const auto& runtime : settings.runtimes) {
    set(tree, {"plugins", plugin, "containerd", "runtimes", runtime.name},
        runtime_of(options, runtime, settings, version));
  }
  set_default(tree, plugin, settings);
  if (settings.enable_cdi) set(tree, {"plugins", plugin, "enable_cdi"}, true);
  return tree;
}

// Version 1 has no imports: the main file is rewritten.
Result<EngineFiles> setup_v1(const EngineFiles& now, const Parsed& main, const EngineSettings& settings) {
  Json tree = main.tree;
  set(tree, {"version"}, 1);
  Json options = copied_options(tree, "cri", settings);
  for (const auto& runtime : settings.runtimes) {
    set(tree, {"plugins", "cri", "containerd", "runtimes", runtime.name},
        runtime_of(options, runtime, settings, 1));
  }
  if (settings.set_as_default && settings.legacy_config) {
    for (const auto& runtime : settings.runtimes) {
      if (runtime.name == settings.default_name) {
        set(tree, {"plugins", "cri", "containerd", "default_runtime"},
            runtime_of(options, runtime, settings, 1));
      }
    }
  } else {
    set_default(tree, "cri", settings);
  }
  if (settings.enable_cdi) set(tree, {"plugins", "cri", "enable_cdi"}, true);
  if (tree == main.tree) return now;
  return EngineFiles{to_toml(tree), now.drop_in};
}

// Takes our runtimes out of a tree; answers whether any was there.
bool drop_runtimes(Json& tree, const std::string& plugin, const EngineSettings& settings) {
  bool any = false;
  for (const auto& runtime : settings.runtimes) {
    any = remove(tree, {"plugins", plugin, "containerd", "runtimes", runtime.name}) || any;
    if (get_string(tree, {"plugins", plugin, "containerd", "default_runtime_name"}) == runtime.name) {
      any = remove(tree, {"plugins", plugin, "containerd", "default_runtime_name"}) || any;
    }
  }
  return any;
}

}  // namespace

Result<EngineFiles> containerd_setup(const EngineFiles& now, const FileText& source,
                                     const EngineSettings& settings) {
  Parsed main = TRY(parse(now.main, settings.legacy_config));
  if (main.version == 1) return setup_v1(now, main, settings);
  Parsed from = TRY(parse(source, settings.legacy_config));
  EngineFiles next = now;
  next.drop_in = to_toml(drop_in_tree(from, main.version, settings));
  if (!now.main || trim(*now.main).empty()) {
    next.main = "imports = [" + toml_string(settings.import_glob) +
                "]\nversion = " + std::to_string(main.version) + "\n";
  } else {
    next.main = TRY_IN(add_to_top_level_list(*now.main, "imports", settings.import_glob), kDoing);
  }
  return next;
}

Result<EngineFiles> containerd_cleanup(const EngineFiles& now, const EngineSettings& settings) {
  EngineFiles next{now.main, std::nullopt};
  if (!now.main) return next;
  Parsed main = TRY(parse(now.main, settings.legacy_config));
  Json tree = main.tree;
  bool had_ours = drop_runtimes(tree, plugin_key(main.version), settings);
  if (had_ours) {
    remove(tree, {"plugins", "cri", "containerd", "default_runtime"});
    next.main = to_toml(tree);
  }
  JsonArray ours{Json(settings.import_glob)};
  bool only_ours = tree.as_object().size() == 2 && has(tree, {"version"}) && has(tree, {"imports"}) &&
                   get_array(tree, {"imports"}) == ours;
  if (only_ours) next.main = std::nullopt;
  return next;
}

}  // namespace gpuop::toolkit

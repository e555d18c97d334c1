// nvidia-ctk config (§4.4).
#include <algorithm>
#include <memory>

#include "base/files.h"
#include "base/text.h"
#include "ctk.h"
#include "shim/config.h"
#include "shim/toml.h"

namespace gpuop::ctk {

namespace {

struct Flags {
  std::string file;
  std::string output;
  bool in_place = false;
  std::vector<std::string> set;
};

Json* place(Json& tree, const std::string& key) {
  Json* at = &tree;
  for (const auto& part : split(key, '.')) at = &ensure(*at, {part});
  return at;
}

// The kind of a key's value: that of its default, or of what the reader takes.
enum class Kind { kFlag, kText, kList };
Result<Kind> kind_of(const std::string& key) {
  const auto& keys = shim::known_config_keys();
  if (std::ranges::find(keys, key) == keys.end()) {
    return fail(Code::kInvalid,
                "invalid config option: undefined field: \"" + key + "\"" + did_you_mean(key, keys));
  }
  // A key takes what reads without an error.
  for (auto [kind, text] :
       {std::pair{Kind::kFlag, "true"}, std::pair{Kind::kText, "\"x\""}, std::pair{Kind::kList, "[\"x\"]"}}) {
    auto cut = key.rfind('.');
    std::string table = cut == std::string::npos ? "" : "[" + key.substr(0, cut) + "]\n";
    std::string name = cut == std::string::npos ? key : key.substr(cut + 1);
    if (shim::parse_config(table + name + " = " + text + "\n", "")) return kind;
  }
  return Kind::kText;
}

Result<> assign(Json& tree, const std::string& assignment) {
  auto equals = assignment.find('=');
  std::string key = assignment.substr(0, equals);
  Kind kind = TRY(kind_of(key));
  if (equals == std::string::npos) {
    if (kind != Kind::kFlag)
      return fail(Code::kInvalid, "invalid format: '" + assignment + "': must be KEY=VALUE");
    *place(tree, key) = true;
    return {};
  }
  std::string value = assignment.substr(equals + 1);
  if (key.starts_with("features.") && value == "nil") {
    remove(tree, {"features", key.substr(9)});
    return {};
  }
  if (kind == Kind::kFlag) {
    if (value != "true" && value != "false")
      return fail(Code::kInvalid, key + ": must be true or false; got '" + value + "'");
    *place(tree, key) = value == "true";
  } else if (kind == Kind::kList) {
    auto items = split(value, value.find(':') != std::string::npos ? ':' : ',');
    *place(tree, key) = JsonArray(items.begin(), items.end());
  } else {
    *place(tree, key) = value;
  }
  return {};
}

Result<> run_config(const Flags& flags, bool only_default) {
  if (flags.in_place && !flags.output.empty())
    return fail(Code::kInvalid, "--in-place and --output exclude each other");
  fs::path file = flags.file.empty() ? shim::config_path("") : fs::path(flags.file);
  Json tree = shim::default_config_tree();
  if (!only_default && file_exists(file)) tree = TRY(parse_toml(TRY(read_file(file)), file.string()));
  for (const auto& assignment : flags.set) TRY(assign(tree, assignment));
  return write_output(flags.in_place ? file.string() : flags.output, to_toml(tree, 0));
}

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("--config-file,--config,-c", flags.file, "the configuration file");
  app.add_option("--set", flags.set, "KEY=VALUE, or KEY for a switch")->allow_extra_args(false);
  app.add_flag("--in-place,-i", flags.in_place, "change the file");
  app.add_option("--output,-o", flags.output, "file; standard output when empty");
}

}  // namespace

void add_config(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<Flags>();
  auto* app = root.add_subcommand("config", "the toolkit's configuration");
  add_flags(*app, *flags);
  app->callback([flags, &chosen] {
    if (!chosen.run) chosen.run = [flags] { return run_config(*flags, false); };
  });
  auto defaults = std::make_shared<Flags>();
  auto* sub = app->add_subcommand("default", "print the default configuration");
  sub->alias("create-default");
  sub->alias("generate-default");
  add_flags(*sub, *defaults);
  sub->callback([defaults, &chosen] { chosen.run = [defaults] { return run_config(*defaults, true); }; });
}

}  // namespace gpuop::ctk

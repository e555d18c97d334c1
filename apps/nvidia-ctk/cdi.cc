// nvidia-ctk cdi (§4.1).
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "cdi/registry.h"
#include "cdigen/generate.h"
#include "ctk.h"
#include "hardware/inventory.h"
#include "shim/config.h"

namespace gpuop::ctk {

namespace {

struct Generate {
  std::string output;
  std::string format;
  std::string mode = "auto";
  std::string driver_root;
  std::string dev_root;
  std::string hook_path = "/usr/bin/nvidia-cdi-hook";
  std::string ldconfig_path;
  std::string vendor;
  std::string device_class;
  std::vector<std::string> library_search, config_search, strategies, disabled, enabled, features, ids;
  bool no_all = false;
};

constexpr const char* kPrefix = "NVIDIA_CTK_CDI_GENERATE_";

bool needs_gpus(const std::string& mode) {
  return mode == "nvml";
}
bool needs_driver(const std::string& mode) {
  return mode == "nvml" || mode == "management";
}

Result<std::string> format_of(const Generate& flags) {
  std::string extension = fs::path(flags.output).extension().string();
  if (extension == ".yml")
    return fail(Code::kInvalid, "write '" + flags.output + "': CDI readers ignore .yml; use .yaml or .json");
  std::string by_name = extension == ".json" ? "json" : extension == ".yaml" ? "yaml" : "";
  if (!flags.format.empty() && flags.format != "yaml" && flags.format != "json") {
    return fail(Code::kInvalid, "invalid output format: " + flags.format);
  }
  if (!by_name.empty()) {
    if (!flags.format.empty() && flags.format != by_name)
      log::warn("the file's extension decides the format", {{"format", by_name}});
    return by_name;
  }
  return flags.format.empty() ? std::string("yaml") : flags.format;
}

Result<cdigen::Facts> observe(const Generate& flags, const std::string& driver_root,
                              const std::string& dev_root, const std::string& mode) {
  cdigen::Facts facts;
  if (needs_gpus(mode)) {
    facts.inventory = TRY(hardware::observe(fs::path(driver_root)));
    for (const auto& warning : facts.inventory.warnings)
      log::warn("a device is left out", {{"why", warning}});
  }
  if (needs_driver(mode)) {
    auto root = TRY(Root::open(driver_root));
    cdigen::DriverSearch search{
        facts.inventory.driver_version, flags.library_search, flags.config_search, {}};
    if (std::ranges::find(flags.features, "enable-explicit-driver-libraries") != flags.features.end()) {
      search.explicit_libraries = {"libEGL.so.*",
                                   "libGL.so.*",
                                   "libGLESv1_CM.so.*",
                                   "libGLESv2.so.*",
                                   "libGLX.so.*",
                                   "libGLdispatch.so.*",
                                   "libOpenCL.so.*",
                                   "libOpenGL.so.*",
                                   "libnvidia-api.so.*",
                                   "libnvidia-egl-xcb.so.*",
                                   "libnvidia-egl-xlib.so.*"};
    }
    facts.driver = TRY(cdigen::observe_driver(root, search));
  }
  auto root = TRY(Root::open(dev_root));
  facts.devices = TRY(cdigen::observe_devices(root));
  return facts;
}

Result<> run_generate(Generate flags) {
  for (auto* list : {&flags.library_search, &flags.config_search, &flags.strategies, &flags.disabled,
                     &flags.enabled, &flags.features, &flags.ids}) {
    *list = comma_list(*list);
  }
  std::string format = TRY(format_of(flags));
  for (const auto& strategy : flags.strategies) {
    if (strategy != "index" && strategy != "type-index" && strategy != "uuid") {
      return fail(Code::kInvalid, "invalid device name strategy: " + strategy);
    }
  }
  auto config = shim::load_config(shim::config_path(""));
  std::string driver_root = !flags.driver_root.empty() ? flags.driver_root : config ? config->cli_root : "";
  if (driver_root.empty()) driver_root = "/";
  std::string dev_root = flags.dev_root.empty() ? driver_root : flags.dev_root;
  cdigen::Options options;
  options.mode = flags.mode == "auto" ? "nvml" : flags.mode;
  std::string kind = cdigen::default_kind(options.mode);
  options.vendor = flags.vendor.empty() ? kind.substr(0, kind.find('/')) : flags.vendor;
  options.device_class = flags.device_class;
  if (auto ok = cdi::check_vendor(options.vendor); !ok)
    return fail(Code::kInvalid, "invalid CDI vendor name: " + ok.error().text());
  if (auto ok = cdi::check_class(flags.device_class); !flags.device_class.empty() && !ok) {
    return fail(Code::kInvalid, "invalid CDI class name: " + ok.error().text());
  }
  if (flags.vendor.empty() && flags.device_class.empty() && kind != "nvidia.com/gpu")
    log::info("using the mode's own kind", {{"kind", kind}});
  options.driver_root = driver_root;
  options.dev_root = dev_root;
  options.hook_path = flags.hook_path;
  options.ldconfig_path = flags.ldconfig_path;
  options.strategies =
      flags.strategies.empty() ? std::vector<std::string>{"index", "uuid"} : flags.strategies;
  if (!flags.ids.empty()) options.device_ids = flags.ids;
  options.disabled_hooks = flags.disabled;
  options.enabled_hooks = flags.enabled;
  options.features = flags.features;
  options.all_device = !flags.no_all;
  std::vector<std::string> modes(std::begin(cdigen::kModes), std::end(cdigen::kModes));
  if (std::ranges::find(modes, options.mode) == modes.end()) {
    return fail(Code::kInvalid, "invalid discovery mode: " + flags.mode + did_you_mean(flags.mode, modes));
  }
  auto facts = TRY(observe(flags, driver_root, dev_root, options.mode));
  auto spec = TRY(cdigen::generate(facts, options));
  if (flags.output.empty())
    return write_output("", format == "json" ? cdi::to_json_text(spec) + "\n" : cdi::to_yaml_text(spec));
  fs::path file = flags.output;
  if (file.extension() != ".json" && file.extension() != ".yaml") file += "." + format;
  TRY(cdi::save_spec(std::move(spec), file));
  log::info("wrote a CDI spec", {{"file", file.string()}});
  return {};
}

Result<> run_list(const std::vector<std::string>& given, bool verbose) {
  auto names = comma_list(given);
  std::vector<fs::path> dirs(names.begin(), names.end());
  if (dirs.empty()) dirs = cdi::default_spec_dirs();
  auto registry = cdi::Registry::load(dirs);
  if (!registry.errors().empty()) {
    log::warn("The following registry errors were reported:");
    for (const auto& [path, errors] : registry.errors()) log::warn(path + ": [" + join(errors, " ") + "]");
  }
  auto devices = registry.device_names();
  log::info("Found " + std::to_string(devices.size()) + " CDI devices");
  for (const auto& device : devices) {
    std::printf("%s%s\n", device.c_str(), verbose ? ("  " + registry.file_of(device).string()).c_str() : "");
  }
  return {};
}

struct Transform {
  std::string from;
  std::string to = "/";
  std::string input = "-";
  std::string output;
  std::string relative_to = "host";
};

Result<> run_transform(const Transform& flags) {
  if (flags.relative_to != "host" && flags.relative_to != "container") {
    return fail(Code::kInvalid, "invalid --relative-to value: " + flags.relative_to);
  }
  std::string text = flags.input == "-" ? TRY(read_fd(0)) : TRY(read_file(flags.input));
  auto spec = TRY(cdi::parse_spec(text, flags.input));
  cdigen::transform_root(spec, flags.from.empty() ? "/" : flags.from, flags.to, flags.relative_to == "host");
  TRY(cdi::validate(spec));
  bool json = fs::path(flags.output).extension() == ".json";
  return write_output(flags.output, json ? cdi::to_json_text(spec) : cdi::to_yaml_text(spec));
}

void add_generate(CLI::App& cdi, Chosen& chosen) {
  auto flags = std::make_shared<Generate>();
  auto* app = cdi.add_subcommand("generate", "write the CDI spec of this machine's devices");
  auto env = [](const char* name) { return std::string(kPrefix) + name; };
  app->add_option("--output", flags->output, "file; standard output when empty")
      ->envname("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH");
  app->add_option("--format", flags->format, "yaml or json")->envname(env("OUTPUT_FORMAT"));
  app->add_option("--mode,--discovery-mode", flags->mode,
                  "auto, nvml, management, gds, gdrcopy, mofed, nvswitch, imex")
      ->envname(env("MODE"));
  app->add_option("--dev-root", flags->dev_root, "root of the device nodes")->envname("NVIDIA_CTK_DEV_ROOT");
  app->add_option("--driver-root", flags->driver_root, "root of the driver's files")
      ->envname("NVIDIA_CTK_DRIVER_ROOT");
  app->add_option("--device-name-strategy", flags->strategies, "index, type-index, uuid")
      ->envname(env("DEVICE_NAME_STRATEGIES"));
  app->add_option("--library-search-path", flags->library_search, "folders of the driver's libraries")
      ->envname(env("LIBRARY_SEARCH_PATHS"));
  app->add_option("--config-search-path", flags->config_search, "folders of the driver's configuration")
      ->envname(env("CONFIG_SEARCH_PATHS"));
  app->add_option("--nvidia-cdi-hook-path,--nvidia-ctk-path", flags->hook_path, "the hooks' program")
      ->envname("NVIDIA_CTK_CDI_HOOK_PATH");
  app->add_option("--ldconfig-path", flags->ldconfig_path, "accepted: caches are written without ldconfig")
      ->envname(env("LDCONFIG_PATH"));
  app->add_option("--vendor,--cdi-vendor", flags->vendor, "vendor of the kind")->envname(env("VENDOR"));
  app->add_option("--class,--cdi-class", flags->device_class, "class of the kind")->envname(env("CLASS"));
  app->add_option("--disable-hook,--disable-hooks", flags->disabled, "hooks to leave out; all")
      ->envname(env("DISABLED_HOOKS"));
  app->add_option("--enable-hook,--enable-hooks", flags->enabled, "hooks to take all the same")
      ->envname(env("ENABLED_HOOKS"));
  app->add_option("--feature-flag,--feature-flags", flags->features, "features to switch on")
      ->envname(env("FEATURE_FLAGS"));
  app->add_flag("--no-all-device", flags->no_all, "make no device 'all'")->envname(env("NO_ALL_DEVICE"));
  app->add_option("--device-id,--device-ids,--device,--devices", flags->ids,
                  "devices: all, none, index, UUID")
      ->envname(env("DEVICE_IDS"));
  app->callback([flags, &chosen] { chosen.run = [flags] { return run_generate(*flags); }; });
}

}  // namespace

void add_cdi(CLI::App& root, Chosen& chosen) {
  auto* app = root.add_subcommand("cdi", "Container Device Interface specs");
  app->require_subcommand(1);
  add_generate(*app, chosen);
  auto dirs = std::make_shared<std::vector<std::string>>();
  auto verbose = std::make_shared<bool>(false);
  auto* list = app->add_subcommand("list", "list the devices that specs offer");
  list->add_option("--spec-dir", *dirs, "folders of specs")->envname("NVIDIA_CTK_CDI_SPEC_DIRS");
  list->add_flag("--verbose", *verbose, "with the file of each device");
  list->callback(
      [dirs, verbose, &chosen] { chosen.run = [dirs, verbose] { return run_list(*dirs, *verbose); }; });
  auto* transform = app->add_subcommand("transform", "change a spec");
  transform->require_subcommand(1);
  auto flags = std::make_shared<Transform>();
  auto* transform_root = transform->add_subcommand("root", "move paths to another root");
  transform_root->add_option("--from", flags->from, "root of the paths now");
  transform_root->add_option("--to", flags->to, "root of the paths then");
  transform_root->add_option("--input", flags->input, "file, or - for standard input");
  transform_root->add_option("--output", flags->output, "file; standard output when empty");
  transform_root->add_option("--relative-to", flags->relative_to, "host or container");
  transform_root->callback([flags, &chosen] { chosen.run = [flags] { return run_transform(*flags); }; });
}

}  // namespace gpuop::ctk

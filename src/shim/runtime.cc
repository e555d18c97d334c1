#include "shim/runtime.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "cdi/registry.h"
#include "shim/facts.h"
#include "shim/inject.h"
#include "shim/run_log.h"

namespace gpuop::shim {

namespace {

constexpr std::string_view kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::size_t kMaxBundleConfig = 64u << 20;

bool is_executable_file(const fs::path& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 0111) != 0;
}

bool is_tegra() {
  if (file_exists("/etc/nv_tegra_release")) return true;
  auto family = read_file(kernel_path("/sys/devices/soc0/family"), 4096);
  return family && to_lower(*family).starts_with("tegra");
}

// Whether the driver's module is there: an installed toolkit must not break a node whose driver is away.
bool driver_loaded() {
  auto modules = read_file(kernel_path("/proc/modules"), 4u << 20);
  return !modules || ("\n" + *modules).find("\nnvidia ") != std::string::npos;
}

bool is_debian_like(const Json& oci, const fs::path& bundle) {
  fs::path path(get_string(oci, {"root", "path"}));
  if (path.empty()) return false;
  auto root = Root::open(path.is_absolute() ? path : bundle / path);
  return root && root->exists("/etc/debian_version");
}

[[noreturn]] void become(const fs::path& program, int argc, char** argv) {
  std::vector<char*> args;
  std::string name = program.string();
  args.push_back(name.data());
  for (int i = 1; i < argc; ++i) args.push_back(argv[i]);
  args.push_back(nullptr);
  execv(name.c_str(), args.data());
  std::fprintf(stderr, "nvidia-container-runtime: run '%s': %s\n", name.c_str(), std::strerror(errno));
  std::exit(1);
}

}  // namespace

Result<RuntimeArguments> parse_runtime_arguments(const std::vector<std::string>& args) {
  RuntimeArguments found;
  found.bundle = ".";
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string_view arg = args[i];
    if (arg == "--bundle" || arg == "-bundle" || arg == "-b") {
      if (i + 1 == args.size()) return fail(Code::kInvalid, "bundle option requires an argument");
      found.bundle = args[++i];
    } else if (arg.starts_with("--bundle=") || arg.starts_with("-bundle=") || arg.starts_with("-b=")) {
      found.bundle = std::string(arg.substr(arg.find('=') + 1));
    } else if (arg == "create") {
      found.create = true;
    } else if (arg == "--log" && i + 1 < args.size()) {
      found.log = args[++i];
    } else if (arg.starts_with("--log=")) {
      found.log = arg.substr(6);
    } else if (arg == "--log-format" && i + 1 < args.size()) {
      found.log_json = args[++i] == "json";
    } else if (arg.starts_with("--log-format=")) {
      found.log_json = arg.substr(13) == "json";
    } else if (arg == "--debug") {
      found.debug = true;
    } else if (arg == "--version" || arg == "-v") {
      found.version = true;
    }
  }
  return found;
}

Result<fs::path> find_low_level_runtime(const std::vector<std::string>& candidates, const std::string& path) {
  auto dirs = split(path.empty() ? std::string(kUsualPath) : path + ":" + std::string(kUsualPath), ':');
  for (const auto& candidate : candidates) {
    if (candidate.find('/') != std::string::npos) {
      if (is_executable_file(candidate)) return fs::path(candidate);
      continue;
    }
    for (const auto& dir : dirs) {
      fs::path file = fs::path(dir) / candidate;
      if (!dir.empty() && !candidate.empty() && is_executable_file(file)) return file;
    }
  }
  return fail(Code::kNotFound,
              "no runtime binary found from candidate list: [" + join(candidates, " ") + "]");
}

Result<bool> edit_bundle(const fs::path& bundle, const Config& config, const fs::path& facts_file,
                         const std::function<void(int, const std::string&)>& log) {
  TRY(check_config(config));
  fs::path file = bundle / "config.json";
  std::string text = TRY(read_file(file, kMaxBundleConfig));
  Json oci = TRY_IN(parse_json(text, 256), "read '" + file.string() + "'");
  Container container = container_of(oci);
  auto plan = TRY(plan_injection(container, config, is_tegra()));
  for (const auto& warning : plan.warnings) log(2, warning);
  for (const auto& name : plan.ignored) log(0, "mode " + plan.mode + " ignores " + name);
  bool changed = remove_prestart_hooks(oci);
  if (!plan.devices.empty()) {
    log(0, "mode " + plan.mode + ": devices " + join(plan.devices, ", "));
    cdi::Edits edits = TRY(edits_of(plan, container, config, [&] { return read_facts(facts_file); }));
    if (plan.mode == "legacy")
      edits = filter_by_capabilities(edits, plan.capabilities, is_debian_like(oci, bundle));
    TRY(check_not_stale(edits));
    TRY_IN(cdi::apply(oci, edits), "failed to inject CDI devices");
    changed = true;
  }
  if (!changed) return false;
  struct stat info{};
  mode_t mode = stat(file.c_str(), &info) == 0 ? info.st_mode & 07777 : 0644;
  return TRY(write_file_atomic(file, to_text(oci), mode));
}

int runtime_main(int argc, char** argv, const std::string& forced_mode) {
  std::vector<std::string> args(argv + 1, argv + argc);
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  fs::path file = config_path(program);
  bool installed = file.string().starts_with((program.parent_path() / ".config").string() + "/");
  auto config = load_config(file);
  auto arguments = parse_runtime_arguments(args);
  bool create = arguments && arguments->create;
  RunLog run_log(config ? config->debug : "/dev/null", arguments ? arguments->log : "",
                 arguments && arguments->log_json, config ? config->log_level : "info",
                 arguments && arguments->debug);
  auto refuse = [&](const Error& why) {
    run_log.write(3, why.text());
    std::fprintf(stderr, "nvidia-container-runtime: %s\n", why.text().c_str());
    return 1;
  };
  // Only `create` needs the configuration: a broken one must not keep containers from being killed and
  // deleted.
  if (!config && create) return refuse(config.error());
  if (!arguments) return refuse(arguments.error());
  if (!config) run_log.write(2, config.error().text());
  std::string path = env_text("PATH");
  if (installed)
    setenv("PATH", (program.parent_path().string() + (path.empty() ? "" : ":" + path)).c_str(), 1);
  auto low_level = find_low_level_runtime(config ? config->runtimes : Config().runtimes, path);
  if (!low_level) return refuse(low_level.error());
  if (arguments->version) {
    std::printf("NVIDIA Container Runtime version %s\ncommit: %s\nspec: 1.2.1\n\n", GPUOP_VERSION,
                GPUOP_VERSION);
    std::fflush(stdout);
    become(*low_level, argc, argv);
  }
  if (!create) become(*low_level, argc, argv);
  if (installed && !driver_loaded()) {
    std::fprintf(stderr, "nvidia driver modules are not yet loaded, invoking %s directly\n",
                 low_level->c_str());
    become(*low_level, argc, argv);
  }
  for (const auto& warning : config->warnings) run_log.write(2, file.string() + ": " + warning);
  if (config->features.allow_unknown_oci_spec_fields) {
    run_log.write(0, "features.allow-unknown-oci-spec-fields: unknown fields are always kept");
  }
  if (!forced_mode.empty()) config->mode = forced_mode;
  auto edited = edit_bundle(arguments->bundle, *config, kFactsFile,
                            [&](int level, const std::string& text) { run_log.write(level, text); });
  if (!edited) return refuse(edited.error());
  become(*low_level, argc, argv);
}

}  // namespace gpuop::shim

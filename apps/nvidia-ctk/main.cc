#include <cstdio>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "cli.h"
#include "ctk.h"
#include "shim/hooks.h"

namespace gpuop::ctk {

std::vector<std::string> comma_list(const std::vector<std::string>& given) {
  std::vector<std::string> items;
  for (const auto& text : given) {
    for (const auto& item : split(text, ',')) {
      if (!trim(item).empty()) items.emplace_back(trim(item));
    }
  }
  return items;
}

Result<> write_output(const std::string& path, const std::string& text) {
  if (path.empty()) {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  TRY(make_dirs(fs::path(path).parent_path()));
  TRY(write_file_atomic(path, text, 0644));
  return {};
}

}  // namespace gpuop::ctk

int main(int argc, char** argv) {
  using namespace gpuop;
  // Hooks bring no command line of ours: `nvidia-ctk hook NAME …` is nvidia-cdi-hook under another name.
  if (argc > 1 && std::string_view(argv[1]) == "hook") {
    std::vector<std::string> args(argv + 2, argv + argc);
    shim::secure_hook_process();
    return shim::run_hook(args);
  }
  CLI::App app("Tools of the container toolkit.", "nvidia-ctk");
  bool debug = false;
  bool quiet = false;
  std::string config;
  ctk::Chosen chosen;
  app.add_flag("-d,--debug", debug, "log more")->envname("NVIDIA_CTK_DEBUG");
  app.add_flag("--quiet", quiet, "log errors only")->envname("NVIDIA_CTK_QUIET");
  app.add_option("--config", config, "the toolkit's configuration")->envname("NVIDIA_CTK_CONFIG");
  app.set_version_flag("-v,--version", "NVIDIA Container Toolkit CLI version " GPUOP_VERSION);
  app.require_subcommand(1);
  app.add_subcommand("hook", "run a CDI hook");
  ctk::add_cdi(app, chosen);
  ctk::add_runtime(app, chosen);
  ctk::add_config(app, chosen);
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("nvidia-ctk", quiet ? log::Level::kError : debug ? log::Level::kDebug : log::Level::kInfo);
  if (!chosen.run) return 0;
  auto done = chosen.run();
  if (done) return 0;
  log::error(done.error().text());
  return 1;
}

#include "hooks.h"

#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "base/loop.h"
#include "base/version.h"
#include "cli.h"
#include "kube/config.h"
#include "operator/manage_crds.h"

namespace gpuop {
namespace {

// Pods may hold claims for as long as upstream's hook waits.
constexpr Duration kCleanupLimit = 5min;

struct HookArguments {
  std::string kubeconfig;
  std::vector<std::string> files;
  std::string cluster_name = "gpu-cluster";
  bool debug = false;
};

Result<> with_client(const HookArguments& arguments,
                     const std::function<Result<>(Loop& loop, kube::Client& client)>& act) {
  Loop loop;
  kube::ClientOptions options;
  options.user_agent = "gpu-operator/" GPUOP_VERSION;
  const auto config = TRY(kube::find_config(arguments.kubeconfig));
  const auto client = TRY(kube::make_client(loop, config, options));
  return act(loop, *client);
}

Result<> manage_crds(const HookArguments& arguments, bool apply) {
  const auto crds = TRY(op::read_crds({arguments.files.begin(), arguments.files.end()}));
  TRY(with_client(arguments, [&](Loop& loop, kube::Client& client) {
    return apply ? op::apply_crds(loop, client, crds) : op::delete_crds(loop, client, crds);
  }));
  log::info(apply ? "custom resource definitions are up to date" : "custom resource definitions are deleted",
            {{"count", crds.size()}});
  return {};
}

Result<> cleanup(const HookArguments& arguments) {
  return with_client(arguments, [&](Loop& loop, kube::Client& client) {
    return op::cleanup_gpuclusters(loop, client, arguments.cluster_name, kCleanupLimit);
  });
}

}  // namespace

std::optional<int> run_hook(int argc, char** argv) {
  if (argc < 2 ||
      (std::strcmp(argv[1], "manage-crds") != 0 && std::strcmp(argv[1], "cleanup-gpuclusters") != 0)) {
    return std::nullopt;
  }
  HookArguments arguments;
  CLI::App app{"Commands of the Helm chart's hooks.", "gpu-operator"};
  app.require_subcommand(1);
  CLI::App* crds = app.add_subcommand("manage-crds", "Custom resource definitions from files");
  crds->require_subcommand(1);
  CLI::App* apply = crds->add_subcommand("apply", "Create them, or bring them to what the files say");
  CLI::App* remove = crds->add_subcommand("delete", "Delete them and every object of their kinds");
  CLI::App* clean =
      app.add_subcommand("cleanup-gpuclusters", "Delete the GPUCluster and wait until it is gone");
  clean->add_option("--gpucluster-name", arguments.cluster_name, "Its name")->capture_default_str();
  for (CLI::App* command : {apply, remove}) {
    command->add_option("-f,--filepath", arguments.files, "File or folder; may be given several times")
        ->required();
  }
  for (CLI::App* command : {apply, remove, clean}) {
    command->add_option("--kubeconfig", arguments.kubeconfig,
                        "Cluster to work on (default: KUBECONFIG, else the pod's own)");
    command->add_flag("-d,--debug", arguments.debug, "Log debug lines")->envname("DEBUG");
  }
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("gpu-operator", arguments.debug ? log::Level::kDebug : log::Level::kInfo, log::Format::kText);
  const auto done = clean->parsed() ? cleanup(arguments) : manage_crds(arguments, apply->parsed());
  if (done) return 0;
  log::error(done.error().text());
  return 1;
}

}  // namespace gpuop

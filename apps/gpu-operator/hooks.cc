#include "hooks.h"

#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "base/loop.h"
#include "base/process.h"
#include "base/version.h"
#include "cli.h"
#include "kube/config.h"
#include "operator/cleanup.h"
#include "operator/manage_crds.h"

namespace gpuop {
namespace {

// Pods may hold claims for as long as upstream's hook waits.
constexpr Duration kCleanupLimit = 5min;
// A pod's grace, and the time to take it away.
constexpr Duration kOperatorEnd = 2min;

struct HookArguments {
  std::string kubeconfig;
  std::vector<std::string> files;
  std::string cluster_name = "gpu-cluster";
  std::string ns = env_or("OPERATOR_NAMESPACE", "gpu-operator");
  bool features = false;
  bool wait = false;
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

Result<> clean_nodes(const HookArguments& arguments) {
  return with_client(arguments, [&](Loop& loop, kube::Client& client) -> Result<> {
    const bool clean = TRY(op::cleanup_nodes(loop, client,
                                             {.ns = arguments.ns,
                                              .features = arguments.features,
                                              .wait_for_operator = arguments.wait,
                                              .limit = kOperatorEnd}));
    if (clean) log::info("no node has anything of the operator any more");
    return {};
  });
}

bool is_hook(const char* word) {
  for (const char* known : {"manage-crds", "cleanup-gpuclusters", "cleanup-nodes"}) {
    if (std::strcmp(word, known) == 0) return true;
  }
  return false;
}

}  // namespace

std::optional<int> run_hook(int argc, char** argv) {
  if (argc < 2 || !is_hook(argv[1])) return std::nullopt;
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
  CLI::App* nodes = app.add_subcommand("cleanup-nodes",
                                       "Take the operator's labels, annotations, taints and conditions off "
                                       "every node, unless a ClusterPolicy or an "
                                       "NVIDIADriver is left");
  nodes->add_option("-n,--namespace", arguments.ns, "The operator's namespace")->capture_default_str();
  nodes->add_flag("--features", arguments.features, "Also what node feature discovery's master wrote");
  nodes->add_flag("--wait-for-operator", arguments.wait, "First wait until no pod of the operator is left");
  for (CLI::App* command : {apply, remove, clean, nodes}) {
    command->add_option("--kubeconfig", arguments.kubeconfig,
                        "Cluster to work on (default: KUBECONFIG, else the pod's own)");
    command->add_flag("-d,--debug", arguments.debug, "Log debug lines")->envname("DEBUG");
  }
  if (const auto code = parse_command_line(app, argc, argv)) return code;
  log::setup("gpu-operator", arguments.debug ? log::Level::kDebug : log::Level::kInfo, log::Format::kText);
  const auto done = nodes->parsed()   ? clean_nodes(arguments)
                    : clean->parsed() ? cleanup(arguments)
                                      : manage_crds(arguments, apply->parsed());
  if (done) return 0;
  log::error(done.error().text());
  return 1;
}

}  // namespace gpuop

// gpuctl status: the chain of every node, for any cluster.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "base/loop.h"
#include "base/time.h"
#include "cli.h"
#include "cluster_view.h"
#include "commands.h"
#include "explain.h"
#include "fleet/chain.h"
#include "kube/config.h"

namespace gpuop {

int status_main(int argc, char** argv) {
  std::string kubeconfig;
  std::string ns = "gpu-operator";
  std::string wait;
  CLI::App app("Show how far each node has come from bare to schedulable GPUs, and what it waits for.");
  app.add_option("--kubeconfig", kubeconfig, "cluster to look at (default: KUBECONFIG, else ~/.kube/config)");
  app.add_option("-n,--namespace", ns, "namespace of the operator")->capture_default_str();
  app.add_option("--wait", wait,
                 "wait until everything is ready, the operator too, at most so long, e.g. 5m");
  if (auto code = parse_command_line(app, argc, argv, 2)) return *code;

  const auto run = [&]() -> Result<int> {
    const Duration limit = wait.empty() ? Duration(0) : TRY_IN(parse_go_duration(wait), "--wait");
    Loop loop;
    auto client = TRY(kube::make_client(loop, TRY(kube::find_config(kubeconfig))));
    ClusterWatch cluster(*client, ns);
    bool interrupted = false;
    Handle signals = on_signals(loop, {SIGINT, SIGTERM}, [&](int) {
      interrupted = true;
      loop.stop();
    });
    const auto all_ready = [&cluster] {
      return cluster.chain().ready() && cluster.operator_fault(std::chrono::system_clock::now()).empty();
    };
    const Duration until = loop.elapsed() + limit;
    TRY(cluster.wait_synced(loop, std::max(Duration(30s), limit), limit));
    if (const Duration left = until - loop.elapsed(); left > Duration::zero())
      loop.run_until([&] { return interrupted || all_ready(); }, left);
    auto chain = cluster.chain();
    explain(loop, *client, ns, cluster, chain);
    std::fputs(fleet::render(chain).c_str(), stdout);
    return chain.ready() ? 0 : 1;
  };
  const auto result = run();
  if (!result) {
    std::fprintf(stderr, "gpuctl status: %s\n", result.error().text().c_str());
    return 2;
  }
  return *result;
}

}  // namespace gpuop

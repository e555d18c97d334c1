#include "cluster_fixture.h"

#include "kube/config.h"

namespace gpuop::real {
namespace {

kube::InformerOptions keep(std::string ns, std::vector<std::string> fields) {
  kube::InformerOptions options;
  options.ns = std::move(ns);
  options.keep = std::move(fields);
  return options;
}

fleet::Objects all_of(const kube::Informer& informer) {
  fleet::Objects out;
  informer.for_each([&out](const auto& object) { out.push_back(object); });
  return out;
}

}  // namespace

std::string kubeconfig() {
  return env_or("GPUOP_REAL_KUBECONFIG");
}
std::string folder() {
  return env_or("GPUOP_REAL_DIR");
}
std::string node_name() {
  return env_or("GPUOP_REAL_NODE", "real");
}

ExitState run(std::vector<std::string> argv, Duration limit, const std::string& input) {
  Command command{std::move(argv),
                  {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                   "HOME=" + env_or("HOME", "/root"), "TMPDIR=" + env_or("TMPDIR", "/tmp")}};
  command.input = input;
  auto result = run_command(command, limit);
  if (result) return std::move(*result);
  ExitState failed;
  failed.code = -1;
  failed.err = result.error().text();
  return failed;
}

ExitState kubectl_on(const std::string& config, std::vector<std::string> args, const std::string& input,
                     Duration limit) {
  args.insert(args.begin(), {env_or("GPUOP_KUBECTL", "kubectl"), "--kubeconfig", config});
  return run(std::move(args), limit, input);
}
ExitState kubectl(std::vector<std::string> args, const std::string& input, Duration limit) {
  return kubectl_on(kubeconfig(), std::move(args), input, limit);
}

Json get_json(std::vector<std::string> args) {
  args.insert(args.begin(), "get");
  args.insert(args.end(), {"-o", "json"});
  const ExitState got = kubectl(std::move(args));
  auto json = got.ok() ? parse_json(got.out) : Result<Json>(Json());
  return json ? std::move(*json) : Json();
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Watch::Watch(Loop& loop) {
  const auto config = kube::load_kubeconfig({kubeconfig()});
  client_ = std::move(*kube::make_client(loop, *config));
  policies =
      std::make_unique<kube::Informer>(*client_, kube::kClusterPolicies, keep("", fleet::policy_fields()));
  nodes = std::make_unique<kube::Informer>(*client_, kube::kNodes, keep("", fleet::node_fields()));
  pods = std::make_unique<kube::Informer>(*client_, kube::kPods, keep("", fleet::pod_fields()));
  for (kube::Informer* informer : {policies.get(), nodes.get(), pods.get()}) informer->start();
}
Watch::~Watch() = default;

fleet::ClusterChain Watch::chain() const {
  fleet::Objects ours;
  pods->for_each([&ours](const auto& pod) {
    if (get_string(*pod, {"metadata", "namespace"}) == kOperatorNamespace) ours.push_back(pod);
  });
  return fleet::cluster_chain({all_of(*policies), all_of(*nodes), ours, {}, {}, {}});
}

}  // namespace gpuop::real

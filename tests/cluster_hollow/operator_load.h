// The operator program, as it is installed, in a process of its own, against an embedded control plane with
// light GPU nodes in this process: what it asks of the API server, how fast, and what it needs. On a real
// clock.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <set>

#include "base/heap.h"
#include "base/http_server.h"
#include "base/process.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/apiserver/pki.h"
#include "cluster/controllers/controllers.h"
#include "cluster/faults/injector.h"
#include "cluster/hollow/light_nodes.h"
#include "kube/informer.h"
#include "requests.h"
#include "runs.h"

namespace gpuop::cluster::runs {

struct ProcessFigures {
  double resident_mib = 0, peak_mib = 0, anonymous_mib = 0;
  double cpu_s = 0;
};

inline ProcessFigures figures_of(pid_t pid) {
  ProcessFigures out;
  const std::string folder = "/proc/" + std::to_string(pid);
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);) {
    const auto fields = split_fields(line);
    if (fields.size() < 2) continue;
    const double mib = static_cast<double>(parse_int(fields[1]).value_or(0)) / 1024;
    if (fields[0] == "VmRSS:") out.resident_mib = mib;
    if (fields[0] == "VmHWM:") out.peak_mib = mib;
    if (fields[0] == "RssAnon:") out.anonymous_mib = mib;
  }
  const auto stat = read_file(folder + "/stat");
  const auto fields = split_fields(stat ? stat->substr(stat->rfind(')') + 1) : "");
  if (fields.size() > 12) {
    const auto ticks = parse_int(fields[11]).value_or(0) + parse_int(fields[12]).value_or(0);
    out.cpu_s = static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  return out;
}

class OperatorLoad {
 public:
  // A control plane of version `kubernetes` with `nodes` H200 nodes that have registered and whose features
  // are published; nothing of the operator's but its manifests and the policy. Its controllers rest from then
  // on: until they go on, whatever is done is the operator's work.
  static Result<std::unique_ptr<OperatorLoad>> create(int nodes, const std::string& kubernetes,
                                                      Duration limit) {
    if (nodes > 500) expect_heap(static_cast<std::size_t>(nodes) * (224u << 10));
    auto out = std::unique_ptr<OperatorLoad>(new OperatorLoad(nodes));
    TRY(out->serve(kubernetes));
    TRY(out->populate(limit));
    out->controllers_.reset();
    return out;
  }
  ~OperatorLoad() { stop(); }

  void start_controllers() {
    controllers_ = cluster::start_controllers(loop_, manager_, {.ca_pem = ca_pem_});
  }
  // Starts the program, with the arguments of its Deployment.
  Result<> start() {
    started_ = std::chrono::steady_clock::now();
    child_ = TRY(spawn(kubeconfig(), "0", [this] { ended_ = true; }));
    ended_ = false;
    return {};
  }
  // One more, which looks at `kubeconfig` and serves its probes at `health`.
  Result<std::unique_ptr<Child>> spawn(const std::string& kubeconfig, const std::string& health,
                                       std::function<void()> ended) {
    Command command;
    const std::string program = BUILD_ROOT "/bin/gpu-operator", assets = "--assets=" SOURCE_ROOT "/assets";
    command.argv = {program, "--leader-elect",
                    // This control plane does everything in one thread, and may not answer for a while.
                    "--leader-lease-renew-deadline=60s", "--kubeconfig=" + kubeconfig, assets,
                    "--metrics-bind-address=0", "--health-probe-bind-address=" + health,
                    "--zap-log-level=" + env_or("GPUOP_LOAD_LOG", "error")};
    command.env = env_;
    SpawnOptions options;
    options.die_with_parent = true;
    options.stderr_fd = 2;
    return Child::spawn(loop_, command, options, [ended = std::move(ended)](const ExitState&) { ended(); });
  }
  void stop() {
    if (!child_) return;
    if (!ended_) child_->kill(SIGTERM);
    if (!loop_.run_until([this] { return ended_; }, 30s)) child_->kill(SIGKILL);
    child_.reset();
  }
  bool running() const { return child_ && !ended_; }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }

  Loop& loop() { return loop_; }
  std::string kubeconfig() const { return (dir_.path() / "kubeconfig").string(); }
  kube::Client& client() { return admin_; }
  ProcessFigures figures() const { return figures_of(child_->pid()); }
  // Of the operator so far.
  const Requests& requests() const { return requests_; }
  // Nodes that have every label of the operator's; and those whose condition says that they are ready.
  std::size_t labelled() const { return labelled_.size(); }
  std::size_t told_ready() const { return told_ready_.size(); }
  std::string policy_state() const {
    const auto policy = policies_.get("cluster-policy");
    return policy ? str(get_string(*policy, {"status", "state"})) : "";
  }
  // When it last asked for something but its lease.
  Duration last_request() const { return last_request_; }
  bool settled(Duration quiet) {
    return policy_state() == "ready" && labelled() == node_count_ && loop_.elapsed() - last_request_ >= quiet;
  }
  void patch_node(const std::string& name, std::string_view patch) {
    admin_.patch(kube::kNodes, "", name, kube::Patch::kMerge, *parse_json(patch), {}, [](const auto&) {})
        .detach();
  }

 private:
  explicit OperatorLoad(int nodes)
      : node_count_(static_cast<std::size_t>(nodes)),
        admin_(loop_, lazy(), {.user_agent = "admin", .max_writes = 64}),
        manager_(loop_, lazy(),
                 {.user_agent = "kube-controller-manager", .field_manager = "kube-controller-manager"}),
        nodes_(admin_, kube::kNodes, keep({"status.conditions.type", "status.conditions.status"})),
        policies_(admin_, kube::kClusterPolicies, keep({"status"})) {}

  static kube::InformerOptions keep(std::vector<std::string> fields) {
    kube::InformerOptions out;
    out.keep = std::move(fields);
    return out;
  }
  std::shared_ptr<kube::Transport> lazy() {
    return kube::make_memory_transport(loop_,
                                       [this](HttpRequest request, std::shared_ptr<HttpResponder> out) {
                                         count(request);
                                         server_->handler()(std::move(request), std::move(out));
                                       });
  }

  void count(const HttpRequest& request) {
    const ApiRequest what = describe(request);
    if (what.verb == "create" && what.resource == "nodefeatures") ++features_;
    if (what.component != "gpu-operator") return;
    ++requests_[what.resource.empty() ? what.verb : what.verb + " " + what.resource];
    if (what.resource != "leases") last_request_ = loop_.elapsed();
  }

  Result<> serve(const std::string& kubernetes) {
    const ClusterCredentials keys = TRY(make_cluster_credentials(loop_.now()));
    ApiServerOptions options;
    options.git_version = kubernetes;
    options.seed = 1;
    options.ca_pem = keys.ca.certificate;
    options.service_account_key_pem = keys.service_account_key;
    server_ = TRY(ApiServer::open(loop_, std::move(options)));
    HttpServerOptions http = api_http_options();
    http.tls = TlsFiles{keys.server.certificate, keys.server.key, keys.ca.certificate};
    http_ =
        TRY(HttpServer::create(loop_, http, [this](HttpRequest request, std::shared_ptr<HttpResponder> out) {
          count(request);
          server_->handler()(std::move(request), std::move(out));
        }));
    KubeconfigRequest config;
    config.server = "https://127.0.0.1:" + std::to_string(http_->port());
    config.ca_pem = keys.ca.certificate;
    config.client = keys.admin;
    TRY(write_file_atomic(kubeconfig(), make_kubeconfig(config), 0600));
    ca_pem_ = keys.ca.certificate;
    start_controllers();
    return {};
  }

  // The Deployment is not applied: its container runs here.
  std::vector<Json> objects() {
    std::vector<Json> out;
    for (const Json& object : install()) {
      if (get_string(object, {"kind"}) != "Deployment") {
        out.push_back(object);
        continue;
      }
      for (const Json& container : get_array(object, {"spec", "template", "spec", "containers"})) {
        for (const Json& entry : get_array(container, {"env"}))
          if (has(entry, {"value"}))
            env_.push_back(str(get_string(entry, {"name"})) + "=" + str(get_string(entry, {"value"})));
      }
    }
    env_.push_back("OPERATOR_NAMESPACE=gpu-operator");
    return out;
  }

  Result<> populate(Duration limit) {
    TRY(fleet::apply_all(loop_, admin_, objects()));
    auto options = options_of("mode: light\nnodes: [{name: n, count: " + std::to_string(node_count_) +
                              ", cpus: 64, gpus: {model: H200, count: 8}}]\n");
    std::map<std::string, sim::GpuProfile> profiles;
    std::vector<LightNode> light;
    light.reserve(options.fleet.nodes.size());
    for (const FleetNode& node : options.fleet.nodes)
      light.push_back(
          {node, TRY(make_hardware(node, 1, options.profiles, profiles)), static_cast<int>(light.size())});
    fleet_ = std::make_unique<LightNodes>(loop_, lazy(), std::move(light), options.assets);
    nodes_.on_change([this](const auto& old, const auto& now) {
      if (now && kube::label(*now, "nvidia.com/gpu.deploy.device-plugin") == "true" &&
          kube::label(*now, "nvidia.com/gpu.present") == "true")
        labelled_.insert(std::string(kube::name_of(*now)));
      const Json* ready = now ? kube::condition(*now, "GPUReady") : nullptr;
      if (ready && get_string(*ready, {"status"}) == "True")
        told_ready_.insert(std::string(kube::name_of(*now)));
      else
        told_ready_.erase(std::string(kube::name_of(now ? *now : *old)));
    });
    nodes_.start();
    policies_.start();
    fleet_->start();
    if (!loop_.run_until([this] { return features_ >= node_count_; }, limit))
      return fail(Code::kTimeout, "wait for the nodes' features: only " + std::to_string(features_));
    return {};
  }

  TempDir dir_;
  Loop loop_;
  std::size_t node_count_;
  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<HttpServer> http_;
  kube::Client admin_, manager_;
  kube::Informer nodes_, policies_;
  std::unique_ptr<Controllers> controllers_;
  std::unique_ptr<LightNodes> fleet_;
  std::vector<std::string> env_;
  std::string ca_pem_;
  std::unique_ptr<Child> child_;
  bool ended_ = true;
  std::chrono::steady_clock::time_point started_;
  Requests requests_;
  std::uint64_t features_ = 0;
  std::set<std::string> labelled_, told_ready_;
  Duration last_request_{0};
};

}  // namespace gpuop::cluster::runs

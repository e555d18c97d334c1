// gpuctl demo: a simulated fleet goes from bare nodes to schedulable GPUs, and three pods show it.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/process.h"
#include "base/text.h"
#include "base/version.h"
#include "base/yaml.h"
#include "cli.h"
#include "cluster/fleet/install_tree.h"
#include "cluster/fleet/supervisor.h"
#include "cluster_view.h"
#include "commands.h"
#include "data_dir.h"
#include "explain.h"
#include "fleet/chain.h"
#include "fleet/demo_pods.h"
#include "fleet/manifests.h"
#include "kube/config.h"
#include "kube/object.h"
#include "policy/cluster_policy.h"
#include "sim/profile.h"

namespace gpuop {
namespace {

constexpr const char* kImage = "ghcr.io/gpu-operator/gpu-operator:" GPUOP_VERSION;
constexpr const char* kNamespace = "gpu-operator";

struct Arguments {
  std::string fleet, policy, state_dir, kubeconfig, data_dir, timeout = "2m";
  bool keep = false, stop = false, our_images = false;
};

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

// Images of upstream's registry become ours, but the driver's, which comes from NVIDIA. What our image cannot
// do is switched off, and said: a demo that waits for it would wait in vain. `programs`: the names that our
// image has.
void use_our_images(Json& policy, const policy::ClusterPolicySpec& spec,
                    const std::set<std::string>& programs, std::vector<std::string>& notes) {
  const auto ours = [](Json& block) {
    set(block, {"repository"}, "ghcr.io/gpu-operator");
    set(block, {"image"}, "gpu-operator");
    set(block, {"version"}, GPUOP_VERSION);
  };
  for (std::string_view name : {"validator", "toolkit", "devicePlugin", "gfd", "dcgmExporter", "migManager",
                                "nodeStatusExporter", "dcgm"}) {
    Json* block = find_mutable(policy, {"spec", name});
    if (block && get_string(*block, {"repository"}).starts_with("nvcr.io/nvidia")) ours(*block);
  }
  Json* manager = find_mutable(policy, {"spec", "driver", "manager"});
  if (manager && get_string(*manager, {"repository"}).starts_with("nvcr.io/nvidia")) ours(*manager);

  struct Program {
    const char *field, *state, *name;
    bool wanted;
  };
  for (const Program& program :
       {Program{"migManager", "state-mig-manager", "nvidia-mig-manager", spec.mig_manager.enabled},
        Program{"dcgm", "state-dcgm", "nv-hostengine", spec.dcgm.enabled}}) {
    const auto repository = get_string(policy, {"spec", program.field, "repository"});
    const bool elsewhere = !repository.empty() && repository != "ghcr.io/gpu-operator";
    if (!program.wanted || elsewhere || programs.contains(program.name)) continue;
    set(policy, {"spec", program.field, "enabled"}, false);
    notes.push_back("spec." + std::string(program.field) + ".enabled is switched off (" + program.state +
                    "): our image has no " + program.name);
  }
  if (spec.cdi.nri_plugin_enabled) {
    set(policy, {"spec", "cdi", "nriPluginEnabled"}, false);
    notes.emplace_back(
        "spec.cdi.nriPluginEnabled is switched off (state-container-toolkit): our toolkit does not inject "
        "through NRI; "
        "the RuntimeClasses do its work");
  }
}

// The names that operands of our image can be called by.
Result<std::set<std::string>> our_programs() {
  const std::string program = (self_path().parent_path() / "gpu-node").string();
  const ExitState state = TRY(run_command(Command{{program, "--names"}, {}}, 10s));
  if (!state.ok())
    return fail(Code::kUnknown, "run '" + program + " --names': " + std::string(trim(state.err)));
  const auto names = split_fields(state.out);
  return std::set<std::string>(names.begin(), names.end());
}

struct Input {
  cluster::Fleet fleet;
  std::vector<Json> objects;  // everything that is applied, the policy last
  std::string policy_name;
  std::vector<std::string> changed;  // what --our-images changed beside images
};

// Reads and checks everything before anything is started.
Result<Input> read_input(const Arguments& arguments) {
  const fs::path data = TRY(data_dir());
  Input input;
  const fs::path fleet_file = arguments.fleet.empty() ? data / "fleets/demo.yaml" : fs::path(arguments.fleet);
  const auto models = TRY(sim::profile_models(data / "profiles"));
  input.fleet = TRY(cluster::parse_fleet(TRY(read_file(fleet_file)), fleet_file.string(), models));
  for (const char* part : {"deploy/chart/crds", "deploy/manifests"}) {
    for (auto& object : TRY(fleet::load_manifests(data / part))) input.objects.push_back(std::move(object));
  }
  const fs::path policy_file =
      arguments.policy.empty() ? data / "fleets/demo-policy.yaml" : fs::path(arguments.policy);
  for (auto& document : TRY(parse_yaml(TRY(read_file(policy_file)), policy_file.string()))) {
    TRY_IN(fleet::check_identity(document.value), "read '" + policy_file.string() + "'");
    if (get_string(document.value, {"kind"}) == "ClusterPolicy") {
      const auto parsed =
          TRY_IN(policy::parse_cluster_policy(document.value), "read '" + policy_file.string() + "'");
      TRY_IN(policy::check(parsed.spec), "read '" + policy_file.string() + "'");
      for (const auto& note : parsed.notes)
        std::fprintf(stderr, "gpuctl demo: %s: %s\n", policy_file.c_str(), note.text.c_str());
      if (arguments.our_images)
        use_our_images(document.value, parsed.spec, TRY(our_programs()), input.changed);
      input.policy_name = parsed.name;
    }
    input.objects.push_back(std::move(document.value));
  }
  if (input.policy_name.empty()) {
    return fail(Code::kInvalid, "read '" + policy_file.string() + "': holds no object of kind ClusterPolicy");
  }
  return input;
}

// Says what changes, as it changes.
class Progress {
 public:
  explicit Progress(Loop& loop) : loop_(loop), began_(loop.elapsed()) {}

  void line(const std::string& text) {
    std::printf("%7.2fs  %s\n", seconds(loop_.elapsed() - began_), text.c_str());
  }

  void update(const fleet::ClusterChain& chain, const kube::Informer& nodes) {
    nodes.for_each([this](const auto& node) {
      const Json* ready = kube::condition(*node, "Ready");
      if (!ready || get_string(*ready, {"status"}) != "True") return;
      const std::string name(kube::name_of(*node));
      if (node_ready_.emplace(name, loop_.elapsed()).second) line(name + ": node Ready");
    });
    for (const auto& node : chain.nodes) {
      for (const auto& stage : node.stages) {
        auto& shown = shown_[node.name + "/" + stage.name];
        // A fault is shown once for each text; a stage that waits is no news.
        const std::string now = std::string(fleet::state_name(stage.state)) +
                                (stage.state == fleet::StageState::kFailed ? stage.detail : std::string());
        if (shown == now) continue;
        shown = now;
        if (stage.state == fleet::StageState::kDone || stage.state == fleet::StageState::kFailed) {
          line(node.name + ": " + stage.name + " " + std::string(fleet::state_name(stage.state)) +
               (stage.detail.empty() ? "" : "  (" + stage.detail + ")"));
        }
      }
      if (node.gpu && node.ready && gpu_ready_.emplace(node.name, loop_.elapsed()).second) {
        line(node.name + ": READY  " + node.product);
      }
    }
    if (!chain.policy_state.empty() && chain.policy_state != policy_) {
      policy_ = chain.policy_state;
      line("ClusterPolicy " + chain.policy + ": " + policy_);
    }
  }

  void summary() const {
    if (gpu_ready_.empty()) return;
    std::printf("\nTime from node Ready to validated and schedulable GPUs:\n");
    for (const auto& [name, at] : gpu_ready_) {
      const auto from = node_ready_.find(name);
      if (from != node_ready_.end())
        std::printf("  %-16s %6.2f s\n", name.c_str(), seconds(at - from->second));
    }
    if (const auto most = slowest()) std::printf("  %-16s %6.2f s\n", "slowest", seconds(*most));
  }

 private:
  // The longest of them; nullopt when no node got there.
  std::optional<Duration> slowest() const {
    std::optional<Duration> most;
    for (const auto& [name, at] : gpu_ready_) {
      const auto from = node_ready_.find(name);
      if (from != node_ready_.end()) most = std::max(most.value_or(Duration::zero()), at - from->second);
    }
    return most;
  }

  Loop& loop_;
  Duration began_;
  std::map<std::string, Duration> node_ready_, gpu_ready_;
  std::map<std::string, std::string> shown_;
  std::string policy_;
};

std::string first_broken_link(const fleet::ClusterChain& chain) {
  for (const auto& node : chain.nodes) {
    const auto* broken = node.gpu ? node.first_broken() : nullptr;
    if (broken) {
      return "node " + node.name + ", stage " + broken->name + ": " +
             (broken->detail.empty() ? std::string("not finished") : broken->detail);
    }
  }
  const bool any =
      std::any_of(chain.nodes.begin(), chain.nodes.end(), [](const auto& node) { return node.gpu; });
  if (!any) return "no node was recognized as having NVIDIA GPUs";
  return "ClusterPolicy " + chain.policy + " is " +
         (chain.policy_state.empty() ? "not seen by the operator" : chain.policy_state) +
         (chain.message.empty() ? "" : ": " + chain.message);
}

Result<std::string> pod_log(Loop& loop, kube::Client& client, const std::string& name) {
  HttpRequest request;
  request.path = kube::kPods.path("default", name, "log");
  const auto log = kube::await_raw(loop, [&](const auto& done) { return client.raw(request, done); });
  if (!log) return fail(log.error().error("read the log of pod '" + name + "'"));
  return log->body;
}

// Creates the pods, waits for what each has to come to, and tells. False when one came to something else.
Result<bool> run_pods(Loop& loop, kube::Client& client, const ClusterWatch& cluster, Duration limit,
                      const bool& interrupted) {
  fleet::Objects nodes;
  cluster.nodes.for_each([&nodes](const auto& node) { nodes.push_back(node); });
  const auto pods = fleet::demo_pods(nodes, kImage);
  std::vector<Json> objects;
  objects.reserve(pods.size());
  for (const auto& pod : pods) objects.push_back(pod.object);
  kube::InformerOptions keep;
  keep.ns = "default";
  keep.keep = {"spec.nodeName", "status"};
  kube::Informer watch(client, kube::kPods, keep);
  watch.start();
  TRY(fleet::apply_all(loop, client, objects));
  const auto settled = [&](const fleet::DemoPod& pod) {
    const auto live = watch.get(kube::object_key("default", pod.name));
    if (!live) return false;
    const Json* scheduled = kube::condition(*live, "PodScheduled");
    if (pod.must_wait) return scheduled && get_string(*scheduled, {"status"}) == "False";
    const auto phase = get_string(*live, {"status", "phase"});
    return phase == "Succeeded" || phase == "Failed";
  };
  loop.run_until([&] { return interrupted || std::all_of(pods.begin(), pods.end(), settled); }, limit);
  bool good = true;
  std::printf("\n");
  for (const auto& pod : pods) {
    const auto live = watch.get(kube::object_key("default", pod.name));
    const std::string phase(live ? get_string(*live, {"status", "phase"}, "Pending") : "Pending");
    std::printf("Pod %s (asks for %s): ", pod.name.c_str(), pod.purpose.c_str());
    if (pod.must_wait) {
      const Json* scheduled = live ? kube::condition(*live, "PodScheduled") : nullptr;
      const std::string why(scheduled ? get_string(*scheduled, {"message"}) : "");
      std::printf("%s: %s\n", phase.c_str(), why.c_str());
      good = good && phase == "Pending" && !why.empty();
      continue;
    }
    std::printf("%s on node %s\n", phase.c_str(),
                live ? std::string(get_string(*live, {"spec", "nodeName"}, "-")).c_str() : "-");
    good = good && phase == "Succeeded";
    if (live && has(*live, {"spec", "nodeName"})) {
      const auto log = pod_log(loop, client, pod.name);
      const std::string text = log ? *log : log.error().text();
      for (const auto& row : split(trim(text), '\n')) std::printf("    %s\n", row.c_str());
    }
  }
  return good;
}

// Takes out of somebody else's cluster what the demo has put there, while its nodes can still end their pods:
// the policy first, whose end is the operator's business, then all the rest.
Result<> leave_cluster(Loop& loop, kube::Client& client, const Input& input, Duration limit) {
  std::vector<Json> policy, rest;
  for (const auto& object : input.objects)
    (get_string(object, {"kind"}) == "ClusterPolicy" ? policy : rest).push_back(object);
  TRY(fleet::remove_all(loop, client, policy, limit));
  for (const char* name : {"one-gpu", "shared-gpu", "too-many-gpus"}) {
    rest.push_back(JsonObject{{"apiVersion", "v1"},
                              {"kind", "Pod"},
                              {"metadata", JsonObject{{"name", name}, {"namespace", "default"}}}});
  }
  return fleet::remove_all(loop, client, rest, limit);
}

Result<> remove_nodes(Loop& loop, kube::Client& client, const cluster::Fleet& fleet) {
  std::vector<Json> nodes;
  nodes.reserve(fleet.nodes.size());
  for (const auto& node : fleet.nodes) {
    nodes.push_back(
        JsonObject{{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", JsonObject{{"name", node.name}}}});
  }
  return fleet::remove_all(loop, client, nodes, 30s);
}

// Ends early, with the reason, when nothing but time would be lost by waiting on: a stage that failed for
// good, or a policy that its operator refuses.
class Hopeless {
 public:
  explicit Hopeless(Loop& loop) : loop_(loop) {}

  // `ours`: the nodes that count; another cluster may have more.
  void update(const fleet::ClusterChain& chain, const std::set<std::string>& ours) {
    why_.clear();
    for (const auto& node : chain.nodes) {
      if (!ours.contains(node.name)) continue;
      for (const auto& stage : node.stages) {
        if (stage.stuck && why_.empty())
          why_ = "stage " + stage.name + " of node " + node.name + " does not get on";
      }
    }
    if (why_.empty() && chain.reason == "ReconcileFailed") why_ = "the operator refuses the policy";
    if (why_.empty()) {
      timer_.reset();
      since_.reset();
    } else if (!since_) {
      since_ = loop_.elapsed();
      timer_ = loop_.after(kPatience, [] {});  // so that it is looked at again
    }
  }
  // For some seconds: what is refused once may be taken when it is tried again.
  bool certain() const { return since_ && loop_.elapsed() - *since_ >= kPatience; }
  const std::string& why() const { return why_; }

 private:
  static constexpr Duration kPatience = 5s;
  Loop& loop_;
  std::string why_;
  std::optional<Duration> since_;
  Handle timer_;
};

// Tells what is wrong with a fleet that did not get ready.
void tell_broken(Loop& loop, kube::Client& client, const ClusterWatch& cluster, const std::string& headline) {
  auto chain = cluster.chain();
  explain(loop, client, kNamespace, cluster.all_pods(), chain);
  std::printf("\n%s\n", fleet::render(chain).c_str());
  std::fflush(stdout);
  std::fprintf(stderr, "gpuctl demo: %s. First broken link: %s\n", headline.c_str(),
               first_broken_link(chain).c_str());
  for (const auto& node : chain.nodes) {
    const auto* broken = node.first_broken();
    if (!broken || !broken->stuck || broken->detail.find("nvcr.io/nvidia") == std::string::npos) continue;
    std::fputs(
        "gpuctl demo: a simulated node has no images of NVIDIA's operands: --our-images replaces them\n",
        stderr);
    break;
  }
}

Result<int> run(const Arguments& arguments, Loop& loop, const bool& interrupted) {
  const Duration limit = TRY_IN(parse_go_duration(arguments.timeout), "--timeout");
  if (limit <= Duration::zero()) return fail(Code::kInvalid, "--timeout: must be longer than 0s");
  if (::geteuid() != 0) {
    return fail(Code::kPermission,
                "a simulated node needs namespaces and mounts of its own: run this as root");
  }
  Input input = TRY(read_input(arguments));
  for (const auto& change : input.changed)
    std::fprintf(stderr, "gpuctl demo: --our-images: %s\n", change.c_str());
  if (!arguments.data_dir.empty()) TRY(check_data_dir(arguments.data_dir));
  std::optional<TempDir> scratch;
  fs::path state = arguments.state_dir;
  if (state.empty()) {
    if (arguments.keep) {
      state = default_state_dir();
    } else {
      scratch.emplace("gpuctl-demo");
      state = scratch->path() / "fleet";
    }
  }
  Progress progress(loop);

  const fs::path programs = self_path().parent_path();
  cluster::InstallTreeOptions tree;
  tree.programs = programs;
  tree.sim = TRY(sim_dir());
  tree.assets = TRY(data_dir()) / "assets";
  tree.crds = TRY(data_dir()) / "deploy/chart/crds";
  tree.out = TRY(install_dir());
  TRY(cluster::stage_install_tree(tree));

  cluster::FleetOptions options;
  options.fleet = input.fleet;
  options.state_dir = state;
  options.install_tree = tree.out;
  options.image = kImage;
  options.kubeconfig = arguments.kubeconfig;
  options.keep = arguments.keep;
  options.data_dir = arguments.data_dir;
  cluster::FleetStatus status;
  bool ended = false;
  auto fleet_process = TRY(cluster::FleetProcess::start(
      loop, options, [&](const cluster::FleetStatus& now) { status = now; }, [&] { ended = true; }));
  const auto up = [&] {
    return interrupted || ended || status.phase != cluster::FleetStatus::Phase::kStarting;
  };
  const bool started = loop.run_until(up, limit);
  for (const auto& note : status.notes) progress.line(note);
  if (interrupted) return 130;
  if (!started || ended || status.phase == cluster::FleetStatus::Phase::kFailed) {
    return fail(
        Code::kUnavailable,
        "start the fleet: " + (status.error.empty() ? std::string("it did not come up") : status.error));
  }
  progress.line("control plane and " + std::to_string(input.fleet.nodes.size()) + " nodes started");

  auto client =
      TRY(kube::make_client(loop, TRY(kube::load_kubeconfig({fleet_process->kubeconfig().string()}))));
  TRY(fleet::apply_all(loop, *client, input.objects));
  progress.line("operator, node feature discovery and ClusterPolicy '" + input.policy_name + "' applied");

  ClusterWatch cluster(*client, kNamespace);
  std::set<std::string> with_gpus;
  for (const auto& node : input.fleet.nodes) {
    if (node.gpu_count > 0) with_gpus.insert(node.name);
  }
  Hopeless hopeless(loop);
  cluster.on_change([&] {
    if (!cluster.nodes.synced() || !cluster.pods.synced()) return;
    const auto chain = cluster.chain();
    progress.update(chain, cluster.nodes);
    hopeless.update(chain, with_gpus);
  });
  const auto all_ready = [&] {
    const auto chain = cluster.chain();
    std::size_t ready = 0;
    for (const auto& node : chain.nodes) ready += with_gpus.contains(node.name) && node.gpu && node.ready;
    return ready == with_gpus.size() && chain.policy_state == "ready";
  };
  loop.run_until([&] { return interrupted || ended || hopeless.certain() || all_ready(); }, limit);
  if (interrupted) return 130;
  int code = 0;
  if (!all_ready()) {
    tell_broken(loop, *client, cluster,
                hopeless.certain() ? "will not get ready: " + hopeless.why()
                                   : "not ready after " + format_go_duration(limit));
    code = 1;
  } else {
    const bool good = TRY(run_pods(loop, *client, cluster, 30s, interrupted));
    std::printf("\n%s", fleet::render(cluster.chain()).c_str());
    progress.summary();
    if (!good) {
      std::fprintf(stderr, "gpuctl demo: a pod did not come to what it should (above)\n");
      code = 1;
    }
  }
  if (arguments.keep) {
    std::printf("\nThe fleet stays up; end it with: gpuctl demo --stop%s\nKUBECONFIG=%s\n",
                arguments.state_dir.empty() ? "" : (" --state-dir " + state.string()).c_str(),
                fleet_process->kubeconfig().c_str());
  } else {
    if (!arguments.kubeconfig.empty()) TRY(leave_cluster(loop, *client, input, limit));
    fleet_process->stop();
    if (!arguments.kubeconfig.empty()) TRY(remove_nodes(loop, *client, input.fleet));
  }
  return code;
}

}  // namespace

int demo_main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Run a simulated fleet on this machine and bring it from bare nodes to schedulable GPUs. Every "
      "process, "
      "socket and file is real; only the hardware is not.");
  app.add_option("--fleet", arguments.fleet,
                 "fleet file (default: 8 x A100, 8 x H200, 2 x L4 shared, one node without GPU)")
      ->check(CLI::ExistingFile);
  app.add_option("--policy", arguments.policy, "file with the ClusterPolicy, and ConfigMaps that it names")
      ->check(CLI::ExistingFile);
  app.add_option(
         "--kubeconfig", arguments.kubeconfig,
         "use this cluster's control plane, and take everything out of it again at the end (default: a "
         "control plane of the demo's own)")
      ->check(CLI::ExistingFile);
  app.add_flag("--our-images", arguments.our_images,
               "replace upstream's operand images in the policy by ours");
  app.add_flag("--keep", arguments.keep, "leave it up and print its KUBECONFIG");
  app.add_flag("--stop", arguments.stop, "end a fleet that was kept");
  app.add_option("--state-dir", arguments.state_dir, "folder of a kept fleet (default: /run/gpuctl-demo)");
  app.add_option(
         "--data-dir", arguments.data_dir,
         "folder that keeps the cluster's objects, keys and port, for the next demo with it (default: "
         "nothing is kept)")
      ->excludes("--kubeconfig");
  app.add_option("--timeout", arguments.timeout, "how long nodes may take")->capture_default_str();
  if (auto code = parse_command_line(app, argc, argv, 2)) return *code;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (arguments.stop) {
    const fs::path state = arguments.state_dir.empty() ? default_state_dir() : fs::path(arguments.state_dir);
    if (const auto stopped = cluster::stop_fleet(state); !stopped) {
      std::fprintf(stderr, "gpuctl demo: %s\n", stopped.error().text().c_str());
      return 1;
    }
    return 0;
  }
  Loop loop;
  bool interrupted = false;
  Handle signals = on_signals(loop, {SIGINT, SIGTERM, SIGHUP}, [&](int) {
    interrupted = true;
    loop.stop();
  });
  const auto result = run(arguments, loop, interrupted);
  // Whatever was under way then failed for that reason alone; a signal may still wait to be seen.
  if (!result) loop.run_for(Duration::zero());
  if (interrupted) {
    std::fputs("gpuctl demo: interrupted\n", stderr);
    return 130;
  }
  if (!result) {
    std::fprintf(stderr, "gpuctl demo: %s\n", result.error().text().c_str());
    return 1;
  }
  return *result;
}

}  // namespace gpuop

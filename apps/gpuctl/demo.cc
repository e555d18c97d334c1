// gpuctl demo: a simulated fleet goes from bare nodes to schedulable GPUs, and three pods show it.
#include <unistd.h>

#include <algorithm>
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
#include "cluster/faults/faults.h"
#include "cluster/fleet/install_tree.h"
#include "cluster/fleet/kept.h"
#include "cluster/fleet/supervisor.h"
#include "cluster/hollow/known_names.h"
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
#include "sim_input.h"

namespace gpuop {
namespace {

constexpr const char* kImage = kOwnImage;
constexpr const char* kNamespace = "gpu-operator";
constexpr int kGood = 0, kFailed = 1, kBadInput = 2, kInterrupted = 130;

struct Arguments {
  std::string fleet, policy, state_dir, kubeconfig, data_dir, timeout = "2m";
  std::string faults;
  bool keep = false, stop = false, our_images = false;
};

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
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

Result<std::string> pod_log(Loop& loop, kube::Client& client, const std::string& name) {
  HttpRequest request;
  request.path = kube::kPods.path("default", name, "log");
  const auto log = kube::await_raw(loop, [&](const auto& done) { return client.raw(request, done); });
  if (!log) return fail(log.error().error("read the log of pod '" + name + "'"));
  return log->body;
}

// Creates the pods, waits for what each has to come to, and tells. False when one came to something else.
Result<bool> run_pods(Loop& loop, kube::Client& client, const ClusterWatch& cluster, bool kept,
                      Duration limit, const bool& interrupted) {
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
  // Those of the demo before, where its cluster was kept, have done their work.
  if (kept) TRY(fleet::remove_all(loop, client, objects, limit));
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
Result<> leave_cluster(Loop& loop, kube::Client& client, const SimInput& input, Duration limit) {
  std::vector<Json> policy, rest;
  for (const auto* objects : {&input.objects, &input.policy}) {
    for (const auto& object : *objects)
      (get_string(object, {"kind"}) == "ClusterPolicy" ? policy : rest).push_back(object);
  }
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

  // `ours`: the nodes that count; another cluster may have more. `ignored`: why the policy is, if it is.
  void update(const fleet::ClusterChain& chain, const std::set<std::string>& ours,
              const std::string& ignored) {
    why_ = ignored;
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
  explain(loop, client, kNamespace, cluster, chain);
  std::printf("\n%s\n", fleet::render(chain).c_str());
  std::fflush(stdout);
  std::fprintf(stderr, "gpuctl demo: %s. First broken link: %s\n", headline.c_str(),
               fleet::first_broken_link(chain).c_str());
  for (const auto& node : chain.nodes) {
    const auto* broken = node.first_broken();
    if (!broken || !broken->stuck || broken->detail.find("nvcr.io/nvidia") == std::string::npos) continue;
    std::fputs(
        "gpuctl demo: a simulated node has no images of NVIDIA's operands: --our-images replaces them\n",
        stderr);
    break;
  }
}

// The text of a faults file that can be played by processes.
Result<std::string> read_faults(const Arguments& arguments, const SimInput& input) {
  if (arguments.faults.empty()) return std::string();
  if (!arguments.kubeconfig.empty()) {
    return fail(
        Code::kUnsupported,
        "--faults: the control plane is another's (--kubeconfig), and faults are its own API server's");
  }
  std::string text = TRY(read_file(arguments.faults));
  const auto plan = TRY(cluster::parse_faults(text, arguments.faults));
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const cluster::Fault& fault = plan.faults[i];
    if (fault.api && fault.where.node.empty()) continue;
    const std::string what = fault.clock   ? "the clock of processes is the machine's"
                             : fault.event ? "the hardware of nodes with processes fails by gpuctl sim fault"
                                           : "tells hollow nodes apart, not processes";
    return plan.wrong(i,
                      fault.clock   ? "clock"
                      : fault.event ? "event"
                                    : "where.node",
                      what + "; gpuctl sim run plays it", Code::kUnsupported);
  }
  cluster::FaultNames names;
  names.resources = cluster::known_resources(input.objects);
  names.more_resources = !arguments.data_dir.empty();  // what was kept may have definitions of its own
  TRY(check_faults(plan, names));
  return text;
}

Result<> apply(Loop& loop, kube::Client& client, const SimInput& input, const Arguments& arguments,
               Progress& progress) {
  TRY(fleet::apply_all(loop, client, input.objects));
  // What a data folder has kept is its owner's: the demo's own policy is for a cluster without one.
  // What is applied is noted, for the next demo that is given another.
  bool applied = true;
  if (arguments.policy.empty() && !arguments.data_dir.empty()) {
    applied = TRY(fleet::apply_default_policy(loop, client, input.policy));
  } else {
    TRY(fleet::apply_all(loop, client, input.policy));
  }
  if (applied && !arguments.data_dir.empty())
    TRY(cluster::keep_policy(loop, client, input.policy_name, arguments.data_dir));
  progress.line(applied
                    ? "operator, node feature discovery and ClusterPolicy '" + input.policy_name + "' applied"
                    : "operator and node feature discovery applied; the ClusterPolicy of '" +
                          arguments.data_dir + "' stays as it is");
  return {};
}

// A kept cluster says of a node and its pods what was said last, until the node's kubelet speaks.
bool shows_the_past(const ClusterWatch& cluster, const std::set<std::string>& with_gpus, Time began) {
  bool past = false;
  cluster.pods.for_each([&](const auto& pod) { past = past || cluster::is_of_the_past(*pod, began); });
  cluster.nodes.for_each([&](const auto& node) { past = past || cluster::is_unheard(*node, began); });
  const auto chain = past ? fleet::ClusterChain() : cluster.chain();
  for (const auto& node : chain.nodes) past = past || (node.gpu && !with_gpus.contains(node.name));
  return past;
}

// Names the faults that struck nothing so far: a fault that is there to be met, and was not, is news.
Result<> tell_idle_faults(Loop& loop, kube::Client& client, const std::string& file,
                          const std::string& text) {
  if (file.empty()) return {};
  const auto plan = TRY(cluster::parse_faults(text, file));
  HttpRequest request;
  request.path = kIdleFaultsPath;
  const auto answer = kube::await_raw(loop, [&](const auto& done) { return client.raw(request, done); });
  if (!answer) return fail(answer.error().error("ask which faults struck nothing"));
  const Json idle = TRY(parse_json(answer->body));
  if (!idle.is_array()) return {};
  for (const Json& fault : idle.get_array()) {
    const auto index = static_cast<std::size_t>(get_int(fault, {"index"}));
    if (index >= plan.faults.size()) continue;
    std::fprintf(stderr, "gpuctl demo: warning: %s: %s\n", plan.place(index).c_str(),
                 str(get_string(fault, {"why"})).c_str());
  }
  return {};
}

// What ends soon after each start does not come up by being started once more.
bool ends_again_and_again(const cluster::FleetStatus& status) {
  constexpr int kOften = 3;
  return std::ranges::any_of(status.services, [](const cluster::FleetService& service) {
    return service.role == "control-plane" && service.restarts >= kOften;
  });
}

// The last line of the control plane's log, else of the supervisor's: the folder with them goes with the
// demo.
std::string last_words(const fs::path& state) {
  for (const char* name : {"control-plane.log", "supervisor.log"}) {
    const std::string text = read_file(state / "log" / name).value_or("");
    const std::string_view lines = trim(text);
    if (lines.empty()) continue;
    return "; log/" + std::string(name) + " ends with: " + std::string(lines.substr(lines.rfind('\n') + 1));
  }
  return "; its logs are empty";
}

// What the command line and its files say.
struct Input {
  Duration limit{};
  SimInput sim;
  std::string faults;
};

Result<Input> read_input(const Arguments& arguments) {
  Input out;
  out.limit = TRY_IN(parse_go_duration(arguments.timeout), "--timeout");
  if (out.limit <= Duration::zero()) return fail(Code::kInvalid, "--timeout: must be longer than 0s");
  out.sim = TRY(read_sim_input(arguments.fleet, arguments.policy, arguments.our_images, "gpuctl demo"));
  if (out.sim.fleet.any_hollow()) {
    return fail(Code::kUnsupported,
                "the fleet has hollow nodes, and a demo's nodes have processes; use gpuctl sim run");
  }
  out.faults = TRY(read_faults(arguments, out.sim));
  return out;
}

Result<int> run(const Arguments& arguments, Loop& loop, const bool& interrupted) {
  if (::geteuid() != 0) {
    return fail(Code::kPermission,
                "a simulated node needs namespaces and mounts of its own: run this as root");
  }
  auto given = read_input(arguments);
  if (!given) {
    std::fprintf(stderr, "gpuctl demo: %s\n", given.error().text().c_str());
    return kBadInput;
  }
  const Duration limit = given->limit;
  const SimInput& input = given->sim;
  for (const auto& change : input.changed)
    std::fprintf(stderr, "gpuctl demo: --our-images: %s\n", change.c_str());
  // Held to the end, so that of two demos that start at once the second is refused before it starts anything.
  const std::string asked = arguments.policy.empty() && !arguments.data_dir.empty() ? "" : input.policy_name;
  std::optional<KeptData> kept_data;
  if (!arguments.data_dir.empty())
    kept_data = TRY(take_data_dir(arguments.data_dir, input.fleet, asked, loop.now()));
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
  const Time began = loop.now();
  if (kept_data)
    for (const auto& note : kept_data->notes) progress.line(note);

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
  const std::string& faults = given->faults;
  options.faults = faults;
  cluster::FleetStatus status;
  bool ended = false;
  auto fleet_process = TRY(cluster::FleetProcess::start(
      loop, options, [&](const cluster::FleetStatus& now) { status = now; }, [&] { ended = true; }));
  const auto up = [&] {
    return interrupted || ended || status.phase != cluster::FleetStatus::Phase::kStarting ||
           ends_again_and_again(status);
  };
  const bool started = loop.run_until(up, limit);
  for (const auto& note : status.notes) progress.line(note);
  if (interrupted) return kInterrupted;
  if (!started || ended || status.phase != cluster::FleetStatus::Phase::kUp) {
    return fail(Code::kUnavailable,
                "start the fleet: " +
                    (status.error.empty() ? "it did not come up" + last_words(state) : status.error));
  }
  progress.line("control plane and " + std::to_string(input.fleet.nodes.size()) + " nodes started");

  auto client =
      TRY(kube::make_client(loop, TRY(kube::load_kubeconfig({fleet_process->kubeconfig().string()}))));
  TRY(apply(loop, *client, input, arguments, progress));
  const auto in_its_place = [&](const fleet::ClusterChain& chain) {
    return cluster::not_in_force(asked, chain.policy);
  };

  ClusterWatch cluster(*client, kNamespace);
  std::set<std::string> with_gpus;
  for (const auto& node : input.fleet.nodes) {
    if (node.gpu_count > 0) with_gpus.insert(node.name);
  }
  const bool kept = !arguments.data_dir.empty();
  const auto is_past = [&] { return kept && shows_the_past(cluster, with_gpus, began); };
  Hopeless hopeless(loop);
  cluster.on_change([&] {
    if (!cluster.nodes.synced() || !cluster.pods.synced() || is_past()) return;
    const auto chain = cluster.chain();
    progress.update(chain, cluster.nodes);
    hopeless.update(chain, with_gpus, in_its_place(chain));
  });
  const auto all_ready = [&] {
    if (is_past()) return false;
    const auto chain = cluster.chain();
    std::size_t ready = 0;
    for (const auto& node : chain.nodes) ready += with_gpus.contains(node.name) && node.gpu && node.ready;
    return ready == with_gpus.size() && chain.policy_state == "ready" && in_its_place(chain).empty();
  };
  loop.run_until([&] { return interrupted || ended || hopeless.certain() || all_ready(); }, limit);
  if (interrupted) return kInterrupted;
  int code = kGood;
  if (!all_ready()) {
    tell_broken(loop, *client, cluster,
                hopeless.certain() ? "will not get ready: " + hopeless.why()
                                   : "not ready after " + format_go_duration(limit));
    code = kFailed;
  } else {
    const bool good = TRY(run_pods(loop, *client, cluster, kept, 30s, interrupted));
    std::printf("\n%s", fleet::render(cluster.chain()).c_str());
    progress.summary();
    if (!good) {
      std::fprintf(stderr, "gpuctl demo: a pod did not come to what it should (above)\n");
      code = kFailed;
    }
  }
  if (const auto told = tell_idle_faults(loop, *client, arguments.faults, faults); !told)
    std::fprintf(stderr, "gpuctl demo: %s\n", told.error().text().c_str());
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
      "socket and file is real; only the hardware is not.\n"
      "Exit codes: 0 every GPU node got ready, the policy too, and the pods came to what they should "
      "(--stop: the "
      "fleet has ended); 1 they did not within --timeout or it was hopeless, and the first broken link is "
      "named, or "
      "the fleet could not be started (--stop: none runs there); 2 a flag or a file is wrong; 130 "
      "interrupted.");
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
  app.add_option("--faults", arguments.faults, "faults file: what goes wrong with API requests")
      ->check(CLI::ExistingFile);
  app.add_flag("--our-images", arguments.our_images,
               "replace upstream's operand images in the policy by ours");
  app.add_flag("--keep", arguments.keep, "leave it up and print its KUBECONFIG");
  app.add_flag("--stop", arguments.stop, "end a fleet that was kept")->excludes("--keep");
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
      return kFailed;
    }
    std::printf("the fleet in '%s' has ended\n", state.c_str());
    return kGood;
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
    return kInterrupted;
  }
  if (!result) {
    std::fprintf(stderr, "gpuctl demo: %s\n", result.error().text().c_str());
    return kFailed;
  }
  return *result;
}

}  // namespace gpuop

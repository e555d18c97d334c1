#include "cluster/hollow/fleet.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/heap.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/controllers/controllers.h"
#include "cluster/faults/injector.h"
#include "cluster/fleet/kept.h"
#include "cluster/hollow/known_names.h"
#include "cluster/hollow/light_nodes.h"
#include "cluster/hollow/node.h"
#include "cluster/hollow/normalise.h"
#include "cluster/hollow/settled.h"
#include "fleet/faults.h"
#include "fleet/manifests.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kStart = "2026-01-01T00:00:00Z";
constexpr const char* kOperatorNamespace = "gpu-operator";
constexpr std::size_t kLarge = 500, kBytesPerNode = 224u << 10;  // with a dozen pods each

kube::InformerOptions keep(std::string ns, std::vector<std::string> fields) {
  kube::InformerOptions options;
  options.ns = std::move(ns);
  options.keep = std::move(fields);
  return options;
}

std::vector<std::string> with(std::vector<std::string> fields, std::string field) {
  fields.push_back(std::move(field));
  return fields;
}

// What is compared at the end of a run.
const std::vector<kube::Resource>& compared() {
  static const std::vector<kube::Resource> kTypes{kube::kNodes,          kube::kPods,
                                                  kube::kNamespaces,     kube::kConfigMaps,
                                                  kube::kDaemonSets,     kube::kDeployments,
                                                  kube::kServices,       kube::kServiceAccounts,
                                                  kube::kRoles,          kube::kRoleBindings,
                                                  kube::kClusterRoles,   kube::kClusterRoleBindings,
                                                  kube::kRuntimeClasses, kube::kClusterPolicies,
                                                  kube::kNodeFeatures};
  return kTypes;
}

std::string policy_name(const std::vector<Json>& objects) {
  const auto found = std::ranges::find_if(
      objects, [](const Json& object) { return get_string(object, {"kind"}) == "ClusterPolicy"; });
  return found == objects.end() ? std::string() : str(kube::name_of(*found));
}

ApiServerOptions server_options(const HollowFleetOptions& options) {
  ApiServerOptions out;
  out.git_version = options.fleet.kubernetes;
  out.seed = (options.fleet.seed * 0x9e3779b97f4a7c15ULL) ^ options.seed ^ 1;
  if (out.seed == 0) out.seed = 1;
  out.data_dir = options.data_dir;
  return out;
}

}  // namespace

struct HollowFleet::Impl {
  // How many faults hold a node down at once.
  struct Held {
    int kubelet = 0, network = 0, pull_delay = 0, pull_fault = 0;
    std::vector<FaultRecord*> pulls{};  // of faults of image pulls that are on
  };

  Impl(HollowFleetOptions o, std::unique_ptr<Loop> l, std::unique_ptr<ApiServer> s)
      : options(std::move(o)),
        loop(std::move(l)),
        log(*loop, options.events),
        api(std::move(s)),
        server(*api),
        injector(*loop, seeded(), server.handler(), injector_options()),
        transport(kube::make_memory_transport(*loop, injector.handler())),
        admin(*loop, kube::make_memory_transport(*loop, server.handler()), {.user_agent = "admin"}),
        manager(*loop, transport,
                {.user_agent = "kube-controller-manager", .field_manager = "kube-controller-manager"}),
        policies(admin, kube::kClusterPolicies, keep("", fleet::policy_fields())),
        node_objects(admin, kube::kNodes, keep("", fleet::node_fields())),
        pods(admin, kube::kPods, keep(kOperatorNamespace, with(fleet::pod_fields(), "spec.restartPolicy"))),
        daemonsets(admin, kube::kDaemonSets, keep(kOperatorNamespace, fleet::daemonset_fields())),
        deployments(admin, kube::kDeployments, keep(kOperatorNamespace, fleet::operator_deployment_fields())),
        leases(admin, kube::kLeases, keep(kOperatorNamespace, {"spec"})),
        met(options.faults.faults.size()) {}

  FaultPlan seeded() const {
    FaultPlan out = options.faults;
    out.seed = out.seed * 0x9e3779b97f4a7c15ULL + options.seed;
    return out;
  }
  InjectorOptions injector_options() {
    InjectorOptions out;
    out.version = [this] { return server.resource_version(); };
    out.log = &log;
    out.log_reads = options.log_reads;
    out.answered = [this](const ApiRequest& request, int status) { answered(request, status); };
    return out;
  }

  void answered(const ApiRequest& request, int status) {
    ++by_component[request.component]
                  [request.resource.empty() ? request.verb : request.verb + " " + request.resource];
    const bool write = request.verb != "get" && request.verb != "list" && request.verb != "watch";
    const std::string& resource = request.resource;
    if (!write || status >= 300 || resource == "leases" || resource == "events" ||
        resource == "nodes/status" || resource == "serviceaccounts/token") {
      return;
    }
    // Writes that change nothing give out no version.
    if (server.resource_version() == seen_version) return;
    seen_version = server.resource_version();
    last_write = loop->elapsed();
  }

  // A cluster that was kept goes on after the time at which it was left: its leases tell.
  Result<> go_on() {
    const auto leases =
        kube::await(*loop, [&](const auto& done) { return admin.list(kube::kLeases, "", {}, done); });
    if (!leases) return fail(leases.error().error("list leases"));
    std::optional<Time> latest;
    for (const Json& lease : get_array(*leases, {"items"})) {
      if (const auto renewed = parse_time(get_string(lease, {"spec", "renewTime"})))
        latest = std::max(latest.value_or(*renewed), *renewed);
    }
    // What was written after the last of them is younger than a lease's period.
    if (latest && *latest + 1min > loop->now()) loop->jump(*latest + 1min - loop->now());
    return {};
  }

  Result<> check_names() {
    if (options.faults.faults.empty()) return {};
    std::vector<Json> objects = options.objects;
    objects.insert(objects.end(), options.default_policy.begin(), options.default_policy.end());
    FaultNames names;
    names.nodes = known_nodes(options.fleet);
    if (options.data_dir.empty()) {
      if (options.assets != nullptr) names.containers = known_containers(*options.assets, objects);
    } else {
      // What was kept may have pods of any kind, and definitions of its own.
      const auto kept = kube::await(*loop, [&](const auto& done) {
        return admin.list(kube::kCustomResourceDefinitions, "", {}, done);
      });
      if (!kept) return fail(kept.error().error("list custom resource definitions"));
      for (const Json& item : get_array(*kept, {"items"})) {
        objects.push_back(item);
        set(objects.back(), {"kind"}, "CustomResourceDefinition");
      }
    }
    names.resources = known_resources(objects);
    return check_faults(options.faults, names);
  }

  Result<> apply() {
    const bool kept = !options.data_dir.empty();
    asked = policy_name(options.objects);
    if (kept && !asked.empty()) {
      for (std::string& note : TRY(follow_policy(*loop, admin, asked, options.data_dir)))
        notes.push_back(std::move(note));
    }
    TRY(fleet::apply_all(*loop, admin, options.objects));
    std::string applied = asked;
    if (!options.default_policy.empty() &&
        TRY(fleet::apply_default_policy(*loop, admin, options.default_policy))) {
      applied = policy_name(options.default_policy);
    }
    return kept && !applied.empty() ? keep_policy(*loop, admin, applied, options.data_dir) : Result<>();
  }

  Result<> open() {
    if (!options.data_dir.empty()) TRY(go_on());
    TRY(check_names());
    if (!options.data_dir.empty()) {
      notes = TRY(follow_fleet(*loop, admin, options.fleet, options.data_dir));
      began = loop->now();
    }
    TRY(apply());
    controllers = start_controllers(*loop, manager);
    for (kube::Informer* informer : {&policies, &node_objects, &pods, &daemonsets}) {
      informer->on_change([this](const auto&, const auto&) {
        dirty = true;
        ++changes;
      });
      informer->start();
    }
    for (kube::Informer* informer : {&deployments, &leases}) {
      informer->on_change([this](const auto&, const auto&) { next_ask = Duration::zero(); });
      informer->start();
    }
    TRY(make_nodes());
    held.resize(nodes.size());
    // What is to happen from the start happens before anything else does.
    for (std::size_t i = 0; i < options.faults.faults.size(); ++i) {
      const Fault& fault = options.faults.faults[i];
      if (fault.api) continue;
      if (fault.at <= Duration::zero()) {
        strike(fault, met[i]);
      } else {
        timers.push_back(loop->after(fault.at, [this, &fault, i] { strike(fault, met[i]); }));
      }
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (held[i].kubelet == 0) nodes[i]->start_kubelet();
    }
    light->start();
    return {};
  }

  Result<> make_nodes() {
    int index = 0;
    std::vector<LightNode> light_ones;
    std::map<std::string, sim::GpuProfile> profiles;
    for (const FleetNode& node : options.fleet.nodes) {
      if (!node.hollow) {
        return fail(Code::kUnsupported, "run a hollow fleet: node '" + node.name +
                                            "' is one with processes; write `mode: hollow` for it");
      }
      if (node.gpu_count > 0) gpu_nodes.insert(node.name);
      HollowHardware hardware = TRY(make_hardware(node, options.fleet.seed, options.profiles, profiles));
      if (node.light) {
        light_ones.push_back({node, std::move(hardware), index++});
        continue;
      }
      HollowNodeOptions one;
      one.node = node;
      one.hardware = std::move(hardware);
      one.index = index++;
      one.image = options.image;
      one.assets = options.assets;
      one.log = &log;
      one.pull_began = [this, at = nodes.size()] {
        for (FaultRecord* record : held[at].pulls) ++record->struck;
      };
      nodes.push_back(std::make_unique<HollowNode>(*loop, transport, std::move(one)));
    }
    light = std::make_unique<LightNodes>(*loop, transport, std::move(light_ones), options.assets);
    return {};
  }

  // --- faults of nodes

  void strike(const Fault& fault, FaultRecord& record) {
    if (fault.clock) {
      ++record.struck;
      log.line("faults", "clock", format_go_duration(*fault.clock), "(" + fault.name + ")");
      loop->jump(*fault.clock);
      if (began && *fault.clock < Duration::zero()) *began += *fault.clock;
      return;
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!fits(fault.node, nodes[i]->name())) continue;
      log.line("faults", fault_word(*fault.event), nodes[i]->name(), "(" + fault.name + ")");
      strike(fault, i, record);
    }
  }

  // Counts one that ended nothing only with the names that it could have meant.
  void crash(HollowNode& node, const std::string& container, FaultRecord& record) {
    std::set<std::string> running = node.containers();
    if (node.crash(container)) {
      ++record.struck;
    } else {
      record.misses["container"].merge(running);
    }
  }

  void pulls_go_wrong(const Fault& fault, std::size_t i, FaultRecord& record, std::function<void()> over) {
    held[i].pulls.push_back(&record);
    if (!fault.span) return;
    later(fault, [this, i, &record, over = std::move(over)] {
      auto& on = held[i].pulls;
      on.erase(std::ranges::find(on, &record));
      over();
    });
  }

  // When a fault that has an end is over.
  void later(const Fault& fault, std::function<void()> work) {
    timers.push_back(loop->after(duration_of(fault).value_or(Duration::zero()), std::move(work)));
  }

  void strike(const Fault& fault, std::size_t i, FaultRecord& record) {
    HollowNode& node = *nodes[i];
    const auto gpu = static_cast<std::size_t>(fault.gpu);
    const bool xid = *fault.event == NodeFault::kXid || *fault.event == NodeFault::kEcc;
    const bool waits = *fault.event == NodeFault::kPluginCrash ||
                       *fault.event == NodeFault::kContainerCrash || *fault.event == NodeFault::kPullDelay ||
                       *fault.event == NodeFault::kPullFailure;
    // Only a driver that is loaded reports, and only of GPUs that the node has.
    const bool told = gpu < node.machine().gpus() && !node.machine().driver().empty();
    if (xid ? told : !waits) ++record.struck;
    switch (*fault.event) {
      case NodeFault::kLost:
        if (held[i].network++ == 0) node.set_network(false);
        if (fault.span) {
          later(fault, [this, i] {
            if (--held[i].network == 0) nodes[i]->set_network(true);
          });
        }
        break;
      case NodeFault::kReboot:
      case NodeFault::kKernelUpgrade:
        node.power_off(fault.kernel);
        hold_kubelet(fault, i);
        break;
      case NodeFault::kKubeletRestart:
        node.stop_kubelet();
        hold_kubelet(fault, i);
        break;
      case NodeFault::kPluginCrash:
        crash(node, "nvidia-device-plugin", record);
        break;
      case NodeFault::kContainerCrash:
        crash(node, fault.container, record);
        break;
      case NodeFault::kGpuLost:
        node.machine().lose_gpu(gpu, true);
        if (fault.span) later(fault, [this, i, gpu] { nodes[i]->machine().lose_gpu(gpu, false); });
        break;
      case NodeFault::kXid:
        node.machine().xid(gpu, fault.xid);
        break;
      case NodeFault::kEcc:
        node.machine().xid(gpu, 48);
        break;
      case NodeFault::kPullDelay:
        ++held[i].pull_delay;
        node.set_pull_delay(fault.delay);
        pulls_go_wrong(fault, i, record, [this, i] {
          if (--held[i].pull_delay == 0) nodes[i]->set_pull_delay(0s);
        });
        break;
      case NodeFault::kPullFailure:
        ++held[i].pull_fault;
        node.set_pull_fault(true);
        pulls_go_wrong(fault, i, record, [this, i] {
          if (--held[i].pull_fault == 0) nodes[i]->set_pull_fault(false);
        });
        break;
    }
  }

  void hold_kubelet(const Fault& fault, std::size_t i) {
    ++held[i].kubelet;
    later(fault, [this, i] {
      if (--held[i].kubelet == 0) nodes[i]->start_kubelet();
    });
  }

  // --- how far it is

  static fleet::Objects all_of(const kube::Informer& informer) {
    fleet::Objects out;
    informer.for_each([&out](const auto& object) { out.push_back(object); });
    return out;
  }
  fleet::ClusterChain chain() const {
    return fleet::cluster_chain(
        {all_of(policies), all_of(node_objects), all_of(pods), all_of(daemonsets), {}, {}});
  }
  bool ready() {
    // Looked at again when something changed, and not at each event of a large fleet.
    const Duration pause = options.fleet.nodes.size() > 100 ? Duration(1s) : Duration(50ms);
    const bool led = operator_leads();
    if (!dirty || loop->elapsed() < next_look) return is_ready && led;
    next_look = loop->elapsed() + pause;
    dirty = false;
    const auto now = chain();
    std::size_t count = 0;
    for (const auto& node : now.nodes)
      count += gpu_nodes.contains(node.name) && node.gpu && node.ready ? 1 : 0;
    is_ready = count == gpu_nodes.size() && now.policy_state == "ready" &&
               not_in_force(asked, now.policy).empty() && operator_runs() && what_is_past(now).empty();
    return is_ready && led;
  }
  // Looked at again when its Deployment or Lease is written, and each second: a Lease grows old without an
  // event.
  bool operator_leads() {
    if (loop->elapsed() < next_ask) return leads;
    next_ask = loop->elapsed() + 1s;
    leads = operator_fault({}).empty();
    return leads;
  }
  // Why none works. `its_pods`: for the words alone.
  std::string operator_fault(const fleet::Objects& its_pods) const {
    JsonArray found;
    deployments.for_each([&found](const auto& deployment) { found.push_back(*deployment); });
    const auto lease = leases.get(kube::object_key(kOperatorNamespace, fleet::kOperatorLease));
    return fleet::operator_fault(found, lease ? *lease : Json(nullptr), its_pods, kOperatorNamespace,
                                 loop->now());
  }
  bool operator_runs() const {
    bool out = false;
    pods.for_each([&](const auto& pod) {
      out = out || (kube::label(*pod, "app") == "gpu-operator" && fleet::pod_ready(*pod));
    });
    return out;
  }
  // What the cluster still says of the run before, in words. Once it says nothing of it, that run is over.
  std::string what_is_past(const fleet::ClusterChain& now) {
    if (!began) return {};
    std::string out;
    node_objects.for_each([&](const auto& node) {
      if (out.empty() && is_unheard(*node, *began))
        out = "node " + str(kube::name_of(*node)) + ": its kubelet has not reported in this run";
    });
    pods.for_each([&](const auto& pod) {
      if (out.empty() && is_of_the_past(*pod, *began))
        out = "pod " + str(kube::name_of(*pod)) + ": it has not been started in this run";
    });
    for (const fleet::NodeChain& node : now.nodes) {
      if (out.empty() && node.gpu && !gpu_nodes.contains(node.name))
        out = "node " + node.name + ": it has no GPU in the fleet file, and is still labelled with one";
    }
    if (out.empty()) began.reset();
    return out;
  }
  bool stable(Duration quiet) {
    return log.elapsed() >= options.faults.over() + quiet && ready() &&
           loop->elapsed() - last_write >= quiet && unsettled().empty();
  }
  // What is still on its way and will be written, in words; looked for again when something changed.
  const std::string& unsettled() {
    if (settled_at == changes) return still;
    settled_at = changes;
    still.clear();
    std::set<std::string> speaking;
    node_objects.for_each([&](const auto& node) {
      const Json* condition = kube::condition(*node, "Ready");
      if (condition != nullptr && get_string(*condition, {"status"}) == "True")
        speaking.insert(str(kube::name_of(*node)));
    });
    pods.for_each([&](const auto& pod) {
      if (still.empty()) still = unsettled_pod(*pod, speaking);
    });
    return still;
  }

  // With what nobody but the operator and the device plugins can tell.
  fleet::ClusterChain told_chain() const {
    fleet::ClusterChain out = chain();
    out.operator_fault = operator_fault(all_of(pods));
    if (out.operator_fault.empty() && !operator_runs()) out.operator_fault = "no pod of it is ready";
    out = fleet::without_commands(std::move(out));
    for (const auto& node : nodes) {
      const auto found = std::ranges::find(out.nodes, node->name(), &fleet::NodeChain::name);
      if (found == out.nodes.end()) continue;
      for (std::string& fault : node->gpu_faults()) found->warnings.push_back(std::move(fault));
    }
    return out;
  }

  std::vector<FaultRecord> records() const {
    std::vector<FaultRecord> out = injector.records();
    for (std::size_t i = 0; i < met.size(); ++i) {
      if (!options.faults.faults[i].api) out[i] = met[i];
    }
    return out;
  }

  std::string normalised() {
    std::vector<Json> objects;
    for (const kube::Resource& type : compared()) {
      const auto list = kube::await(*loop, [&](const auto& done) { return admin.list(type, "", {}, done); });
      if (!list) continue;
      for (const Json& item : get_array(*list, {"items"})) {
        Json object = item;
        set(object, {"kind"}, type.kind);
        objects.push_back(std::move(object));
      }
    }
    return normalise(std::move(objects));
  }

  HollowFleetOptions options;
  std::unique_ptr<Loop> loop;
  EventLog log;
  std::map<std::string, std::map<std::string, std::uint64_t>> by_component;
  std::uint64_t seen_version = 0;
  Duration last_write{0};
  std::unique_ptr<ApiServer> api;
  ApiServer& server;
  FaultInjector injector;
  std::shared_ptr<kube::Transport> transport;
  kube::Client admin, manager;
  kube::Informer policies, node_objects, pods, daemonsets, deployments, leases;
  std::unique_ptr<Controllers> controllers;
  std::vector<std::unique_ptr<HollowNode>> nodes;
  std::unique_ptr<LightNodes> light;
  std::vector<Held> held;
  std::set<std::string> gpu_nodes;
  std::vector<Handle> timers;
  std::vector<FaultRecord> met;    // by faults of nodes
  std::optional<Time> began;       // of a run on a kept cluster, until nothing is told of the run before
  std::vector<std::string> notes;  // on what was kept
  std::string asked;               // the policy among the objects; empty: whichever there is
  std::uint64_t changes = 1, settled_at = 0;
  std::string still;
  bool dirty = true, is_ready = false;
  bool leads = false;  // an operator does
  Duration next_look{0}, next_ask{0};
};

HollowFleet::HollowFleet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HollowFleet::~HollowFleet() = default;

Result<std::unique_ptr<HollowFleet>> HollowFleet::create(HollowFleetOptions options) {
  if (options.fleet.nodes.size() > kLarge) expect_heap(options.fleet.nodes.size() * kBytesPerNode);
  auto loop = Loop::make_virtual(*parse_time(kStart));
  auto server = TRY(ApiServer::open(*loop, server_options(options)));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(loop), std::move(server));
  TRY(impl->open());
  return std::unique_ptr<HollowFleet>(new HollowFleet(std::move(impl)));
}

Loop& HollowFleet::loop() {
  return *impl_->loop;
}
kube::Client& HollowFleet::client() {
  return impl_->admin;
}
const EventLog& HollowFleet::events() const {
  return impl_->log;
}
std::uint64_t HollowFleet::requests() const {
  return impl_->server.request_count();
}
std::uint64_t HollowFleet::struck() const {
  return impl_->injector.struck();
}
std::uint64_t HollowFleet::requests_of(const std::string& component) const {
  std::uint64_t out = 0;
  for (const auto& [what, count] : requests_by(component)) out += count;
  return out;
}
std::map<std::string, std::uint64_t> HollowFleet::requests_by(const std::string& component) const {
  const auto found = impl_->by_component.find(component);
  return found == impl_->by_component.end() ? std::map<std::string, std::uint64_t>() : found->second;
}
fleet::ClusterChain HollowFleet::chain() const {
  return impl_->told_chain();
}
bool HollowFleet::ready() const {
  return impl_->ready();
}
bool HollowFleet::stable(Duration quiet) const {
  return impl_->stable(quiet);
}
std::string HollowFleet::unsettled() const {
  return impl_->unsettled();
}
Duration HollowFleet::faults_over() const {
  return impl_->options.faults.over();
}
std::vector<IdleFault> HollowFleet::idle_faults() const {
  return cluster::idle_faults(impl_->options.faults, impl_->records(), impl_->log.elapsed());
}
std::vector<std::string> HollowFleet::endless_faults() const {
  return cluster::endless_faults(impl_->options.faults, impl_->records(), impl_->log.elapsed());
}
const std::vector<std::string>& HollowFleet::notes() const {
  return impl_->notes;
}
std::string HollowFleet::first_broken_link() const {
  fleet::ClusterChain chain = impl_->told_chain();
  // What a kept cluster says of its nodes is of the run before, and so is its operator's Lease.
  const std::string fault = std::exchange(chain.operator_fault, {});
  if (const std::string past = impl_->what_is_past(chain); chain.ready() && !past.empty()) return past;
  chain.operator_fault = fault;
  // Nothing runs where there is no node; where there is one, nothing that the operator says is of now.
  if (!fault.empty() && !chain.nodes.empty()) return fleet::first_broken_link(chain);
  if (std::string ignored = not_in_force(impl_->asked, chain.policy); !ignored.empty()) return ignored;
  for (const std::string& name : impl_->gpu_nodes) {
    if (std::ranges::find(chain.nodes, name, &fleet::NodeChain::name) == chain.nodes.end())
      return "node " + name + ": it has not registered";
  }
  return fleet::first_broken_link(chain);
}
std::string HollowFleet::normalised() const {
  return impl_->normalised();
}

}  // namespace gpuop::cluster

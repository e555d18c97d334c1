#include "cluster/hollow/light_nodes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "cluster/fleet/kept.h"
#include "cluster/hollow/node_options.h"
#include "cluster/hollow/program.h"
#include "cluster/kubelet/node_status.h"
#include "cluster/kubelet/pod_env.h"
#include "cluster/kubelet/pod_status.h"
#include "features/sources.h"
#include "features/worker.h"
#include "kube/client.h"
#include "kube/object.h"
#include "labels/publish.h"
#include "plugin/resources.h"

namespace gpuop::cluster {
namespace {

constexpr Duration kLeasePeriod = 10s, kStatusPeriod = 5min, kRetry = 1s;
// How long a resource keeps its capacity after its plugin went away (kubernetes-api.md §14.4).
constexpr Duration kPluginGrace = 5min;
constexpr const char* kLeaseNamespace = "kube-node-lease";

// The program of a pod's container, as far as its command tells.
std::string program_of(const Json& container) {
  std::vector<std::string> words;
  for (const char* list : {"command", "args"}) {
    for (const Json& word : get_array(container, {list})) words.push_back(str(as_text(word)));
  }
  if (words.empty()) return {};
  if (words.size() == 3 && words[1] == "-c") words = split_fields(words[2]);
  if (words.empty()) return {};
  return words[0].substr(words[0].rfind('/') + 1);
}

}  // namespace

struct LightNodes::Impl {
  struct One {
    One(Loop& loop, LightNode node)
        : machine(loop, std::move(node.node), std::move(node.hardware)),
          options(hollow_kubelet_options(machine, node.index)) {}
    HollowMachine machine;
    KubeletOptions options;
    std::map<std::string, DeviceCounts> devices;
    Json status;         // as it was last written
    std::string plugin;  // uid of the pod that offers its devices; "" without one
    Handle grace;        // until what a plugin has left is no capacity any more
    bool published = false, labelled = false;
    std::unique_ptr<labels::NodeFeaturePublisher> publisher;
  };

  Impl(Loop& l, const std::shared_ptr<kube::Transport>& transport, std::vector<LightNode> list,
       const op::Assets* assets)
      : loop(l),
        client(
            l, transport,
            {.user_agent = "kubelet/light", .field_manager = "kubelet", .max_reads = 64, .max_writes = 64}) {
    for (LightNode& node : list) {
      auto one = std::make_unique<One>(loop, std::move(node));
      by_name[one->machine.node().name] = one.get();
      nodes.push_back(std::move(one));
    }
    world.assets = assets;
    world.client = [this, transport](const std::string& program) {
      kube::ClientOptions options;
      options.user_agent = program + "/light";
      options.field_manager = program;
      return std::make_unique<kube::Client>(loop, transport, options);
    };
  }
  ~Impl() { programs.clear(); }

  // Wraps a callback so that it does nothing once this is gone.
  template <class F>
  auto guard(F callback) {
    return [alive = std::weak_ptr<bool>(alive), callback = std::move(callback)](auto&&... args) mutable {
      if (!alive.expired()) callback(std::forward<decltype(args)>(args)...);
    };
  }
  void later(Duration delay, std::function<void()> work) {
    loop.after(delay, guard(std::move(work))).detach();
  }

  void start() {
    for (const auto& one : nodes) register_node(*one);
    watch();
  }

  NodeStatusFacts facts(const One& one) const {
    NodeStatusFacts out{one.options};
    out.runtime_version = "containerd://2.1.0";
    out.devices = one.devices;
    out.now = loop.now();
    return out;
  }

  void register_node(One& one) {
    const Json node = build_node(facts(one));
    client
        .create(kube::kNodes, "", node, {}, guard([this, &one](const kube::ApiResult<>& made) {
                  if (made) {
                    one.status = build_node_status(facts(one));
                    return registered(one);
                  }
                  if (made.error().already_exists()) return take_over(one);
                  later(kRetry, [this, &one] { register_node(one); });
                }))
        .detach();
  }

  void registered(One& one) {
    make_lease(one);
    later(kStatusPeriod, [this, &one] { heartbeat(one); });
  }

  // A node that was there already, of a cluster that was kept: installed anew, with the same name.
  void take_over(One& one) {
    client
        .get(kube::kNodes, "", one.options.node_name, guard([this, &one](const kube::ApiResult<>& node) {
               if (!node) return later(kRetry, [this, &one] { register_node(one); });
               const Json* status = find(*node, {"status"});
               one.status = status != nullptr ? *status : Json(JsonObject());
               for (const std::string& name : extended_resources(one.status)) one.devices.try_emplace(name);
               const Json labels = node_label_patch(one.options, *node);
               if (!labels.get_object().empty()) {
                 client
                     .patch(kube::kNodes, "", one.options.node_name, kube::Patch::kMerge, labels, {},
                            [](const kube::ApiResult<>&) {})
                     .detach();
               }
               write_status(one, true);
               registered(one);
             }))
        .detach();
  }

  void make_lease(One& one) {
    const Json lease = build_lease(one.options.node_name, "", loop.now());
    client
        .create(kube::kLeases, kLeaseNamespace, lease, {}, guard([this, &one](const kube::ApiResult<>& made) {
                  if (!made && !made.error().already_exists())
                    return later(kRetry, [this, &one] { make_lease(one); });
                  later(kLeasePeriod, [this, &one] { renew(one); });
                }))
        .detach();
  }

  void renew(One& one) {
    const Json lease = build_lease(one.options.node_name, "", loop.now());
    client
        .patch(kube::kLeases, kLeaseNamespace, one.options.node_name, kube::Patch::kMerge, lease, {},
               guard([this, &one](const kube::ApiResult<>& done) {
                 if (!done && done.error().not_found()) return make_lease(one);
                 later(done ? kLeasePeriod : kRetry, [this, &one] { renew(one); });
               }))
        .detach();
  }

  void heartbeat(One& one) {
    write_status(one, true);
    later(kStatusPeriod, [this, &one] { heartbeat(one); });
  }

  void write_status(One& one, bool beat) {
    Json wanted = build_node_status(facts(one));
    const Json patch = node_status_patch(one.status, wanted, beat);
    if (patch.get_object().empty()) return;
    client
        .patch(kube::kNodes, "", one.options.node_name, kube::Patch::kStrategic,
               JsonObject{{"status", patch}}, {.subresource = "status"},
               guard([this, &one, wanted](const kube::ApiResult<>& done) {
                 if (done) {
                   one.status = wanted;
                   write_status(one, false);  // what changed meanwhile
                 } else {
                   later(kRetry, [this, &one] { write_status(one, false); });
                 }
               }))
        .detach();
  }

  // --- pods: one stream for all, nothing kept of them

  void watch() {
    kube::WatchOptions options;
    options.send_initial_events = version.empty();
    options.resource_version = version;
    kube::WatchEvents events;
    events.event = guard([this](std::string_view type, const Json& pod) { seen(type, pod); });
    events.end = guard([this](const kube::ApiResult<void>& how) {
      if (!how && how.error().expired()) version.clear();
      stream.reset();
      later(how ? Duration(0) : kRetry, [this] { watch(); });
    });
    stream = client.watch(kube::kPods, "", options, std::move(events));
  }

  void seen(std::string_view type, const Json& pod) {
    version = str(get_string(pod, {"metadata", "resourceVersion"}));
    if (type == "BOOKMARK") first_list = false;
    const auto found = by_name.find(get_string(pod, {"spec", "nodeName"}));
    if (found == by_name.end()) return;
    if (type == "DELETED") return ended(*found->second, pod);
    if (type != "ADDED" && type != "MODIFIED") return;
    if (has(pod, {"metadata", "deletionTimestamp"})) return end(*found->second, pod);
    const auto phase = get_string(pod, {"status", "phase"});
    // What ran on the node before it was installed anew begins anew.
    const bool past = first_list && phase == "Running" && is_of_the_past(pod, began);
    if (phase.empty() || phase == "Pending" || past) return run(*found->second, pod);
    effects(*found->second, pod);
  }

  void ended(One& one, const Json& pod) {
    programs.erase(str(kube::uid_of(pod)));
    if (one.plugin == kube::uid_of(pod)) unplug(one);
  }

  void end(One& one, const Json& pod) {
    ended(one, pod);
    kube::DeleteOptions how;
    how.grace_seconds = 0;
    how.precondition_uid = str(kube::uid_of(pod));
    client
        .remove(kube::kPods, kube::namespace_of(pod), kube::name_of(pod), how,
                [](const kube::ApiResult<>&) {})
        .detach();
  }

  ContainerFacts container_facts(const Json& container, bool init, bool ends) {
    ContainerFacts out;
    out.name = str(get_string(container, {"name"}));
    out.image = str(get_string(container, {"image"}));
    out.image_id = "sha256:" + sha256_hex(out.image);
    const bool sidecar = init && get_string(container, {"restartPolicy"}) == "Always";
    out.kind = sidecar ? ContainerKind::kSidecar : init ? ContainerKind::kInit : ContainerKind::kApp;
    ContainerInfo info;
    info.name = out.name;
    info.image = out.image;
    info.image_id = out.image_id;
    info.id = sha256_hex(out.name + std::to_string(++containers));
    info.started = loop.now();
    info.state = ContainerState::kRunning;
    if (ends && !sidecar) {
      info.state = ContainerState::kExited;
      info.finished = loop.now();
      info.reason = "Completed";
    } else {
      out.started = out.ready = true;
    }
    out.current = info;
    return out;
  }

  void run(One& one, const Json& pod) {
    const bool ends = get_string(pod, {"spec", "restartPolicy"}, "Always") != "Always";
    const Json observed = find(pod, {"status"}) == nullptr ? Json(JsonObject()) : *find(pod, {"status"});
    PodFacts made{pod, observed};
    for (const Json& container : get_array(pod, {"spec", "initContainers"})) {
      made.containers.push_back(container_facts(container, true, true));
    }
    for (const Json& container : get_array(pod, {"spec", "containers"})) {
      made.containers.push_back(container_facts(container, false, ends));
    }
    made.node_ip = one.options.node_ip;
    made.sandbox_ready = true;
    made.start_time = made.now = loop.now();
    const Json patch = JsonObject{{"status", status_patch(observed, build_status(made))}};
    // A write that is lost is made again when its pod is seen again; so it is asked for.
    client
        .patch(kube::kPods, kube::namespace_of(pod), kube::name_of(pod), kube::Patch::kStrategic, patch,
               {.subresource = "status"},
               guard([this, ns = str(kube::namespace_of(pod)),
                      name = str(kube::name_of(pod))](const kube::ApiResult<>& done) {
                 if (!done && !done.error().not_found()) look_again(ns, name);
               }))
        .detach();
  }

  void look_again(const std::string& ns, const std::string& name) {
    later(kRetry, [this, ns, name] {
      client
          .get(kube::kPods, ns, name, guard([this, ns, name](const kube::ApiResult<>& pod) {
                 if (!pod) return pod.error().not_found() ? void() : look_again(ns, name);
                 const std::string kept = version;
                 seen("MODIFIED", *pod);
                 version = kept;
               }))
          .detach();
    });
  }

  // What a running pod's programs tell of their node, once.
  void effects(One& one, const Json& pod) {
    for (const Json& container : get_array(pod, {"spec", "containers"})) {
      const std::string program = program_of(container);
      if (program == "nvidia-device-plugin" && one.plugin.empty()) plug(one, str(kube::uid_of(pod)));
      if (program == "nfd-worker" && !std::exchange(one.published, true)) publish(one, pod);
      if (program == "gpu-feature-discovery" && !std::exchange(one.labelled, true)) label(one, pod);
      if (program == "gpu-operator") play(one, pod, container);
    }
  }

  void play(One& one, const Json& pod, const Json& container) {
    const std::string uid = str(kube::uid_of(pod));
    if (programs.contains(uid)) return;
    ProgramContext context{loop, one.machine, world};
    context.ns = str(kube::namespace_of(pod));
    context.pod = str(kube::name_of(pod));
    context.pod_uid = uid;
    context.container = str(get_string(container, {"name"}));
    const NodeView view{.node_ip = one.options.node_ip};
    const EnvFacts env_facts{pod, container, view,
                             [](ObjectKind, const std::string&) { return ObjectView{true, nullptr}; }};
    const auto env = build_env(env_facts);
    if (!env) return;
    for (const auto& [name, value] : *env) context.env[name] = value;
    for (const char* list : {"command", "args"}) {
      for (const Json& word : get_array(container, {list})) context.words.push_back(str(as_text(word)));
    }
    // Its end is a pod's crash: it starts again.
    context.exit = [this, uid](int) { later(kRetry, [this, uid] { restart(uid); }); };
    auto program = make_program(std::move(context));
    if (!program) return;
    pods_played[uid] = {str(kube::namespace_of(pod)), str(kube::name_of(pod))};
    programs[uid] = std::move(*program);
    programs[uid]->start();
  }

  void restart(const std::string& uid) {
    programs.erase(uid);
    for (const auto& [pod, played] : std::exchange(pods_played, {})) look_again(played.first, played.second);
  }

  // A driver container's pod is Ready too by now.
  void load_driver(One& one) {
    if (one.machine.driver().empty()) one.machine.load_driver("580.95.05");
  }

  void plug(One& one, const std::string& pod) {
    one.plugin = pod;
    one.grace.reset();
    load_driver(one);
    const auto settings = sharing::resolve_settings(sharing::Program::kPlugin, {});
    if (!settings) return;
    const auto plan = plugin::plan_resources(*settings, one.machine.plugin_facts());
    if (!plan) return;
    for (const plugin::Resource& resource : plan->resources) {
      const auto count = static_cast<std::int64_t>(resource.devices.size());
      one.devices[resource.name] = {count, count};
    }
    write_status(one, false);
  }

  // As the device manager does when a plugin's stream ends.
  void unplug(One& one) {
    one.plugin.clear();
    for (auto& [name, counts] : one.devices) counts.allocatable = 0;
    write_status(one, false);
    one.grace = loop.after(kPluginGrace, guard([this, &one] {
                             for (auto& [name, counts] : one.devices) counts = {};
                             write_status(one, false);
                           }));
  }

  void publish(One& one, const Json& pod) {
    features::WorkerOptions options;
    options.node = one.options.node_name;
    options.ns = str(kube::namespace_of(pod));
    options.config.pci_class_whitelist = {"02", "0200", "0207", "0300", "0302"};
    options.config.pci_label_fields = {"vendor"};
    features::Discovery found;
    found.features = one.machine.features();
    features::add_labels(found, {}, options.config);
    put_feature(options.ns, features::node_feature(options, found, {}));
  }

  void put_feature(const std::string& ns, const Json& object) {
    client
        .create(kube::kNodeFeatures, ns, object, {}, guard([this, ns, object](const kube::ApiResult<>& made) {
                  if (made || made.error().already_exists()) return;
                  later(kRetry, [this, ns, object] { put_feature(ns, object); });
                }))
        .detach();
  }

  void label(One& one, const Json& pod) {
    load_driver(one);
    sharing::SettingsInputs inputs;
    inputs.env = {{"NODE_NAME", one.options.node_name}, {"NAMESPACE", str(kube::namespace_of(pod))}};
    const auto settings = sharing::resolve_settings(sharing::Program::kFeatureDiscovery, inputs);
    if (!settings) return;
    const auto decision = labels::decide(*settings, one.machine.label_facts(), 0);
    if (!decision) return;
    one.publisher = std::make_unique<labels::NodeFeaturePublisher>(
        client, labels::NodeFeatureTarget{settings->ns, settings->node_name, ""});
    one.publisher->publish(decision->labels, [&one](const Result<>& done) {
      if (!done) one.labelled = false;
    });
  }

  Loop& loop;
  Time began = loop.now();
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  kube::Client client;
  HollowWorld world;
  std::vector<std::unique_ptr<One>> nodes;
  std::map<std::string, One*, std::less<>> by_name;
  std::string version;
  bool first_list = true;  // what is seen may be of the run before
  Handle stream;
  std::uint64_t containers = 0;
  std::map<std::string, std::pair<std::string, std::string>> pods_played;  // by uid: namespace, name
  std::map<std::string, std::unique_ptr<Program>> programs;                // by the pod's uid
};

LightNodes::LightNodes(Loop& loop, std::shared_ptr<kube::Transport> transport, std::vector<LightNode> nodes,
                       const op::Assets* assets)
    : impl_(std::make_unique<Impl>(loop, transport, std::move(nodes), assets)) {}
LightNodes::~LightNodes() = default;
void LightNodes::start() {
  impl_->start();
}

}  // namespace gpuop::cluster

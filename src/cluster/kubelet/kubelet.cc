#include "cluster/kubelet/kubelet.h"

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/kubelet/context.h"
#include "cluster/kubelet/device_sockets.h"
#include "cluster/kubelet/http_endpoint.h"
#include "cluster/kubelet/node_agent.h"
#include "cluster/kubelet/pod_worker.h"
#include "cluster/kubelet/volume_files.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

// A runtime that restarts is back within a second or so: only a longer absence makes the node NotReady.
constexpr Duration kRuntimePatience = std::chrono::seconds(30);
constexpr Duration kRuntimeAnswers = std::chrono::seconds(1);

Result<> check(const Loop& loop, const KubeletOptions& options) {
  if (options.node_name.empty() || options.node_name.find('/') != std::string::npos) {
    return fail(Code::kInvalid,
                "make a kubelet: node name: must be a DNS name; got '" + options.node_name + "'");
  }
  if (loop.mode() == Loop::Mode::kVirtual && (options.serve_devices || options.serve_http)) {
    return fail(Code::kInvalid, "make a kubelet: 'serve_devices' and 'serve_http' need a real loop");
  }
  if (options.serve_devices && options.node_root.empty()) {
    return fail(Code::kInvalid, "make a kubelet: 'serve_devices' needs a node root");
  }
  if (!options.kubelet_dir.starts_with('/')) {
    return fail(Code::kInvalid, "make a kubelet: kubelet folder: must be an absolute path; got '" +
                                    options.kubelet_dir + "'");
  }
  return {};
}

}  // namespace

std::filesystem::path KubeletContext::pod_log_dir(const Json& pod) const {
  return log_dir() /
         (str(kube::namespace_of(pod)) + "_" + str(kube::name_of(pod)) + "_" + str(kube::uid_of(pod)));
}

struct Kubelet::Impl {
  Impl(Loop& loop_in, kube::Client& client_in, Runtime& runtime_in, KubeletOptions options_in)
      : options(std::move(options_in)),
        loop(loop_in),
        runtime(runtime_in),
        events(client_in, "kubelet", options.node_name),
        objects(client_in),
        pods(client_in, kube::kPods,
             {.ns = {},
              .label_selector = {},
              .field_selector = "spec.nodeName=" + options.node_name,
              .keep = {"*"}}),
        runtime_classes(client_in, kube::kRuntimeClasses,
                        {.ns = {}, .label_selector = {}, .field_selector = {}, .keep = {"handler"}}),
        devices(loop_in, checkpoint_path(), [this] { devices_changed(); }),
        context{loop_in, client_in,       runtime_in, options, events, objects,
                devices, runtime_classes, {},         {},      true},
        agent(context, [this] { return devices.counts(); }) {
    context.node = {options.node_ip,    options.service_host,       options.service_port,
                    options.facts.cpus, options.facts.memory_bytes, options.facts.ephemeral_bytes};
    context.net_probe = options.net_prober;
    if (!context.net_probe && loop.mode() == Loop::Mode::kReal) {
      context.net_probe = make_net_prober(loop, options.netns_path);
    }
  }

  std::filesystem::path machine_path(const std::filesystem::path& node_path) const {
    return options.node_root == "/" ? node_path : options.node_root / node_path.relative_path();
  }
  std::filesystem::path checkpoint_path() const {
    if (options.node_root.empty()) return {};
    return machine_path(options.kubelet_dir) / "device-plugins" / "kubelet_internal_checkpoint";
  }

  Result<> open() {
    if (!options.node_root.empty()) {
      TRY_IN(make_dirs(machine_path(options.kubelet_dir) / "device-plugins"), "make the kubelet's folder");
      TRY_IN(make_dirs(machine_path(options.kubelet_dir) / "pods"), "make the kubelet's folder");
    }
    devices.set_topology(options.topology_policy, options.numa_nodes);
    if (options.node_root.empty()) devices.keep_in(options.kept_devices);
    devices.load();
    if (devices.fresh()) agent.reset_extended_resources();
    if (options.serve_devices) {
      sockets = TRY(DeviceSockets::create(
          loop, machine_path(options.kubelet_dir),
          [this](const std::string& resource, const std::shared_ptr<DevicePlugin>& plugin) {
            log::info("device plugin registered", {{"resource", resource}});
            devices.add_plugin(resource, plugin);
          }));
    }
    if (options.serve_http) {
      HttpEndpointFacts facts;
      facts.log = [this](const std::string& ns, const std::string& pod, const std::string& container,
                         bool previous) { return find_log(ns, pod, container, previous); };
      facts.pods = [this] { return pod_list(); };
      facts.running = [this](const std::string& ns, const std::string& pod, const std::string& container) {
        return find_running(ns, pod, container);
      };
      facts.there = [this](const std::string& ns, const std::string& pod) -> Result<> {
        const auto worker = find_worker(ns, pod);
        if (worker && worker->active()) return {};
        return fail(Code::kNotFound, "pod not found (\"" + pod + "_" + ns + "\")");
      };
      facts.netns_path = options.netns_path;
      facts.runtime = &runtime;
      facts.client_ca = options.client_ca;
      http = TRY(HttpEndpoint::create(loop, options.node_name, options.http_address, options.http_port,
                                      std::move(facts)));
      agent.set_port(http->port());
    }
    return {};
  }

  // Wraps a callback so that it does nothing once the kubelet is gone.
  template <class F>
  auto guard(F callback) {
    return [alive = std::weak_ptr<bool>(alive), callback = std::move(callback)](auto&&... args) mutable {
      if (!alive.expired()) callback(std::forward<decltype(args)>(args)...);
    };
  }

  void start() {
    runtime.on_change(guard([this](const ContainerInfo& info) { container_changed(info); }));
    runtime.on_available(guard([this](bool available) { available ? look_again() : runtime_away(); }));
    pods.on_change([this](const auto& old, const auto& now) { pod_changed(old, now); });
    pods.on_synced([this] { adopt_if_ready(); });
    runtime_classes.on_change([this](const auto&, const auto&) { poke_all(); });
    runtime_classes.on_synced([this] { poke_all(); });
    pods.start();
    runtime_classes.start();
    look_again();
    // The node is registered with what the runtime says of itself; one that does not answer makes it
    // NotReady.
    register_timer = loop.after(kRuntimeAnswers, [this] {
      agent.set_ready(false, "container runtime status check may not have completed yet");
      start_agent();
    });
  }

  void start_agent() {
    register_timer.reset();
    if (!std::exchange(agent_started, true)) agent.start();
  }

  // --- the runtime

  void look_again() {
    const std::uint64_t look = ++looks;
    runtime.version(guard([this](Result<std::string> version) {
      if (version) agent.set_runtime_version(*version);
    }));
    runtime.list(guard([this, look](Result<std::vector<ContainerInfo>> containers) {
      if (look != looks) return;
      if (!containers) return look_later();
      runtime.list_sandboxes(guard([this, look, containers = std::move(*containers)](
                                       Result<std::vector<SandboxSpec>> sandboxes) mutable {
        if (look != looks) return;
        if (!sandboxes) return look_later();
        looked(std::move(containers), *sandboxes);
      }));
    }));
  }

  void look_later() {
    look_timer = loop.after(look_backoff.next(), [this] { look_again(); });
  }

  void looked(std::vector<ContainerInfo> containers, const std::vector<SandboxSpec>& sandboxes) {
    look_backoff.reset();
    context.runtime_available = true;
    away_timer.reset();
    agent.set_ready(true, "");
    start_agent();
    found_containers.clear();
    found_sandboxes.clear();
    for (ContainerInfo& info : containers) found_containers[info.pod_uid].push_back(std::move(info));
    for (const SandboxSpec& spec : sandboxes) found_sandboxes[spec.uid] = spec.attempt;
    runtime_known = true;
    if (!adopted) return adopt_if_ready();
    // A worker may end while we tell the others.
    const auto all = workers;
    for (const auto& [uid, worker] : all) {
      worker->runtime_back(found_containers[uid], found_sandboxes.contains(uid));
    }
  }

  void runtime_away() {
    context.runtime_available = false;
    ++looks;
    away_timer =
        loop.after(kRuntimePatience, [this] { agent.set_ready(false, "container runtime is down"); });
  }

  void container_changed(const ContainerInfo& info) {
    if (const auto found = workers.find(info.pod_uid); found != workers.end()) {
      const auto worker = found->second;
      worker->container_changed(info);
    } else if (!adopted) {
      // Not looked at yet: keep the list that will be adopted up to date.
      auto& list = found_containers[info.pod_uid];
      const auto same = std::ranges::find(list, info.id, &ContainerInfo::id);
      if (same != list.end()) *same = info;
    }
    if (http) http->containers_changed();
  }

  // --- pods

  void adopt_if_ready() {
    if (adopted || !runtime_known || !pods.synced()) return;
    adopted = true;
    std::set<std::string> known, holding;
    pods.for_each([&](const std::shared_ptr<const Json>& pod) {
      known.emplace(kube::uid_of(*pod));
      const std::string_view phase = get_string(*pod, {"status", "phase"});
      if (phase != "Succeeded" && phase != "Failed") holding.emplace(kube::uid_of(*pod));
      add_pod(pod);
    });
    devices.keep_only(holding);
    for (const auto& [uid, containers] : found_containers) {
      if (!known.contains(uid)) found_sandboxes.try_emplace(uid);
    }
    for (const auto& [uid, attempt] : found_sandboxes) {
      if (known.contains(uid)) continue;
      log::info("removing a pod that the API server does not know", {{"uid", uid}});
      runtime.remove_sandbox(uid, [](const Result<>&) {});
    }
    remove_orphans(known);
    found_containers.clear();
    found_sandboxes.clear();
    publish_resources();
  }

  // Folders of pods that went while no kubelet looked.
  void remove_orphans(const std::set<std::string>& known) {
    if (!context.on_disk()) return;
    auto sweep = [&](const std::filesystem::path& folder, bool uid_is_last_part) {
      const auto names = list_dir(folder);
      if (!names) return;
      for (const std::string& name : *names) {
        const std::string uid = uid_is_last_part ? name.substr(name.rfind('_') + 1) : name;
        if (known.contains(uid)) continue;
        if (auto removed = remove_tree(folder / name); !removed) {
          log::warn("cannot remove what a pod left", {{"error", removed.error()}});
        }
      }
    };
    sweep(machine_path(options.kubelet_dir) / "pods", false);
    sweep(context.log_dir(), true);
  }

  void add_pod(const std::shared_ptr<const Json>& pod) {
    const std::string uid = str(kube::uid_of(*pod));
    PodHooks hooks;
    hooks.gone = guard([this](const std::string& gone) { workers.erase(gone); });
    hooks.changed = guard([this] { publish_resources(); });
    const auto sandbox = found_sandboxes.find(uid);
    workers[uid] = PodWorker::create(
        context, pod, found_containers[uid],
        sandbox == found_sandboxes.end() ? std::nullopt : std::optional(sandbox->second), std::move(hooks));
  }

  void pod_changed(const std::shared_ptr<const Json>& old, const std::shared_ptr<const Json>& now) {
    if (!adopted) return;
    const std::string old_uid = old ? str(kube::uid_of(*old)) : std::string();
    const std::string uid = now ? str(kube::uid_of(*now)) : std::string();
    // A pod that was replaced by one of the same name between two looks.
    if (!old_uid.empty() && old_uid != uid) {
      if (const auto found = workers.find(old_uid); found != workers.end()) found->second->removed_from_api();
    }
    if (!now) return;
    if (const auto found = workers.find(uid); found != workers.end()) {
      found->second->update(now);
    } else if (old_uid != uid) {
      found_containers.erase(uid);
      add_pod(now);
    }
  }

  void poke_all() {
    const auto all = workers;
    for (const auto& [uid, worker] : all) worker->poke();
  }

  // --- devices

  void devices_changed() {
    agent.changed();
    publish_resources();
  }

  void publish_resources() {
    if (!sockets) return;
    PodResourcesView view;
    for (const auto& [uid, worker] : workers) {
      if (!worker->active()) continue;
      const Json& pod = worker->pod();
      auto& shown = view.pods.emplace_back();
      shown.ns = kube::namespace_of(pod);
      shown.name = kube::name_of(pod);
      for (std::string_view list : {"initContainers", "containers"}) {
        for (const Json& container : get_array(pod, {"spec", list})) {
          // Plain init containers hold their devices only while they run: they are not listed.
          if (list == "initContainers" && get_string(container, {"restartPolicy"}) != "Always") continue;
          auto& added = shown.containers.emplace_back();
          added.name = str(get_string(container, {"name"}));
          for (const DeviceGrant* grant : devices.grants(uid, added.name)) {
            for (const std::string& id : grant->flat()) {
              added.devices[grant->resource].push_back({id, true, devices.numa_of(grant->resource, id)});
            }
          }
        }
      }
    }
    view.allocatable = devices.allocatable();
    view.cpus = options.facts.cpus;
    sockets->publish(std::move(view));
  }

  // --- HTTP

  std::shared_ptr<PodWorker> find_worker(const std::string& ns, const std::string& name) const {
    std::shared_ptr<PodWorker> best;
    for (const auto& [uid, worker] : workers) {
      if (kube::namespace_of(worker->pod()) != ns || kube::name_of(worker->pod()) != name) continue;
      if (!best || worker->active()) best = worker;
    }
    return best;
  }

  Result<LogSource> find_log(const std::string& ns, const std::string& pod, const std::string& container,
                             bool previous) {
    const auto worker = find_worker(ns, pod);
    if (!worker) return fail(Code::kNotFound, "pod \"" + pod + "\" not found");
    if (find_container(worker->pod(), container) == nullptr) {
      return fail(Code::kNotFound, "container \"" + container + "\" not found in pod \"" + pod + "\"");
    }
    const auto attempt = worker->log_attempt(container, previous);
    if (!attempt) {
      return fail(Code::kInvalid, previous ? "previous terminated container \"" + container + "\" in pod \"" +
                                                 pod + "\" not found"
                                           : "container \"" + container + "\" in pod \"" + pod +
                                                 "\" is waiting to start: ContainerCreating");
    }
    LogSource source;
    source.path = context.pod_log_dir(worker->pod()) / container / (std::to_string(*attempt) + ".log");
    source.running = [weak = std::weak_ptr<PodWorker>(worker), container, attempt = *attempt] {
      const auto self = weak.lock();
      return self && self->running(container, attempt);
    };
    return source;
  }

  Result<std::string> find_running(const std::string& ns, const std::string& pod,
                                   const std::string& container) const {
    const auto worker = find_worker(ns, pod);
    if (!worker) return fail(Code::kNotFound, "unable to upgrade connection: pod does not exist");
    const auto id = worker->running_id(container);
    if (!id)
      return fail(Code::kNotFound,
                  "unable to upgrade connection: container not found (\"" + container + "\")");
    return *id;
  }

  std::string pod_list() const {
    JsonArray items;
    for (const auto& [uid, worker] : workers) items.push_back(worker->pod());
    return to_text(JsonObject{
        {"kind", "PodList"}, {"apiVersion", "v1"}, {"metadata", JsonObject()}, {"items", std::move(items)}});
  }

  KubeletOptions options;
  Loop& loop;
  Runtime& runtime;
  kube::EventRecorder events;
  ObjectCache objects;
  kube::Informer pods, runtime_classes;
  // Plugins call on gRPC's threads until the sockets' destructor has waited for them: it runs after the
  // manager's.
  std::unique_ptr<DeviceSockets> sockets;
  DeviceManager devices;
  KubeletContext context;
  NodeAgent agent;
  std::map<std::string, std::shared_ptr<PodWorker>> workers;  // by uid
  std::unique_ptr<HttpEndpoint> http;
  bool adopted = false, runtime_known = false;
  std::uint64_t looks = 0;
  Backoff look_backoff{std::chrono::milliseconds(100), std::chrono::seconds(5)};
  bool agent_started = false;
  Handle look_timer, away_timer, register_timer;
  std::map<std::string, std::vector<ContainerInfo>> found_containers;  // by pod uid
  std::map<std::string, int> found_sandboxes;                          // attempt of each
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

Kubelet::Kubelet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Kubelet>> Kubelet::create(Loop& loop, kube::Client& client, Runtime& runtime,
                                                 KubeletOptions options) {
  TRY(check(loop, options));
  auto impl = std::make_unique<Impl>(loop, client, runtime, std::move(options));
  TRY(impl->open());
  return std::unique_ptr<Kubelet>(new Kubelet(std::move(impl)));
}

Kubelet::~Kubelet() {
  stop();
}

void Kubelet::start() {
  impl_->start();
}

void Kubelet::stop() {
  if (!impl_) return;
  impl_->alive.reset();
  for (const auto& [uid, worker] : impl_->workers) worker->stop();
  impl_->runtime.on_change([](const ContainerInfo&) {});
  impl_->runtime.on_available([](bool) {});
  impl_.reset();
}

std::uint16_t Kubelet::http_port() const {
  return impl_ && impl_->http ? impl_->http->port() : 0;
}

void Kubelet::add_plugin(const std::string& resource, const std::shared_ptr<DevicePlugin>& plugin) {
  impl_->devices.add_plugin(resource, plugin);
}

std::size_t Kubelet::pods() const {
  return impl_ ? impl_->workers.size() : 0;
}

}  // namespace gpuop::cluster

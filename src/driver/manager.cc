#include "driver/manager.h"

#include <algorithm>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/host.h"
#include "driver/pods.h"
#include "hardware/pci.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::driver {

namespace {

constexpr std::string_view kUpgradeAnnotation = "nvidia.com/gpu-driver-upgrade-enabled";
constexpr int kPatchTries = 7;

bool wants_infiniband() {
  auto functions = hardware::scan_pci();
  return functions &&
         std::ranges::any_of(*functions, [](const auto& f) { return f.vendor == hardware::kMellanoxVendor; });
}

}  // namespace

void DriverManager::note(std::string_view type, std::string_view reason, const std::string& message) {
  if (node_.is_object()) events_.event(node_, type, reason, message);
}

Result<Json> DriverManager::get_node() {
  auto node =
      kube::await(loop_, [&](auto done) { return client_.get(kube::kNodes, "", options_.node, done); });
  if (!node) return fail(node.error().error("read node '" + options_.node + "'"));
  return std::move(*node);
}

Result<> DriverManager::set_labels(const std::map<std::string, std::string>& labels) {
  if (labels.empty()) return {};
  JsonObject body;
  for (const auto& [key, value] : labels) body[key] = value;
  Json patch = JsonObject{{"metadata", JsonObject{{"labels", std::move(body)}}}};
  Duration pause = 1s;
  for (int attempt = 1;; ++attempt) {
    auto done = kube::await(loop_, [&](auto answer) {
      return client_.patch(kube::kNodes, "", options_.node, kube::Patch::kMerge, patch, {}, answer);
    });
    if (done) {
      for (const auto& [key, value] : labels)
        log::info("labelled the node", {{"label", key}, {"value", value}});
      return {};
    }
    if (attempt == kPatchTries || loop_.stopped())
      return fail(done.error().error("label node '" + options_.node + "'"));
    loop_.run_until([&] { return loop_.stopped(); }, done.error().retry_after.value_or(pause));
    pause *= 2;
  }
}

Result<> DriverManager::set_unschedulable(bool value) {
  if (get_bool(node_, {"spec", "unschedulable"}) == value) return {};
  Json patch = JsonObject{{"spec", JsonObject{{"unschedulable", value ? Json(true) : Json(nullptr)}}}};
  auto done = kube::await(loop_, [&](auto answer) {
    return client_.patch(kube::kNodes, "", options_.node, kube::Patch::kMerge, patch, {}, answer);
  });
  if (!done)
    return fail(
        done.error().error(std::string(value ? "cordon" : "uncordon") + " node '" + options_.node + "'"));
  node_ = std::move(*done);
  log::info(value ? "cordoned the node" : "uncordoned the node");
  return {};
}

Result<std::vector<Json>> DriverManager::pods_here() {
  kube::ListOptions filter;
  filter.field_selector = "spec.nodeName=" + options_.node;
  auto list = kube::await(loop_, [&](auto done) { return client_.list(kube::kPods, "", filter, done); });
  if (!list) return fail(list.error().error("list the pods of node '" + options_.node + "'"));
  const auto& items = get_array(*list, {"items"});
  return std::vector<Json>(items.begin(), items.end());
}

Result<> DriverManager::uninstall() {
  auto version = host_driver_version(options_.host_root);
  node_ = TRY(get_node());
  if (!version) {
    note("Warning", "HostDriverBroken", version.error().text());
    return fail(std::move(version).error());
  }
  if (*version) return host_driver_found(**version);

  upgrade_policy_owns_ = kube::annotation(node_, kUpgradeAnnotation) == "true";
  if (upgrade_policy_owns_) options_.gpu_pod_eviction = options_.auto_drain = false;
  if (!module_is_loaded()) return prepare_unloaded();
  auto done = replace_loaded(node_);
  if (!done) return fail(give_up(std::move(done).error()));
  return {};
}

Result<> DriverManager::host_driver_found(const std::string& version) {
  log::info("the host brings its own driver", {{"version", version}});
  note("Normal", "HostDriverFound",
       "driver " + version + " is pre-installed on the host; no driver container is needed");
  TRY(set_labels({{operand_label("driver"), "pre-installed"}}));
  // The node's label does not select this pod any more: it is about to be removed.
  loop_.run_until([&] { return loop_.stopped(); }, options_.removal_patience);
  return fail(Code::kExists, "driver is pre-installed on host");
}

Result<> DriverManager::remove_leftovers() {
  TRY(unmount_tree(options_.run / "driver"));
  TRY(remove_file(options_.run / "nvidia-driver.pid"));
  return {};
}

// After a boot, or on a fresh node: nothing uses a driver, nobody has to go.
Result<> DriverManager::prepare_unloaded() {
  log::info("no driver is loaded");
  TRY(remove_leftovers());
  for (auto module : {"nouveau", "nova_drm", "nova_core"}) TRY(unload_module(options_.host_root, module));
  TRY(unbind_vfio());
  TRY(wait_for_mofed());
  return finish(options_.gpu_pod_eviction || options_.auto_drain);
}

bool DriverManager::same_configuration() const {
  if (options_.force_reinstall || options_.config_digest.empty()) return false;
  auto stored = read_file(options_.run / "nvidia-driver.state", 4096);
  return stored && trim(*stored) == options_.config_digest;
}

Result<> DriverManager::replace_loaded(const Json& node) {
  log::info("a driver is loaded: pausing what uses it");
  TRY(set_labels(changed_labels(node, options_.eviction_label, paused)));
  TRY(wait_for_operands(node));
  if (same_configuration()) {
    log::info("the loaded driver has this configuration already: its modules stay",
              {{"digest", options_.config_digest}});
    TRY(remove_leftovers());
    return finish(false);
  }
  if (options_.gpu_pod_eviction) {
    TRY(set_unschedulable(true));
    auto done = drain(true);
    if (!done && options_.auto_drain) {
      log::warn("not every GPU pod could be evicted: draining the node", {{"why", done.error()}});
      done = drain(false);
    }
    if (!done) return done;
  }
  TRY(unload());
  TRY(remove_leftovers());
  for (auto module : {"nouveau", "nova_drm", "nova_core"}) TRY(unload_module(options_.host_root, module));
  TRY(unbind_vfio());
  TRY(wait_for_mofed());
  return finish(options_.gpu_pod_eviction || options_.auto_drain);
}

Result<> DriverManager::wait_for_operands(const Json& node) {
  auto apps = waited_apps(node);
  bool clients = !kube::label(node, operand_label("client")).empty();
  kube::InformerOptions watch;
  watch.field_selector = "spec.nodeName=" + options_.node;
  watch.keep = {"spec.nodeSelector", "status.phase"};
  kube::Informer pods(client_, kube::kPods, watch);
  pods.start();
  std::vector<std::string> waiting;
  bool gone = loop_.run_until(
      [&] {
        if (loop_.stopped()) return true;
        if (!pods.synced()) return false;
        waiting.clear();
        pods.for_each([&](const auto& pod) {
          if (is_waited_for(*pod, options_.ns, apps, clients)) waiting.push_back(kube::object_key(*pod));
        });
        return waiting.empty();
      },
      options_.pod_patience);
  if (loop_.stopped()) return fail(Code::kCancelled, "wait for operand pods to end: interrupted");
  if (!gone) {
    return fail(Code::kTimeout,
                "wait for operand pods to end: still there: " +
                    (waiting.empty() ? std::string("the pods could not be listed") : join(waiting, ", ")));
  }
  return {};
}

Result<> DriverManager::evict(const Json& pod) {
  std::string ns = str(kube::namespace_of(pod));
  std::string name = str(kube::name_of(pod));
  std::string doing = "evict pod '" + ns + "/" + name + "'";
  HttpRequest request;
  request.method = "POST";
  request.path = kube::kPods.path(ns, name, "eviction");
  request.headers["Content-Type"] = "application/json";
  request.body = to_text(JsonObject{{"apiVersion", "policy/v1"},
                                    {"kind", "Eviction"},
                                    {"metadata", JsonObject{{"name", name}, {"namespace", ns}}}});
  Duration limit = options_.drain_timeout.count() > 0 ? options_.drain_timeout : Duration(24h);
  Duration end = loop_.elapsed() + limit;
  for (;;) {
    auto done = kube::await_raw(loop_, [&](auto answer) { return client_.raw(request, answer); });
    if (done || done.error().not_found()) break;
    // 429: a disruption budget has nothing to spare at the moment.
    bool later = done.error().status == 429 || done.error().unavailable();
    if (!later || loop_.stopped() || loop_.elapsed() >= end) return fail(done.error().error(doing));
    loop_.run_until([&] { return loop_.stopped(); },
                    std::min(end - loop_.elapsed(), done.error().retry_after.value_or(5s)));
  }
  kube::InformerOptions watch;
  watch.ns = ns;
  watch.field_selector = "metadata.name=" + name;
  kube::Informer informer(client_, kube::kPods, watch);
  informer.start();
  bool gone = loop_.run_until(
      [&] {
        if (loop_.stopped()) return true;
        auto now = informer.get(kube::object_key(ns, name));
        return informer.synced() && (!now || kube::uid_of(*now) != kube::uid_of(pod));
      },
      std::max(Duration(1s), end - loop_.elapsed()));
  if (loop_.stopped()) return fail(Code::kCancelled, doing + ": interrupted");
  if (!gone) return fail(Code::kTimeout, doing + ": it did not end in time");
  log::info("evicted", {{"pod", ns + "/" + name}});
  return {};
}

Result<> DriverManager::drain(bool only_gpu_pods) {
  auto pods = TRY(pods_here());
  auto plan = plan_drain(pods, {.only_gpu_pods = only_gpu_pods,
                                .force = options_.drain_force,
                                .delete_empty_dir = options_.drain_delete_empty_dir,
                                .selector = options_.drain_selector});
  std::string doing = only_gpu_pods ? "evict GPU pods" : "drain the node";
  if (!plan.blockers.empty()) {
    return fail(Code::kBusy,
                doing + ": nothing was evicted, these pods cannot be: " + join(plan.blockers, "; "));
  }
  if (only_gpu_pods && !plan.left.empty()) {
    log::warn(
        "pods of DaemonSets use GPUs and stay; give them the node selector nvidia.com/gpu.deploy.client",
        {{"pods", join(plan.left, ", ")}});
  }
  for (const auto& pod : plan.evict) TRY(evict(pod));
  return {};
}

Result<> DriverManager::unload() {
  auto done = unload_driver(options_.host_root);
  if (!done && options_.auto_drain) {
    log::warn("the driver is still in use: draining the node", {{"why", done.error()}});
    TRY(set_unschedulable(true));
    TRY(drain(false));
    done = unload_driver(options_.host_root);
  }
  if (!done) note("Warning", "DriverInUse", done.error().text());
  return done;
}

Result<> DriverManager::wait_for_mofed() {
  if (!options_.rdma || !wants_infiniband()) return {};
  log::info("waiting for the network driver");
  if (!options_.host_mofed) return wait_for_file(loop_, options_.mofed_ready, 24h * 365);
  // Modules announce themselves by no event that a container could watch.
  while (!module_is_loaded("mlx5_core") && !loop_.stopped())
    loop_.run_until([&] { return loop_.stopped(); }, 5s);
  if (loop_.stopped()) return fail(Code::kCancelled, "wait for the network driver: interrupted");
  return {};
}

Result<> DriverManager::finish(bool uncordon) {
  node_ = TRY(get_node());
  if (uncordon) TRY(set_unschedulable(false));
  TRY(set_labels(changed_labels(node_, options_.eviction_label, restored)));
  log::info("the way is clear for the driver");
  return {};
}

// Puts the node back as it was, so that a failed attempt keeps nothing paused.
Error DriverManager::give_up(Error error) {
  if (auto node = get_node()) {
    node_ = std::move(*node);
    if (upgrade_policy_owns_ || (!options_.gpu_pod_eviction && !options_.auto_drain)) {
      log::warn(
          "free the GPUs by hand, set ENABLE_GPU_POD_EVICTION=true, or label the node "
          "nvidia.com/gpu-driver-upgrade-state=upgrade-required");
    } else if (auto done = set_unschedulable(false); !done) {
      log::error(done.error().text());
    }
    if (auto done = set_labels(changed_labels(node_, options_.eviction_label, restored)); !done) {
      log::error(done.error().text());
    }
  }
  return error;
}

}  // namespace gpuop::driver

// Binds pods to nodes (kubernetes-api.md §14.3): each as soon as it is seen, and those that do not fit again
// when a node or the room on one changes.
#include <set>

#include "base/log.h"
#include "cluster/controllers/context.h"
#include "cluster/controllers/fit.h"

namespace gpuop::cluster {
namespace {

constexpr std::string_view kName = "default-scheduler";

// What a pod takes of a node, from the moment its binding is asked for.
struct Share {
  std::string node;
  Amounts requests;
  std::vector<std::string> ports;
};

class Scheduler final : public Controller {
 public:
  explicit Scheduler(Context& context)
      : context_(context),
        recorder_(context.client, str(kName)),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { schedule(key, std::move(finished)); },
               {.base_delay = 1s, .max_delay = 10s, .workers = 64, .rate = 0}) {}

  void start() override {
    context_.nodes.on_change([this](const Object& old, const Object& now) { node_changed(old, now); });
    context_.pods.on_change([this](const Object& old, const Object& now) { pod_changed(old, now); });
  }

 private:
  void node_changed(const Object& old, const Object& now) {
    if (!now) {
      // What its pods take stays counted: the node may come back before they are gone.
      rooms_[str(kube::name_of(*old))].allocatable.clear();
      return;
    }
    const std::string name = str(kube::name_of(*now));
    NodeRoom& room = rooms_[name];
    room.allocatable = node_allocatable(*now);
    const auto part = [](const Object& node, Keys keys) { return node ? find(*node, keys) : nullptr; };
    const auto same = [&](Keys keys) {
      const Json* before = part(old, keys);
      const Json* after = part(now, keys);
      return before == after || (before != nullptr && after != nullptr && *before == *after);
    };
    if (old && same({"spec"}) && same({"metadata", "labels"}) && same({"status", "allocatable"})) return;
    retry_waiting(name);
  }

  void pod_changed(const Object& old, const Object& now) {
    const Json& pod = now ? *now : *old;
    const std::string uid = str(kube::uid_of(pod));
    const std::string_view node = get_string(pod, {"spec", "nodeName"});
    if (!now || is_finished(pod)) {
      drop_waiting(kube::object_key(pod));
      release(uid);
    } else if (!node.empty()) {
      drop_waiting(kube::object_key(pod));
      take(uid, str(node), pod);
    } else if (wants_us(pod)) {
      queue_.add(kube::object_key(pod));
    }
  }

  static bool wants_us(const Json& pod) {
    return get_string(pod, {"spec", "schedulerName"}, kName) == kName && !is_terminating(pod) &&
           get_array(pod, {"spec", "schedulingGates"}).empty();
  }

  void take(const std::string& uid, const std::string& node, const Json& pod) {
    Share& share = shares_[uid];
    if (share.node == node) return;
    give_back(share);
    share = {node, pod_requests(pod), host_ports(pod)};
    NodeRoom& room = rooms_[node];
    ++room.pods;
    for (const auto& [name, amount] : share.requests) room.used[name] += amount;
    for (const std::string& port : share.ports) ++room.ports[port];
  }

  void give_back(const Share& share) {
    const auto found = rooms_.find(share.node);
    if (share.node.empty() || found == rooms_.end()) return;
    NodeRoom& room = found->second;
    --room.pods;
    for (const auto& [name, amount] : share.requests) room.used[name] -= amount;
    for (const std::string& port : share.ports) --room.ports[port];
  }

  void release(const std::string& uid) {
    const auto found = shares_.find(uid);
    if (found == shares_.end()) return;
    give_back(found->second);
    const std::string node = found->second.node;
    shares_.erase(found);
    retry_waiting(node);
  }

  // Pods that wait, and could fit now that something about `node` changed.
  void retry_waiting(const std::string& node) {
    for (const std::string& pin : {node, std::string()}) {
      const auto found = waiting_.find(pin);
      if (found == waiting_.end()) continue;
      for (const std::string& key : found->second) queue_.add(key);
    }
  }

  void drop_waiting(const std::string& key) {
    const auto found = pins_.find(key);
    if (found == pins_.end()) return;
    const auto group = waiting_.find(found->second);
    group->second.erase(key);
    if (group->second.empty()) waiting_.erase(group);
    pins_.erase(found);
    refused_.erase(key);
  }

  void schedule(const std::string& key, std::function<void(bool)> finished) {
    const Object pod = context_.pods.get(key);
    if (!pod || !get_string(*pod, {"spec", "nodeName"}).empty() || is_finished(*pod) || !wants_us(*pod) ||
        shares_.contains(str(kube::uid_of(*pod)))) {
      return finished(true);
    }
    const Amounts requests = pod_requests(*pod);
    const std::string pin = str(target_node(*pod));
    std::map<std::string, int> reasons;
    int resolvable = 0;
    std::string best;
    double best_score = 0;
    const auto consider = [&](const Json& node) {
      const std::string name = str(kube::name_of(node));
      const NodeRoom& room = rooms_[name];
      Misfit misfit = check_fit(*pod, requests, node, room);
      if (misfit.reasons.empty()) {
        const double score = node_score(*pod, requests, node, room);
        if (best.empty() || score > best_score) {
          best = name;
          best_score = score;
        }
        return;
      }
      for (std::string& reason : misfit.reasons) ++reasons[std::move(reason)];
      resolvable += misfit.resolvable;
    };
    if (pin.empty()) {
      context_.nodes.for_each([&](const Object& node) { consider(*node); });
    } else {
      // One node only can do: the others are not even looked at, whatever their number.
      const Object node = context_.nodes.get(pin);
      if (node) consider(*node);
      const int others = static_cast<int>(context_.nodes.size()) - (node ? 1 : 0);
      if (others > 0) reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] += others;
    }
    if (!best.empty()) return bind(pod, best, std::move(finished));
    pins_.emplace(key, pin);
    waiting_[pin].insert(key);
    refuse(key, pod, misfit_message(context_.nodes.size(), reasons, resolvable), std::move(finished));
  }

  void bind(const Object& pod, const std::string& node, std::function<void(bool)> finished) {
    const std::string uid = str(kube::uid_of(*pod));
    const std::string name = str(kube::name_of(*pod));
    const std::string ns = str(kube::namespace_of(*pod));
    drop_waiting(kube::object_key(*pod));
    take(uid, node, *pod);
    JsonObject metadata{{"name", name}, {"namespace", ns}, {"uid", uid}};
    JsonObject target{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node}};
    JsonObject binding{{"apiVersion", "v1"}, {"kind", "Binding"}};
    binding["metadata"] = std::move(metadata);
    binding["target"] = std::move(target);
    context_.client
        .create(kube::kPods, ns, binding, {.subresource = "binding"},
                [this, alive = std::weak_ptr(alive_), pod, uid, node,
                 finished = std::move(finished)](kube::ApiResult<> result) {
                  if (alive.expired()) return;
                  if (result) {
                    recorder_.event(*pod, "Normal", "Scheduled",
                                    "Successfully assigned " + kube::object_key(*pod) + " to " + node);
                    return finished(true);
                  }
                  release(uid);
                  if (!result.error().not_found() && !result.error().conflict()) {
                    log::warn("pod is not bound",
                              {{"pod", kube::object_key(*pod)}, {"why", result.error().message}});
                  }
                  finished(result.error().not_found());
                })
        .detach();
  }

  void refuse(const std::string& key, const Object& pod, std::string message,
              std::function<void(bool)> finished) {
    const Json* now = kube::condition(*pod, "PodScheduled");
    // Our own last word counts before the watch shows it.
    if (const auto last = refused_.find(key); last != refused_.end() && last->second == message)
      return finished(true);
    refused_[key] = message;
    if (now != nullptr && get_string(*now, {"status"}) == "False" &&
        get_string(*now, {"message"}) == message) {
      return finished(true);
    }
    recorder_.event(*pod, "Warning", "FailedScheduling", message);
    JsonObject condition{
        {"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}, {"message", message}};
    const bool moved = now == nullptr || get_string(*now, {"status"}) != "False";
    condition["lastTransitionTime"] =
        moved ? format_time(context_.loop.now()) : str(get_string(*now, {"lastTransitionTime"}));
    JsonObject status{{"conditions", JsonArray{Json(std::move(condition))}}};
    JsonObject patch{{"status", std::move(status)}};
    context_.client
        .patch(kube::kPods, kube::namespace_of(*pod), kube::name_of(*pod), kube::Patch::kStrategic, patch,
               {.subresource = "status"},
               [this, alive = std::weak_ptr(alive_), key,
                finished = std::move(finished)](kube::ApiResult<> result) {
                 if (alive.expired()) return;
                 if (!result) refused_.erase(key);
                 finished(result || result.error().not_found());
               })
        .detach();
  }

  Context& context_;
  kube::EventRecorder recorder_;
  std::unordered_map<std::string, NodeRoom> rooms_;
  std::unordered_map<std::string, Share> shares_;                   // by pod uid
  std::unordered_map<std::string, std::set<std::string>> waiting_;  // by pinned node ("": any), pod keys
  std::unordered_map<std::string, std::string> pins_;               // pod key -> its group in waiting_
  std::unordered_map<std::string, std::string> refused_;  // pod key -> the message that it was given
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_scheduler(Context& context) {
  return std::make_unique<Scheduler>(context);
}

}  // namespace gpuop::cluster

// ReplicaSets: so many pods of a template (kubernetes-api.md §14.2).
#include <algorithm>

#include "cluster/controllers/claims.h"

namespace gpuop::cluster {
namespace {

constexpr std::int64_t kBurst = 500;

// Pods that are least worth keeping come first: unbound, pending, not ready, youngest.
bool goes_before(const OwnedPod& a, const OwnedPod& b) {
  const auto rank = [](const OwnedPod& entry) {
    const Json& pod = *entry.pod;
    return std::tuple(!get_string(pod, {"spec", "nodeName"}).empty(),
                      get_string(pod, {"status", "phase"}) == "Running", is_ready(pod));
  };
  const auto ra = rank(a), rb = rank(b);
  if (ra != rb) return ra < rb;
  return get_string(*a.pod, {"metadata", "creationTimestamp"}) >
         get_string(*b.pod, {"metadata", "creationTimestamp"});
}

bool is_active(const Json& pod) {
  return !is_terminating(pod) && !is_finished(pod);
}

class ReplicaSetController final : public Controller {
 public:
  explicit ReplicaSetController(Context& context)
      : context_(context),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { sync(key, std::move(finished)); },
               {.workers = 16}) {}

  void start() override {
    context_.replica_sets.on_change([this](const Object&, const Object& now) {
      if (now) queue_.add(kube::object_key(*now));
    });
    context_.pods.on_change([this](const Object& old, const Object& now) {
      for (const std::string& key : concerned(context_.replica_sets, kube::kReplicaSets, old, now))
        queue_.add(key);
    });
  }

 private:
  void sync(const std::string& key, std::function<void(bool)> finished) {
    const Object set = context_.replica_sets.get(key);
    if (!set) return finished(true);
    if (const Claims claims = claims_of(context_.pods, *set, is_active); !claims.empty())
      return write_claims(context_, kube::kReplicaSets, *set, kube::kPods, claims, std::move(finished));
    std::vector<OwnedPod> active;
    for (OwnedPod& entry : context_.pod_control.pods_of(kube::uid_of(*set))) {
      if (!entry.terminating && !is_finished(*entry.pod)) active.push_back(std::move(entry));
    }
    const std::int64_t wanted = get_int(*set, {"spec", "replicas"}, 1);
    Gather gather(context_.loop, std::move(finished));
    if (!is_terminating(*set)) {
      const std::int64_t missing = std::min(wanted - std::ssize(active), kBurst);
      const Json* pod_template = find(*set, {"spec", "template"});
      const Json none = JsonObject();
      for (std::int64_t i = 0; i < missing; ++i) {
        context_.pod_control.create(
            *set, pod_from_template(*set, pod_template == nullptr ? none : *pod_template), gather.step());
      }
      if (std::ssize(active) > wanted) {
        std::ranges::sort(active, goes_before);
        for (std::int64_t i = 0; i < std::ssize(active) - wanted; ++i) {
          if (!active[i].expected) context_.pod_control.remove(*set, *active[i].pod, gather.step());
        }
      }
    }
    write_status(key, *set, active, gather);
    gather.close();
  }

  void write_status(const std::string& key, const Json& set, const std::vector<OwnedPod>& active,
                    Gather& gather) {
    const Duration min_ready = std::chrono::seconds(get_int(set, {"spec", "minReadySeconds"}));
    const Time now = context_.loop.now();
    std::int64_t replicas = 0, labelled = 0, ready = 0, available = 0;
    for (const OwnedPod& entry : active) {
      if (entry.expected) continue;
      ++replicas;
      bool all = true;
      for (const auto& [name, value] : get_object(set, {"spec", "template", "metadata", "labels"})) {
        all = all && kube::label(*entry.pod, name) == as_text(value);
      }
      labelled += all;
      ready += is_ready(*entry.pod);
      const auto at = available_at(*entry.pod, min_ready);
      available += at && *at <= now;
      if (at && *at > now) queue_.add_after(key, *at - now);
    }
    const auto omitted_at_zero = [](std::int64_t count) { return count == 0 ? Json() : Json(count); };
    JsonObject status{{"replicas", replicas},
                      {"observedGeneration", get_int(set, {"metadata", "generation"})}};
    status["fullyLabeledReplicas"] = omitted_at_zero(labelled);
    status["readyReplicas"] = omitted_at_zero(ready);
    status["availableReplicas"] = omitted_at_zero(available);
    patch_status(context_, kube::kReplicaSets, set, status, gather.step());
  }

  Context& context_;
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_replica_set_controller(Context& context) {
  return std::make_unique<ReplicaSetController>(context);
}

}  // namespace gpuop::cluster

// The status of PodDisruptionBudgets: how many pods an eviction may take now.
#include <algorithm>

#include "cluster/controllers/context.h"

namespace gpuop::cluster {
namespace {

constexpr kube::Resource kBudgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};

class DisruptionController final : public Controller {
 public:
  explicit DisruptionController(Context& context)
      : context_(context),
        recorder_(context.client, "controllermanager"),
        budgets_(context.client, kBudgets, {.keep = {"spec", "status"}}),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { sync(key, std::move(finished)); },
               {.workers = 4}) {}

  void start() override {
    budgets_.on_change([this](const Object&, const Object& now) {
      if (now) queue_.add(kube::object_key(*now));
    });
    context_.pods.on_change([this](const Object& old, const Object& now) {
      const std::string_view ns = kube::namespace_of(now ? *now : *old);
      budgets_.for_each([&](const Object& budget) {
        if (kube::namespace_of(*budget) != ns) return;
        if ((old && covers(*budget, *old)) || (now && covers(*budget, *now)))
          queue_.add(kube::object_key(*budget));
      });
    });
    budgets_.start();
  }

 private:
  static bool covers(const Json& budget, const Json& pod) {
    const Json none;
    const Json* selector = find(budget, {"spec", "selector"});
    const auto parsed = kube::LabelSelector::from_object(selector == nullptr ? none : *selector);
    return parsed && parsed->matches(get_object(pod, {"metadata", "labels"}));
  }

  // How many pods there should be: what their owners ask for, or those that are there.
  std::int64_t expected(const std::vector<Object>& pods) const {
    std::map<std::string, std::int64_t> by_owner;
    std::int64_t alone = 0;
    for (const Object& pod : pods) {
      const Object set = controller_in(context_.replica_sets, *pod);
      if (set) {
        by_owner[str(kube::uid_of(*set))] = get_int(*set, {"spec", "replicas"}, 1);
      } else {
        ++alone;
      }
    }
    for (const auto& [owner, replicas] : by_owner) alone += replicas;
    return alone;
  }

  void sync(const std::string& key, std::function<void(bool)> finished) {
    const Object budget = budgets_.get(key);
    if (!budget || is_terminating(*budget)) return finished(true);
    std::vector<Object> pods;
    std::int64_t healthy = 0;
    context_.pods.for_each([&](const Object& pod) {
      if (kube::namespace_of(*pod) != kube::namespace_of(*budget) || is_finished(*pod) ||
          !covers(*budget, *pod))
        return;
      pods.push_back(pod);
      healthy += is_ready(*pod) && !is_terminating(*pod);
    });
    if (pods.empty() && told_.insert(str(kube::uid_of(*budget))).second)
      recorder_.event(*budget, "Normal", "NoPods", "No matching pods found");
    if (!pods.empty()) told_.erase(str(kube::uid_of(*budget)));
    const std::int64_t total = expected(pods);
    std::int64_t desired = 0;
    if (const Json* least = find(*budget, {"spec", "minAvailable"})) {
      desired = scaled_value(least, 0, total, true);
    } else if (const Json* most = find(*budget, {"spec", "maxUnavailable"})) {
      desired = std::max<std::int64_t>(0, total - scaled_value(most, 0, total, true));
    }
    const std::int64_t allowed = pods.empty() ? 0 : std::max<std::int64_t>(0, healthy - desired);
    Json after = *budget;
    kube::set_condition(after, "DisruptionAllowed", allowed > 0 ? "True" : "False",
                        allowed > 0 ? "SufficientPods" : "InsufficientPods", "",
                        format_time(context_.loop.now()));
    JsonObject status{{"currentHealthy", healthy},
                      {"desiredHealthy", desired},
                      {"disruptionsAllowed", allowed},
                      {"expectedPods", total},
                      {"observedGeneration", get_int(*budget, {"metadata", "generation"})}};
    status["conditions"] = get_array(after, {"status", "conditions"});
    patch_status(context_, kBudgets, *budget, status, std::move(finished));
  }

  Context& context_;
  kube::EventRecorder recorder_;
  std::set<std::string> told_;  // budgets without pods, by uid
  kube::Informer budgets_;
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_disruption_controller(Context& context) {
  return std::make_unique<DisruptionController>(context);
}

}  // namespace gpuop::cluster

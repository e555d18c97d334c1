#include "cluster/controllers/daemon_set.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "cluster/controllers/claims.h"
#include "cluster/controllers/revisions.h"

namespace gpuop::cluster {
namespace {

constexpr Duration kFirstBackoff = 1s;
constexpr Duration kLongestBackoff = 15min;
constexpr std::size_t kLarge = 200;      // pods
constexpr Duration kRestPerPod = 200us;  // 5,000 pods: 1 s, of which a pass takes some 40 ms
constexpr Duration kFirstRefusal = 20ms;
constexpr Duration kLongestRefusal = 1min;
constexpr int kBurst = 250;  // creations and deletions of one set under way

class DaemonSetController final : public Controller {
 public:
  explicit DaemonSetController(Context& context)
      : context_(context),
        revisions_(context),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { sync(key, std::move(finished)); },
               {.base_delay = 5ms, .max_delay = 1000s, .workers = 16}) {}

  void start() override {
    context_.revisions.on_change(
        [this](const Object& old, const Object& now) { revision_changed(old, now); });
    context_.daemon_sets.on_change([this](const Object& old, const Object& now) { set_changed(old, now); });
    context_.pods.on_change([this](const Object& old, const Object& now) { pod_changed(old, now); });
    context_.nodes.on_change([this](const Object& old, const Object& now) { node_changed(old, now); });
  }

 private:
  // What is known of one set between two looks at it.
  struct State {
    std::string uid;
    std::string hash;
    std::int64_t hashed_generation = -1;
    bool look_at_all = true;
    std::set<std::string> look_at;                // nodes
    std::map<std::string, Eligibility> eligible;  // nodes where a pod may run or stay
    struct Failure {
      Duration next{0}, delay{0};
    };
    std::map<std::string, Failure> failures;  // pods that ended, by node
    std::map<std::string, Failure> refused;   // requests that the server refused, by node
    int under_way = 0;
    Duration rest_until{0};  // of a large set
  };

  void set_changed(const Object& old, const Object& now) {
    const std::string key = kube::object_key(now ? *now : *old);
    if (!now) {
      revisions_.forget(str(kube::uid_of(*old)));
      states_.erase(key);
      return;
    }
    State& state = states_[key];
    if (state.uid != kube::uid_of(*now)) {
      state = {};
      state.uid = kube::uid_of(*now);
    }
    const bool same_spec =
        old && get_int(*old, {"metadata", "generation"}) == get_int(*now, {"metadata", "generation"});
    if (!same_spec) state.look_at_all = true;
    queue_.add(key);
  }

  void pod_changed(const Object& old, const Object& now) {
    for (const std::string& key : concerned(context_.daemon_sets, kube::kDaemonSets, old, now)) {
      const auto found = states_.find(key);
      if (found == states_.end()) continue;
      found->second.look_at.insert(str(target_node(now ? *now : *old)));
      queue_.add(key);
    }
  }

  // Its number or content matters only to a history that has lost or won it.
  void revision_changed(const Object& old, const Object& now) {
    revisions_.seen(old, now);
    const auto owner_uid = [](const Object& revision) {
      const Json* owner = revision ? kube::controller_of(*revision) : nullptr;
      return owner == nullptr ? std::string_view() : get_string(*owner, {"uid"});
    };
    if (old && now && owner_uid(old) == owner_uid(now) &&
        get_object(*old, {"metadata", "labels"}) == get_object(*now, {"metadata", "labels"}))
      return;
    for (const std::string& key : concerned(context_.daemon_sets, kube::kDaemonSets, old, now)) {
      const auto found = states_.find(key);
      if (found == states_.end()) continue;
      found->second.hashed_generation = -1;
      queue_.add(key);
    }
  }

  void node_changed(const Object& old, const Object& now) {
    const std::string name = str(kube::name_of(now ? *now : *old));
    const auto same = [&](Keys keys) {
      const Json* before = old ? find(*old, keys) : nullptr;
      const Json* after = now ? find(*now, keys) : nullptr;
      return before == after || (before != nullptr && after != nullptr && *before == *after);
    };
    if (old && now && same({"metadata", "labels"}) && same({"spec"})) return;
    for (auto& [key, state] : states_) {
      const Object set = context_.daemon_sets.get(key);
      if (!set || state.look_at_all) continue;
      const Eligibility after = eligibility(*set, now);
      const auto before = state.eligible.find(name);
      const Eligibility was = before == state.eligible.end() ? Eligibility() : before->second;
      if (was.run == after.run && was.stay == after.stay) continue;
      state.look_at.insert(name);
      queue_.add(key);
    }
  }

  static Eligibility eligibility(const Json& set, const Object& node) {
    const Json* spec = find(set, {"spec", "template", "spec"});
    return node && spec != nullptr ? daemon_eligibility(*node, *spec) : Eligibility();
  }

  void sync(const std::string& key, std::function<void(bool)> finished) {
    const Object set = context_.daemon_sets.get(key);
    if (!set || is_terminating(*set)) return finished(true);
    State& state = states_[key];
    // A look at a set costs with its size, and each pod of a large one reports several times: the first
    // report is answered at once, those that follow within the rest together.
    const Duration now = context_.loop.elapsed();
    if (now < state.rest_until) {
      queue_.add_after(key, state.rest_until - now);
      return finished(true);
    }
    const Claims pods = claims_of(context_.pods, *set), revisions = claims_of(context_.revisions, *set);
    if (!pods.empty() || !revisions.empty()) {
      Gather gather(context_.loop, std::move(finished));
      write_claims(context_, kube::kDaemonSets, *set, kube::kPods, pods, gather.step());
      write_claims(context_, kube::kDaemonSets, *set, kube::kControllerRevisions, revisions, gather.step());
      return gather.close();
    }
    const auto generation = get_int(*set, {"metadata", "generation"});
    if (state.hashed_generation == generation) return manage(key, set, std::move(finished));
    revisions_.sync(set, [this, alive = std::weak_ptr(alive_), key, set, generation,
                          finished = std::move(finished)](std::string hash) mutable {
      if (alive.expired()) return;
      State* state = state_of(key, *set);
      if (hash.empty() || state == nullptr) return finished(state == nullptr);
      state->hash = std::move(hash);
      state->hashed_generation = generation;
      manage(key, set, std::move(finished));
    });
  }

  // Null when the set is gone, even if there is another of its name: that one's looks are not to be spent on
  // it.
  State* state_of(const std::string& key, const Json& set) {
    const auto found = states_.find(key);
    return found == states_.end() || found->second.uid != kube::uid_of(set) ? nullptr : &found->second;
  }

  PodsByNode pods_by_node(const Json& set) {
    PodsByNode out;
    for (OwnedPod& entry : context_.pod_control.pods_of(kube::uid_of(set))) {
      out[str(target_node(*entry.pod))].push_back(std::move(entry));
    }
    for (auto& [node, pods] : out) {
      std::ranges::stable_sort(pods, {}, [](const OwnedPod& entry) {
        return std::pair(get_string(*entry.pod, {"spec", "nodeName"}).empty(),
                         get_string(*entry.pod, {"metadata", "creationTimestamp"}, "~"));
      });
    }
    return out;
  }

  void manage(const std::string& key, const Object& set, std::function<void(bool)> finished) {
    State& state = states_[key];
    PodsByNode pods = pods_by_node(*set);
    if (pods.size() > kLarge) state.rest_until = context_.loop.elapsed() + kRestPerPod * std::ssize(pods);
    std::set<std::string> nodes = std::exchange(state.look_at, {});
    if (std::exchange(state.look_at_all, false)) {
      state.eligible.clear();
      context_.nodes.for_each([&](const Object& node) { nodes.insert(str(kube::name_of(*node))); });
      for (const auto& [node, entries] : pods) nodes.insert(node);
    }
    Gather gather(context_.loop, std::move(finished));
    for (const std::string& node : nodes) {
      if (node.empty()) continue;
      const Eligibility fit = eligibility(*set, context_.nodes.get(node));
      if (fit.run || fit.stay) {
        state.eligible[node] = fit;
      } else {
        state.eligible.erase(node);
      }
      manage_node(key, set, node, fit, pods[node], gather);
    }
    RollFacts facts{set.get(), &pods, {}, state.hash, context_.loop.now()};
    for (const auto& [node, fit] : state.eligible) {
      if (fit.run) facts.desired.push_back(node);
    }
    if (get_string(*set, {"spec", "updateStrategy", "type"}, "RollingUpdate") == "RollingUpdate") {
      roll(key, set, facts, gather);
    }
    write_status(key, set, facts, gather);
    gather.close();
  }

  void manage_node(const std::string& key, const Object& set, const std::string& node, Eligibility fit,
                   const std::vector<OwnedPod>& pods, Gather& gather) {
    if (!fit.stay) {
      for (const OwnedPod& entry : pods) {
        if (!entry.terminating && !entry.expected) remove(key, set, *entry.pod, gather);
      }
      states_[key].failures.erase(node);
      return;
    }
    if (pods.empty()) {
      if (fit.run) create(key, set, node, gather);
      return;
    }
    const bool surge = allows_surge(*set);
    bool kept[2] = {false, false};  // of the current template, where a surge runs one beside the old
    for (const OwnedPod& entry : pods) {
      if (entry.terminating) continue;
      if (is_finished(*entry.pod)) {
        replace_finished(key, set, node, *entry.pod, gather);
        continue;
      }
      // The oldest stays.
      bool& one = kept[surge && is_current(*set, *entry.pod, states_[key].hash) ? 1 : 0];
      if (std::exchange(one, true) && !entry.expected) remove(key, set, *entry.pod, gather);
    }
  }

  // A daemon pod that ended is made anew, with a growing delay on that node.
  void replace_finished(const std::string& key, const Object& set, const std::string& node, const Json& pod,
                        Gather& gather) {
    State::Failure& failure = states_[key].failures[node];
    const Duration now = context_.loop.elapsed();
    if (failure.delay != Duration::zero() && now < failure.next) {
      states_[key].look_at.insert(node);
      queue_.add_after(key, failure.next - now);
      return;
    }
    const bool calm = now - failure.next > 2 * kLongestBackoff;
    failure.delay = failure.delay == Duration::zero() || calm ? kFirstBackoff
                                                              : std::min(failure.delay * 2, kLongestBackoff);
    failure.next = now + failure.delay;
    log::debug("daemon pod ended, making it anew", {{"pod", kube::object_key(pod)}, {"node", node}});
    remove(key, set, pod, gather);
  }

  void roll(const std::string& key, const Object& set, const RollFacts& facts, Gather& gather) {
    const RollDecision decision = decide_roll(facts);
    for (const Object& pod : decision.remove) {
      if (!kube::uid_of(*pod).empty()) remove(key, set, *pod, gather);
    }
    for (const std::string& node : decision.create_beside) create(key, set, node, gather);
  }

  void create(const std::string& key, const Object& set, const std::string& node, Gather& gather) {
    State& state = states_[key];
    const Duration now = context_.loop.elapsed();
    if (const auto failure = state.refused.find(node);
        failure != state.refused.end() && now < failure->second.next) {
      state.look_at.insert(node);
      queue_.add_after(key, failure->second.next - now);
      return;
    }
    if (state.under_way >= kBurst) {
      state.look_at.insert(node);  // when one of those under way is done
      return;
    }
    ++state.under_way;
    context_.pod_control.create(*set, daemon_pod(*set, state.hash, node), settle(key, *set, node, gather));
  }

  void remove(const std::string& key, const Object& set, const Json& pod, Gather& gather) {
    ++states_[key].under_way;
    context_.pod_control.remove(*set, pod, settle(key, *set, str(target_node(pod)), gather));
  }

  std::function<void(bool)> settle(const std::string& key, const Json& set, const std::string& node,
                                   Gather& gather) {
    return [this, alive = std::weak_ptr(alive_), key, uid = str(kube::uid_of(set)), node,
            step = gather.step()](bool ok) {
      const auto found = alive.expired() ? states_.end() : states_.find(key);
      if (!alive.expired() && found != states_.end() && found->second.uid == uid) {
        State& state = found->second;
        --state.under_way;
        if (ok) {
          state.refused.erase(node);
          if (!state.look_at.empty()) queue_.add(key);
        } else {
          State::Failure& failure = state.refused[node];
          failure.delay = std::clamp<Duration>(failure.delay * 2, kFirstRefusal, kLongestRefusal);
          failure.next = context_.loop.elapsed() + failure.delay;
          state.look_at.insert(node);
          queue_.add_after(key, failure.delay);
        }
      }
      step(true);
    };
  }

  void write_status(const std::string& key, const Object& set, const RollFacts& facts, Gather& gather) {
    std::int64_t misscheduled = 0;
    Time soonest{};
    const Duration min_ready = std::chrono::seconds(get_int(*set, {"spec", "minReadySeconds"}));
    for (const auto& [node, pods] : *facts.pods) {
      const auto fit = states_[key].eligible.find(node);
      const bool runs = fit != states_[key].eligible.end() && fit->second.run;
      if (!runs && !pods.empty() && context_.nodes.get(node)) ++misscheduled;
      for (const OwnedPod& entry : pods) {
        const auto at = available_at(*entry.pod, min_ready);
        if (at && *at > facts.now && (soonest == Time() || *at < soonest)) soonest = *at;
      }
    }
    if (soonest != Time()) queue_.add_after(key, soonest - facts.now);
    patch_status(context_, kube::kDaemonSets, *set, daemon_status(facts, misscheduled), gather.step());
  }

  Context& context_;
  RevisionHistory revisions_;
  std::map<std::string, State> states_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_daemon_set_controller(Context& context) {
  return std::make_unique<DaemonSetController>(context);
}

}  // namespace gpuop::cluster

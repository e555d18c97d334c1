#include "operator/node_health.h"

#include "base/log.h"
#include "base/text.h"
#include "kube/object.h"
#include "operator/refusals.h"

namespace gpuop::op {
namespace {

using Act = HealthChange::Act;

constexpr Duration kGap = 1s;
constexpr Duration kOnItsWay = 5s;
constexpr Duration kWordsGap = 30s;
constexpr std::size_t kShown = 3;

// When this may be written: `from` plus `gap`, unless that is past.
std::optional<Duration> still(const std::optional<Duration>& from, Duration gap, Duration now) {
  if (!from || now - *from >= gap) return std::nullopt;
  return gap - (now - *from);
}

// Of the first few nodes, and how many more there are.
std::vector<std::string> words_of(const std::map<std::string, std::string>& nodes) {
  std::vector<std::string> shown;
  for (const auto& [node, words] : nodes) {
    if (shown.size() == kShown) break;
    shown.push_back(words);
  }
  const std::size_t more = nodes.size() - shown.size();
  if (more > 0) shown.push_back("and " + std::to_string(more) + " more nodes");
  return shown;
}

}  // namespace

HealthChange decide_health(const Json& node, bool wanted, const std::optional<fleet::BrokenLink>& link,
                           const HealthMemory& memory, Duration now) {
  HealthChange change;
  const Json* present = kube::condition(node, kGpuReady);
  if (!wanted) {
    if (present) change.act = Act::kRemove;
    return change;
  }
  change.status = link ? "False" : "True";
  change.reason = link ? link->reason : "Validated";
  change.message = link ? link->text() : "every operand that this node needs is ready";
  const std::string_view status = present ? get_string(*present, {"status"}) : "";
  const bool news = !present || status != change.status || get_string(*present, {"reason"}) != change.reason;
  if (!news && get_string(*present, {"message"}) == change.message) return change;
  const bool on_its_way = link && !link->failed;
  if (on_its_way) change.wait = still(memory.working_since.value_or(now), kOnItsWay, now);
  if (!change.wait)
    change.wait = still(memory.written, !news ? kWordsGap : on_its_way ? kOnItsWay : kGap, now);
  if (change.wait) return change;
  change.act = Act::kWrite;
  change.transition = status != change.status;
  if (news && link && link->failed) change.event = "Warning";
  // The end of what somebody was told of; that a node has come up is told by its condition.
  if (news && !link && status == "False" && get_string(*present, {"reason"}).ends_with("Failed"))
    change.event = "Normal";
  return change;
}

Json health_patch(const HealthChange& change, Time now) {
  JsonObject condition{{"type", kGpuReady}};
  if (change.act == Act::kRemove) {
    condition["$patch"] = "delete";
  } else {
    const std::string text = format_time(now);
    condition["status"] = change.status;
    condition["reason"] = change.reason;
    condition["message"] = change.message;
    condition["lastHeartbeatTime"] = text;
    if (change.transition) condition["lastTransitionTime"] = text;
  }
  return JsonObject{{"status", JsonObject{{"conditions", JsonArray{std::move(condition)}}}}};
}

fleet::NodeChain NodeHealth::chain(const Json& node,
                                   const std::map<std::string, std::string>& refused) const {
  fleet::Objects policies;
  cache_.of(kube::kClusterPolicies).for_each([&policies](const auto& policy) { policies.push_back(policy); });
  fleet::ChainFacts facts{fleet::switched_off(policies), {}, refused};
  cache_.of(kube::kDaemonSets).for_each([&facts](const auto& set) { facts.daemonsets.push_back(set); });
  return fleet::chain_of(node, cache_.pods_on(kube::name_of(node)), facts);
}

// `told`: the condition says so, or is about to.
void NodeHealth::remember(const std::string& node, const std::optional<fleet::BrokenLink>& link, bool told) {
  metrics_.set_node(node, link ? link->stage : "", link ? link->reason : "");
  if (link)
    broken_[node] = *link;
  else
    broken_.erase(node);
  if (!link || !link->failed)
    failed_.erase(node);
  else if (told)
    failed_[node] = "node " + node + ": " + link->text();
  if (link && link->kept_off)
    kept_off_[node] = "node " + node + ": " + link->text();
  else
    kept_off_.erase(node);
}

const fleet::BrokenLink* NodeHealth::link_of(const std::string& node) const {
  const auto found = broken_.find(node);
  return found == broken_.end() ? nullptr : &found->second;
}

void NodeHealth::forget(const std::string& node) {
  remember(node, std::nullopt, true);
  memory_.erase(node);
}

std::string NodeHealth::words() const {
  return join(words_of(failed_), "; ");
}

std::vector<std::string> NodeHealth::kept_off() const {
  return words_of(kept_off_);
}

std::optional<Duration> NodeHealth::look(const Json& node, const fleet::NodeChain& chain, bool wanted,
                                         const std::function<void(bool ok)>& done) {
  const std::string name(kube::name_of(node));
  const auto link = wanted ? chain.broken_link() : std::nullopt;
  const Duration now = client_.loop().elapsed();
  HealthMemory& memory = memory_[name];
  if (!link || link->failed)
    memory.working_since.reset();
  else if (!memory.working_since)
    memory.working_since = now;
  const HealthChange change = decide_health(node, wanted, link, memory, now);
  remember(name, link, !change.wait);
  if (change.act == Act::kNothing) {
    done(true);
    return change.wait;
  }
  memory.written = now;
  const Json patch = health_patch(change, client_.loop().now());
  kube::WriteOptions write;
  write.subresource = "status";
  client_
      .patch(kube::kNodes, "", name, kube::Patch::kStrategic, patch, write,
             [this, name, change, subject = node, done](kube::ApiResult<> result) {
               if (!result && !result.error().not_found()) {
                 log::warn("the node's condition was not written",
                           {{"node", name}, {"error", result.error().message}});
                 if (result.error().forbidden())
                   refused_ = result.error().error("write the condition GPUReady of nodes").text() +
                              cure_of_refusal(result.error().message);
                 return done(false);
               }
               refused_.clear();
               if (!change.event.empty()) events_.event(subject, change.event, change.reason, change.message);
               done(true);
             })
      .detach();
  return std::nullopt;
}

}  // namespace gpuop::op

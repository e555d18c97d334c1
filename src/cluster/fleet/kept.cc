#include "cluster/fleet/kept.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kPolicyFile = "policy.json";

// Statuses tell whole seconds.
bool before(std::string_view moment, Time began) {
  const auto at = parse_time(moment);
  return at && *at < std::chrono::floor<std::chrono::seconds>(began);
}

Result<Json> list(Loop& loop, kube::Client& client, const kube::Resource& type) {
  auto found = kube::await(loop, [&](const auto& done) { return client.list(type, "", {}, done); });
  if (!found) return fail(found.error().error("list " + std::string(type.plural)));
  return std::move(*found);
}

Result<> remove(Loop& loop, kube::Client& client, const kube::Resource& type, const Json& object) {
  kube::DeleteOptions now;
  now.grace_seconds = 0;
  now.precondition_uid = str(kube::uid_of(object));
  const auto removed = kube::await(loop, [&](const auto& done) {
    return client.remove(type, kube::namespace_of(object), kube::name_of(object), now, done);
  });
  if (removed || removed.error().not_found()) return {};
  return fail(
      removed.error().error("delete " + std::string(type.kind) + " '" + str(kube::name_of(object)) + "'"));
}

JsonArray taints_of(const FleetNode& node) {
  JsonArray out;
  for (const FleetTaint& taint : node.taints)
    out.push_back(JsonObject{{"key", taint.key}, {"value", taint.value}, {"effect", taint.effect}});
  return out;
}

bool contains(const JsonArray& list, const Json& item) {
  return std::ranges::find(list, item) != list.end();
}

// The node's taints without those that the file has lost, and with those that it has gained.
JsonArray followed_taints(const Json& node, const FleetNode& was, const FleetNode& is) {
  const JsonArray lost = taints_of(was), gained = taints_of(is);
  JsonArray out;
  for (const Json& taint : get_array(node, {"spec", "taints"})) {
    if (!contains(lost, taint) || contains(gained, taint)) out.push_back(taint);
  }
  for (const Json& taint : gained) {
    if (!contains(lost, taint) && !contains(out, taint)) out.push_back(taint);
  }
  return out;
}

// What is to be patched of a node whose words in the file changed. An empty object: nothing.
Json change_of(const Json& node, const FleetNode& was, const FleetNode& is) {
  Json patch = JsonObject();
  for (const auto& [key, value] : was.labels) {
    if (!is.labels.contains(key)) set(patch, {"metadata", "labels", key}, Json(nullptr));
  }
  if (!was.instance_type.empty() && is.instance_type.empty())
    set(patch, {"metadata", "labels", "node.kubernetes.io/instance-type"}, Json(nullptr));
  JsonArray taints = followed_taints(node, was, is);
  if (taints != get_array(node, {"spec", "taints"})) set(patch, {"spec", "taints"}, std::move(taints));
  return patch;
}

// The fleet of the last run; empty where nothing is known of it.
Fleet last_fleet(const fs::path& file) {
  const auto text = read_file(file);
  const auto json = text ? parse_json(*text) : Result<Json>(Json());
  auto fleet = json ? fleet_from_json(*json) : Result<Fleet>(Fleet());
  return fleet ? std::move(*fleet) : Fleet();
}

// Who the policy is that the last run with the folder applied.
std::string last_policy(const fs::path& data_dir) {
  const auto text = read_file(data_dir / kPolicyFile);
  const auto json = text ? parse_json(*text) : Result<Json>(Json());
  return json ? str(get_string(*json, {"uid"})) : std::string();
}

bool is_owned_by(const Json& object, const std::set<std::string>& owners) {
  const Json* owner = kube::controller_of(object);
  return owner != nullptr && owners.contains(str(get_string(*owner, {"uid"})));
}

// A policy with its operands. The garbage collector would take those too, but side by side with the start of
// the next policy's, and the end of an old validator would take back what a new one has just found good.
Result<> remove_policy(Loop& loop, kube::Client& client, const Json& policy) {
  std::set<std::string> owners{str(kube::uid_of(policy))};
  TRY(remove(loop, client, kube::kClusterPolicies, policy));
  for (const kube::Resource* type : {&kube::kDaemonSets, &kube::kPods}) {
    const Json found = TRY(list(loop, client, *type));
    for (const Json& object : get_array(found, {"items"})) {
      if (!is_owned_by(object, owners)) continue;
      TRY(remove(loop, client, *type, object));
      owners.insert(str(kube::uid_of(object)));
    }
  }
  return {};
}

// Which of two the operator takes (operator.md §1.3).
bool is_older(const Json& one, const Json& other) {
  const auto rank = [](const Json& policy) {
    return std::pair(get_string(policy, {"metadata", "creationTimestamp"}), kube::name_of(policy));
  };
  return rank(one) < rank(other);
}

// The first few sentences of one kind, and how many more there are.
void note_some(std::vector<std::string>& notes, std::vector<std::string> same, const std::string& more) {
  constexpr std::size_t kShown = 3;
  const std::size_t all = same.size();
  if (all > kShown) same.resize(kShown);
  notes.insert(notes.end(), same.begin(), same.end());
  if (all > kShown) notes.push_back("and " + std::to_string(all - kShown) + " more nodes " + more);
}

}  // namespace

Result<std::vector<std::string>> follow_policy(Loop& loop, kube::Client& client, const std::string& asked,
                                               const fs::path& data_dir) {
  std::vector<std::string> notes;
  const auto found =
      kube::await(loop, [&](const auto& done) { return client.list(kube::kClusterPolicies, "", {}, done); });
  if (!found && found.error().not_found()) return notes;  // a new cluster: there is no such kind yet
  if (!found) return fail(found.error().error("list ClusterPolicies"));
  const JsonArray& policies = get_array(*found, {"items"});
  const std::string ours = last_policy(data_dir);
  const auto same = std::ranges::find(policies, asked, [](const Json& one) { return kube::name_of(one); });
  for (const Json& policy : policies) {
    const std::string name = str(kube::name_of(policy));
    if (name == asked) continue;
    if (kube::uid_of(policy) == ours) {
      TRY(remove_policy(loop, client, policy));
      notes.push_back("ClusterPolicy '" + name + "', which the last run with '" + data_dir.string() +
                      "' applied, is deleted: '" + asked + "' of --policy takes its place");
    } else if (same == policies.end() || is_older(policy, *same)) {
      notes.push_back("warning: " + not_in_force(asked, name) + ", and no run with '" + data_dir.string() +
                      "' applied that; delete it (kubectl delete clusterpolicy " + name +
                      "), or give --policy a file with that name");
    }
  }
  return notes;
}

Result<> keep_policy(Loop& loop, kube::Client& client, const std::string& applied, const fs::path& data_dir) {
  const auto policy = kube::await(
      loop, [&](const auto& done) { return client.get(kube::kClusterPolicies, "", applied, done); });
  if (!policy) return fail(policy.error().error("read ClusterPolicy '" + applied + "'"));
  const std::string uid = str(kube::uid_of(*policy));
  if (uid == last_policy(data_dir)) return {};
  const Json who = JsonObject{{"name", applied}, {"uid", uid}};
  TRY(write_file_atomic(data_dir / kPolicyFile, to_text(who) + "\n", 0600));
  return {};
}

std::string not_in_force(std::string_view asked, std::string_view in_force) {
  if (asked.empty() || in_force.empty() || asked == in_force) return {};
  return "ClusterPolicy '" + std::string(asked) + "' is ignored by the operator: '" + std::string(in_force) +
         "' is older";
}

Result<std::vector<std::string>> follow_fleet(Loop& loop, kube::Client& client, const Fleet& fleet,
                                              const fs::path& data_dir) {
  const fs::path file = data_dir / "fleet.json";
  const Fleet last = last_fleet(file);
  std::vector<std::string> lost, installed;
  std::set<std::string> gone;
  const Json nodes = TRY(list(loop, client, kube::kNodes));
  for (const Json& node : get_array(nodes, {"items"})) {
    const std::string name = str(kube::name_of(node));
    const auto is = std::ranges::find(fleet.nodes, name, &FleetNode::name);
    if (is == fleet.nodes.end()) {
      TRY(remove(loop, client, kube::kNodes, node));
      gone.insert(name);
      lost.push_back("node '" + name + "' is kept in '" + data_dir.string() +
                     "' and not in the fleet file: it is deleted, with the pods on it");
      continue;
    }
    const auto was = std::ranges::find(last.nodes, name, &FleetNode::name);
    if (was != last.nodes.end() && was->driver != is->driver) {
      TRY(remove(loop, client, kube::kNodes, node));
      gone.insert(name);
      installed.push_back("node '" + name + "': its driver was '" + std::string(driver_word(was->driver)) +
                          "' and is '" + std::string(driver_word(is->driver)) +
                          "' now: it is installed anew, without its labels and the pods on it");
      continue;
    }
    const Json patch = was == last.nodes.end() ? Json(JsonObject()) : change_of(node, *was, *is);
    if (patch.get_object().empty()) continue;
    const auto changed = kube::await(loop, [&](const auto& done) {
      return client.patch(kube::kNodes, "", name, kube::Patch::kMerge, patch, {}, done);
    });
    if (!changed) return fail(changed.error().error("change Node '" + name + "'"));
  }
  if (!gone.empty()) {
    const Json pods = TRY(list(loop, client, kube::kPods));
    for (const Json& pod : get_array(pods, {"items"})) {
      if (gone.contains(str(get_string(pod, {"spec", "nodeName"}))))
        TRY(remove(loop, client, kube::kPods, pod));
    }
  }
  TRY(write_file_atomic(file, to_text(to_json(fleet)) + "\n", 0600));
  std::vector<std::string> notes;
  note_some(notes, std::move(installed), "whose driver is another now are installed anew");
  note_some(notes, std::move(lost), "that are not in the fleet file are deleted, with the pods on them");
  return notes;
}

bool is_of_the_past(const Json& pod, Time began) {
  for (const Json& status : get_array(pod, {"status", "containerStatuses"})) {
    if (before(get_string(status, {"state", "running", "startedAt"}), began)) return true;
  }
  return false;
}

bool is_unheard(const Json& node, Time began) {
  const Json* ready = kube::condition(node, "Ready");
  return ready != nullptr && before(get_string(*ready, {"lastHeartbeatTime"}), began);
}

}  // namespace gpuop::cluster

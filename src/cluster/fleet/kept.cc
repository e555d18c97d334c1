#include "cluster/fleet/kept.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::cluster {
namespace {

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

}  // namespace

Result<std::vector<std::string>> follow_fleet(Loop& loop, kube::Client& client, const Fleet& fleet,
                                              const fs::path& data_dir) {
  const fs::path file = data_dir / "fleet.json";
  const Fleet last = last_fleet(file);
  std::vector<std::string> notes;
  std::set<std::string> gone;
  const Json nodes = TRY(list(loop, client, kube::kNodes));
  for (const Json& node : get_array(nodes, {"items"})) {
    const std::string name = str(kube::name_of(node));
    const auto is = std::ranges::find(fleet.nodes, name, &FleetNode::name);
    if (is == fleet.nodes.end()) {
      TRY(remove(loop, client, kube::kNodes, node));
      gone.insert(name);
      notes.push_back("node '" + name + "' is kept in '" + data_dir.string() +
                      "' and not in the fleet file: it is deleted, with the pods on it");
      continue;
    }
    const auto was = std::ranges::find(last.nodes, name, &FleetNode::name);
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

#include "cluster/controllers/revisions.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "cluster/controllers/claims.h"

namespace gpuop::cluster {
namespace {

// The patch that leads back to a template: {"spec":{"template":{…,"$patch":"replace"}}}.
Json revision_data(const Json& daemon_set) {
  const Json* pod_template = find(daemon_set, {"spec", "template"});
  Json inner = pod_template == nullptr ? Json(JsonObject()) : *pod_template;
  set(inner, {"$patch"}, Json("replace"));
  Json out = JsonObject();
  set(out, {"spec", "template"}, std::move(inner));
  return out;
}

}  // namespace

std::vector<RevisionHistory::Known> RevisionHistory::history(std::string_view owner_uid) {
  std::map<std::string, Known> by_name = made_[str(owner_uid)];
  for (const Object& revision : context_.revisions.by_index("owner", owner_uid)) {
    const Json* data = find(*revision, {"data"});
    Known& known = by_name[str(kube::name_of(*revision))];
    known.name = kube::name_of(*revision);
    known.hash = kube::label(*revision, "controller-revision-hash");
    known.number = std::max(known.number, get_int(*revision, {"revision"}));
    known.data = data == nullptr ? "" : to_canonical_text(*data);
  }
  std::vector<Known> out;
  for (auto& [name, known] : by_name) out.push_back(std::move(known));
  std::ranges::sort(out, {}, &Known::number);
  return out;
}

void RevisionHistory::sync(const Object& daemon_set, std::function<void(std::string)> done) {
  const std::string uid = str(kube::uid_of(*daemon_set));
  const std::vector<Known> known = history(uid);
  const std::string data = to_canonical_text(revision_data(*daemon_set));
  const std::int64_t newest = known.empty() ? 0 : known.back().number;
  const auto same =
      std::ranges::find_if(known.rbegin(), known.rend(), [&](const Known& one) { return one.data == data; });
  if (same == known.rend()) {
    const auto from_status = get_int(*daemon_set, {"status", "collisionCount"});
    return make(daemon_set, newest + 1, data, std::max(from_status, collisions_[uid]), std::move(done));
  }
  const Known current = *same;
  prune(*daemon_set, known, current.name);
  if (current.number == newest) return done(current.hash);
  // A template of the past is the current one again.
  JsonObject patch{{"revision", newest + 1}};
  context_.client
      .patch(kube::kControllerRevisions, kube::namespace_of(*daemon_set), current.name, kube::Patch::kMerge,
             patch, {},
             [this, alive = std::weak_ptr(alive_), uid, current, newest,
              done = std::move(done)](kube::ApiResult<> result) {
               if (alive.expired()) return;
               if (result) {
                 Known& entry = made_[uid][current.name] = current;
                 entry.number = newest + 1;
               }
               done(result ? current.hash : "");
             })
      .detach();
}

void RevisionHistory::make(const Object& daemon_set, std::int64_t number, std::string data,
                           std::int64_t collisions, std::function<void(std::string)> done) {
  const std::string uid = str(kube::uid_of(*daemon_set));
  const Json none = JsonObject();
  const Json* pod_template = find(*daemon_set, {"spec", "template"});
  const std::string hash = template_hash(pod_template == nullptr ? none : *pod_template, collisions);
  const std::string name = str(kube::name_of(*daemon_set)) + "-" + hash;
  JsonObject labels = get_object(*daemon_set, {"spec", "template", "metadata", "labels"});
  labels["controller-revision-hash"] = hash;
  JsonObject metadata{{"name", name}, {"namespace", str(kube::namespace_of(*daemon_set))}};
  metadata["labels"] = std::move(labels);
  metadata["ownerReferences"] = JsonArray{kube::owner_reference(*daemon_set)};
  JsonObject revision{{"apiVersion", "apps/v1"}, {"kind", "ControllerRevision"}};
  revision["metadata"] = std::move(metadata);
  revision["data"] = revision_data(*daemon_set);
  revision["revision"] = number;
  context_.client
      .create(kube::kControllerRevisions, kube::namespace_of(*daemon_set), revision, {},
              [this, alive = std::weak_ptr(alive_), uid, name, hash, number, data, daemon_set, collisions,
               done = std::move(done)](kube::ApiResult<> result) {
                if (alive.expired()) return;
                if (result) {
                  made_[uid][name] = {name, hash, number, data};
                  return done(hash);
                }
                if (!result.error().already_exists()) return done("");
                look_at_taken_name(daemon_set, number, name, hash, data, collisions, done);
              })
      .detach();
}

// One that will be ours as soon as the watch shows that nobody owns it; the same template, ours or of a set
// of the same name that is gone (its end brings us back); or another template with the same hash: the count
// makes a new hash then.
void RevisionHistory::look_at_taken_name(const Object& daemon_set, std::int64_t number,
                                         const std::string& name, const std::string& hash,
                                         const std::string& data, std::int64_t collisions,
                                         const std::function<void(std::string)>& done) {
  context_.client
      .get(kube::kControllerRevisions, kube::namespace_of(*daemon_set), name,
           [this, alive = std::weak_ptr(alive_), daemon_set, number, name, hash, data, collisions,
            done](kube::ApiResult<> result) {
             if (alive.expired()) return;
             if (!result) return done("");
             const Json* owner = kube::controller_of(*result);
             if (owner == nullptr && !is_terminating(*result) && picks(*daemon_set, *result)) return done("");
             const std::string uid = str(kube::uid_of(*daemon_set));
             const Json* content = find(*result, {"data"});
             if (content != nullptr && to_canonical_text(*content) == data) return done(hash);
             collisions_[uid] = collisions + 1;
             log::info("hash collision of ControllerRevision", {{"name", name}});
             patch_status(context_, kube::kDaemonSets, *daemon_set,
                          JsonObject{{"collisionCount", collisions + 1}}, [](bool) {});
             make(daemon_set, number, data, collisions + 1, done);
           })
      .detach();
}

void RevisionHistory::prune(const Json& daemon_set, const std::vector<Known>& known,
                            const std::string& current) {
  const auto limit = get_int(daemon_set, {"spec", "revisionHistoryLimit"}, 10);
  std::set<std::string, std::less<>> used;
  for (const OwnedPod& entry : context_.pod_control.pods_of(kube::uid_of(daemon_set))) {
    used.insert(str(kube::label(*entry.pod, "controller-revision-hash")));
  }
  std::vector<std::string> idle;
  for (const Known& one : known) {
    if (one.name != current && !used.contains(one.hash)) idle.push_back(one.name);
  }
  for (std::int64_t i = 0; i < std::ssize(idle) - limit; ++i) {
    made_[str(kube::uid_of(daemon_set))].erase(idle[i]);
    context_.client
        .remove(kube::kControllerRevisions, kube::namespace_of(daemon_set), idle[i], {},
                [](kube::ApiResult<>) {})
        .detach();
  }
}

void RevisionHistory::seen(const Object& old, const Object& now) {
  const Json& revision = now ? *now : *old;
  const Json* owner = kube::controller_of(revision);
  if (owner == nullptr) return;
  const auto found = made_.find(str(get_string(*owner, {"uid"})));
  if (found == made_.end()) return;
  const auto entry = found->second.find(str(kube::name_of(revision)));
  if (entry == found->second.end()) return;
  if (!now || get_int(*now, {"revision"}) >= entry->second.number) found->second.erase(entry);
}

void RevisionHistory::forget(const std::string& daemon_set_uid) {
  made_.erase(daemon_set_uid);
  collisions_.erase(daemon_set_uid);
}

}  // namespace gpuop::cluster

// Deployments: a ReplicaSet for each template, replaced step by step (kubernetes-api.md §14.2).
#include <algorithm>

#include "base/text.h"
#include "cluster/controllers/claims.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kRevision = "deployment.kubernetes.io/revision";
constexpr const char* kHashLabel = "pod-template-hash";

// A template as its deployment has it: without the hash that is added for the ReplicaSet.
std::string template_text(const Json& owner) {
  const Json* found = find(owner, {"spec", "template"});
  Json copy = found == nullptr ? Json(JsonObject()) : *found;
  if (Json* labels = find_mutable(copy, {"metadata", "labels"})) {
    remove(*labels, {kHashLabel});
    if (labels->is_object() && labels->get_object().empty()) remove(copy, {"metadata", "labels"});
  }
  return to_canonical_text(copy);
}

std::int64_t replicas_of(const Json& object) {
  return get_int(object, {"spec", "replicas"}, 1);
}
std::int64_t count_of(const Json& object, std::string_view key) {
  return get_int(object, {"status", key});
}
std::int64_t revision_of(const Json& object) {
  return parse_int(kube::annotation(object, kRevision)).value_or(0);
}

class DeploymentController final : public Controller {
 public:
  explicit DeploymentController(Context& context)
      : context_(context),
        recorder_(context.client, "deployment-controller"),
        queue_(context.loop,
               [this](const std::string& key, auto finished) { sync(key, std::move(finished)); },
               {.workers = 8}) {}

  void start() override {
    context_.deployments.on_change([this](const Object&, const Object& now) {
      if (now) queue_.add(kube::object_key(*now));
    });
    context_.replica_sets.on_change([this](const Object& old, const Object& now) {
      for (const std::string& key : concerned(context_.deployments, kube::kDeployments, old, now))
        queue_.add(key);
    });
    // Recreate waits for the last old pod.
    context_.pods.on_change([this](const Object& old, const Object& now) {
      if (now) return;
      const Object set = controller_in(context_.replica_sets, *old);
      const Object owner = set ? controller_in(context_.deployments, *set) : nullptr;
      if (owner && get_string(*owner, {"spec", "strategy", "type"}) == "Recreate")
        queue_.add(kube::object_key(*owner));
    });
  }

 private:
  struct Sets {
    Object fresh;             // of the current template; null: there is none yet
    std::vector<Object> old;  // oldest first
    std::int64_t newest = 0;  // revision
  };

  Sets sets_of(const Json& deployment) {
    Sets out;
    const std::string wanted = template_text(deployment);
    for (const Object& set : context_.replica_sets.by_index("owner", kube::uid_of(deployment))) {
      out.newest = std::max(out.newest, revision_of(*set));
      if (!out.fresh && template_text(*set) == wanted) {
        out.fresh = set;
      } else {
        out.old.push_back(set);
      }
    }
    std::ranges::stable_sort(out.old, {}, [](const Object& set) { return revision_of(*set); });
    return out;
  }

  void sync(const std::string& key, std::function<void(bool)> finished) {
    const Object deployment = context_.deployments.get(key);
    if (!deployment || is_terminating(*deployment)) return finished(true);
    if (const Claims claims = claims_of(context_.replica_sets, *deployment); !claims.empty())
      return write_claims(context_, kube::kDeployments, *deployment, kube::kReplicaSets, claims,
                          std::move(finished));
    const Sets sets = sets_of(*deployment);
    Gather gather(context_.loop, std::move(finished));
    const bool paused = get_bool(*deployment, {"spec", "paused"});
    if (!paused) {
      if (get_string(*deployment, {"spec", "strategy", "type"}) == "Recreate") {
        recreate(*deployment, sets, gather);
      } else {
        roll(*deployment, sets, gather);
      }
      clean(*deployment, sets, gather);
    }
    write_status(key, *deployment, sets, gather);
    gather.close();
  }

  // How many pods more than wanted an update may have.
  static std::int64_t surge_of(const Json& deployment) {
    const std::int64_t wanted = replicas_of(deployment);
    if (get_string(deployment, {"spec", "strategy", "type"}) == "Recreate") return 0;
    return scaled_value(find(deployment, {"spec", "strategy", "rollingUpdate", "maxSurge"}), (wanted + 3) / 4,
                        wanted, true);
  }

  void roll(const Json& deployment, const Sets& sets, Gather& gather) {
    const std::int64_t wanted = replicas_of(deployment);
    const auto option = [&](std::string_view name) {
      return find(deployment, {"spec", "strategy", "rollingUpdate", name});
    };
    const std::int64_t surge = surge_of(deployment);
    std::int64_t most_down = scaled_value(option("maxUnavailable"), wanted / 4, wanted, false);
    if (surge == 0 && most_down == 0) most_down = 1;
    std::int64_t total = sets.fresh ? replicas_of(*sets.fresh) : 0;
    std::int64_t available = sets.fresh ? count_of(*sets.fresh, "availableReplicas") : 0;
    for (const Object& set : sets.old) {
      total += replicas_of(*set);
      available += count_of(*set, "availableReplicas");
    }
    // Up to wanted + surge in all.
    const std::int64_t now = sets.fresh ? replicas_of(*sets.fresh) : 0;
    std::int64_t target =
        now > wanted ? wanted : std::min(wanted, now + std::max<std::int64_t>(0, wanted + surge - total));
    if (!sets.fresh) {
      make(deployment, sets, target, gather);
    } else if (target != now) {
      scale(*sets.fresh, target, gather);
    }
    // Down as far as enough stay available; old pods that serve nobody go first.
    std::int64_t room = available - (wanted - most_down);
    for (const Object& set : sets.old) {
      const std::int64_t have = replicas_of(*set);
      const std::int64_t idle = std::max<std::int64_t>(0, have - count_of(*set, "availableReplicas"));
      const std::int64_t serving = have - idle;
      const std::int64_t less = idle + std::clamp<std::int64_t>(room, 0, serving);
      room -= less - idle;
      if (less > 0) scale(*set, have - less, gather);
    }
  }

  void recreate(const Json& deployment, const Sets& sets, Gather& gather) {
    bool busy = false;
    for (const Object& set : sets.old) {
      if (replicas_of(*set) > 0) scale(*set, 0, gather);
      busy = busy || replicas_of(*set) > 0 || !context_.pods.by_index("owner", kube::uid_of(*set)).empty();
    }
    if (busy) return;
    const std::int64_t wanted = replicas_of(deployment);
    if (!sets.fresh) {
      make(deployment, sets, wanted, gather);
    } else if (replicas_of(*sets.fresh) != wanted) {
      scale(*sets.fresh, wanted, gather);
    }
  }

  void make(const Json& deployment, const Sets& sets, std::int64_t replicas, Gather& gather) {
    const Json none = JsonObject();
    const Json* found = find(deployment, {"spec", "template"});
    Json pod_template = found == nullptr ? none : *found;
    const std::string hash = template_hash(pod_template, get_int(deployment, {"status", "collisionCount"}));
    set(pod_template, {"metadata", "labels", kHashLabel}, Json(hash));
    JsonObject metadata{{"name", str(kube::name_of(deployment)) + "-" + hash},
                        {"namespace", str(kube::namespace_of(deployment))}};
    metadata["labels"] = get_object(pod_template, {"metadata", "labels"});
    JsonObject annotations = get_object(deployment, {"metadata", "annotations"});
    annotations.erase("kubectl.kubernetes.io/last-applied-configuration");
    annotations[kRevision] = std::to_string(sets.newest + 1);
    annotations["deployment.kubernetes.io/max-replicas"] =
        std::to_string(replicas_of(deployment) + surge_of(deployment));
    annotations["deployment.kubernetes.io/desired-replicas"] = std::to_string(replicas_of(deployment));
    metadata["annotations"] = std::move(annotations);
    metadata["ownerReferences"] = JsonArray{kube::owner_reference(deployment)};
    JsonObject object{{"apiVersion", "apps/v1"}, {"kind", "ReplicaSet"}};
    object["metadata"] = std::move(metadata);
    Json spec = JsonObject{{"replicas", replicas}};
    if (const Json* seconds = find(deployment, {"spec", "minReadySeconds"}))
      set(spec, {"minReadySeconds"}, *seconds);
    if (const Json* selector = find(deployment, {"spec", "selector"})) set(spec, {"selector"}, *selector);
    set(spec, {"selector", "matchLabels", kHashLabel}, Json(hash));
    set(spec, {"template"}, std::move(pod_template));
    object["spec"] = std::move(spec);
    const std::string name = str(kube::name_of(deployment)) + "-" + hash;
    const auto done = gather.step();
    context_.client
        .create(kube::kReplicaSets, kube::namespace_of(deployment), object, {},
                [this, alive = std::weak_ptr(alive_), deployment, name, replicas,
                 done](kube::ApiResult<> result) {
                  if (alive.expired()) return;
                  if (result && replicas == 0) return done(true);
                  if (result) {
                    recorder_.event(
                        deployment, "Normal", "ScalingReplicaSet",
                        "Scaled up replica set " + name + " from 0 to " + std::to_string(replicas));
                    return done(true);
                  }
                  if (!result.error().already_exists()) return done(false);
                  look_at_taken_name(deployment, name, done);
                })
        .detach();
  }

  // The set is there. Ours, and the watch shows it soon; or one that will be ours as soon as it shows that
  // nobody owns it; another's calls for another hash.
  void look_at_taken_name(const Json& deployment, const std::string& name,
                          const std::function<void(bool)>& done) {
    context_.client
        .get(kube::kReplicaSets, kube::namespace_of(deployment), name,
             [this, alive = std::weak_ptr(alive_), deployment, done](kube::ApiResult<> result) {
               if (alive.expired()) return;
               if (!result) return done(false);
               const Json* owner = kube::controller_of(*result);
               if (owner == nullptr && !is_terminating(*result) && picks(deployment, *result))
                 return done(false);
               const bool ours = owner != nullptr && get_string(*owner, {"uid"}) == kube::uid_of(deployment);
               if (ours && template_text(*result) == template_text(deployment)) return done(true);
               patch_status(
                   context_, kube::kDeployments, deployment,
                   JsonObject{{"collisionCount", get_int(deployment, {"status", "collisionCount"}) + 1}},
                   done);
             })
        .detach();
  }

  void scale(const Json& set, std::int64_t replicas, Gather& gather) {
    JsonObject metadata{{"resourceVersion", str(get_string(set, {"metadata", "resourceVersion"}))}};
    JsonObject patch{{"spec", JsonObject{{"replicas", replicas}}}};
    patch["metadata"] = std::move(metadata);
    const std::int64_t before = replicas_of(set);
    const Object owner = controller_in(context_.deployments, set);
    if (owner) {
      recorder_.event(*owner, "Normal", "ScalingReplicaSet",
                      std::string("Scaled ") + (replicas > before ? "up" : "down") + " replica set " +
                          str(kube::name_of(set)) + " from " + std::to_string(before) + " to " +
                          std::to_string(replicas));
    }
    context_.client
        .patch(
            kube::kReplicaSets, kube::namespace_of(set), kube::name_of(set), kube::Patch::kMerge, patch, {},
            [done = gather.step()](kube::ApiResult<> result) { done(result || result.error().not_found()); })
        .detach();
  }

  // Keeps the current ReplicaSet's revision the highest, and drops history beyond its limit.
  void clean(const Json& deployment, const Sets& sets, Gather& gather) {
    if (sets.fresh && revision_of(*sets.fresh) < sets.newest) {
      annotate(kube::kReplicaSets, *sets.fresh, sets.newest + 1, gather);
    } else if (sets.fresh && carry_annotations(deployment, *sets.fresh, gather)) {
      // its next change brings us back
    } else if (sets.fresh && revision_of(deployment) != revision_of(*sets.fresh)) {
      annotate(kube::kDeployments, deployment, revision_of(*sets.fresh), gather);
    }
    std::vector<Object> empty;
    for (const Object& set : sets.old) {
      if (replicas_of(*set) == 0 && count_of(*set, "replicas") == 0 && !is_terminating(*set))
        empty.push_back(set);
    }
    const std::int64_t limit = get_int(deployment, {"spec", "revisionHistoryLimit"}, 10);
    for (std::int64_t i = 0; i < std::ssize(empty) - limit; ++i) {
      context_.client
          .remove(kube::kReplicaSets, kube::namespace_of(*empty[i]), kube::name_of(*empty[i]), {},
                  [done = gather.step()](kube::ApiResult<> result) {
                    done(result || result.error().not_found());
                  })
          .detach();
    }
  }

  // What is said of a deployment is said of its current set too, such as why it was changed.
  bool carry_annotations(const Json& deployment, const Json& set_now, Gather& gather) {
    Json patch = JsonObject();
    for (const auto& [key, value] : get_object(deployment, {"metadata", "annotations"})) {
      const std::string_view name = key;
      if (name.starts_with("deployment.kubernetes.io/") ||
          name == "kubectl.kubernetes.io/last-applied-configuration" ||
          name == "deprecated.deployment.rollback.to")
        continue;
      if (kube::annotation(set_now, name) != as_text(value))
        set(patch, {"metadata", "annotations", name}, value);
    }
    if (patch.get_object().empty()) return false;
    context_.client
        .patch(
            kube::kReplicaSets, kube::namespace_of(set_now), kube::name_of(set_now), kube::Patch::kMerge,
            patch, {},
            [done = gather.step()](kube::ApiResult<> result) { done(result || result.error().not_found()); })
        .detach();
    return true;
  }

  void annotate(const kube::Resource& type, const Json& object, std::int64_t revision, Gather& gather) {
    Json patch = JsonObject();
    set(patch, {"metadata", "annotations", kRevision}, Json(std::to_string(revision)));
    context_.client
        .patch(
            // With the status: a Deployment's annotations count for its generation elsewhere.
            type, kube::namespace_of(object), kube::name_of(object), kube::Patch::kMerge, patch,
            {.subresource = &type == &kube::kDeployments ? "status" : ""},
            [done = gather.step()](kube::ApiResult<> result) { done(result || result.error().not_found()); })
        .detach();
  }

  void write_status(const std::string& key, const Json& deployment, const Sets& sets, Gather& gather) {
    std::int64_t replicas = 0, ready = 0, available = 0, asked = 0;
    const auto add = [&](const Json& set) {
      asked += replicas_of(set);
      replicas += count_of(set, "replicas");
      ready += count_of(set, "readyReplicas");
      available += count_of(set, "availableReplicas");
    };
    for (const Object& set : sets.old) add(*set);
    if (sets.fresh) add(*sets.fresh);
    const std::int64_t updated = sets.fresh ? count_of(*sets.fresh, "replicas") : 0;
    const std::int64_t fresh_available = sets.fresh ? count_of(*sets.fresh, "availableReplicas") : 0;
    const std::int64_t wanted = replicas_of(deployment);
    const auto omitted_at_zero = [](std::int64_t count) { return count == 0 ? Json() : Json(count); };
    Json after = deployment;
    const std::string now = format_time(context_.loop.now());
    const std::int64_t most_down = scaled_value(
        find(deployment, {"spec", "strategy", "rollingUpdate", "maxUnavailable"}),
        get_string(deployment, {"spec", "strategy", "type"}) == "Recreate" ? 0 : wanted / 4, wanted, false);
    const bool paused = get_bool(deployment, {"spec", "paused"});
    if (paused) condition(after, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now);
    if (available >= wanted - most_down) {
      condition(after, "Available", "True", "MinimumReplicasAvailable",
                "Deployment has minimum availability.", now);
    } else {
      condition(after, "Available", "False", "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.", now);
    }
    const std::string name = sets.fresh ? str(kube::name_of(*sets.fresh)) : "";
    const bool complete =
        updated == wanted && replicas == wanted && fresh_available == wanted &&
        count_of(deployment, "observedGeneration") <= get_int(deployment, {"metadata", "generation"});
    const Json* progressing = kube::condition(deployment, "Progressing");
    const bool told = progressing != nullptr && get_string(*progressing, {"reason"}) == "DeploymentPaused";
    if (paused) {
      // said above
    } else if (told) {
      condition(after, "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed", now);
    } else if (complete) {
      condition(after, "Progressing", "True", "NewReplicaSetAvailable",
                "ReplicaSet \"" + name + "\" has successfully progressed.", now);
    } else {
      progress(key, deployment, after, name, updated, fresh_available, now);
    }
    JsonObject status{{"observedGeneration", get_int(deployment, {"metadata", "generation"})}};
    status["replicas"] = omitted_at_zero(replicas);
    status["updatedReplicas"] = omitted_at_zero(updated);
    status["readyReplicas"] = omitted_at_zero(ready);
    status["availableReplicas"] = omitted_at_zero(available);
    status["unavailableReplicas"] = omitted_at_zero(std::max<std::int64_t>(0, asked - available));
    status["conditions"] = get_array(after, {"status", "conditions"});
    patch_status(context_, kube::kDeployments, deployment, status, gather.step());
  }

  // Under way, or stuck for longer than progressDeadlineSeconds.
  void progress(const std::string& key, const Json& deployment, Json& after, const std::string& name,
                std::int64_t updated, std::int64_t available, const std::string& now) {
    const Duration deadline =
        std::chrono::seconds(get_int(deployment, {"spec", "progressDeadlineSeconds"}, 600));
    Progress& last = progress_[key];
    const auto generation = get_int(deployment, {"metadata", "generation"});
    if (last.generation != generation || last.updated != updated || last.available != available) {
      last = {generation, updated, available, context_.loop.elapsed()};
    }
    const Duration left = last.since + deadline - context_.loop.elapsed();
    if (left > Duration::zero()) {
      condition(after, "Progressing", "True", name.empty() ? "NewReplicaSetCreated" : "ReplicaSetUpdated",
                "ReplicaSet \"" + name + "\" is progressing.", now);
      queue_.add_after(key, left);
    } else {
      condition(after, "Progressing", "False", "ProgressDeadlineExceeded",
                "ReplicaSet \"" + name + "\" has timed out progressing.", now);
    }
  }

  static void condition(Json& object, std::string_view type, std::string_view status, std::string_view reason,
                        std::string_view message, const std::string& now) {
    if (!kube::set_condition(object, type, status, reason, message, now)) return;
    for (Json& entry : ensure(object, {"status", "conditions"}).get_array()) {
      if (get_string(entry, {"type"}) == type) set(entry, {"lastUpdateTime"}, Json(now));
    }
  }

  struct Progress {
    std::int64_t generation = -1, updated = 0, available = 0;
    Duration since{0};
  };

  Context& context_;
  kube::EventRecorder recorder_;
  std::map<std::string, Progress> progress_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  kube::WorkQueue queue_;
};

}  // namespace

std::unique_ptr<Controller> make_deployment_controller(Context& context) {
  return std::make_unique<DeploymentController>(context);
}

}  // namespace gpuop::cluster

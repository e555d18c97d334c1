// What the controllers share: the watched collections, and the pods that they made but have not seen yet.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "cluster/controllers/controllers.h"
#include "kube/events.h"
#include "kube/informer.h"
#include "kube/object.h"
#include "kube/work_queue.h"

namespace gpuop::cluster {

using Object = std::shared_ptr<const Json>;

class Controller {
 public:
  virtual ~Controller() = default;
  // All collections are in: handlers may be hung in and work may begin.
  virtual void start() = 0;
};

// A pod as an owner sees it.
struct OwnedPod {
  Object pod;
  bool terminating = false;
  bool expected = false;  // asked for, and not seen in the watch yet
};

struct Context;

// Creates and deletes pods, and remembers what it did until the watch shows it: an owner that counts its pods
// through here never makes one twice.
class PodControl {
 public:
  explicit PodControl(Context& context);
  ~PodControl();
  void start();
  // Pods whose controller has that uid, by name; those under way included.
  std::vector<OwnedPod> pods_of(std::string_view owner_uid);
  // `done(true)` when the server took it.
  void create(const Json& owner, Json pod, std::function<void(bool)> done);
  void remove(const Json& owner, const Json& pod, std::function<void(bool)> done);
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

struct Context {
  Context(Loop& loop, kube::Client& client, ControllerOptions options);

  std::vector<kube::Informer*> informers();
  // The followed collection of that type; null where none is.
  kube::Informer* informer_of(std::string_view group, std::string_view plural);

  Loop& loop;
  kube::Client& client;
  ControllerOptions options;

  kube::Informer pods;  // indices: "node", "owner" (controller's uid), "orphan" (claims.h)
  kube::Informer nodes;
  kube::Informer daemon_sets, revisions, deployments, replica_sets,
      jobs;  // indices "owner" and "orphan" of what is owned; "uid" and "selector" of what owns
  kube::Informer namespaces, service_accounts, root_cas;
  kube::Informer leases;  // of nodes
  PodControl pod_control{*this};
  std::shared_ptr<int> alive = std::make_shared<int>(0);  // answers that come after our end are dropped
};

// The object of `informer` (index "uid") that controls `object`; null when it is of another kind or unknown.
Object controller_in(const kube::Informer& informer, const Json& object);

// --- pods ---
bool is_terminating(const Json& object);
bool is_finished(const Json& pod);  // Succeeded or Failed
bool is_ready(const Json& pod);
// When the pod counts as available: it has been ready for `min_ready` then. nullopt while it is not ready.
std::optional<Time> available_at(const Json& pod, Duration min_ready);
// The node that the pod is on, or pinned to by its affinity (metadata.name In [node]).
std::string_view target_node(const Json& pod);
// A pod of `owner` from a template {metadata, spec}; generateName is the owner's name and "-".
Json pod_from_template(const Json& owner, const Json& pod_template);
// A template's hash, in the characters that names use.
std::string template_hash(const Json& pod_template, std::int64_t collisions);
// int or percent text against `total`.
std::int64_t scaled_value(const Json* value, std::int64_t fallback, std::int64_t total, bool round_up);

// Writes `status` (fields to set; null removes) as a merge patch of /status, only where it differs from the
// cached object. `done(false)` on an error that is worth a retry.
void patch_status(Context& context, const kube::Resource& type, const Json& object, const Json& status,
                  std::function<void(bool)> done);
// Counts several steps under way; `all` comes after the last, with false if any failed. Later, never inside.
class Gather {
 public:
  Gather(Loop& loop, std::function<void(bool)> all);
  std::function<void(bool)> step();
  // No more steps come.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

std::unique_ptr<Controller> make_scheduler(Context& context);
std::unique_ptr<Controller> make_daemon_set_controller(Context& context);
std::unique_ptr<Controller> make_replica_set_controller(Context& context);
std::unique_ptr<Controller> make_deployment_controller(Context& context);
std::unique_ptr<Controller> make_job_controller(Context& context);
std::unique_ptr<Controller> make_garbage_collector(Context& context);
std::unique_ptr<Controller> make_service_account_controller(Context& context);
std::unique_ptr<Controller> make_node_controller(Context& context);
std::unique_ptr<Controller> make_event_reaper(Context& context);
std::unique_ptr<Controller> make_disruption_controller(Context& context);
std::unique_ptr<Controller> make_endpoint_controller(Context& context);

}  // namespace gpuop::cluster

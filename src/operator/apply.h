// Brings objects into the cluster: creates what is missing, replaces what differs, deletes what must go, and
// writes nothing else (operator.md §3.2).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "operator/cache.h"
#include "operator/render.h"

namespace gpuop::op {

// What has to be written for `wanted` when `live` (null: absent) is there. Pure.
enum class Write { kNothing, kCreate, kReplace };
Write write_for(const Json& wanted, const Json* live);

// Every field of `wanted` has the same value in `live`; empty values of `wanted` may be absent there.
bool covers(const Json& live, const Json& wanted);

class Applier {
 public:
  Applier(kube::Client& client, ClusterCache& cache) : client_(client), cache_(cache) {}

  struct Report {
    std::map<std::string, std::string> errors;  // state name to its first error
    int writes = 0;
    bool raced = false;  // somebody was faster with an object: another pass is due
  };
  // Carries out `plan`: first what DaemonSets stand on, all at once, then the DaemonSets. A state whose
  // object is refused keeps its error and the others go on. One pass at a time; `done` is called once.
  void apply(const Plan& plan, std::string_view policy_uid, std::function<void(Report)> done);
  // The cache has seen a change of an object: what was remembered of our own write to it is dropped.
  void seen(const Json& object, bool gone);

 private:
  struct Pass;
  std::shared_ptr<const Json> live(const ObjectRef& ref) const;
  void write(const std::shared_ptr<Pass>& pass, const std::string& state, const Json& object);
  void remove(const std::shared_ptr<Pass>& pass, const std::string& state, const ObjectRef& ref, bool orphan);
  void sweep(const std::shared_ptr<Pass>& pass, const State& state, std::string_view policy_uid);
  void wave(const std::shared_ptr<Pass>& pass);

  kube::Client& client_;
  ClusterCache& cache_;
  // Answers to our own writes that the watch has not brought yet.
  std::map<ObjectRef, std::shared_ptr<const Json>> written_;
};

}  // namespace gpuop::op

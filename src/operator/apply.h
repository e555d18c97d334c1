// Brings objects into the cluster: creates what is missing, replaces what differs, deletes what must go, and
// writes nothing else (operator.md §3.2).
//
// What somebody else changes of an object, while what is wanted of it stays the same, is put back: at once,
// and after that not before ten minutes are over, so that nobody fights over it. What was put back is written
// down in an annotation of the object, and told until the object is next written for another reason: another
// operator tells the same, and who reads a policy's conditions next week still reads it. What the API server
// itself makes of our objects (its own spelling of quantities, a mutating webhook) is no such change.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kube/events.h"
#include "operator/cache.h"
#include "operator/drift.h"
#include "operator/render.h"

namespace gpuop::op {

// What has to be written for `wanted` when `live` (null: absent) is there. Pure.
enum class Write { kNothing, kCreate, kReplace };
Write write_for(const Json& wanted, const Json* live);

inline constexpr Duration kPutBackGap = 10min;
// When somebody's change of the object was last put back, and what it was: "2026-01-01T00:00:00Z
// spec.replicas was changed by field manager 'kubectl-edit'".
inline constexpr std::string_view kPutBackAnnotation = "nvidia.com/gpu-operator.put-back";

class Applier {
 public:
  Applier(kube::Client& client, ClusterCache& cache, kube::EventRecorder& events)
      : client_(client), cache_(cache), events_(events) {}

  struct Report {
    std::map<std::string, std::string> errors;  // state name to its first error
    int writes = 0;
    bool raced = false;  // somebody was faster with an object: another pass is due
    // One sentence for each of the policy's objects that somebody else changed.
    std::vector<std::string> changed_by_others;
    std::optional<Duration> again;  // when the first change that stays for now is to be put back
  };
  // Carries out `plan`: first what DaemonSets stand on, all at once, then the DaemonSets. A state whose
  // object is refused keeps its error and the others go on. One pass at a time; `done` is called once.
  void apply(const Plan& plan, std::string_view policy_uid, std::function<void(Report)> done);
  // The cache has seen a change of an object: what was remembered of our own write to it is dropped.
  void seen(const Json& object, bool gone);

 private:
  struct Pass;
  // What is known of an object beyond what the cache has.
  struct Kept {
    std::string wanted;                // the form that was last written, or found to be there
    bool known = false;                // since then every difference is somebody's doing
    std::vector<Difference> accepted;  // what the server made of that form
    std::int64_t in_line = 0;          // the version that was last found to be as it should
    std::optional<Duration> put_back;  // when somebody's change was last undone, by the loop's clock
    std::vector<Difference> standing;  // a change that stays until the ten minutes are over
    std::string stands;                // what is said of it
    std::string policy_uid;            // and where
  };
  struct Change {
    std::vector<Difference> found;
    std::string what;  // "spec.replicas was changed by field manager 'kubectl-edit'"
  };
  std::shared_ptr<const Json> live(const ObjectRef& ref) const;
  void write(const std::shared_ptr<Pass>& pass, const std::string& state, const Json& object);
  void send(const std::shared_ptr<Pass>& pass, const std::string& state, const Json& object, Json body,
            const Json* there, std::function<void(const Json& answer)> written);
  bool drifted(const std::shared_ptr<Pass>& pass, const ObjectRef& ref, const Json& object,
               const Json& there);
  std::optional<Duration> rest_of_gap(Kept& kept, const Json& there) const;
  void look_closer(const std::shared_ptr<Pass>& pass, const std::string& state, const ObjectRef& ref,
                   const Json& object);
  void put_back(const std::shared_ptr<Pass>& pass, const std::string& state, const ObjectRef& ref,
                const Json& object, const Json& there, const Change& change);
  void leave(const std::shared_ptr<Pass>& pass, const Json& object, const Json& there, Change change,
             Duration left);
  std::vector<std::string> told(std::string_view policy_uid) const;
  void finished(const std::shared_ptr<Pass>& pass);
  void remove(const std::shared_ptr<Pass>& pass, const std::string& state, const ObjectRef& ref, bool orphan);
  void sweep(const std::shared_ptr<Pass>& pass, const State& state, std::string_view policy_uid);
  void wave(const std::shared_ptr<Pass>& pass);

  kube::Client& client_;
  ClusterCache& cache_;
  kube::EventRecorder& events_;
  std::map<ObjectRef, Kept> kept_;
  // Answers to our own writes that the watch has not brought yet.
  std::map<ObjectRef, std::shared_ptr<const Json>> written_;
};

}  // namespace gpuop::op

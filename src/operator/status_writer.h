// Writes status.state and the conditions of ClusterPolicies, NVIDIADrivers and GPUClusters, where they
// differ.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "kube/client.h"
#include "kube/events.h"
#include "kube/work_queue.h"
#include "operator/cache.h"
#include "operator/status.h"

namespace gpuop::op {

class StatusWriter {
 public:
  StatusWriter(kube::Client& client, ClusterCache& cache, kube::EventRecorder& events);

  // What `object` (as the caller saw it) is to say from now on. Written on a later turn of the loop, where it
  // differs from what the object says: of the cache, or of our own last write where the cache has not seen
  // that yet, since nobody looks again when it comes. Writes of one object never overlap, a newer wish takes
  // the place of one that waits, and a write that failed is tried again with back-off, until it is done or
  // the object is gone. A new state is logged, and an event on the object; that of a failure only once it has
  // lasted ten seconds, since a start and a takeover meet servers that are not there yet. Words alone are
  // written every ten seconds at most, however many nodes come up meanwhile; and a ready object of whose
  // operands one is on its way again (a node joined, a label came back) says so only when it still is two
  // seconds later.
  void write(const kube::Resource& type, const Json& object, const Outcome& outcome,
             const StatusNotes& notes);

 private:
  struct Wish {
    kube::Resource type;
    std::string name, uid;
    std::int64_t generation = 0;  // that the outcome is about
    Outcome outcome;
    StatusNotes notes;
  };
  struct Entry {
    std::optional<Wish> wish;             // not written yet
    std::shared_ptr<const Json> written;  // the answer to the last write
    bool unsure = false;                  // a write failed that may have been carried out
    std::optional<Duration> sent;         // when it was last written (loop time)
    Handle warning;                       // the event of a failure that is not told yet
    std::optional<Duration> on_its_way;   // since when it is ready in the cluster and not any more
  };
  std::shared_ptr<const Json> live(Entry& entry) const;
  std::optional<Duration> hold(Entry& entry, const Json& present, const Json& wanted) const;
  void send(const std::string& key, std::function<void(bool ok)> done);
  void tell(Entry& entry, const Json& object, const Outcome& outcome);
  void sent(const std::string& key, const Wish& wish, const Json& before, kube::ApiResult<> result,
            const std::function<void(bool ok)>& done);

  kube::Client& client_;
  ClusterCache& cache_;
  kube::EventRecorder& events_;
  std::map<std::string, Entry> objects_;  // by kind and name
  kube::WorkQueue writes_;
};

}  // namespace gpuop::op

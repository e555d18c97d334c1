// A watched, cached collection (kubernetes-api.md §17.1, §17.2). Keeps only the declared fields of each
// object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "kube/client.h"

namespace gpuop::kube {

// "namespace/name", or "name" for cluster-scoped objects.
std::string object_key(const Json& object);
std::string object_key(std::string_view ns, std::string_view name);
std::pair<std::string, std::string> split_key(std::string_view key);  // (namespace, name)

struct InformerOptions {
  std::string ns;  // empty: all namespaces
  std::string label_selector;
  std::string field_selector;
  // Dotted paths that are kept beside apiVersion, kind,
  // metadata.{name,namespace,uid,resourceVersion,generation,
  // labels,annotations,ownerReferences,deletionTimestamp,creationTimestamp,finalizers}: "spec.nodeName",
  // "status.conditions". "*": the whole object but managedFields and last-applied-configuration. Single
  // annotations, their dots as "\\.", stand in place of all. "PATH!OTHER": where OTHER, kept too, is not.
  std::vector<std::string> keep;
  // Dotted paths that are left out all the same: "metadata.annotations" of a kind with many objects.
  std::vector<std::string> drop;
  // For kinds with very many objects: they are kept in a small form and made anew whenever they are asked
  // for, so that for_each() takes its time and no two answers are the same pointer.
  bool compact = false;
  // Lists come in pages, for kinds with large objects.
  bool paged = false;
  // One stream instead of list and watch. Unset: where the server is 1.34 or newer. Falls back by itself.
  std::optional<bool> watch_list;
};

// Old is null for an object that is new, now is null for one that is gone.
using Changed =
    std::function<void(const std::shared_ptr<const Json>& old, const std::shared_ptr<const Json>& now)>;

// Several informers at once: `ready` is called when all of them are synced.
class Informer;
void when_synced(const std::vector<Informer*>& informers, std::function<void()> ready);

class Informer {
 public:
  Informer(Client& client, Resource type, InformerOptions options);
  ~Informer();

  // Called after the cache changed; after a (re)list once for each difference, when the whole list is in.
  // What went away while the watch was down comes as a removal with the last state that was seen. A handler
  // may do anything, also destroy the informer. Handlers added later see the cache's content as additions, on
  // the next turn of the loop.
  void on_change(Changed handler);
  void start();
  // After the first complete list, never false again. `synced` is called once, after the handlers have heard
  // of all that was listed; on the next turn of the loop if it is so already.
  bool synced() const;
  void on_synced(std::function<void()> synced);

  std::shared_ptr<const Json> get(std::string_view key) const;  // nullptr when absent
  // In key order. Valid until the next event.
  void for_each(const std::function<void(const std::shared_ptr<const Json>&)>& visit) const;
  std::size_t size() const;
  // An index: `values` answers the index keys of an object. Declare before start().
  void add_index(std::string name, std::function<std::vector<std::string>(const Json&)> values);
  // The first `most` in key order.
  std::vector<std::shared_ptr<const Json>> by_index(std::string_view name, std::string_view value,
                                                    std::size_t most = SIZE_MAX) const;
  // The index keys that begin with `prefix`; costs as much as there are keys, not objects.
  std::vector<std::string> index_values(std::string_view name, std::string_view prefix) const;

  // How often the collection was listed whole, and watches opened: for tests and metrics.
  int lists() const;
  int watches() const;
  // The last fault, empty when the watch is up.
  const std::string& fault() const;
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::kube

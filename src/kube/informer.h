// A watched, cached collection (kubernetes-api.md §17.1, §17.2). Keeps only the declared fields of each
// object.
#pragma once

#include <functional>
#include <memory>
#include <string>
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
  // "status.conditions". "*": the whole object but managedFields and last-applied-configuration.
  std::vector<std::string> keep;
};

// Old is null for an object that is new, now is null for one that is gone.
using Changed =
    std::function<void(const std::shared_ptr<const Json>& old, const std::shared_ptr<const Json>& now)>;

class Informer {
 public:
  Informer(Client& client, Resource type, InformerOptions options);
  ~Informer();

  // Handlers added later see the cache's content as additions, on the next turn of the loop.
  void on_change(Changed handler);
  void start();
  // After the first complete list, never false again. `synced` is called once then (at once if it is so
  // already).
  bool synced() const;
  void on_synced(std::function<void()> synced);

  std::shared_ptr<const Json> get(std::string_view key) const;  // nullptr when absent
  // In key order. Valid until the next event.
  void for_each(const std::function<void(const std::shared_ptr<const Json>&)>& visit) const;
  std::size_t size() const;
  // An index: `values` answers the index keys of an object. Declare before start().
  void add_index(std::string name, std::function<std::vector<std::string>(const Json&)> values);
  std::vector<std::shared_ptr<const Json>> by_index(std::string_view name, std::string_view value) const;

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

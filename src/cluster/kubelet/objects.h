// ConfigMaps and Secrets that pods of this node refer to: each watched by name while somebody needs it, so
// that a change reaches volumes at once and nothing else of the cluster is read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/loop.h"
#include "kube/client.h"

namespace gpuop::cluster {

enum class ObjectKind { kConfigMap, kSecret };

struct ObjectView {
  bool known = false;                  // the API server has answered
  std::shared_ptr<const Json> object;  // null: there is none
};

struct ObjectRef {
  ObjectKind kind = ObjectKind::kConfigMap;
  std::string name;
  bool optional = false;
  bool operator==(const ObjectRef&) const = default;
};

class ObjectCache {
 public:
  explicit ObjectCache(kube::Client& client);
  ~ObjectCache();

  // Watches while the handle is held; `changed` is called, never from within watch(), when the object is
  // known, and on each change.
  Handle watch(ObjectKind kind, const std::string& ns, const std::string& name,
               std::function<void()> changed);
  ObjectView get(ObjectKind kind, const std::string& ns, const std::string& name) const;
  // Objects under watch.
  std::size_t size() const;
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster

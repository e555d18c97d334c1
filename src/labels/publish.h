// Where labels go: a features file of the NFD worker, standard output, or a NodeFeature object
// (device-plugin-gfd-mps.md §6.7).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"
#include "labels/decide.h"

namespace gpuop::labels {

// Writes the sorted lines atomically, only on a difference; an empty path means standard output.
Result<> write_features(const std::filesystem::path& file, const Labels& labels);
// Removes the file and the folder gfd-tmp that older releases left beside it.
void remove_features(const std::filesystem::path& file);

struct NodeFeatureTarget {
  std::string ns, node;
  std::string pod;  // empty: the object belongs to nobody
};

// The object as it should be; `owners` is a list of owner references, perhaps empty.
Json node_feature_object(const NodeFeatureTarget& target, const Labels& labels, JsonArray owners);
// Whether what is stored differs in anything that is ours: labels of the object, spec, owners.
bool node_feature_differs(const Json& stored, const Json& wanted);

// Keeps one NodeFeature object: gets it, creates it when missing, updates it only on a difference. Conflicts
// and faults that may pass are tried again, five times in all.
class NodeFeaturePublisher {
 public:
  NodeFeaturePublisher(kube::Client& client, NodeFeatureTarget target);
  ~NodeFeaturePublisher();  // cancels
  // One at a time; `done` is called on the loop.
  void publish(const Labels& labels, std::function<void(Result<>)> done);
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::labels

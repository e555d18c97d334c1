#include "labels/publish.h"

#include <unistd.h>

#include <cstdio>

#include "base/files.h"
#include "base/log.h"
#include "kube/object.h"
#include "kube/resource.h"

namespace gpuop::labels {
namespace {

constexpr int kTries = 5;
constexpr Duration kFirstBackoff = 100ms;

std::string object_name(const NodeFeatureTarget& target) {
  return "nvidia-features-for-" + target.node;
}

}  // namespace

Result<> write_features(const std::filesystem::path& file, const Labels& labels) {
  std::string text = features_text(labels);
  if (file.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return {};
  }
  TRY_IN(make_dirs(file.parent_path()), "write features file");
  TRY_IN(write_file_atomic(file, text, 0644), "write features file");
  return {};
}

void remove_features(const std::filesystem::path& file) {
  if (file.empty()) return;
  if (auto removed = remove_file(file); !removed) log::warn(removed.error().text());
  std::error_code ignored;
  fs::remove_all(file.parent_path() / "gfd-tmp", ignored);
}

Json node_feature_object(const NodeFeatureTarget& target, const Labels& labels, JsonArray owners) {
  JsonObject spec_labels;
  for (const auto& [key, value] : labels) spec_labels[key] = value;
  JsonObject features{{"attributes", JsonObject()}, {"flags", JsonObject()}, {"instances", JsonObject()}};
  JsonObject metadata{{"name", object_name(target)},
                      {"namespace", target.ns},
                      {"labels", JsonObject{{"nfd.node.kubernetes.io/node-name", target.node}}}};
  if (!owners.empty()) metadata["ownerReferences"] = std::move(owners);
  return JsonObject{
      {"apiVersion", kube::kNodeFeatures.api_version()},
      {"kind", kube::kNodeFeatures.kind},
      {"metadata", std::move(metadata)},
      {"spec", JsonObject{{"features", std::move(features)}, {"labels", std::move(spec_labels)}}}};
}

bool node_feature_differs(const Json& stored, const Json& wanted) {
  return get_object(stored, {"metadata", "labels"}) != get_object(wanted, {"metadata", "labels"}) ||
         get_object(stored, {"spec", "labels"}) != get_object(wanted, {"spec", "labels"}) ||
         get_object(stored, {"spec", "features"}) != get_object(wanted, {"spec", "features"}) ||
         get_array(stored, {"metadata", "ownerReferences"}) !=
             get_array(wanted, {"metadata", "ownerReferences"});
}

struct NodeFeaturePublisher::Impl {
  Impl(kube::Client& c, NodeFeatureTarget t) : client(c), target(std::move(t)) {}

  void publish(const Labels& wanted, std::function<void(Result<>)> when_done) {
    labels = wanted;
    done = std::move(when_done);
    tries = 0;
    backoff = kFirstBackoff;
    owners_known ? get() : find_owners();
  }

  // The pod and its DaemonSet own the object, so that it goes with them.
  void find_owners() {
    if (target.pod.empty()) {
      owners_known = true;
      return get();
    }
    call = client.get(kube::kPods, target.ns, target.pod, [this](kube::ApiResult<> pod) {
      // A server that is busy will know them later; without them the object would outlive its pod for good.
      if (!pod && pod.error().unavailable() && ++tries < kTries) {
        const Duration wait = pod.error().retry_after.value_or(backoff);
        backoff *= 2;
        call = client.loop().after(wait, [this] { find_owners(); });
        return;
      }
      owners_known = true;
      if (!pod) {
        log::warn("look for the owner of the labels: " + pod.error().message);
      } else if (const Json* set = kube::controller_of(*pod);
                 set && get_string(*set, {"kind"}) == "DaemonSet") {
        owners = JsonArray{*set, kube::owner_reference(*pod, false)};
      }
      get();
    });
  }

  void get() {
    ++tries;
    call = client.get(kube::kNodeFeatures, target.ns, object_name(target), [this](kube::ApiResult<> stored) {
      Json wanted = node_feature_object(target, labels, owners);
      if (!stored && stored.error().not_found()) return create(std::move(wanted));
      if (!stored) return failed("get", stored.error());
      if (!node_feature_differs(*stored, wanted)) return finish({});
      update(std::move(*stored), wanted);
    });
  }

  void create(Json wanted) {
    call = client.create(kube::kNodeFeatures, target.ns, wanted, {}, [this](kube::ApiResult<> created) {
      created ? finish({}) : failed("create", created.error());
    });
  }

  void update(Json stored, const Json& wanted) {
    set(stored, {"metadata", "labels"}, get_object(wanted, {"metadata", "labels"}));
    set(stored, {"metadata", "ownerReferences"}, get_array(wanted, {"metadata", "ownerReferences"}));
    set(stored, {"spec"}, get_object(wanted, {"spec"}));
    call = client.update(
        kube::kNodeFeatures, target.ns, object_name(target), stored, {},
        [this](kube::ApiResult<> updated) { updated ? finish({}) : failed("update", updated.error()); });
  }

  void failed(const char* what, const kube::ApiError& error) {
    bool passing = error.conflict() || error.already_exists() || error.unavailable();
    if (!passing || tries >= kTries) {
      return finish(fail(error.error(std::string(what) + " NodeFeature '" + object_name(target) + "'")));
    }
    Duration wait = error.retry_after.value_or(backoff);
    backoff *= 2;
    call = client.loop().after(wait, [this] { get(); });
  }

  void finish(Result<> how) {
    auto callback = std::exchange(done, nullptr);
    if (callback) callback(std::move(how));
  }

  kube::Client& client;
  NodeFeatureTarget target;
  Labels labels;
  JsonArray owners;
  bool owners_known = false;
  std::function<void(Result<>)> done;
  int tries = 0;
  Duration backoff = kFirstBackoff;
  Handle call;
};

NodeFeaturePublisher::NodeFeaturePublisher(kube::Client& client, NodeFeatureTarget target)
    : impl_(std::make_shared<Impl>(client, std::move(target))) {}
NodeFeaturePublisher::~NodeFeaturePublisher() {
  impl_->call.reset();
}

void NodeFeaturePublisher::publish(const Labels& labels, std::function<void(Result<>)> done) {
  impl_->publish(labels, std::move(done));
}

}  // namespace gpuop::labels

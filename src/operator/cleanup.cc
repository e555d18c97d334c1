#include "operator/cleanup.h"

#include "base/log.h"
#include "base/text.h"
#include "kube/informer.h"
#include "kube/object.h"
#include "operator/node_health.h"
#include "operator/node_labels.h"
#include "operator/refusals.h"
#include "operator/taints.h"

namespace gpuop::op {
namespace {

constexpr std::string_view kFeatures = "nfd.node.kubernetes.io/";
constexpr std::string_view kFeatureLabels = "nfd.node.kubernetes.io/feature-labels";
constexpr std::string_view kFeaturePrefix = "feature.node.kubernetes.io/";
constexpr int kTries = 5;

// The labels that feature discovery's master wrote down as its own.
void drop_features(const Json& node, Json& patch) {
  const auto& labels = get_object(node, {"metadata", "labels"});
  for (const auto& name : split(kube::annotation(node, kFeatureLabels), ',')) {
    const std::string key = name.find('/') == std::string::npos ? std::string(kFeaturePrefix) + name : name;
    if (labels.contains(key)) set(patch, {"metadata", "labels", key}, Json(nullptr));
  }
  for (const auto& [key, value] : get_object(node, {"metadata", "annotations"})) {
    if (std::string_view(key).starts_with(kFeatures))
      set(patch, {"metadata", "annotations", key}, Json(nullptr));
  }
}

Error refusal(const kube::ApiError& error, const std::string& doing) {
  const Error plain = error.error(doing);
  return Error(plain.code(), plain.text() + cure_of_refusal(error.message));
}

// The name of an object of this kind; "" when there is none, or no such kind.
Result<std::string> any_left(Loop& loop, kube::Client& client, const kube::Resource& type) {
  kube::ListOptions one;
  one.limit = 1;
  const auto list = kube::await(loop, [&](const auto& done) { return client.list(type, "", one, done); });
  if (!list && list.error().not_found()) return std::string();
  if (!list) return fail(refusal(list.error(), "list " + std::string(type.plural)));
  const auto& items = get_array(*list, {"items"});
  return items.empty() ? std::string() : std::string(kube::name_of(items.front()));
}

Result<> wait_for_operator(Loop& loop, kube::Client& client, const CleanupOptions& options) {
  kube::InformerOptions pods;
  pods.ns = options.ns;
  pods.label_selector = "app=gpu-operator";
  kube::Informer informer(client, kube::kPods, pods);
  informer.start();
  if (loop.run_until([&] { return informer.synced() && informer.size() == 0; }, options.limit)) return {};
  return fail(Code::kTimeout,
              "wait for the operator's end: " + (informer.fault().empty()
                                                     ? "its pods in namespace '" + options.ns + "' still run"
                                                     : informer.fault() + cure_of_refusal(informer.fault())));
}

Result<> clean(Loop& loop, kube::Client& client, Json node, const CleanupOptions& options) {
  const std::string name(kube::name_of(node));
  for (int i = 0; i < kTries; ++i) {
    const NodeCleanup change = decide_cleanup(node, options.features);
    const auto patch = [&](kube::Patch how, const Json& body, const std::string& subresource) {
      kube::WriteOptions write;
      write.subresource = subresource;
      return kube::await(loop, [&](const auto& done) {
        return client.patch(kube::kNodes, "", name, how, body, write, done);
      });
    };
    if (change.condition) {
      HealthChange gone;
      gone.act = HealthChange::Act::kRemove;
      const auto done = patch(kube::Patch::kStrategic, health_patch(gone, loop.now()), "status");
      if (!done && done.error().not_found()) return {};
      if (!done) return fail(refusal(done.error(), "clean node '" + name + "'"));
      // The condition's patch was a change of its own.
      node = *done;
      continue;
    }
    if (change.patch.get_object().empty()) return {};
    const auto done = patch(kube::Patch::kMerge, change.patch, "");
    if (done || done.error().not_found()) return {};
    if (!done.error().conflict()) return fail(refusal(done.error(), "clean node '" + name + "'"));
    auto again = kube::await(loop, [&](const auto& get) { return client.get(kube::kNodes, "", name, get); });
    if (!again && again.error().not_found()) return {};
    if (!again) return fail(refusal(again.error(), "read node '" + name + "'"));
    node = std::move(*again);
  }
  return fail(Code::kConflict, "clean node '" + name + "': somebody else keeps writing it");
}

}  // namespace

NodeCleanup decide_cleanup(const Json& node, bool features) {
  NodeCleanup out;
  const NodeChange change =
      decide_leave(get_object(node, {"metadata", "labels"}), get_object(node, {"metadata", "annotations"}));
  out.patch = node_patch(change);
  if (get_object(out.patch, {"metadata"}).empty()) out.patch = JsonObject{};
  const TaintChange taints = take_taints(node);
  if (!taints.empty()) add_taints(out.patch, taints, node);
  if (features) drop_features(node, out.patch);
  out.condition = kube::condition(node, kGpuReady) != nullptr;
  return out;
}

Result<bool> cleanup_nodes(Loop& loop, kube::Client& client, const CleanupOptions& options) {
  if (options.wait_for_operator) TRY(wait_for_operator(loop, client, options));
  for (const auto* type : {&kube::kClusterPolicies, &kube::kNvidiaDrivers}) {
    const std::string left = TRY(any_left(loop, client, *type));
    if (left.empty()) continue;
    log::info("the nodes keep their labels, for operands may still run",
              {{"kind", std::string(type->kind)}, {"name", left}});
    return false;
  }
  kube::ListOptions page;
  page.limit = 500;
  do {
    const auto list =
        kube::await(loop, [&](const auto& done) { return client.list(kube::kNodes, "", page, done); });
    if (!list) return fail(refusal(list.error(), "list nodes"));
    for (const auto& node : get_array(*list, {"items"})) TRY(clean(loop, client, node, options));
    page.continue_token = std::string(get_string(*list, {"metadata", "continue"}));
  } while (!page.continue_token.empty());
  return true;
}

}  // namespace gpuop::op

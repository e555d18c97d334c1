#include "fleet/manifests.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/files.h"
#include "base/text.h"
#include "base/yaml.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::fleet {
namespace {

constexpr Duration kLimit = 30s;

constexpr kube::Resource kPriorityClasses{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass",
                                          false};

std::span<const kube::Resource* const> known_types() {
  static const kube::Resource* const kAll[] = {&kube::kNamespaces,
                                               &kube::kServiceAccounts,
                                               &kube::kConfigMaps,
                                               &kube::kSecrets,
                                               &kube::kServices,
                                               &kube::kPods,
                                               &kube::kNodes,
                                               &kube::kDaemonSets,
                                               &kube::kDeployments,
                                               &kube::kJobs,
                                               &kube::kRoles,
                                               &kube::kRoleBindings,
                                               &kube::kClusterRoles,
                                               &kube::kClusterRoleBindings,
                                               &kube::kRuntimeClasses,
                                               &kube::kClusterPolicies,
                                               &kube::kNvidiaDrivers,
                                               &kube::kGpuClusters,
                                               &kube::kNodeFeatureRules,
                                               &kube::kNodeFeatures,
                                               &kPriorityClasses,
                                               &kube::kCustomResourceDefinitions};
  return kAll;
}

std::string title(const Json& object) {
  return std::string(get_string(object, {"kind"})) + " '" + std::string(kube::name_of(object)) + "'";
}

// Sends all of `objects` at once and waits for the answers.
Result<> send_all(Loop& loop, kube::Client& client, const std::vector<Json>& objects) {
  std::size_t open = 0;
  std::optional<Error> first;
  const auto failed = [&first](const kube::ApiError& error, const std::string& doing) {
    if (!first) first = error.error(doing);
  };
  std::vector<Handle> handles(objects.size());
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const Json& object = objects[i];
    const kube::Resource type = TRY(resource_of(object));
    const std::string ns(type.namespaced ? kube::namespace_of(object) : std::string_view());
    ++open;
    handles[i] = client.create(type, ns, object, {}, [&, i, type, ns](kube::ApiResult<> made) {
      if (made || !made.error().already_exists()) {
        if (!made) failed(made.error(), "create " + title(objects[i]));
        --open;
        return;
      }
      handles[i] = client.patch(type, ns, kube::name_of(objects[i]), kube::Patch::kMerge, objects[i], {},
                                [&, i](kube::ApiResult<> merged) {
                                  if (!merged) failed(merged.error(), "apply " + title(objects[i]));
                                  --open;
                                });
    });
  }
  loop.run_until([&open] { return open == 0; }, kLimit);
  if (first) return fail(std::move(*first));
  if (open > 0)
    return fail(Code::kTimeout, "apply manifests: no answer to " + std::to_string(open) + " requests");
  return {};
}

Result<> wait_established(Loop& loop, kube::Client& client, std::size_t wanted,
                          const std::vector<Json>& crds) {
  kube::InformerOptions keep;
  keep.keep = {"status.conditions"};
  kube::Informer informer(client, kube::kCustomResourceDefinitions, keep);
  informer.start();
  const auto established = [&] {
    std::size_t count = 0;
    for (const auto& crd : crds) {
      const auto live = informer.get(kube::name_of(crd));
      const Json* condition = live ? kube::condition(*live, "Established") : nullptr;
      count += condition && get_string(*condition, {"status"}) == "True";
    }
    return count == wanted;
  };
  if (loop.run_until(established, kLimit)) return {};
  return fail(Code::kTimeout, "wait for the custom resource definitions: not all are established");
}

}  // namespace

namespace {

// Deletes all of `objects` at once and waits until each is gone: a deleted object stays while somebody has
// still to let it go, which a watch of that one object tells. Each answer is waited for as well, or the
// request might still meet an object that is made next.
Result<> remove_some(Loop& loop, kube::Client& client, const std::vector<Json>& objects, Duration limit) {
  std::optional<Error> first;
  std::vector<std::unique_ptr<kube::Informer>> watches;
  std::vector<Handle> handles(objects.size());
  std::size_t answers = 0;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const kube::Resource type = TRY(resource_of(objects[i]));
    const std::string ns(type.namespaced ? kube::namespace_of(objects[i]) : std::string_view());
    handles[i] = client.remove(type, ns, kube::name_of(objects[i]), {.propagation = "Background"},
                               [&, i](kube::ApiResult<> removed) {
                                 ++answers;
                                 if (!removed && !removed.error().not_found() && !first)
                                   first = removed.error().error("delete " + title(objects[i]));
                               });
    kube::InformerOptions one;
    one.ns = ns;
    one.field_selector = "metadata.name=" + std::string(kube::name_of(objects[i]));
    watches.push_back(std::make_unique<kube::Informer>(client, type, one));
    watches.back()->start();
  }
  // A kind that is not served any more has no objects.
  const auto gone = [](const auto& watch) {
    return (watch->synced() && watch->size() == 0) ||
           watch->fault().find("could not find the requested resource") != std::string::npos;
  };
  const auto all_gone = [&] {
    return first || (answers == objects.size() && std::all_of(watches.begin(), watches.end(), gone));
  };
  if (!loop.run_until(all_gone, limit)) {
    const auto stays = std::find_if_not(watches.begin(), watches.end(), gone) - watches.begin();
    if (stays == std::ssize(watches)) return fail(Code::kTimeout, "delete: the API server does not answer");
    return fail(Code::kTimeout, "delete " + title(objects[static_cast<std::size_t>(stays)]) +
                                    ": it is not gone after " + format_go_duration(limit));
  }
  if (first) return fail(std::move(*first));
  return {};
}

}  // namespace

Result<> remove_all(Loop& loop, kube::Client& client, const std::vector<Json>& objects, Duration limit) {
  std::vector<Json> last;
  std::vector<Json> rest;
  for (const auto& object : objects) {
    const auto kind = get_string(object, {"kind"});
    (kind == "CustomResourceDefinition" || kind == "Namespace" ? last : rest).push_back(object);
  }
  TRY(remove_some(loop, client, rest, limit));
  return remove_some(loop, client, last, limit);
}

Result<kube::Resource> resource_of(const Json& object) {
  const std::string api_version(get_string(object, {"apiVersion"}));
  const std::string kind(get_string(object, {"kind"}));
  if (kind.empty())
    return fail(Code::kInvalid, "object '" + std::string(kube::name_of(object)) + "': kind: is missing");
  std::vector<std::string> kinds;
  const kube::Resource* other_version = nullptr;
  for (const kube::Resource* type : known_types()) {
    kinds.push_back(std::string(type->kind));
    if (type->kind != kind) continue;
    if (type->api_version() == api_version) return *type;
    other_version = type;
  }
  if (other_version) {
    return fail(Code::kInvalid,
                title(object) + ": apiVersion: must be " + other_version->api_version() +
                    (api_version.empty() ? "; it is missing" : "; got '" + api_version + "'"));
  }
  return fail(Code::kUnsupported, "apply " + title(object) + ": kind " + kind + " of '" + api_version +
                                      "' is not among those that an install holds" +
                                      did_you_mean(kind, kinds));
}

Result<> check_identity(const Json& object) {
  TRY(resource_of(object));
  if (kube::name_of(object).empty()) {
    return fail(Code::kInvalid, std::string(get_string(object, {"kind"})) + ": metadata.name: is missing");
  }
  return {};
}

Result<std::vector<Json>> load_manifests(const fs::path& dir) {
  std::vector<Json> out;
  for (const auto& name : TRY(list_dir(dir))) {
    if (!name.ends_with(".yaml")) continue;
    const fs::path file = dir / name;
    for (auto& document : TRY(parse_yaml(TRY(read_file(file)), file.string())))
      out.push_back(std::move(document.value));
  }
  return out;
}

Result<> apply_all(Loop& loop, kube::Client& client, const std::vector<Json>& objects) {
  std::vector<Json> crds;
  std::vector<Json> namespaces;
  std::vector<Json> rest;
  for (const auto& object : objects) {
    const auto kind = get_string(object, {"kind"});
    (kind == "CustomResourceDefinition" ? crds : kind == "Namespace" ? namespaces : rest).push_back(object);
  }
  crds.insert(crds.end(), namespaces.begin(), namespaces.end());
  TRY(send_all(loop, client, crds));
  crds.resize(crds.size() - namespaces.size());
  if (!crds.empty()) TRY(wait_established(loop, client, crds.size(), crds));
  return send_all(loop, client, rest);
}

Result<bool> apply_default_policy(Loop& loop, kube::Client& client, const std::vector<Json>& objects) {
  const auto policies =
      kube::await(loop, [&](const auto& done) { return client.list(kube::kClusterPolicies, "", {}, done); });
  if (!policies) return fail(policies.error().error("list ClusterPolicies"));
  if (!get_array(*policies, {"items"}).empty()) return false;
  TRY(apply_all(loop, client, objects));
  return true;
}

}  // namespace gpuop::fleet

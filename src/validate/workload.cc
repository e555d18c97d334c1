#include "validate/workload.h"

#include <algorithm>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::validate {
namespace {

struct Names {
  const char* app;
  const char* check;  // the init container
};
Names names_of(Workload which) {
  return which == Workload::kCuda ? Names{"nvidia-cuda-validator", "cuda-validation"}
                                  : Names{"nvidia-device-plugin-validator", "plugin-validation"};
}

Json container(const std::string& name, const WorkloadOptions& options, const std::string& script,
               Json security) {
  JsonObject out{{"name", name},
                 {"image", options.image},
                 {"command", JsonArray{"sh", "-c"}},
                 {"args", JsonArray{Json(script)}},
                 {"securityContext", std::move(security)}};
  if (!options.pull_policy.empty()) out["imagePullPolicy"] = options.pull_policy;
  return out;
}

// Why a pod is where it is, in a few words.
std::string pod_state(const Json& pod) {
  std::string text = "pod " + std::string(kube::name_of(pod)) + " is " +
                     std::string(get_string(pod, {"status", "phase"}, "not yet seen by the kubelet"));
  for (std::string_view list : {"initContainerStatuses", "containerStatuses"}) {
    for (const auto& status : get_array(pod, {"status", list})) {
      for (std::string_view state : {"waiting", "terminated"}) {
        const auto reason = get_string(status, {"state", state, "reason"});
        if (reason.empty() || reason == "Completed" || reason == "PodInitializing") continue;
        text += ": container " + std::string(get_string(status, {"name"})) + ": " + std::string(reason);
        if (const auto message = get_string(status, {"state", state, "message"}); !message.empty()) {
          text += ": " + std::string(message);
        }
        return text;
      }
    }
  }
  for (const auto& condition : get_array(pod, {"status", "conditions"})) {
    if (get_string(condition, {"type"}) == "PodScheduled" && get_string(condition, {"status"}) == "False") {
      text += ": " + std::string(get_string(condition, {"message"}));
    }
  }
  return text;
}

Result<> delete_earlier(Loop& loop, kube::Client& client, Workload which, const WorkloadOptions& options) {
  kube::ListOptions filter;
  filter.label_selector = "app=" + std::string(names_of(which).app);
  filter.field_selector = "spec.nodeName=" + options.node;
  const auto list = kube::await(
      loop, [&](auto done) { return client.list(kube::kPods, options.ns, filter, std::move(done)); });
  if (!list) return fail(list.error().error("list earlier validation pods"));
  kube::DeleteOptions how;
  how.propagation = "Background";
  how.grace_seconds = 0;
  for (const auto& pod : get_array(*list, {"items"})) {
    const auto gone = kube::await(loop, [&](const auto& done) {
      return client.remove(kube::kPods, options.ns, kube::name_of(pod), how, done);
    });
    if (!gone && !gone.error().not_found()) {
      return fail(
          gone.error().error("delete earlier validation pod '" + std::string(kube::name_of(pod)) + "'"));
    }
  }
  return {};
}

// Watches one object until `judge` answers, or until something else is true. `late` makes the message of
// what was seen last.
Result<> watch_until(
    Loop& loop, kube::Client& client, const kube::Resource& type, const std::string& ns,
    const std::string& name, Duration limit, const std::function<std::optional<Result<>>(const Json&)>& judge,
    const std::function<std::string(const Json*)>& late,
    const std::function<bool()>& otherwise = [] { return false; }) {
  kube::InformerOptions options;
  options.ns = ns;
  options.field_selector = "metadata.name=" + name;
  options.keep = {"spec", "status"};
  kube::Informer informer(client, type, options);
  std::optional<Result<>> verdict;
  std::shared_ptr<const Json> last;
  bool seen = false;
  informer.on_change([&](const auto&, const auto& now) {
    if (now) {
      seen = true;
      last = now;
      if (!verdict) verdict = judge(*now);
    } else if (seen && !verdict) {
      verdict = fail(Code::kUnavailable, "'" + name + "' was deleted meanwhile");
    }
  });
  informer.start();
  if (loop.run_until([&] { return verdict.has_value() || otherwise(); }, limit))
    return verdict ? std::move(*verdict) : Result<>();
  if (loop.stopped()) return fail(Code::kCancelled, "stopped");
  std::string text = late(last.get());
  if (!informer.fault().empty()) text += " (" + informer.fault() + ")";
  return fail(Code::kTimeout, text + "; waited " + format_go_duration(limit));
}

bool at_least_one(const Json& quantity) {
  const auto count = kube::parse_quantity(quantity);
  return count && *count >= 1;
}

}  // namespace

WorkloadOptions workload_options(std::string node, std::string ns) {
  WorkloadOptions options;
  options.node = std::move(node);
  options.ns = std::move(ns);
  options.image = env_or("VALIDATOR_IMAGE");
  options.pull_policy = env_or("VALIDATOR_IMAGE_PULL_POLICY");
  for (const auto& secret : split(env_or("VALIDATOR_IMAGE_PULL_SECRETS"), ',')) {
    if (const auto name = trim(secret); !name.empty()) options.pull_secrets.emplace_back(name);
  }
  options.runtime_class = env_or("VALIDATOR_RUNTIME_CLASS");
  options.proof_folder = env_or("VALIDATOR_PROOF_FOLDER");
  return options;
}

Json workload_pod(Workload which, const WorkloadOptions& options, const Json& owner,
                  std::string_view resource, std::string_view proof) {
  const auto [app, check] = names_of(which);
  const bool cuda = which == Workload::kCuda;
  JsonObject metadata{{"generateName", std::string(app) + "-"},
                      {"namespace", options.ns},
                      {"labels", JsonObject{{"app", app}}}};
  // The DaemonSet's own owners: were the pod owned by the DaemonSet, its controller would count and delete
  // it.
  if (const Json* owners = find(owner, {"metadata", "ownerReferences"}))
    metadata["ownerReferences"] = *owners;
  Json security =
      cuda ? Json(JsonObject{{"privileged", true}}) : Json(JsonObject{{"allowPrivilegeEscalation", false}});
  Json first = container(check, options, "vectorAdd", security);
  if (cuda) {
    metadata["annotations"] =
        JsonObject{{"nvidia.cdi.k8s.io/container.cuda-validation", "management.nvidia.com/gpu=all"}};
    set(first, {"env"}, JsonArray{JsonObject{{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "all"}}});
    if (!proof.empty()) {
      find_mutable(first, {"env"})
          ->as_array()
          .push_back(JsonObject{{"name", "VECTOR_ADD_PASSED_FILE"},
                                {"value", options.proof_folder + "/" + std::string(proof)}});
      set(first, {"volumeMounts"},
          JsonArray{JsonObject{{"name", "proof"}, {"mountPath", options.proof_folder}}});
    }
  } else {
    const JsonObject one{{resource, "1"}};
    set(first, {"resources"}, JsonObject{{"limits", one}, {"requests", one}});
  }
  security.get_object()["readOnlyRootFilesystem"] = true;
  const std::string script =
      std::string("echo ") +
      (cuda ? "cuda workload validation is successful" : "device-plugin workload validation is successful");
  JsonObject spec{{"restartPolicy", "OnFailure"},
                  {"serviceAccountName", "nvidia-operator-validator"},
                  {"nodeName", options.node},
                  {"initContainers", JsonArray{std::move(first)}},
                  {"containers", JsonArray{container(app, options, script, std::move(security))}}};
  if (const Json* tolerations = find(owner, {"spec", "template", "spec", "tolerations"}))
    spec["tolerations"] = *tolerations;
  if (cuda && !proof.empty())
    spec["volumes"] =
        JsonArray{JsonObject{{"name", "proof"}, {"hostPath", JsonObject{{"path", options.proof_folder}}}}};
  if (!options.runtime_class.empty()) spec["runtimeClassName"] = options.runtime_class;
  if (!options.pull_secrets.empty()) {
    JsonArray secrets;
    for (const auto& name : options.pull_secrets) secrets.push_back(JsonObject{{"name", name}});
    spec["imagePullSecrets"] = std::move(secrets);
  }
  return JsonObject{
      {"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(metadata)}, {"spec", std::move(spec)}};
}

Result<std::string> pick_resource(const Json& node) {
  std::vector<std::string> mig;
  std::vector<std::string> rest;
  for (const auto& [name, quantity] : get_object(node, {"status", "allocatable"})) {
    if (!is_gpu_resource(name) || !at_least_one(quantity)) continue;
    (std::string_view(name).starts_with("nvidia.com/mig-") ? mig : rest).emplace_back(name);
  }
  std::sort(mig.begin(), mig.end());
  std::sort(rest.begin(), rest.end());  // "nvidia.com/gpu" sorts before anything that continues it
  if (!mig.empty()) return mig.front();
  if (!rest.empty()) return rest.front();
  return fail(Code::kNotFound, "choose a GPU resource of node '" + std::string(kube::name_of(node)) +
                                   "': no allocatable nvidia.com/gpu or nvidia.com/mig-* resource");
}

bool check_passed(const Json& pod) {
  const JsonArray& checks = get_array(pod, {"status", "initContainerStatuses"});
  return !checks.empty() && std::ranges::all_of(checks, [](const Json& status) {
    return get_int(status, {"state", "terminated", "exitCode"}, -1) == 0;
  });
}

bool plugin_is_off(const Json& node) {
  return kube::label(node, "nvidia.com/gpu.deploy.device-plugin") == "false";
}

bool has_gpu_capacity(const Json& node) {
  for (const auto& [name, quantity] : get_object(node, {"status", "capacity"})) {
    if (is_gpu_resource(name) && at_least_one(quantity)) return true;
  }
  return false;
}

Result<> run_workload(Loop& loop, kube::Client& client, Workload which, const WorkloadOptions& options,
                      Duration limit) {
  if (options.image.empty()) return fail(Code::kInvalid, "run a validation pod: VALIDATOR_IMAGE is not set");
  std::string resource;
  if (which == Workload::kPlugin) {
    const auto node = kube::await(
        loop, [&](auto done) { return client.get(kube::kNodes, "", options.node, std::move(done)); });
    if (!node) return fail(node.error().error("read node '" + options.node + "'"));
    resource = TRY(pick_resource(*node));
  }
  const auto owner = kube::await(loop, [&](auto done) {
    return client.get(kube::kDaemonSets, options.ns, "nvidia-operator-validator", std::move(done));
  });
  if (!owner) return fail(owner.error().error("read DaemonSet 'nvidia-operator-validator'"));
  TRY(delete_earlier(loop, client, which, options));
  // No other pod's: an earlier one may still be about to write.
  std::string proof;
  if (which == Workload::kCuda && !options.proof_folder.empty())
    proof = ".cuda-passed-" + std::to_string(loop.now().time_since_epoch().count());
  const Json pod = workload_pod(which, options, *owner, resource, proof);
  const auto made = kube::await(
      loop, [&](auto done) { return client.create(kube::kPods, options.ns, pod, {}, std::move(done)); });
  if (!made) return fail(made.error().error("create validation pod"));
  const std::string name(kube::name_of(*made));
  log::info("validation pod created", {{"pod", name}});
  const fs::path file = fs::path(options.proof_folder) / proof;
  std::unique_ptr<DirWatch> written;
  if (!proof.empty()) written = TRY(DirWatch::create(loop, options.proof_folder, [] {}));
  const auto result = watch_until(
      loop, client, kube::kPods, options.ns, name, limit,
      [](const Json& now) -> std::optional<Result<>> {
        const auto phase = get_string(now, {"status", "phase"});
        if (phase == "Succeeded" || check_passed(now)) return Result<>();
        if (phase == "Failed") return fail(Code::kUnavailable, pod_state(now));
        return std::nullopt;
      },
      [&](const Json* last) { return last ? pod_state(*last) : "pod " + name + " was never seen"; },
      [&] { return !proof.empty() && file_exists(file); });
  if (!proof.empty()) TRY(remove_file(file));
  return result;
}

Result<bool> wait_for_capacity(Loop& loop, kube::Client& client, const std::string& node, Duration limit,
                               const std::optional<KubeletFolders>& kubelet, Duration interval) {
  std::string told;
  bool off = false;
  std::unique_ptr<KubeletDevices> devices;
  if (kubelet) {
    devices = TRY(
        KubeletDevices::create(loop, *kubelet, interval, [&told](const std::string& what) { told = what; }));
  }
  TRY(watch_until(
      loop, client, kube::kNodes, "", node, limit,
      [&off](const Json& now) -> std::optional<Result<>> {
        off = plugin_is_off(now);
        if (off || has_gpu_capacity(now)) return Result<>();
        return std::nullopt;
      },
      [&](const Json* last) {
        return last ? "node '" + node +
                          "' shows no capacity of nvidia.com/gpu* or nvidia.com/mig-*: the device plugin has "
                          "not registered"
                    : "node '" + node + "' was not found";
      },
      [&told] { return !told.empty(); }));
  if (off) return false;
  if (told.empty())
    log::info("the node has GPUs", {{"evidence", "the node's status"}});
  else
    log::info("the node has GPUs", {{"evidence", "the kubelet's device manager"}, {"devices", told}});
  return true;
}

}  // namespace gpuop::validate

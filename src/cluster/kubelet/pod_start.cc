// How one container starts: environment, image, devices, then the runtime. Each step may take a turn of the
// loop and is left at once when the pod ends meanwhile.
#include <algorithm>

#include "base/files.h"
#include "base/text.h"
#include "cluster/kubelet/pod_worker_inl.h"
#include "cluster/kubelet/volume_files.h"
#include "kube/object.h"

namespace gpuop::cluster {

namespace {

// An image without a tag or with :latest is pulled every time unless the pod says otherwise.
bool is_latest(const std::string& image) {
  if (image.find('@') != std::string::npos) return false;
  const std::size_t colon = image.rfind(':');
  if (colon == std::string::npos || image.find('/', colon) != std::string::npos) return true;
  return image.substr(colon + 1) == "latest";
}

std::string pull_policy(const Json& spec, const std::string& image) {
  std::string policy = str(get_string(spec, {"imagePullPolicy"}));
  if (!policy.empty()) return policy;
  return is_latest(image) ? "Always" : "IfNotPresent";
}

std::vector<std::string> expanded(const JsonArray& words, const std::map<std::string, std::string>& env) {
  std::vector<std::string> out;
  for (const Json& word : words) out.push_back(expand(as_text(word), env));
  return out;
}

}  // namespace

bool PodWorker::should_start(const Container& container) const {
  if (!container.current) return true;
  if (container.current->state != ContainerState::kExited) return false;
  if (container.kind == ContainerKind::kSidecar) return true;
  const std::string rule = policy();
  if (is_past(container) && !(rule == "OnFailure" && container.kind == ContainerKind::kApp))
    return rule != "Never";
  if (container.kind == ContainerKind::kInit) return container.current->exit_code != 0 && rule != "Never";
  if (rule == "Never") return false;
  return rule == "Always" || container.current->exit_code != 0;
}

void PodWorker::try_start(Container& container) {
  if (container.busy || container.stopping || !context_.runtime_available) return;
  const Time now = context_.loop.now();
  if (container.not_before > now) {
    if (container.waiting_reason == "ErrImagePull" && !patching_) {
      const std::string image = str(get_string(spec_of(container.name), {"image"}));
      container.waiting_reason = "ImagePullBackOff";
      container.waiting_message =
          "Back-off pulling image \"" + image + "\": ErrImagePull: " + container.waiting_message;
      event("Normal", "BackOff", "Back-off pulling image \"" + image + "\"");
      event("Warning", "Failed", "Error: ImagePullBackOff");
    }
    if (!container.timer) {
      container.timer = context_.loop.after(container.not_before - now, [this, &container] {
        container.timer.reset();
        schedule_sync();
      });
    }
    return;
  }
  container.timer.reset();
  begin_start(container);
}

void PodWorker::begin_start(Container& container) {
  const Json& spec = spec_of(container.name);
  const auto objects = env_objects(spec);
  if (!container.watching) {
    container.watching = true;
    for (const ObjectRef& object : objects) {
      container.watches.push_back(context_.objects.watch(object.kind, ns_, object.name, [this, &container] {
        if (container.waiting_reason == "CreateContainerConfigError") {
          container.not_before = {};
          container.timer.reset();
        }
        schedule_sync();
      }));
    }
  }
  for (const ObjectRef& object : objects) {
    if (!context_.objects.get(object.kind, ns_, object.name).known) return;  // its watch calls
  }
  const EnvFacts env_facts{*pod_, spec, context_.node, [this](ObjectKind kind, const std::string& name) {
                             return context_.objects.get(kind, ns_, name);
                           }};
  auto env = build_env(env_facts);
  if (!env) {
    return start_failed(container, "CreateContainerConfigError", env.error().text(),
                        container.start_backoff.next());
  }
  container.env = device_env(container.name);
  for (auto& [name, value] : *env) container.env[name] = std::move(value);
  container.busy = true;
  start_image(container, spec);
}

// What device plugins set; the pod's own variables win over it.
std::map<std::string, std::string> PodWorker::device_env(const std::string& name) const {
  std::map<std::string, std::string> out;
  for (const DeviceGrant* grant : context_.devices.grants(uid_, name)) {
    out.insert(grant->answer.envs.begin(), grant->answer.envs.end());
  }
  return out;
}

void PodWorker::start_image(Container& container, const Json& spec) {
  const std::string image = str(get_string(spec, {"image"}));
  if (pull_policy(spec, image) == "Always") return pull(container, image);
  context_.runtime.ensure_image(image, false, safe([this, &container, image](Result<std::string> id) {
                                  image_answered(container, image, false, std::move(id));
                                }));
}

void PodWorker::pull(Container& container, const std::string& image) {
  event("Normal", "Pulling", "Pulling image \"" + image + "\"");
  container.pull_began = context_.loop.elapsed();
  context_.runtime.ensure_image(image, true, safe([this, &container, image](Result<std::string> id) {
                                  image_answered(container, image, true, std::move(id));
                                }));
}

void PodWorker::image_answered(Container& container, const std::string& image, bool pulled,
                               Result<std::string> id) {
  if (id) {
    container.image_id = *id;
    container.image_backoff.reset();
    const std::string took = pulled ? format_go_duration(std::chrono::round<std::chrono::milliseconds>(
                                          context_.loop.elapsed() - container.pull_began))
                                    : "";
    event("Normal", "Pulled",
          pulled
              ? "Successfully pulled image \"" + image + "\" in " + took + " (" + took + " including waiting)"
              : "Container image \"" + image + "\" already present on machine");
    return start_devices(container);
  }
  const std::string why = id.error().text();
  if (id.error().code() == Code::kUnavailable) {
    return start_failed(container, "", why, container.start_backoff.next());
  }
  if (id.error().code() == Code::kInvalid) {
    const std::string message = "Failed to apply default image tag \"" + image + "\": " + why;
    event("Warning", "InspectFailed", message);
    return start_failed(container, "InvalidImageName", message, container.image_backoff.next());
  }
  if (!pulled && id.error().code() == Code::kNotFound) {
    if (pull_policy(spec_of(container.name), image) != "Never") return pull(container, image);
    const std::string message = "Container image \"" + image + "\" is not present with pull policy of Never";
    event("Warning", "ErrImageNeverPull", message);
    return start_failed(container, "ErrImageNeverPull", message, container.image_backoff.next());
  }
  event("Warning", "Failed", "Failed to pull image \"" + image + "\": " + why);
  start_failed(container, "ErrImagePull", why, container.image_backoff.next());
}

void PodWorker::start_devices(Container& container) {
  context_.devices.pre_start(uid_, container.name, safe([this, &container](const Result<>& how) {
                               if (how) return start_run(container);
                               start_failed(container, "PreStartContainerError", how.error().text(),
                                            container.start_backoff.next());
                             }));
}

void PodWorker::start_run(Container& container) {
  if (ending() || finished_ || !sandbox_ready_) {
    container.busy = false;
    return schedule_sync();
  }
  auto spec = container_spec(container, spec_of(container.name));
  if (!spec) {
    return start_failed(container, "CreateContainerConfigError", spec.error().text(),
                        container.start_backoff.next());
  }
  context_.runtime.start_container(*spec, safe([this, &container, spec = *spec](Result<std::string> id) {
    start_answered(container, spec, std::move(id));
  }));
}

Result<ContainerSpec> PodWorker::container_spec(const Container& container, const Json& spec) {
  ContainerSpec out;
  out.pod_uid = uid_;
  out.name = container.name;
  out.attempt = container.current ? container.current->attempt + 1 : 0;
  out.init = container.kind != ContainerKind::kApp;
  out.image = str(get_string(spec, {"image"}));
  out.command = expanded(get_array(spec, {"command"}), container.env);
  out.args = expanded(get_array(spec, {"args"}), container.env);
  for (const auto& [name, value] : container.env) out.env.push_back(name + "=" + value);
  out.working_dir = str(get_string(spec, {"workingDir"}));
  out.mounts = TRY(volumes_->mounts(spec, container.env));
  add_devices(out);
  out.privileged = get_bool(spec, {"securityContext", "privileged"});
  out.read_only_rootfs = get_bool(spec, {"securityContext", "readOnlyRootFilesystem"});
  for (const Json* holder : {&spec, gpuop::find(*pod_, {"spec"})}) {
    if (!out.run_as_user && holder != nullptr && has(*holder, {"securityContext", "runAsUser"})) {
      out.run_as_user = get_int(*holder, {"securityContext", "runAsUser"});
    }
  }
  out.termination_message_path = str(get_string(spec, {"terminationMessagePath"}, "/dev/termination-log"));
  if (context_.on_disk()) {
    out.log_path = log_path(out.name, out.attempt).string();
    out.termination_log = termination_path(out.name, out.attempt).string();
    TRY(make_dirs(log_path(out.name, out.attempt).parent_path()));
    TRY(make_dirs(std::filesystem::path(out.termination_log).parent_path()));
    TRY(write_lightly(out.termination_log, "", 0666));
    TRY(add_hosts_file(out, spec));
  }
  return out;
}

void PodWorker::add_devices(ContainerSpec& out) const {
  for (const DeviceGrant* grant : context_.devices.grants(uid_, out.name)) {
    const DeviceAnswer& answer = grant->answer;
    out.mounts.insert(out.mounts.end(), answer.mounts.begin(), answer.mounts.end());
    out.devices.insert(out.devices.end(), answer.devices.begin(), answer.devices.end());
    out.cdi_devices.insert(out.cdi_devices.end(), answer.cdi_devices.begin(), answer.cdi_devices.end());
    out.annotations.insert(answer.annotations.begin(), answer.annotations.end());
  }
}

// /etc/hosts, unless the container mounts its own.
Result<> PodWorker::add_hosts_file(ContainerSpec& out, const Json&) {
  for (const RuntimeMount& mount : out.mounts) {
    if (mount.container_path == "/etc/hosts" || mount.container_path == "/etc") return {};
  }
  std::string text =
      "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
  if (!get_bool(*pod_, {"spec", "hostNetwork"})) {
    text += context_.node.node_ip + "\t" + str(get_string(*pod_, {"spec", "hostname"}, name_)) + "\n";
  }
  for (const Json& alias : get_array(*pod_, {"spec", "hostAliases"})) {
    text += str(get_string(alias, {"ip"}));
    for (const Json& name : get_array(alias, {"hostnames"})) text += "\t" + str(as_text(name));
    text += "\n";
  }
  const auto path = context_.pod_dir(uid_) / "etc-hosts";
  TRY(write_lightly(context_.here(path), text, 0644));
  out.mounts.push_back({path.string(), "/etc/hosts", false, Propagation::kPrivate});
  return {};
}

void PodWorker::start_failed(Container& container, const std::string& reason, const std::string& message,
                             Duration delay) {
  container.busy = false;
  container.not_before = context_.loop.now() + delay;
  container.timer.reset();
  if (!reason.empty()) {
    if (container.waiting_reason != reason || container.waiting_message != message) {
      event("Warning", "Failed", "Error: " + (reason.find("Image") == std::string::npos ? message : reason));
    }
    container.waiting_reason = reason;
    container.waiting_message = message;
  }
  schedule_sync();
}

void PodWorker::start_answered(Container& container, const ContainerSpec& spec, Result<std::string> id) {
  if (!id) {
    const Code code = id.error().code();
    if (code == Code::kUnavailable) {
      return start_failed(container, "", id.error().text(), container.start_backoff.next());
    }
    const std::string& text = id.error().text();
    // A runtime that lost its sandboxes makes this one again.
    if (code == Code::kNotFound && text.find("sandbox") != std::string::npos) lose_sandbox();
    // What is refused before the container's process is made is an error of making it.
    const bool making = (code == Code::kInvalid || code == Code::kNotFound || code == Code::kPermission) &&
                        text.find("failed to create containerd task") == std::string::npos;
    return start_failed(container, making ? "CreateContainerError" : "RunContainerError", text,
                        container.start_backoff.next());
  }
  container.busy = false;
  container.start_backoff.reset();
  // The runtime's own news of this attempt may have come first, its end even.
  if (!container.current || container.current->attempt < spec.attempt) {
    ContainerInfo info;
    info.id = *id;
    info.pod_uid = uid_;
    info.name = container.name;
    info.attempt = spec.attempt;
    info.init = spec.init;
    info.image = spec.image;
    info.image_id = container.image_id;
    info.state = ContainerState::kRunning;
    info.started = context_.loop.now();
    container_changed(info);
  }
  event("Normal", "Created", "Created container: " + container.name);
  event("Normal", "Started", "Started container " + container.name);
  schedule_sync();
}

void PodWorker::container_changed(const ContainerInfo& info) {
  Container* container = find(info.name);
  if (container == nullptr || stopped_ || over_) return;
  // One that is only made may yet be forgotten by its runtime: it counts when it runs.
  if (info.state == ContainerState::kCreated) return;
  if (container->current && info.attempt < container->current->attempt) return;
  const bool fresh = !container->current || info.attempt > container->current->attempt;
  if (!fresh && container->current->state == ContainerState::kExited) return;
  if (fresh) {
    if (container->last) drop_attempt(*container->last);
    container->last = std::exchange(container->current, std::nullopt);
    container->last_termination_message = std::exchange(container->termination_message, {});
    container->hook_done = false;
    container->was_started = container->was_ready = false;
  }
  const bool was_running = is_running(*container);
  const Time begun = was_running ? container->current->started : info.started;
  container->current = info;
  container->current->started = begun;
  if (!info.image_id.empty()) container->image_id = info.image_id;
  if (info.state == ContainerState::kRunning && !was_running) started(*container);
  if (info.state == ContainerState::kExited) exited(*container);
  schedule_sync();
}

void PodWorker::started(Container& container) {
  container.waiting_reason.clear();
  container.waiting_message.clear();
  const Json* hook = gpuop::find(spec_of(container.name), {"lifecycle", "postStart"});
  if (hook == nullptr || !hook->is_object()) {
    container.hook_done = true;
    return begin_probes(container);
  }
  container.hook =
      run_action(context_, *hook, spec_of(container.name), container.current->id, std::chrono::hours(1),
                 [this, &container](Result<> how) {
                   container.hook_done = true;
                   if (!is_running(container)) return;
                   if (!how) {
                     event("Warning", "FailedPostStartHook", "PostStartHook failed: " + how.error().text());
                     stop_container(container, grace_period());
                   } else {
                     begin_probes(container);
                   }
                   schedule_sync();
                 });
}

void PodWorker::begin_probes(Container& container) {
  ProberEvents events;
  events.changed = safe([this] { schedule_sync(); });
  events.failed = safe([this](const std::string& kind, const std::string& how, const std::string& why) {
    event("Warning", "Unhealthy", kind + " probe " + how + ": " + why);
  });
  events.restart = safe([this, &container](const std::string& kind) { restart_for(container, kind); });
  container.prober = std::make_unique<Prober>(context_, pod_, spec_of(container.name), container.current->id,
                                              container.current->started, container.was_started,
                                              container.was_ready, events);
}

}  // namespace gpuop::cluster

// What differs where a container's image is the operator's own: roles of gpu-node are called directly and
// wait for their gates by events, so shell loops, entry point scripts and probe delays go (architecture §7).
#include <algorithm>
#include <array>
#include <limits>

#include "hardware/validation_note.h"
#include "operator/pod.h"
#include "operator/shape.h"
#include "operator/wake.h"

namespace gpuop::op {

namespace {

struct Entry {
  std::string_view container;
  std::array<std::string_view, 2> command;  // the second may be empty
  std::string_view script_volume;           // the ConfigMap with an entry point script, no longer mounted
  bool needs_driver = false;                // upstream's image has NVIDIA_VISIBLE_DEVICES=all built in
};

constexpr Entry kEntries[] = {
    {"nvidia-container-toolkit-ctr", {"nvidia-toolkit"}, "nvidia-container-toolkit-entrypoint"},
    {"nvidia-device-plugin", {"nvidia-device-plugin"}, "nvidia-device-plugin-entrypoint", true},
    {"nvidia-mig-manager", {"nvidia-mig-manager"}, "nvidia-mig-manager-entrypoint", true},
    {"gpu-feature-discovery", {"gpu-feature-discovery"}, "", true},
    {"nvidia-dcgm-exporter", {"dcgm-exporter"}, "", true},
    {"nvidia-dcgm-ctr", {"nv-hostengine"}, "", true},
    {"mps-control-daemon-ctr", {"mps-control-daemon"}, "", true},
    {"nvidia-operator-validator", {"gpu-node", "pause"}, ""},
    {"nvidia-sandbox-validator", {"gpu-node", "pause"}, ""},
    {"nvidia-node-status-exporter", {"nvidia-validator"}, ""},
};

constexpr std::string_view kGates = "/run/nvidia/validations/";
constexpr std::string_view kToolkitConfigured = ".toolkit-configured";
// How long one try of a probe that waits may take.
constexpr int kProbeSeconds = 3600;

void set_command(Json& container, std::initializer_list<std::string_view> words) {
  JsonArray command;
  for (std::string_view word : words)
    if (!word.empty()) command.emplace_back(word);
  set(container, {"command"}, std::move(command));
}

bool is_shell(const Json& container) {
  const JsonArray& command = get_array(container, {"command"});
  return command.size() == 2 && as_text(command[1]) == "-c";
}

std::string_view first_arg(const Json& container) {
  const JsonArray& args = get_array(container, {"args"});
  return args.empty() ? std::string_view{} : as_text(args[0]);
}

// The files that a script of the form "until [ -f FILE ] …; do … done" waits for, and on what condition.
struct Gate {
  std::vector<std::string> files;
  bool any = false;
  std::string condition;  // "FILE=TEXT": only where the first file says so
};

std::string between(std::string_view text, std::string_view start, std::string_view end) {
  const auto at = text.find(start);
  if (at == std::string_view::npos) return "";
  text.remove_prefix(at + start.size());
  return std::string(text.substr(0, text.find(end)));
}

std::optional<Gate> gate_of(std::string_view script) {
  if (!script.starts_with("until [ -f ")) return std::nullopt;
  Gate gate;
  gate.any = script.contains("] || [ -f ");
  for (auto at = script.find("[ -f "); at != std::string_view::npos; at = script.find("[ -f ", at + 1))
    gate.files.push_back(between(script.substr(at), "[ -f ", " "));
  // Where the text of the first file decides whether the next is waited for at all.
  if (const std::string text = between(script, ")\" != \"", "\""); !text.empty() && gate.files.size() == 2) {
    gate.condition = gate.files.front() + "=" + text;
    gate.files.erase(gate.files.begin());
  }
  return gate;
}

void shape_init(Json& container) {
  if (!is_shell(container)) return;
  std::string_view script = first_arg(container);
  if (script == "nvidia-validator") {
    set_command(container, {"nvidia-validator"});
    remove(container, {"args"});
  } else if (const auto gate = gate_of(script)) {
    JsonArray command{"gpu-node", "wait-for"};
    if (gate->any) command.emplace_back("--any");
    if (!gate->condition.empty()) command.emplace_back("--if=" + gate->condition);
    for (const std::string& file : gate->files) command.emplace_back(file);
    set(container, {"command"}, std::move(command));
    remove(container, {"args"});
  }
}

void quicken(Json& container, std::string_view probe) {
  if (!has(container, {probe})) return;
  remove(container, {probe, "initialDelaySeconds"});
  if (probe == "readinessProbe") set(container, {probe, "periodSeconds"}, 1);
}

void ensure_host_mount(Json& pod, Json& container, std::string_view volume, std::string_view path,
                       std::string_view type, std::string_view at, bool read_only) {
  for (const Json& mount : get_array(container, {"volumeMounts"}))
    if (get_string(mount, {"mountPath"}) == at) return;
  if (!find_volume(pod, volume)) add_volume(pod, host_path_volume(volume, path, type));
  JsonObject mount{{"name", volume}, {"mountPath", at}};
  if (read_only) mount["readOnly"] = true;
  mount["mountPropagation"] = "HostToContainer";
  add_mount(container, std::move(mount));
}

// Roles find the driver beneath the root that driver-ready names, whatever the runtime injects.
void see_driver(const View& view, Json& pod, Json& container) {
  if (!has_env(container, "NVIDIA_VISIBLE_DEVICES")) set_env(container, "NVIDIA_VISIBLE_DEVICES", "all");
  if (!has_env(container, "NVIDIA_DRIVER_CAPABILITIES"))
    set_env(container, "NVIDIA_DRIVER_CAPABILITIES", "all");
  const policy::HostPaths& paths = view.spec.host_paths;
  std::string root = paths.root_fs.empty() ? "/" : paths.root_fs;
  std::string driver = paths.driver_install_dir.empty() ? "/run/nvidia/driver" : paths.driver_install_dir;
  ensure_host_mount(pod, container, "run-nvidia-validations", "/run/nvidia/validations", "DirectoryOrCreate",
                    "/run/nvidia/validations", false);
  ensure_host_mount(pod, container, "driver-install-dir", driver, "DirectoryOrCreate", "/driver-root", false);
  ensure_host_mount(pod, container, "host-root", root, "", "/host", true);
  // A boot empties /run, and nobody may have made this one before.
  if (Json* run = find_volume(pod, "run-nvidia");
      run && get_string(*run, {"hostPath", "type"}) == "Directory")
    set(*run, {"hostPath", "type"}, "DirectoryOrCreate");
}

Json from_field(std::string_view name, std::string_view field) {
  return JsonObject{{"name", name},
                    {"valueFrom", JsonObject{{"fieldRef", JsonObject{{"fieldPath", field}}}}}};
}

// The container is ready when the file is there. It is the container's own, so that none of an earlier one is
// taken for it. The probe ends by itself when the file comes; nothing limits how long that may take.
void ready_with(Json& container, std::string_view file) {
  set(container, {"startupProbe"},
      JsonObject{{"exec", JsonObject{{"command", JsonArray{"gpu-node", "wait-for", file}}}},
                 {"timeoutSeconds", kProbeSeconds},
                 {"periodSeconds", 1},
                 {"failureThreshold", std::numeric_limits<std::int32_t>::max()}});
}

// The container is ready when the runtime is configured, and says so.
void tell_runtime(Json& daemonset, Json& container) {
  constexpr std::string_view kFile = "/run/runtime-configured";
  set_env(container, "TOOLKIT_CONFIGURED_FILE",
          std::string(kFile) + "," + std::string(kGates) + std::string(kToolkitConfigured));
  for (const auto& [name, field] :
       {std::pair{"POD_NAME", "metadata.name"}, std::pair{"POD_NAMESPACE", "metadata.namespace"},
        std::pair{"POD_UID", "metadata.uid"}, std::pair{"NODE_NAME", "spec.nodeName"}})
    add_env(container, from_field(name, field));
  ready_with(container, kFile);
  set(daemonset, {"spec", "template", "metadata", "labels", kTellsRuntime}, "true");
}

// --- validations within the main container ---

bool has_mount(const Json& container, std::string_view at) {
  return std::ranges::any_of(get_array(container, {"volumeMounts"}),
                             [at](const Json& mount) { return get_string(mount, {"mountPath"}) == at; });
}

// What an init container checks becomes words of a step. Its variables go with it, unless they come from the
// pod or are read by the runtime: then they are the container's. `toolkit`: own_toolkit().
void add_step(Json& main, const Json& check, JsonArray& command, bool toolkit) {
  const std::string component = env_value(check, "COMPONENT");
  command.emplace_back(component);
  if (component == "cuda") command.emplace_back("VALIDATOR_PROOF_FOLDER=/run/nvidia/validations");
  if (component == "cuda" && toolkit)
    command.emplace_back("TOOLKIT_CONFIGURED_FILE=" + std::string(kGates) + std::string(kToolkitConfigured));
  for (const Json& entry : get_array(check, {"env"})) {
    const auto name = get_string(entry, {"name"});
    if (name == "COMPONENT") continue;
    if (has(entry, {"valueFrom"}) || name.starts_with("NVIDIA_")) {
      add_env(main, entry);
    } else {
      command.emplace_back(str(name) + "=" + str(get_string(entry, {"value"})));
    }
  }
  for (const Json& mount : get_array(check, {"volumeMounts"}))
    if (!has_mount(main, get_string(mount, {"mountPath"}))) add_mount(main, mount);
  if (const Json* selinux = find(check, {"securityContext", "seLinuxOptions"}))
    set(main, {"securityContext", "seLinuxOptions"}, *selinux);
}

// A toolkit of ours says by a file when the runtime is configured.
bool own_toolkit(const View& view) {
  const auto image =
      resolve_image(view.spec.toolkit, "container-toolkit", "CONTAINER_TOOLKIT_IMAGE", view.facts.env);
  return view.spec.toolkit.enabled && image && *image == view.facts.own_image;
}

// The validations that init containers do go into the main container, in front of its `program`: each init
// container costs a second (validate/sequence.h). Only where all of them are ours. `passed_file`: made when
// all have passed; "" for none.
bool take_validations(const View& view, Json& pod, Json& main, std::string_view passed_file) {
  Json* inits = find_mutable(pod, {"initContainers"});
  if (!inits || !inits->is_array() || inits->as_array().empty()) return false;
  for (const Json& check : inits->as_array()) {
    const JsonArray& words = get_array(check, {"command"});
    if (get_string(check, {"image"}) != view.facts.own_image || words.size() != 1 ||
        as_text(words.front()) != "nvidia-validator" || env_value(check, "COMPONENT").empty())
      return false;
  }
  const std::string name = str(get_string(main, {"name"}));
  JsonArray command{"gpu-node", "validations", "--record=" + std::string(kGates) + ".passed-for-" + name};
  if (!passed_file.empty()) command.emplace_back("--passed-file=" + std::string(passed_file));
  for (const Json& check : inits->as_array()) add_step(main, check, command, own_toolkit(view));
  command.emplace_back("--");
  for (const Json& word : get_array(main, {"command"})) command.push_back(word);
  set(main, {"command"}, std::move(command));
  add_env(main, from_field("POD_UID", "metadata.uid"));
  remove(pod, {"initContainers"});
  return true;
}

// The kubelet's own word on the devices that it has.
void see_kubelet(const View& view, Json& pod, Json& container) {
  const std::string& given = view.spec.host_paths.kubelet_root_dir;
  const fs::path root = given.empty() ? "/var/lib/kubelet" : given;
  for (const auto& [volume, folder] :
       {std::pair{"pod-gpu-resources", "pod-resources"}, std::pair{"device-plugin", "device-plugins"}}) {
    ensure_host_mount(pod, container, volume, (root / folder).string(), "",
                      (fs::path("/var/lib/kubelet") / folder).string(), true);
  }
}

// Which step takes long is told by an annotation of the pod, which a new container gets to know.
void tell_steps(Json& main) {
  JsonArray& command = main.as_object()["command"].as_array();
  const auto* steps = std::ranges::find(command, Json("validations"));
  command.insert(steps + 1, Json("--tell"));
  const std::string annotation =
      "metadata.annotations['" + std::string(hardware::kValidationAnnotation) + "']";
  for (const auto& [name, field] :
       {std::pair<std::string_view, std::string_view>{"POD_NAME", "metadata.name"},
        {"POD_NAMESPACE", "metadata.namespace"},
        {"VALIDATION_TOLD", annotation}})
    add_env(main, from_field(name, field));
}

// Gates are removed at the end, unless another validator has taken them over by then (validate/gates.h).
void own_gates(Json& main) {
  const std::string owner = "--gate-owner=" + std::string(kGates) + ".gate-owner";
  JsonArray& command = main.as_object()["command"].as_array();
  const auto* steps = std::ranges::find(command, Json("validations"));
  command.insert(steps + 1, Json(owner));
  set(main, {"lifecycle", "preStop", "exec", "command"},
      JsonArray{"gpu-node", "validations", "--release", Json(owner)});
}

void shape_validator_of_ours(const View& view, Json& daemonset, Json& pod, Json& main) {
  constexpr std::string_view kFile = "/run/validations-passed";
  const bool plugin = find_container(pod, "initContainers", "plugin-validation") != nullptr;
  if (!take_validations(view, pod, main, kFile)) return;
  if (get_array(main, {"args"}).empty())
    main.as_object()["command"].as_array().emplace_back("all validations are successful");
  ready_with(main, kFile);
  if (plugin) see_kubelet(view, pod, main);
  tell_steps(main);
  own_gates(main);
  // The NRI plugin gives devices to the container that looks for them.
  if (Json* annotations = find_mutable(daemonset, {"spec", "template", "metadata", "annotations"})) {
    const std::string prefix = "nvidia.cdi.k8s.io/container.";
    JsonObject& all = annotations->as_object();
    if (const auto found = all.find(prefix + "toolkit-validation"); found != all.end()) {
      const Json devices = found->value();
      all.erase(found);
      all[prefix + str(get_string(main, {"name"}))] = devices;
    }
  }
}

}  // namespace

void shape_own_image(const View& view, Json& daemonset) {
  if (view.facts.own_image.empty()) return;
  Json& pod = pod_spec(daemonset);
  auto ours = [&view](const Json& container) {
    return get_string(container, {"image"}) == view.facts.own_image;
  };
  for (Json* container : all_containers(pod))
    if (ours(*container)) shape_init(*container);
  for (const Entry& entry : kEntries) {
    Json* container = find_container(pod, "containers", entry.container);
    if (!container || !ours(*container)) continue;
    bool scripted = is_shell(*container);
    set_command(*container, {entry.command[0], entry.command[1]});
    // A script goes; arguments that the user gave in its place are the program's.
    const std::string_view given = first_arg(*container);
    if (scripted && (given == "/bin/entrypoint.sh" || given.find(' ') != std::string_view::npos))
      remove(*container, {"args"});
    if (!entry.script_volume.empty()) {
      drop_mounts(*container, entry.script_volume);
      drop_volume(pod, entry.script_volume);
    }
    for (std::string_view probe : {"startupProbe", "livenessProbe", "readinessProbe"})
      quicken(*container, probe);
    if (entry.needs_driver) see_driver(view, pod, *container);
    if (entry.container == "nvidia-container-toolkit-ctr") {
      tell_runtime(daemonset, *container);
      take_validations(view, pod, *container, "");
    } else if (entry.container == "nvidia-dcgm-exporter") {
      // Its probes begin when it serves: one that comes too early is a Warning event of a healthy start.
      constexpr std::string_view kFile = "/run/exporter-serves";
      set_env(*container, "SERVING_FILE", kFile);
      ready_with(*container, kFile);
    } else if (entry.container == "nvidia-operator-validator") {
      shape_validator_of_ours(view, daemonset, pod, *container);
    }
  }
}

}  // namespace gpuop::op

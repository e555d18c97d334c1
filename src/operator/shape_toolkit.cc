// The container toolkit: where the runtime's configuration and socket are, and how the toolkit is to use them
// (operator.md §5.5).
#include "base/text.h"
#include "operator/pod.h"
#include "operator/shape.h"

namespace gpuop::op {

namespace {

struct Runtime {
  std::string_view name;
  std::string_view variable;  // prefix of its own variables
  std::string_view config, drop_in, socket;
};

constexpr Runtime kRuntimes[] = {
    {"containerd", "CONTAINERD", "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml",
     "/run/containerd/containerd.sock"},
    {"docker", "DOCKER", "/etc/docker/daemon.json", "", "/var/run/docker.sock"},
    {"crio", "CRIO", "/etc/crio/config.toml", "/etc/crio/crio.conf.d/99-nvidia.conf", ""},
};

std::string first_set(const Json& container, std::initializer_list<std::string> names,
                      std::string_view fallback) {
  for (const std::string& name : names)
    if (std::string value = env_value(container, name); !value.empty()) return value;
  return std::string(fallback);
}

// Mounts the folder of a host file at `at` and answers the file's path there.
std::string mount_folder_of(Json& pod, Json& container, std::string_view volume, const std::string& file,
                            std::string_view at, std::string_view type) {
  fs::path path(file);
  add_mount(container, JsonObject{{"name", volume}, {"mountPath", at}});
  add_volume(pod, host_path_volume(volume, path.parent_path().string(), type));
  return std::string(at) + path.filename().string();
}

// "file=/etc/x" is a file of the host, which the container sees beneath /host.
std::string config_sources(const std::string& text) {
  constexpr std::string_view kFile = "file=";
  std::vector<std::string> sources = split(text, ',');
  for (std::string& source : sources) {
    if (!source.starts_with(kFile)) continue;
    const std::string path = "/host/" + source.substr(kFile.size());
    source = std::string(kFile) + fs::path(path).lexically_normal().string();
  }
  return join(sources, ",");
}

void shape_nri(Json& pod, Json& container) {
  std::string socket = first_set(container, {"NRI_SOCKET"}, "/var/run/nri/nri.sock");
  set_env(
      container, "NRI_SOCKET",
      mount_folder_of(pod, container, "nri-socket", socket, "/runtime/nri-sock-dir/", "DirectoryOrCreate"));
}

void shape_runtime(const View& view, Json& pod, Json& container, const Runtime& runtime) {
  std::string name(runtime.name), prefix(runtime.variable);
  if (name == "containerd") {
    const std::string& runtime_class = view.spec.op.runtime_class;
    set_env(container, "CONTAINERD_RUNTIME_CLASS", runtime_class.empty() ? "nvidia" : runtime_class);
  }
  std::string config = first_set(container, {prefix + "_CONFIG", "RUNTIME_CONFIG"}, runtime.config);
  std::string inside =
      mount_folder_of(pod, container, name + "-config", config, "/runtime/config-dir/", "DirectoryOrCreate");
  set_env(container, "RUNTIME_CONFIG", inside);
  set_env(container, prefix + "_CONFIG", inside);
  if (!runtime.drop_in.empty()) {
    std::string drop_in = first_set(container, {"RUNTIME_DROP_IN_CONFIG"}, runtime.drop_in);
    set_env(container, "RUNTIME_DROP_IN_CONFIG",
            mount_folder_of(pod, container, name + "-drop-in-config", drop_in, "/runtime/config-dir.d/",
                            "DirectoryOrCreate"));
    set_env(container, "RUNTIME_DROP_IN_CONFIG_HOST_PATH", drop_in);
  }
  if (!runtime.socket.empty()) {
    std::string socket = first_set(container, {prefix + "_SOCKET"}, runtime.socket);
    inside = mount_folder_of(pod, container, name + "-socket", socket, "/runtime/sock-dir/", "");
    set_env(container, "RUNTIME_SOCKET", inside);
    set_env(container, prefix + "_SOCKET", inside);
  }
}

}  // namespace

Result<> shape_toolkit(const View& view, Json& daemonset) {
  const policy::ToolkitSpec& toolkit = view.spec.toolkit;
  const policy::CdiSpec& cdi = view.spec.cdi;
  TRY(shape_main(view, daemonset, "nvidia-container-toolkit-ctr", toolkit, "toolkit",
                 "CONTAINER_TOOLKIT_IMAGE", false, false));
  Json& pod = pod_spec(daemonset);
  Json& container = *find_container(pod, "containers", "nvidia-container-toolkit-ctr");
  const Runtime* runtime = &kRuntimes[0];
  for (const Runtime& known : kRuntimes)
    if (known.name == view.facts.runtime) runtime = &known;

  if (cdi.enabled) {
    set_env(container, "CDI_ENABLED", "true");
    set_env(container, "NVIDIA_RUNTIME_SET_AS_DEFAULT", "false");
    set_env(container, "NVIDIA_CONTAINER_RUNTIME_MODE", "cdi");
    set_env(container, "CRIO_CONFIG_MODE", "config");
    if (cdi.nri_plugin_enabled) set_env(container, "ENABLE_NRI_PLUGIN", "true");
  } else if (runtime->name == "crio") {
    set_env(container, "CRIO_CONFIG_MODE", "hook");
  }
  if (!toolkit.install_dir.empty() && toolkit.install_dir != "/usr/local/nvidia") {
    set_env(container, "ROOT", toolkit.install_dir);
    if (Json* volume = find_volume(pod, "toolkit-install-dir"))
      set(*volume, {"hostPath", "path"}, toolkit.install_dir);
    for (Json& mount : ensure(container, {"volumeMounts"}).get_array())
      if (get_string(mount, {"name"}) == "toolkit-install-dir")
        set(mount, {"mountPath"}, toolkit.install_dir);
  }
  if (runtime->name == "crio" && !view.facts.openshift())
    if (Json* hooks = find_volume(pod, "crio-hooks"))
      set(*hooks, {"hostPath", "path"}, "/usr/share/containers/oci/hooks.d");
  set_env(container, toolkit.env);
  if (std::string sources = env_value(container, "RUNTIME_CONFIG_SOURCE"); !sources.empty())
    set_env(container, "RUNTIME_CONFIG_SOURCE", config_sources(sources));
  set_env(container, "RUNTIME", runtime->name);
  if (cdi.nri_plugin_enabled)
    shape_nri(pod, container);
  else
    shape_runtime(view, pod, container, *runtime);
  return {};
}

}  // namespace gpuop::op

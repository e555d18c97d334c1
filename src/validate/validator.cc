#include "validate/validator.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/files.h"
#include "base/inotify.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/config.h"
#include "kube/object.h"
#include "validate/device_nodes.h"
#include "validate/gates.h"
#include "validate/run.h"
#include "validate/workload.h"

namespace gpuop::validate {
namespace {

constexpr const char* kDriverReady = "driver-ready";

}  // namespace

Result<kube::Client*> Run::api() {
  if (options.client) return options.client;
  if (!client) {
    const auto config = TRY(kube::find_config(options.kubeconfig));
    kube::ClientOptions client_options;
    client_options.user_agent = "nvidia-validator";
    client = TRY(kube::make_client(loop, config, client_options));
  }
  return client.get();
}

Result<> Run::until(const std::vector<fs::path>& dirs, const std::function<Result<>()>& attempt) {
  if (!options.with_wait) return attempt();
  return retry(loop, dirs, options.interval, attempt, options.waiting);
}

Result<> Run::open_gate(std::string_view name, std::string_view content) {
  TRY(gates.change([&]() -> Result<> {
    TRY_IN(write_file_atomic(gate(name), content), "record success");
    return {};
  }));
  log::info("passed", {{"component", options.component}, {"file", gate(name).string()}});
  return {};
}

Result<> Run::close_gate(std::string_view name) {
  return gates.change([&]() -> Result<> {
    TRY(remove_file(gate(name)));
    return {};
  });
}

Result<bool> Run::driver_is_managed() {
  if (options.ns.empty()) return false;
  kube::Client* kube = TRY(api());
  kube::ListOptions filter;
  filter.label_selector = "app.kubernetes.io/component=nvidia-driver";
  const auto list = kube::await(
      loop, [&](const auto& done) { return kube->list(kube::kDaemonSets, options.ns, filter, done); });
  if (!list) return fail(list.error().error("look for driver DaemonSets in '" + options.ns + "'"));
  for (const auto& set : get_array(*list, {"items"})) {
    const Json* owner = kube::controller_of(set);
    if (!owner || !get_string(*owner, {"apiVersion"}).starts_with("nvidia.com/")) continue;
    const auto kind = get_string(*owner, {"kind"});
    if (kind == "ClusterPolicy" || kind == "NVIDIADriver") return true;
  }
  return false;
}

Result<FoundDriver> Run::find_driver() {
  auto host = TRY(find_host_driver(options.driver));
  if (host) return std::move(*host);
  const bool managed = TRY(driver_is_managed());
  FoundDriver found = TRY(find_container_driver(options.driver, managed));
  if (!managed) return found;
  for (const auto& feature : TRY(driver_container_features(options.driver.status_dir))) {
    if (feature == "GDRCOPY_ENABLED")
      TRY(module("gdrdrv", "gdrcopy-ready"));
    else if (feature == "GDS_ENABLED")
      TRY(module("nvidia_fs", "nvidia-fs-ready"));
    else if (feature == "GPU_DIRECT_RDMA_ENABLED")
      TRY(module("nvidia_peermem", "nvidia-peermem-ready"));
  }
  return found;
}

Result<> Run::device_nodes(const FoundDriver& found) {
  if (options.no_dev_char || found.wsl) return {};
  const std::string hint =
      "; to go without this step set DISABLE_DEV_CHAR_SYMLINK_CREATION=true in validator.driver.env of the "
      "ClusterPolicy";
  const bool own_dev = found.ready.dev_root == found.ready.driver_root;
  // Where the driver's root and its device root are in this container's view.
  const fs::path root = found.ready.is_host_driver ? options.driver.host : options.driver.install_dir_ctr;
  const fs::path dev_root =
      found.ready.is_host_driver || !own_dev ? options.driver.host : options.driver.install_dir_ctr;
  const auto make = [&]() -> Result<> {
    if (found.ready.is_host_driver || own_dev) TRY(load_modules(root));
    const DevicePlan plan = TRY(plan_devices(TRY(observe_devices())));
    if (plan.links.empty()) return {};
    TRY(make_devices(plan, dev_root, found.ready.dev_root, options.driver.host_dev_char));
    return check_devices(plan, dev_root);
  };
  if (auto made = make(); !made) return fail(made.error().code(), made.error().text() + hint);
  return {};
}

Result<> Run::driver() {
  std::optional<FoundDriver> found;
  TRY(until({options.driver.status_dir, options.driver.install_dir_ctr}, [&]() -> Result<> {
    FoundDriver driver = TRY(find_driver());
    TRY(device_nodes(driver));
    found = std::move(driver);
    return {};
  }));
  log::info("driver found",
            {{"host_driver", found->ready.is_host_driver}, {"root", found->ready.driver_root}});
  return open_gate(kDriverReady, hardware::format_driver_ready(found->ready));
}

Result<> Run::module(std::string_view name, std::string_view gate_name) {
  TRY(close_gate(gate_name));
  TRY(until({}, [&]() -> Result<> {
    if (TRY(module_loaded(name))) return {};
    return fail(Code::kNotFound, "wait for kernel module '" + std::string(name) + "': not loaded");
  }));
  return open_gate(gate_name);
}

Result<> Run::toolkit() {
  const auto checked = until({options.output_dir}, [&]() -> Result<> {
    fs::path program;
    for (const auto& dir :
         split(env_or("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ':')) {
      if (!dir.empty() && ::access((fs::path(dir) / "nvidia-smi").c_str(), X_OK) == 0) {
        program = fs::path(dir) / "nvidia-smi";
        break;
      }
    }
    if (program.empty()) {
      return fail(
          Code::kNotFound,
          "check the container toolkit: nvidia-smi is not in PATH; the runtime did not inject the driver");
    }
    Command command{{program.string()}, current_environment()};
    const ExitState state = TRY(run_smi(command));
    if (state.ok()) return {};
    return fail(Code::kUnavailable, "check the container toolkit: nvidia-smi ended with code " +
                                        std::to_string(state.code) + ": " +
                                        std::string(trim(state.out + state.err)));
  });
  if (checked) return open_gate("toolkit-ready");
  if (!options.proven_later || checked.error().code() != Code::kNotFound) return fail(checked.error());
  log::info("this container is older than the driver: a pod will prove the container toolkit");
  return {};
}

// The driver is there, and a container that is made now gets it as soon as the runtime can give it.
Result<> Run::wait_for_toolkit() {
  const fs::path& file = options.toolkit_configured;
  if (file.empty()) return {};
  return retry(
      loop, {file.parent_path()}, options.interval,
      [&file]() -> Result<> {
        if (file_exists(file)) return {};
        return fail(Code::kNotFound,
                    "wait for the container toolkit: '" + file.string() + "' is not there yet");
      },
      options.waiting);
}

Result<> Run::cuda() {
  if (options.proves_toolkit) TRY(wait_for_toolkit());
  if (options.with_workload) {
    TRY(run_workload(loop, *TRY(api()), Workload::kCuda, workload_options(options.node, options.ns),
                     options.cuda_limit));
  }
  if (options.proves_toolkit) TRY(open_gate("toolkit-ready"));
  return open_gate("cuda-ready");
}

Result<> Run::plugin() {
  // A workload pod asks for what the node's status offers: then that is what counts.
  std::optional<KubeletFolders> kubelet;
  if (!options.with_workload) kubelet = options.kubelet;
  if (!TRY(wait_for_capacity(loop, *TRY(api()), options.node, options.capacity_limit, kubelet,
                             options.interval))) {
    log::info("the device plugin is switched off on this node by its label: nothing to check");
    return {};
  }
  if (options.with_workload) {
    TRY(run_workload(loop, *TRY(api()), Workload::kPlugin, workload_options(options.node, options.ns),
                     options.cuda_limit));
  }
  return open_gate("plugin-ready");
}

Result<> Run::mofed() {
  if (env_or("GPU_DIRECT_RDMA_ENABLED") != "true") {
    log::info("GPU Direct RDMA is off: nothing to check");
    return {};
  }
  kube::Client* kube = TRY(api());
  const auto node =
      kube::await(loop, [&](const auto& done) { return kube->get(kube::kNodes, "", options.node, done); });
  if (!node) return fail(node.error().error("read node '" + options.node + "'"));
  if (kube::label(*node, "feature.node.kubernetes.io/pci-15b3.present") != "true") {
    log::info("no Mellanox device on this node: nothing to check");
    return {};
  }
  if (env_or("USE_HOST_MOFED") == "true") {
    TRY(until({}, [&]() -> Result<> {
      if (TRY(module_loaded("mlx5_core"))) return {};
      return fail(Code::kNotFound, "wait for kernel module 'mlx5_core': not loaded");
    }));
  } else {
    const fs::path ready = "/run/mellanox/drivers/.driver-ready";
    TRY(until({ready.parent_path()}, [&]() -> Result<> {
      if (file_exists(ready)) return {};
      return fail(Code::kNotFound, "wait for '" + ready.string() + "': not there");
    }));
  }
  return open_gate("mofed-ready");
}

namespace {

struct Component {
  std::string_view name;
  std::string_view gate;
  Result<> (*check)(Run&);
  bool machines = false;  // of the sandbox validator, which removes its gates itself
};

std::span<const Component> table() {
  static const Component kTable[] = {
      {"driver", kDriverReady, [](Run& run) { return run.driver(); }},
      {"toolkit", "toolkit-ready", [](Run& run) { return run.toolkit(); }},
      {"cuda", "cuda-ready", [](Run& run) { return run.cuda(); }},
      {"plugin", "plugin-ready", [](Run& run) { return run.plugin(); }},
      {"nvidia-fs", "nvidia-fs-ready", [](Run& run) { return run.module("nvidia_fs", "nvidia-fs-ready"); }},
      {"gdrcopy", "gdrcopy-ready", [](Run& run) { return run.module("gdrdrv", "gdrcopy-ready"); }},
      {"nvidia-peermem", "nvidia-peermem-ready",
       [](Run& run) { return run.module("nvidia_peermem", "nvidia-peermem-ready"); }},
      {"mofed", "mofed-ready", [](Run& run) { return run.mofed(); }},
      {"vfio-pci", "vfio-pci-ready", [](Run& run) { return run.vfio_pci(); }, true},
      {"vgpu-manager", "vgpu-manager-ready", [](Run& run) { return run.vgpu_manager(); }, true},
      {"vgpu-devices", "vgpu-devices-ready", [](Run& run) { return run.vgpu_devices(); }, true},
      {"cc-manager", "cc-manager-ready", [](Run& run) { return run.cc_manager(); }, true},
  };
  return kTable;
}

}  // namespace

Result<> retry(Loop& loop, const std::vector<fs::path>& dirs, Duration interval,
               const std::function<Result<>()>& attempt,
               const std::function<void(bool failing, const std::string& why)>& waiting) {
  std::vector<std::unique_ptr<DirWatch>> watches;
  watches.reserve(dirs.size());
  bool changed = true;
  for (const auto& dir : dirs)
    watches.push_back(TRY(DirWatch::create(loop, dir, [&changed] { changed = true; })));
  std::string told;
  while (true) {
    changed = false;
    const auto result = attempt();
    if (result) return {};
    if (result.error().code() == Code::kConflict) return fail(result.error());  // no change in here helps
    if (told != result.error().text()) {
      told = result.error().text();
      log::info("waiting", {{"reason", told}});
      if (waiting) waiting(result.error().code() != Code::kNotFound, told);
    }
    loop.run_until([&changed] { return changed; }, interval);
    if (loop.stopped()) return fail(Code::kCancelled, "stopped while waiting: " + told);
  }
}

std::vector<std::string> components() {
  std::vector<std::string> names{"metrics"};
  for (const auto& component : table()) names.emplace_back(component.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> gates() {
  std::vector<std::string> names;
  for (const auto& component : table())
    if (!component.machines) names.emplace_back(component.gate);
  return names;
}

Result<> check_options(const ValidatorOptions& options) {
  const auto known = components();
  const std::string& name = options.component;
  if (name.empty() || std::find(known.begin(), known.end(), name) == known.end()) {
    return fail(Code::kInvalid, "invalid -c <component-name> flag: must be one of " + join(known, ", ") +
                                    "; got '" + name + "'" + did_you_mean(name, known));
  }
  static const std::set<std::string_view> kOfNode = {"plugin", "vfio-pci", "vgpu-manager", "vgpu-devices",
                                                     "cc-manager"};
  if (kOfNode.contains(name) && options.node.empty())
    return fail(Code::kInvalid, "invalid -n <node-name> flag: must not be empty");
  if ((name == "plugin" || name == "cuda") && options.ns.empty()) {
    return fail(Code::kInvalid, "invalid -ns <namespace> flag: must not be empty");
  }
  if (name == "cuda" && options.with_workload && options.node.empty()) {
    return fail(Code::kInvalid, "invalid -n <node-name> flag: must not be empty with --with-workload");
  }
  if (name == "metrics" && options.metrics_port <= 0) {
    return fail(Code::kInvalid, "invalid -p <port> flag: must not be empty or 0");
  }
  if (name == "metrics" && options.node.empty())
    return fail(Code::kInvalid, "invalid -n <node-name> flag: must not be empty");
  return {};
}

Result<> run(Loop& loop, const ValidatorOptions& options) {
  TRY(check_options(options));
  if (options.cleanup_all) {
    std::error_code error;
    fs::remove_all(options.output_dir, error);
    if (error) return fail(Code::kIo, "remove '" + options.output_dir.string() + "': " + error.message());
  }
  TRY(make_dirs(options.output_dir));
  for (const auto& component : table()) {
    if (component.name != options.component) continue;
    Run state{loop, options};
    TRY(state.close_gate(component.gate));
    return component.check(state);
  }
  return fail(Code::kUnsupported,
              "run component '" + options.component + "': it is served, not run to an end");
}

}  // namespace gpuop::validate

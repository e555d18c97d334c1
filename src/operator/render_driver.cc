// The objects of an NVIDIADriver (operands-driver-validator.md §3.4, the NVIDIADriver variant): the driver's
// manifests once for each pool, under names of the pool. Orders of lists are upstream's, since a changed pod
// template would reinstall drivers on a takeover.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "operator/digest.h"
#include "operator/driver_parts.h"
#include "operator/driver_pools.h"
#include "operator/pod.h"
#include "operator/taints.h"

namespace gpuop::op {
namespace {

constexpr std::string_view kStateLabel = "nvidia.com/gpu-operator.state";
constexpr std::string_view kDigest = "DRIVER_CONFIG_DIGEST";
constexpr int kPrecompiledDelay = 5;  // seconds until the startup probe

// The driver's fields where the shared parts look for them.
policy::ClusterPolicySpec as_policy(const policy::NvidiaDriverSpec& spec, const std::string& host_root) {
  policy::ClusterPolicySpec out;
  policy::DriverSpec& driver = out.driver;
  static_cast<policy::ImageSpec&>(driver) = spec;
  driver.resources = spec.resources;
  driver.env = spec.env;
  driver.use_precompiled = spec.use_precompiled;
  driver.kernel_module_type = spec.kernel_module_type;
  driver.rdma = spec.rdma;
  driver.manager = spec.manager;
  driver.repo_config.config_map_name = spec.repo_config.name;
  driver.licensing_config = {spec.licensing_config.name, spec.licensing_config.secret_name,
                             spec.licensing_config.nls_enabled};
  driver.virtual_topology.config = spec.virtual_topology_config.name;
  driver.secret_env = spec.secret_env;
  out.gds = spec.gds;
  out.gdrcopy = spec.gdrcopy;
  out.host_paths.root_fs = host_root;
  return out;
}

// 2.17.5 of "v2.17.5" or "2.17.5-ubuntu"; empty where it is no such version.
std::vector<std::int64_t> version_parts(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  text = text.substr(0, text.find('-'));
  std::vector<std::int64_t> parts;
  for (const auto& part : split(text, '.')) {
    const auto number = parse_int(part);
    if (!number) return {};
    parts.push_back(*number);
  }
  return parts;
}

// nvidia-fs from 2.17.5 on needs the open kernel modules; `auto` chooses those from driver branch 570 on.
bool gds_needs_open_modules(const policy::NvidiaDriverSpec& spec) {
  if (!spec.gds.enabled || spec.kernel_module_type == "open") return false;
  const bool old = !spec.gds.version.starts_with("sha256") &&
                   version_parts(spec.gds.version) < std::vector<std::int64_t>{2, 17, 5};
  if (old) return false;
  const auto driver = version_parts(spec.version);
  return !(spec.kernel_module_type == "auto" && !driver.empty() && driver.front() >= 570);
}

class DriverRenderer {
 public:
  DriverRenderer(const policy::NvidiaDriver& driver, const ClusterFacts& facts, const Assets& assets,
                 const std::string& host_root)
      : driver_(driver), spec_(driver.spec), facts_(facts), assets_(assets), host_root_(host_root) {
    policy_.name = driver.name;
    policy_.uid = driver.uid;
    policy_.spec = as_policy(driver.spec, host_root);
  }

  Result<> check() const {
    if (spec_.use_precompiled && (spec_.gds.enabled || spec_.gdrcopy.enabled))
      return fail(Code::kInvalid, std::string("spec.") + (spec_.gds.enabled ? "gds" : "gdrcopy") +
                                      ".enabled: cannot be used with precompiled drivers; turn off "
                                      "spec.usePrecompiled or this");
    if (gds_needs_open_modules(spec_))
      return fail(Code::kInvalid,
                  "spec.gds: version " + spec_.gds.version +
                      " needs the open kernel modules: set spec.kernelModuleType to open; got " +
                      spec_.kernel_module_type);
    if (!spec_.secret_env.empty() && !facts_.secrets.contains(spec_.secret_env))
      return fail(Code::kNotFound, "spec.secretEnv: Secret '" + spec_.secret_env +
                                       "' does not exist in namespace '" + facts_.operator_namespace + "'");
    if (spec_.use_precompiled && (spec_.version.starts_with("sha256:") || spec_.image.contains("@sha256:")))
      return fail(Code::kInvalid,
                  std::string(spec_.version.empty() ? "spec.image" : "spec.version") +
                      ": a digest cannot be used with spec.usePrecompiled, whose images differ by kernel");
    return {};
  }

  Result<> add(State& state, const DriverPool& pool) const {
    const auto manifests = assets_.states.find("state-driver");
    if (manifests == assets_.states.end())
      return fail(Code::kNotFound, "render state-driver: its manifests are missing");
    for (const auto& manifest : manifests->second) {
      if (manifest.openshift_only() && !facts_.openshift()) continue;
      Json object = placed(manifest.object, pool);
      if (get_string(object, {"kind"}) == "DaemonSet") {
        object = TRY(shaped(std::move(object), pool));
        if (auto certificates = trusted_ca(facts_)) {
          place(*certificates, facts_.operator_namespace, owner());
          set(*certificates, {"metadata", "labels", kStateLabel}, "state-driver");
          state.objects.push_back(std::move(*certificates));
        }
      }
      state.objects.push_back(std::move(object));
    }
    return {};
  }

 private:
  // Whether the driver is built in the cluster's driver toolkit; without its ImageStream it is not.
  bool uses_toolkit(const DriverPool& pool) const {
    return !pool.rhcos.empty() && facts_.driver_toolkit_images.has_value();
  }
  bool vgpu_host() const { return spec_.driver_type == "vgpu-host-manager"; }

  Owner owner() const { return {"nvidia.com/v1alpha1", "NVIDIADriver", driver_.name, driver_.uid}; }

  // Another driver manager of the operator's is no reason to load a driver again: as long as the one that is
  // there makes the driver that is there, it stays (operator.md §1.4).
  Result<Json> shaped(Json daemonset, const DriverPool& pool) const {
    const std::string image =
        TRY(resolve_image(spec_.manager, "manager", "DRIVER_MANAGER_IMAGE", facts_.env));
    const auto live = facts_.driver_managers.find(pool_name(driver_, pool));
    if (spec_.manager.image.empty() && live != facts_.driver_managers.end() && live->second.image != image &&
        !live->second.digest.empty()) {
      Json pinned = daemonset;
      TRY(shape(pinned, pool, live->second.image));
      const Json* manager = find_container(pod_spec(std::as_const(pinned)), kManager);
      if (manager && env_value(*manager, kDigest) == live->second.digest) return pinned;
    }
    TRY(shape(daemonset, pool, image));
    return daemonset;
  }

  // The manifest under the pool's names, in the operator's namespace, owned by the resource.
  Json placed(const Json& manifest, const DriverPool& pool) const {
    Json object = manifest;
    const std::string kind = str(get_string(manifest, {"kind"}));
    const std::string account = pool_account(driver_, pool);
    const std::string& space = facts_.operator_namespace;
    place(object, space, owner());
    if (kind == "DaemonSet") {
      set(object, {"metadata", "name"}, pool_name(driver_, pool));
    } else if (kind == "ConfigMap") {
      set(object, {"metadata", "labels", "app"}, pool_name(driver_, pool));
    } else {
      set(object, {"metadata", "name"}, account);
    }
    if (has(object, {"roleRef"})) set(object, {"roleRef", "name"}, account);
    if (Json* subjects = find_mutable(object, {"subjects"})) {
      for (Json& subject : subjects->as_array()) {
        set(subject, {"name"}, account);
        set(subject, {"namespace"}, space);
      }
    }
    if (kind == "SecurityContextConstraints")
      set(object, {"users"}, JsonArray{Json("system:serviceaccount:" + space + ":" + account)});
    set(object, {"metadata", "labels", kStateLabel}, "state-driver");
    return object;
  }

  void shape_metadata(Json& daemonset, const DriverPool& pool) const {
    const std::string name = pool_name(driver_, pool);
    // The user's are the pods' alone.
    for (const auto& [key, value] : spec_.labels) {
      if (key != "app" && !key.starts_with("app.kubernetes.io/"))
        set(daemonset, {"spec", "template", "metadata", "labels", key}, value);
    }
    for (const auto& [key, value] : spec_.annotations)
      set(daemonset, {"spec", "template", "metadata", "annotations", key}, value);
    set_label(daemonset, "app", name);
    set_label(daemonset, "app.kubernetes.io/component",
              vgpu_host() ? "nvidia-vgpu-host-manager" : "nvidia-driver");
    set_label(daemonset, "nvidia.com/node.os-version", pool.os_tag);
    set_label(daemonset, "nvidia.com/precompiled", spec_.use_precompiled ? "true" : "false");
    if (!pool.kernel.empty()) set_label(daemonset, "nvidia.com/precompiled.kernel-version", pool.kernel);
    set(daemonset, {"spec", "selector", "matchLabels"}, JsonObject{{"app", name}});
    set(daemonset, {"metadata", "annotations", "openshift.io/scc"}, pool_account(driver_, pool));
    if (uses_toolkit(pool)) label_driver_toolkit({policy_, policy_.spec, facts_}, daemonset, pool.rhcos);
  }

  void shape_placement(Json& pod, const DriverPool& pool) const {
    set(pod, {"serviceAccountName"}, pool_account(driver_, pool));
    JsonObject selector;
    for (const auto& [key, value] : spec_.node_selector) selector[key] = value;
    for (const auto& [key, value] : pool.selector) selector[key] = value;
    selector["nvidia.com/gpu.present"] = "true";
    selector[kDriverOwner] = driver_.name;
    selector[vgpu_host() ? "nvidia.com/gpu.deploy.vgpu-manager" : "nvidia.com/gpu.deploy.driver"] = "true";
    set(pod, {"nodeSelector"}, std::move(selector));
    for (const Json& toleration : spec_.tolerations)
      ensure(pod, {"tolerations"}).as_array().push_back(toleration);
    tolerate(pod, facts_.own_taints);
    if (!spec_.priority_class_name.empty()) set(pod, {"priorityClassName"}, spec_.priority_class_name);
    if (spec_.pod_security_context.is_object()) set(pod, {"securityContext"}, spec_.pod_security_context);
    if (spec_.node_affinity.is_object()) set(pod, {"affinity", "nodeAffinity"}, spec_.node_affinity);
    // Whoever manages a driver on a node, no second one may; what we took over has upstream's names (D-04).
    JsonArray managers{"nvidia-driver", "nvidia-vgpu-manager"};
    if (!facts_.taken_over.contains(pool_name(driver_, pool)))
      managers.emplace_back("nvidia-vgpu-host-manager");
    Json* terms =
        find_mutable(pod, {"affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"});
    if (terms && terms->is_array() && !terms->as_array().empty()) {
      set(terms->as_array()[0], {"labelSelector", "matchExpressions"},
          JsonArray{JsonObject{
              {"key", "app.kubernetes.io/component"}, {"operator", "In"}, {"values", std::move(managers)}}});
    }
    if (Json* root = find_volume(pod, "host-root"); root && !host_root_.empty())
      set(*root, {"hostPath", "path"}, host_root_);
  }

  void shape_manager(Json& pod, Json& manager, const std::string& image) const {
    set_image(pod, manager, image, spec_.manager);
    set_resources(manager, spec_.resources);
    set_env(manager, kDigest, "");  // its place; the value comes last
    if (spec_.rdma.enabled) {
      set_env(manager, "GPU_DIRECT_RDMA_ENABLED", "true");
      if (spec_.rdma.use_host_mofed) set_env(manager, "USE_HOST_MOFED", "true");
    }
    set_env(manager, spec_.manager.env);
  }

  void shape_env(Json& pod, Json& driver) const {
    const Json before = has(driver, {"env"}) ? *find(driver, {"env"}) : Json(JsonArray{});
    set(driver, {"env"}, JsonArray{});
    set_env(driver, "NVIDIA_VISIBLE_DEVICES", "void");
    for (const Json& entry : before.as_array()) ensure(driver, {"env"}).as_array().push_back(entry);
    set_env(driver, kDigest, "");
    const std::string type = spec_.kernel_module_type.empty() ? "auto" : spec_.kernel_module_type;
    set_env(driver, "KERNEL_MODULE_TYPE", type);
    if (type == "open") set_env(driver, "OPEN_KERNEL_MODULES_ENABLED", "true");
    if (spec_.gds.enabled) set_env(driver, "GDS_ENABLED", "true");
    if (spec_.gdrcopy.enabled) set_env(driver, "GDRCOPY_ENABLED", "true");
    if (facts_.openshift()) set_env(driver, "OPENSHIFT_VERSION", facts_.openshift_version);
    set_env(driver, spec_.env);
    if (!spec_.rdma.enabled) return;
    set_env(driver, "GPU_DIRECT_RDMA_ENABLED", "true");
    if (!spec_.rdma.use_host_mofed) return;
    set_env(driver, "USE_HOST_MOFED", "true");
    if (Json* volume = find_volume(pod, "mlnx-ofed-usr-src")) set(*volume, {"hostPath", "path"}, "/usr/src");
  }

  Result<> add_files(const View& view, Json& pod, Json& driver, const DriverPool& pool) const {
    if (!spec_.use_precompiled) {
      TRY(add_repo_config(view, pod, spec_.repo_config.name, pool.os_id, "spec.repoConfig"));
      TRY(add_cert_config(view, pod, spec_.cert_config.name, pool.os_id, "spec.certConfig"));
      add_subscription(view, pod, driver, pool.os_id);
    } else {
      add_suse_modules(pod, driver, pool.os_id);
    }
    TRY(mount_kernel_module_config(view, pod, {kDriver, kPeermem}, spec_.kernel_module_config.name,
                                   "spec.kernelModuleConfig"));
    add_licensing(view, pod, driver);
    add_topology(view, pod, driver);
    return {};
  }

  // A manager of virtual GPUs on the host has no startup probe, and sees VFIO and cgroups.
  void shape_vgpu_host(Json& pod, Json& driver) const {
    if (!vgpu_host()) return;
    set(pod, {"terminationGracePeriodSeconds"}, 120);
    remove(driver, {"startupProbe"});
    remove(driver, {"lifecycle"});
    drop_mounts(driver, "driver-startup-probe-script");
    drop_volume(pod, "driver-startup-probe-script");
    for (const auto& [name, path] : {std::pair{"vfio", "/dev/vfio"}, std::pair{"cgroup", "/sys/fs/cgroup"}}) {
      insert_behind(driver, "volumeMounts", "host-os-release",
                    JsonObject{{"name", name}, {"mountPath", path}});
      insert_behind(pod, "volumes", "host-os-release", host_path_volume(name, path, ""));
    }
  }

  // Puts an item behind the one called `before` of a list.
  static void insert_behind(Json& holder, std::string_view list, std::string_view before, Json item) {
    auto& all = ensure(holder, {list}).as_array();
    const auto at = std::ranges::find_if(
        all, [before](const Json& each) { return get_string(each, {"name"}) == before; });
    all.insert(at == all.end() ? at : at + 1, std::move(item));
  }

  Result<> shape(Json& daemonset, const DriverPool& pool, const std::string& manager_image) const {
    const View view{policy_, policy_.spec, facts_};
    const DriverLayout layout{.name = pool_name(driver_, pool),
                              .node = {"", pool.os_id, pool.os_version, pool.kernel, pool.rhcos},
                              .precompiled = spec_.use_precompiled,
                              .rhcos = uses_toolkit(pool) ? pool.rhcos : ""};
    shape_metadata(daemonset, pool);
    Json& pod = pod_spec(daemonset);
    shape_placement(pod, pool);
    add_pull_secrets(pod, spec_.image_pull_secrets);
    add_pull_secrets(pod, spec_.manager.image_pull_secrets);
    TRY(shape_sidecar(view, pod, kGds, spec_.gds, "gds", "GDS_IMAGE", layout));
    TRY(shape_sidecar(view, pod, kGdrcopy, spec_.gdrcopy, "gdrcopy", "GDRCOPY_IMAGE", layout));
    const std::string suffix = (pool.kernel.empty() ? "" : pool.kernel + "-") + pool.os_tag;
    const std::string image = TRY(os_image(view, spec_, "driver", "DRIVER_IMAGE", suffix));
    shape_peermem(view, pod, image);
    Json* manager = find_container(pod, "initContainers", kManager);
    Json* driver = find_container(pod, "containers", kDriver);
    if (!manager || !driver)
      return fail(Code::kInvalid, "render state-driver: its manifest lacks " + std::string(kManager) +
                                      " or " + std::string(kDriver));
    if (Json* peermem = find_container(pod, kPeermem))
      insert_env(*peermem, "", "NVIDIA_VISIBLE_DEVICES", "void");
    shape_manager(pod, *manager, manager_image);
    set_image(pod, *driver, image, spec_);
    set_resources(*driver, spec_.resources);
    for (const auto& argument : spec_.args) ensure(*driver, {"args"}).as_array().emplace_back(argument);
    // Precompiled modules are there at once (operator.md §1.4).
    if (spec_.use_precompiled) set(*driver, {"startupProbe", "initialDelaySeconds"}, kPrecompiledDelay);
    set_probe(*driver, "startupProbe", spec_.startup_probe);
    shape_env(pod, *driver);
    order_mounts(*driver);
    shape_vgpu_host(pod, *driver);
    auto known = volume_names(pod);
    known.insert({"gpu-operator-trusted-ca", "shared-nvidia-driver-toolkit"});
    TRY(add_files(view, pod, *driver, pool));
    add_secret_env(view, pod);
    if (Json* toolkit = find_container(pod, kToolkit)) set_env(*toolkit, kDigest, "");  // its place
    shape_driver_toolkit(view, pod, layout, kDriver, image);
    add_proxy(view, pod, true);
    if (spec_.host_network) use_host_network(pod);
    set_digest(pod, digest(pod, pool, image, known));
    note_module_config(view, daemonset, spec_.kernel_module_config.name);
    set(daemonset, {"metadata", "annotations", kHashAnnotation}, object_hash(daemonset));
    return {};
  }

  static std::set<std::string> volume_names(const Json& pod) {
    std::set<std::string> names;
    for (const Json& volume : get_array(pod, {"volumes"})) names.insert(str(get_string(volume, {"name"})));
    return names;
  }

  // firmware-search-path comes before host-sys-devices-system here.
  static void order_mounts(Json& driver) {
    auto& mounts = ensure(driver, {"volumeMounts"}).as_array();
    const auto at = [&](std::string_view name) {
      return std::ranges::find_if(mounts,
                                  [&](const Json& mount) { return get_string(mount, {"name"}) == name; });
    };
    const auto sys = at("host-sys-devices-system");
    const auto firmware = at("firmware-search-path");
    if (sys != mounts.end() && firmware != mounts.end() && sys < firmware) std::swap(*sys, *firmware);
  }

  // The configuration's digest from the resource's own fields (operator.md §9); `known`: the volumes of the
  // manifest.
  std::string digest(const Json& pod, const DriverPool& pool, const std::string& image,
                     const std::set<std::string>& known) const {
    DriverDigest fields;
    fields.text("DriverImage", image);
    fields.text("DriverManagerImage", get_string(*find_container(pod, kManager), {"image"}));
    fields.text("DriverType", spec_.driver_type);
    fields.text("KernelModuleType", spec_.kernel_module_type.empty() ? "auto" : spec_.kernel_module_type);
    JsonArray args;
    for (const auto& argument : spec_.args) args.emplace_back(argument);
    fields.list("DriverArgs", args);
    fields.text("SecretEnvSource", spec_.secret_env);
    fields.env("DriverEnv", spec_.env);
    fields.env("ManagerEnv", spec_.manager.env);
    fields.text("LicensingConfigName", spec_.licensing_config.secret_name);
    fields.text("VirtualTopologyConfig", spec_.virtual_topology_config.name);
    fields.text("KernelModuleConfig", spec_.kernel_module_config.name);
    fields.text("RepoConfig", spec_.repo_config.name);
    fields.text("CertConfig", spec_.cert_config.name);
    if (spec_.rdma.enabled) {
      fields.flag("GPUDirectRDMAEnabled");
      fields.text("PeermemImage", image);
      if (spec_.rdma.use_host_mofed) fields.flag("UseHostMOFED");
    }
    if (const Json* gds = find_container(pod, kGds)) {
      fields.flag("GDSEnabled");
      fields.text("GDSImage", get_string(*gds, {"image"}));
      fields.env("GDSEnv", spec_.gds.env);
    }
    if (const Json* gdrcopy = find_container(pod, kGdrcopy)) {
      fields.flag("GDRCopyEnabled");
      fields.text("GDRCopyImage", get_string(*gdrcopy, {"image"}));
      fields.env("GDRCopyEnv", spec_.gdrcopy.env);
    }
    if (spec_.use_precompiled) fields.flag("UsePrecompiled");
    fields.text("KernelVersion", pool.kernel);
    openshift_fields(pod, pool, fields);
    fields.text("HostRoot", host_root_.empty() ? "/" : host_root_);
    fields.volumes(pod, known);
    return fields.digest();
  }

  void openshift_fields(const Json& pod, const DriverPool& pool, DriverDigest& fields) const {
    fields.text("OpenshiftVersion", facts_.openshift_version);
    fields.text("RHCOSVersion", pool.rhcos);
    if (const Json* toolkit = find_container(pod, kToolkit)) {
      fields.flag("DTKEnabled");
      fields.text("DTKImage", get_string(*toolkit, {"image"}));
    }
    if (!facts_.proxy) return;
    fields.text("HTTPProxy", facts_.proxy->http);
    fields.text("HTTPSProxy", facts_.proxy->https);
    fields.text("NoProxy", facts_.proxy->no_proxy);
    if (facts_.proxy->trusted_ca) fields.text("TrustedCAConfigMapName", "gpu-operator-trusted-ca");
  }

  static void set_digest(Json& pod, const std::string& digest) {
    for (std::string_view name : {kManager, kDriver, kToolkit}) {
      if (Json* container = find_container(pod, name)) set_env(*container, kDigest, digest);
    }
  }

  const policy::NvidiaDriver& driver_;
  const policy::NvidiaDriverSpec& spec_;
  const ClusterFacts& facts_;
  const Assets& assets_;
  std::string host_root_;
  policy::ClusterPolicy policy_;
};

}  // namespace

State render_driver(const policy::NvidiaDriver& driver, const std::vector<DriverPool>& pools,
                    const ClusterFacts& facts, const Assets& assets, const std::string& host_root) {
  State state;
  state.name = "state-driver";
  state.enabled = true;
  DriverRenderer renderer(driver, facts, assets, host_root);
  Result<> done = renderer.check();
  std::set<ObjectRef> made;
  for (const auto& pool : pools) {
    if (done) done = renderer.add(state, pool);
  }
  if (!done) {
    state.error = std::move(done).error();
    state.objects.clear();
  }
  // Pools of one operating system share their account, and all pools the startup probe's script.
  std::erase_if(state.objects, [&made](const Json& object) { return !made.insert(ref_of(object)).second; });
  return state;
}

}  // namespace gpuop::op

// The driver's DaemonSets: layouts (plain, precompiled, OpenShift's driver toolkit) and what goes into their
// pods (operator.md §5.4, §8.1; operands-driver-validator.md §3.4).
#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "fleet/image_reference.h"
#include "operator/digest.h"
#include "operator/driver_parts.h"
#include "operator/pod.h"
#include "operator/shape.h"

namespace gpuop::op {

namespace {

constexpr std::string_view kNodeKernel = "feature.node.kubernetes.io/kernel-version.full";
constexpr std::string_view kNodeOstree = "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION";

bool is_suse(const std::string& os) {
  return os == "sles" || os == "sl-micro";
}
bool is_debian(const std::string& os) {
  return os == "ubuntu" || os == "debian";
}
bool is_red_hat(const std::string& os) {
  return os == "centos" || os == "rhcos" || os == "rhel" || os == "rocky" || os == "ol";
}

Result<std::string> folder_for(const std::string& os, std::string_view debian, std::string_view red_hat,
                               std::string_view suse, std::string_view field) {
  if (is_debian(os)) return std::string(debian);
  if (is_red_hat(os)) return std::string(red_hat);
  if (is_suse(os)) return std::string(suse);
  return fail(Code::kUnsupported,
              std::string(field) + ": there is no known folder for it on operating system '" + os + "'");
}

Result<const std::vector<std::string>*> keys_of(const View& view, const std::string& name,
                                                std::string_view field) {
  auto found = view.facts.config_maps.find(name);
  if (found == view.facts.config_maps.end())
    return fail(Code::kNotFound, std::string(field) + ": ConfigMap '" + name +
                                     "' does not exist in namespace '" + view.facts.operator_namespace + "'");
  return &found->second;
}

// Mounts every key of a ConfigMap as a file of `folder` in each container.
void mount_keys(Json& pod, std::initializer_list<std::string_view> containers, const std::string& name,
                std::vector<std::string> keys, const std::string& folder) {
  std::ranges::sort(keys);
  for (std::string_view container : containers) {
    Json* found = find_container(pod, container);
    if (!found) continue;
    for (const std::string& key : keys)
      add_mount(*found,
                JsonObject{
                    {"name", name}, {"mountPath", folder + "/" + key}, {"subPath", key}, {"readOnly", true}});
  }
  add_volume(pod, config_map_volume(name, name, keys));
}

// Without a word of the user the driver is looked at from the start, for as long as upstream would wait in
// all, and by few probes that wait for it: each that fails is a Warning event. A driver that we took over
// keeps its pods' form.
void quicken_startup(const View& view, Json& container, const std::string& daemonset) {
  if (view.facts.taken_over.contains(daemonset)) return;
  const std::optional<policy::Probe>& user = view.spec.driver.startup_probe;
  if (user && (user->initial_delay_seconds || user->period_seconds || user->failure_threshold)) return;
  constexpr std::int64_t kAll = 1200, kOne = 300, kMargin = 10;
  const std::int64_t limit = user && user->timeout_seconds ? user->timeout_seconds : kOne;
  remove(container, {"startupProbe", "initialDelaySeconds"});
  set(container, {"startupProbe", "periodSeconds"}, 1);
  set(container, {"startupProbe", "timeoutSeconds"}, limit);
  set(container, {"startupProbe", "failureThreshold"}, std::max<std::int64_t>(1, kAll / limit));
  if (limit > kMargin)
    find_mutable(container, {"startupProbe", "exec", "command"})
        ->as_array()
        .push_back(Json(std::to_string(limit - kMargin)));
}

// Upstream's required anti-affinity leaves such DaemonSets misscheduled for ever on clusters of several
// nodes; a preference does what it was for (operator.md §1.4, OURS).
void relax_affinity(const View& view, Json& pod, const std::string& daemonset) {
  if (view.facts.taken_over.contains(daemonset)) return;
  JsonArray preferred;
  for (const Json& term :
       get_array(pod, {"affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"}))
    preferred.push_back(JsonObject{{"weight", 100}, {"podAffinityTerm", term}});
  if (preferred.empty()) return;
  remove(pod, {"affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"});
  set(pod, {"affinity", "podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution"},
      std::move(preferred));
}

void shape_manager_env(const View& view, Json& manager) {
  const policy::DriverSpec& spec = view.spec.driver;
  if (spec.rdma.enabled) {
    set_env(manager, "GPU_DIRECT_RDMA_ENABLED", "true");
    if (spec.rdma.use_host_mofed) set_env(manager, "USE_HOST_MOFED", "true");
  }
  set_env(manager, spec.manager.env);
}

void shape_driver_env(const View& view, Json& pod, Json& driver) {
  const policy::DriverSpec& spec = view.spec.driver;
  const std::string type = spec.kernel_module_type.empty() ? "auto" : spec.kernel_module_type;
  set_env(driver, "KERNEL_MODULE_TYPE", type);
  if (type == "open") set_env(driver, "OPEN_KERNEL_MODULES_ENABLED", "true");
  if (view.spec.gdrcopy.enabled) set_env(driver, "GDRCOPY_ENABLED", "true");
  if (view.spec.gds.enabled) set_env(driver, "GDS_ENABLED", "true");
  if (spec.rdma.enabled) {
    set_env(driver, "GPU_DIRECT_RDMA_ENABLED", "true");
    if (spec.rdma.use_host_mofed) {
      set_env(driver, "USE_HOST_MOFED", "true");
      if (Json* volume = find_volume(pod, "mlnx-ofed-usr-src"))
        set(*volume, {"hostPath", "path"}, "/usr/src");
    }
  }
  set_env(driver, spec.env);
  if (view.facts.openshift()) set_env(driver, "OPENSHIFT_VERSION", view.facts.openshift_version);
}

void set_digest(Json& pod) {
  std::string digest = driver_digest(pod);
  for (std::string_view name : {kManager, kDriver, kToolkit})
    if (Json* container = find_container(pod, name)) set_env(*container, "DRIVER_CONFIG_DIGEST", digest);
}

}  // namespace

void set_probe(Json& container, std::string_view kind, const std::optional<policy::Probe>& probe) {
  if (!probe) return;
  // Liveness and readiness have no template: the startup script says whether the driver works (D-03).
  if (!has(container, {kind}))
    set(container, {kind, "exec", "command"}, JsonArray{"sh", "/usr/local/bin/startup-probe.sh"});
  auto number = [&](std::string_view field, std::int64_t value) {
    if (value != 0) set(container, {kind, field}, value);
  };
  number("initialDelaySeconds", probe->initial_delay_seconds);
  number("timeoutSeconds", probe->timeout_seconds);
  number("periodSeconds", probe->period_seconds);
  number("successThreshold", probe->success_threshold);
  number("failureThreshold", probe->failure_threshold);
}

void add_licensing(const View& view, Json& pod, Json& driver) {
  const policy::DriverSpec::Licensing& licensing = view.spec.driver.licensing_config;
  bool secret = !licensing.secret_name.empty();
  if (!secret && licensing.config_map_name.empty()) return;
  std::vector<std::pair<std::string, std::string>> files = {{"gridd.conf", "/drivers/gridd.conf"}};
  if (licensing.nls_enabled)
    files.emplace_back("client_configuration_token.tok",
                       "/drivers/ClientConfigToken/client_configuration_token.tok");
  JsonArray items;
  for (const auto& [key, path] : files) {
    items.push_back(JsonObject{{"key", key}, {"path", key}});
    add_mount(
        driver,
        JsonObject{{"name", "licensing-config"}, {"mountPath", path}, {"subPath", key}, {"readOnly", true}});
  }
  JsonObject volume{{"name", "licensing-config"}};
  if (secret)
    volume["secret"] = JsonObject{{"secretName", licensing.secret_name}, {"items", std::move(items)}};
  else
    volume["configMap"] = JsonObject{{"name", licensing.config_map_name}, {"items", std::move(items)}};
  add_volume(pod, std::move(volume));
}

void add_topology(const View& view, Json& pod, Json& driver) {
  const std::string& name = view.spec.driver.virtual_topology.config;
  if (name.empty()) return;
  const std::string key = "nvidia-topologyd.conf";
  add_mount(driver, JsonObject{{"name", "topology-config"},
                               {"mountPath", "/etc/nvidia/" + key},
                               {"subPath", key},
                               {"readOnly", true}});
  add_volume(pod, config_map_volume("topology-config", name, std::vector<std::string>{key}));
}

void add_subscription(const View& view, Json& pod, Json& driver, const std::string& os) {
  struct Part {
    std::string_view at, host, type;
  };
  std::vector<Part> parts;
  if (os == "rhel" && !view.facts.openshift() && view.facts.runtime != "crio" &&
      view.spec.driver.repo_config.config_map_name.empty())
    parts = {{"/run/secrets/etc-pki-entitlement", "/etc/pki/entitlement", "Directory"},
             {"/run/secrets/redhat.repo", "/etc/yum.repos.d/redhat.repo", "File"},
             {"/run/secrets/rhsm", "/etc/rhsm", "Directory"}};
  if (is_suse(os))
    parts = {{"/etc/SUSEConnect", "/etc/SUSEConnect", "FileOrCreate"},
             {"/etc/zypp/credentials.d", "/etc/zypp/credentials.d", "Directory"}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::string name = "subscription-config-" + std::to_string(i);
    add_mount(driver, JsonObject{{"name", name}, {"mountPath", parts[i].at}, {"readOnly", true}});
    add_volume(pod, host_path_volume(name, parts[i].host, parts[i].type));
  }
}

Result<> add_repo_config(const View& view, Json& pod, const std::string& name, const std::string& os,
                         std::string_view field) {
  if (name.empty()) return {};
  mount_keys(pod, {kDriver, kGds, kGdrcopy}, name, *TRY(keys_of(view, name, field)),
             TRY(folder_for(os, "/etc/apt/sources.list.d", "/etc/yum.repos.d", "/etc/zypp/repos.d", field)));
  return {};
}

Result<> add_cert_config(const View& view, Json& pod, const std::string& name, const std::string& os,
                         std::string_view field) {
  if (name.empty()) return {};
  mount_keys(pod, {kDriver, kGds, kGdrcopy}, name, *TRY(keys_of(view, name, field)),
             TRY(folder_for(os, "/usr/local/share/ca-certificates", "/etc/pki/ca-trust/extracted/pem",
                            "/etc/pki/trust/anchors", field)));
  return {};
}

void add_suse_modules(Json& pod, Json& driver, const std::string& os) {
  if (!is_suse(os)) return;
  add_mount(driver,
            JsonObject{{"name", "lib-modules"}, {"mountPath", "/run/host/lib/modules"}, {"readOnly", true}});
  add_volume(pod, host_path_volume("lib-modules", "/lib/modules", "Directory"));
}

std::optional<Json> trusted_ca(const ClusterFacts& facts) {
  if (!facts.openshift() || !facts.proxy || !facts.proxy->trusted_ca) return std::nullopt;
  Json out = JsonObject{{"apiVersion", "v1"},
                        {"kind", "ConfigMap"},
                        {"metadata", JsonObject{{"name", "gpu-operator-trusted-ca"}}},
                        {"data", JsonObject{{"ca-bundle.crt", ""}}}};
  set(out, {"metadata", "labels", kInjectCertificates}, "true");
  return out;
}

void add_proxy(const View& view, Json& pod, bool http_first) {
  if (!view.facts.proxy) return;
  const ClusterFacts::Proxy& proxy = *view.facts.proxy;
  std::array<std::pair<std::string, std::string>, 3> pairs = {
      {{"HTTPS_PROXY", proxy.https}, {"HTTP_PROXY", proxy.http}, {"NO_PROXY", proxy.no_proxy}}};
  if (http_first) std::swap(pairs[0], pairs[1]);
  bool any = std::ranges::any_of(pairs, [](const auto& pair) { return !pair.second.empty(); });
  if (!any && !proxy.trusted_ca) return;
  if (proxy.trusted_ca)
    add_volume(
        pod, JsonObject{
                 {"name", "gpu-operator-trusted-ca"},
                 {"configMap", JsonObject{{"name", "gpu-operator-trusted-ca"},
                                          {"items", JsonArray{JsonObject{{"key", "ca-bundle.crt"},
                                                                         {"path", "tls-ca-bundle.pem"}}}}}}});
  for (Json* container : all_containers(pod)) {
    if (!get_string(*container, {"name"}).contains("nvidia-driver")) continue;
    for (const auto& [name, value] : pairs) {
      if (value.empty()) continue;
      set_env(*container, name, value);
      set_env(*container, to_lower(name), value);
    }
    if (proxy.trusted_ca)
      add_mount(*container, JsonObject{{"name", "gpu-operator-trusted-ca"},
                                       {"mountPath", "/etc/pki/ca-trust/extracted/pem"},
                                       {"readOnly", true}});
  }
}

Result<> shape_sidecar(const View& view, Json& pod, std::string_view name, const policy::Sidecar& spec,
                       std::string_view what, std::string_view variable, const DriverLayout& layout) {
  if (!spec.enabled) {
    drop_container(pod, name);
    return {};
  }
  if (layout.precompiled)
    return fail(Code::kInvalid,
                "spec." + std::string(what) + ".enabled: " +
                    (name == kGds ? std::string("GPUDirect Storage (nvidia-fs)") : std::string("GDRCopy")) +
                    " cannot be used with precompiled drivers; turn off spec.driver.usePrecompiled or this");
  Json* container = find_container(pod, name);
  if (!container) return {};
  set_image(pod, *container, TRY(os_image(view, spec, what, variable, os_tag(layout.node))), spec);
  set_resources(*container, view.spec.driver.resources);
  set_env(*container, spec.env);
  return {};
}

void add_secret_env(const View& view, Json& pod) {
  const std::string& secret = view.spec.driver.secret_env;
  if (secret.empty()) return;
  for (std::string_view name : {kDriver, kGds, kGdrcopy})
    if (Json* container = find_container(pod, name))
      set(*container, {"envFrom"}, JsonArray{JsonObject{{"secretRef", JsonObject{{"name", secret}}}}});
}

void shape_peermem(const View& view, Json& pod, const std::string& image) {
  const policy::DriverSpec& spec = view.spec.driver;
  if (!spec.rdma.enabled) return drop_container(pod, kPeermem);
  Json* peermem = find_container(pod, kPeermem);
  if (!peermem) return;
  set_image(pod, *peermem, image, spec);
  set_resources(*peermem, spec.resources);
  if (spec.rdma.use_host_mofed) set_env(*peermem, "USE_HOST_MOFED", "true");
}

Result<std::string> os_image(const View& view, const policy::ImageSpec& spec, std::string_view what,
                             std::string_view variable, const std::string& suffix) {
  std::string image = TRY(resolve_image(spec, what, variable, view.facts.env));
  if (!image.contains("sha256:")) image += "-" + suffix;
  if (!fleet::is_image_reference(image))
    return fail(Code::kInvalid,
                "resolve image of '" + std::string(what) + "': '" + image + "' is not an image reference");
  return image;
}

Result<> mount_kernel_module_config(const View& view, Json& pod,
                                    std::initializer_list<std::string_view> containers,
                                    const std::string& name, std::string_view field) {
  if (name.empty()) return {};
  mount_keys(pod, containers, name, *TRY(keys_of(view, name, field)), "/drivers");
  return {};
}

void note_module_config(const View& view, Json& daemonset, const std::string& name) {
  const auto hash = view.facts.config_map_hashes.find(name);
  if (hash == view.facts.config_map_hashes.end()) return;
  const std::string now = name + ":" + hash->second;
  const auto seen = view.facts.module_configs.find(str(get_string(daemonset, {"metadata", "name"})));
  const bool known = seen != view.facts.module_configs.end() && seen->second.first.starts_with(name + ":");
  const std::string& first = known ? seen->second.first : now;
  set(daemonset, {"metadata", "annotations", kModuleConfigFirst}, first);
  if (known && (seen->second.changed || first != now))
    set(daemonset, {"spec", "template", "metadata", "annotations", kModuleConfig}, now);
}

void shape_driver_toolkit(const View& view, Json& pod, const DriverLayout& layout, std::string_view main,
                          const std::string& main_image) {
  constexpr std::string_view kShared = "shared-nvidia-driver-toolkit";
  drop_volume(pod, kShared);
  if (layout.rhcos.empty()) return drop_container(pod, kToolkit);
  add_volume(pod, JsonObject{{"name", kShared}, {"emptyDir", JsonObject{}}});
  const auto& images = *view.facts.driver_toolkit_images;
  auto image = images.find(layout.rhcos);
  bool missing = image == images.end();
  Json& toolkit = *find_container(pod, kToolkit);
  set(toolkit, {"image"}, missing ? main_image : image->second);
  set_resources(toolkit, view.spec.driver.resources);
  set_env(toolkit, "RHCOS_VERSION", layout.rhcos);
  if (view.spec.gds.enabled) set_env(toolkit, "GDS_ENABLED", "true");
  if (view.spec.gdrcopy.enabled) set_env(toolkit, "GDRCOPY_ENABLED", "true");
  const std::pair<std::string_view, std::string_view> commands[] = {{main, "nv-ctr-run-with-dtk"},
                                                                    {kGds, "nv-fs-ctr-run-with-dtk"},
                                                                    {kGdrcopy, "gdrcopy-ctr-run-with-dtk"}};
  for (const auto& [name, arg] : commands) {
    Json* container = find_container(pod, name);
    if (!container) continue;
    set(*container, {"command"}, JsonArray{"ocp_dtk_entrypoint"});
    set(*container, {"args"}, JsonArray{Json(arg)});
    add_mount(*container, JsonObject{{"name", kShared}, {"mountPath", "/mnt/" + std::string(kShared)}});
  }
  if (missing) {
    set_env(toolkit, "RHCOS_IMAGE_MISSING", "true");
    Json& driver = *find_container(pod, main);
    set_env(driver, "RHCOS_IMAGE_MISSING", "true");
    set_env(driver, "RHCOS_VERSION", layout.rhcos);
  }
}

void label_driver_toolkit(const View& view, Json& daemonset, const std::string& rhcos) {
  set_label(daemonset, "openshift.driver-toolkit", "true");
  set(daemonset, {"metadata", "labels", "openshift.driver-toolkit.rhcos"}, rhcos);
  if (!view.facts.driver_toolkit_images->contains(rhcos))
    set_label(daemonset, "openshift.driver-toolkit.rhcos-image-missing", "true");
}

void name_layout(const View& view, Json& daemonset, const DriverLayout& layout) {
  set(daemonset, {"metadata", "name"}, layout.name);
  Json& pod = pod_spec(daemonset);
  if (layout.precompiled) {
    set_label(daemonset, "nvidia.com/precompiled", "true");
    set(pod, {"nodeSelector", kNodeKernel}, layout.node.kernel);
  }
  if (layout.rhcos.empty()) return;
  set_label(daemonset, "app", layout.name);
  set(daemonset, {"spec", "selector", "matchLabels", "app"}, layout.name);
  label_driver_toolkit(view, daemonset, layout.rhcos);
  set(pod, {"nodeSelector", kNodeOstree}, layout.rhcos);
}

bool uses_driver_toolkit(const View& view) {
  if (!view.facts.openshift() || view.spec.driver.use_precompiled ||
      !view.spec.op.use_ocp_driver_toolkit.value_or(true) || !view.facts.driver_toolkit_images)
    return false;
  return std::ranges::any_of(view.facts.gpu_nodes, [](const GpuNode& node) { return !node.ostree.empty(); });
}

Result<std::vector<DriverLayout>> driver_layouts(const View& view, const std::string& base,
                                                 bool precompiled) {
  std::vector<DriverLayout> layouts;
  if (precompiled) {
    std::map<std::string, GpuNode> kernels;
    for (const GpuNode& node : view.facts.gpu_nodes) {
      if (node.kernel.empty())
        return fail(Code::kInvalid, "find kernels for precompiled drivers: node '" + node.name +
                                        "' lacks the label " + std::string(kNodeKernel));
      auto [known, fresh] = kernels.emplace(node.kernel, node);
      std::string here = node.os_id + node.os_version, there = known->second.os_id + known->second.os_version;
      if (!fresh && here != there)
        return fail(Code::kInvalid, "find kernels for precompiled drivers: kernel '" + node.kernel +
                                        "' runs on both " + there + " (node '" + known->second.name +
                                        "') and " + here + " (node '" + node.name + "')");
    }
    for (const auto& [kernel, node] : kernels)
      layouts.push_back({.name = base + "-" + sanitized_kernel(kernel) + "-" + node.os_id + node.os_version,
                         .node = node,
                         .precompiled = true});
    return layouts;
  }
  std::map<std::string, std::string> tags;  // OS tag to a node that has it
  for (const GpuNode& node : view.facts.gpu_nodes) {
    if (node.os_id.empty() || node.os_version.empty())
      return fail(Code::kInvalid,
                  "find the operating system of GPU nodes: node '" + node.name +
                      "' lacks the labels feature.node.kubernetes.io/system-os_release.ID and .VERSION_ID");
    tags.emplace(os_tag(node), node.name);
  }
  if (tags.size() > 1) {
    std::vector<std::string> seen;
    seen.reserve(tags.size());
    for (const auto& [tag, node] : tags) seen.push_back(tag + " ('" + node + "')");
    return fail(Code::kInvalid,
                "find the operating system of GPU nodes: there are several: " + join(seen, ", ") +
                    "; one ClusterPolicy's driver serves one, use NVIDIADriver resources for more");
  }
  if (view.facts.gpu_nodes.empty()) return layouts;
  const GpuNode& node = view.facts.gpu_nodes.front();
  if (!uses_driver_toolkit(view)) return std::vector<DriverLayout>{{.name = base, .node = node}};
  std::set<std::string> versions;
  for (const GpuNode& each : view.facts.gpu_nodes)
    if (!each.ostree.empty()) versions.insert(each.ostree);
  for (const std::string& version : versions)
    layouts.push_back({.name = base + "-" + version, .node = node, .rhcos = version});
  return layouts;
}

namespace {

Result<> add_config_files(const View& view, Json& pod, Json& driver, const DriverLayout& layout) {
  const policy::DriverSpec& spec = view.spec.driver;
  const std::string& os = layout.node.os_id;
  add_licensing(view, pod, driver);
  add_topology(view, pod, driver);
  TRY(mount_kernel_module_config(view, pod, {kDriver, kPeermem}, spec.kernel_module_config.name,
                                 "spec.driver.kernelModuleConfig"));
  if (layout.precompiled) {
    add_suse_modules(pod, driver, os);
    return {};
  }
  TRY(add_repo_config(view, pod, spec.repo_config.config_map_name, os, "spec.driver.repoConfig"));
  TRY(add_cert_config(view, pod, spec.cert_config.name, os, "spec.driver.certConfig"));
  add_subscription(view, pod, driver, os);
  return {};
}

}  // namespace

Result<> shape_driver(const View& view, Json& daemonset, const DriverLayout& layout) {
  const policy::DriverSpec& spec = view.spec.driver;
  name_layout(view, daemonset, layout);
  Json& pod = pod_spec(daemonset);
  if (!spec.secret_env.empty() && !view.facts.secrets.contains(spec.secret_env))
    return fail(Code::kNotFound, "spec.driver.secretEnv: Secret '" + spec.secret_env +
                                     "' does not exist in namespace '" + view.facts.operator_namespace + "'");
  for (const policy::ImageSpec* image :
       {static_cast<const policy::ImageSpec*>(&spec.manager), static_cast<const policy::ImageSpec*>(&spec)})
    add_pull_secrets(pod, image->image_pull_secrets);
  TRY(shape_sidecar(view, pod, kGds, view.spec.gds, "gds", "GDS_IMAGE", layout));
  TRY(shape_sidecar(view, pod, kGdrcopy, view.spec.gdrcopy, "gdrcopy", "GDRCOPY_IMAGE", layout));
  std::string suffix = (layout.precompiled ? layout.node.kernel + "-" : "") + os_tag(layout.node);
  std::string image = TRY(os_image(view, spec, "driver", "DRIVER_IMAGE", suffix));
  shape_peermem(view, pod, image);

  Json* manager = find_container(pod, "initContainers", kManager);
  Json* driver = find_container(pod, "containers", kDriver);
  if (!manager || !driver)
    return fail(Code::kInvalid, "shape DaemonSet '" + layout.name + "': its manifest lacks " +
                                    std::string(kManager) + " or " + std::string(kDriver));
  set_image(pod, *manager,
            TRY(resolve_image(spec.manager, "driver.manager", "DRIVER_MANAGER_IMAGE", view.facts.env)),
            spec.manager);
  set_resources(*manager, spec.resources);
  shape_manager_env(view, *manager);

  set_image(pod, *driver, image, spec);
  set_resources(*driver, spec.resources);
  set_args(*driver, spec.args);
  set_probe(*driver, "startupProbe", spec.startup_probe);
  set_probe(*driver, "livenessProbe", spec.liveness_probe);
  set_probe(*driver, "readinessProbe", spec.readiness_probe);
  quicken_startup(view, *driver, layout.name);
  relax_affinity(view, pod, layout.name);
  shape_driver_env(view, pod, *driver);
  TRY(add_config_files(view, pod, *driver, layout));
  add_secret_env(view, pod);
  add_proxy(view, pod, false);
  shape_driver_toolkit(view, pod, layout, kDriver, image);
  if (spec.host_network) use_host_network(pod);
  set_digest(pod);
  note_module_config(view, daemonset, spec.kernel_module_config.name);
  return {};
}

}  // namespace gpuop::op

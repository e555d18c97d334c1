// The declaration of GPUCluster: every field of operator.md §1.5, once.
#include "policy/gpu_cluster.h"

#include "policy/crds.h"
#include "policy/schema.h"

namespace gpuop::policy {

// Declared with ClusterPolicy.
void describe(Fields<DcgmSpec>& f);
void describe(Fields<DcgmExporterSpec>& f);
void describe(Fields<DaemonsetsSpec>& f);

namespace {

const Schema& gate_schema() {
  static const Schema schema = [] {
    Schema s;
    s.kind = Kind::kBool;
    return s;
  }();
  return schema;
}

}  // namespace

void describe(Fields<GpuClusterSpec::Healthcheck>& f) {
  using Healthcheck = GpuClusterSpec::Healthcheck;
  f.add("enabled", &Healthcheck::enabled, "Answer health checks.").default_value(true);
  f.add("port", &Healthcheck::port, "Port of the health check.").int32().min(1).max(65535);
}
void describe(Fields<GpuClusterSpec::KubeletPlugin>& f) {
  using Plugin = GpuClusterSpec::KubeletPlugin;
  add_env(f);
  add_resources(f);
  f.add("healthcheck", &Plugin::healthcheck, "Health check of the kubelet plugin.");
}
void describe(Fields<GpuClusterSpec::Controller>& f) {
  add_env(f);
  add_resources(f);
}
void describe(Fields<GpuClusterSpec::Gpus>& f) {
  f.add("kubeletPlugin", &GpuClusterSpec::Gpus::kubelet_plugin, "The kubelet plugin that prepares GPUs.");
}
void describe(Fields<GpuClusterSpec::ComputeDomains>& f) {
  using Domains = GpuClusterSpec::ComputeDomains;
  f.add("enabled", &Domains::enabled, "Serve compute domains: GPUs of several nodes with shared memory.")
      .default_value(true);
  f.add("controller", &Domains::controller, "The controller of compute domains.");
  f.add("kubeletPlugin", &Domains::kubelet_plugin, "The kubelet plugin that prepares compute domains.");
}
void describe(Fields<GpuClusterSpec::DraDriver>& f) {
  using Driver = GpuClusterSpec::DraDriver;
  f.add("repository", &Driver::repository, "Registry and path of the image, without its name.");
  f.add("image", &Driver::image, "Image name; with repository and version empty, the whole reference.")
      .pattern("^[a-zA-Z0-9\\-]+$", matches_image_name_whole, "hold letters, digits and '-' only");
  f.add("version", &Driver::version, "Image tag, or a digest as sha256:HEX.");
  f.add("imagePullPolicy", &Driver::image_pull_policy,
        "Always, Never or IfNotPresent; anything else counts as IfNotPresent.");
  f.add("imagePullSecrets", &Driver::image_pull_secrets,
        "Names of pull secrets in the operator's namespace.");
  f.add("featureGates", &Driver::feature_gates, "Feature gates of the driver, each true or false.")
      .as(Kind::kMap)
      .items(gate_schema());
  f.add("gpus", &Driver::gpus, "GPUs and MIG devices.");
  f.add("computeDomains", &Driver::compute_domains, "Compute domains.");
}
void describe(Fields<GpuClusterSpec::HostPaths>& f) {
  using Paths = GpuClusterSpec::HostPaths;
  f.add("driverInstallDir", &Paths::driver_install_dir,
        "Where the driver's files are on the host; /run/nvidia/driver when absent.");
  f.add("kubeletRootDir", &Paths::kubelet_root_dir, "The kubelet's root directory.")
      .default_value("/var/lib/kubelet");
}
void describe(Fields<GpuClusterSpec>& f) {
  using Spec = GpuClusterSpec;
  f.add("draDriver", &Spec::dra_driver, "The driver of dynamic resource allocation.").required();
  f.add("dcgm", &Spec::dcgm, "The standalone DCGM host engine.");
  f.add("dcgmExporter", &Spec::dcgm_exporter, "The metrics exporter.");
  f.add("hostPaths", &Spec::host_paths, "Paths on the host.");
  f.add("daemonsets", &Spec::daemonsets, "What all operand DaemonSets have in common.");
}

const Schema& gpu_cluster_spec_schema() {
  return schema_of<GpuClusterSpec>();
}

Result<GpuCluster> parse_gpu_cluster(const Json& object) {
  GpuCluster cluster;
  cluster.name = str(get_string(object, {"metadata", "name"}));
  cluster.uid = str(get_string(object, {"metadata", "uid"}));
  TRY_IN(read_spec(gpu_cluster_spec_schema(), object, &cluster.spec, cluster.notes),
         "load GPUCluster '" + cluster.name + "'");
  return cluster;
}

}  // namespace gpuop::policy

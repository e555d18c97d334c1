#include "operator/metrics.h"

#include <map>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "operator/facts.h"

namespace gpuop::op {
namespace {

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge()
      .Name(std::string("gpu_operator_") + name)
      .Help(help)
      .Register(registry)
      .Add({});
}
prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter()
      .Name(std::string("gpu_operator_") + name)
      .Help(help)
      .Register(registry)
      .Add({});
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  prometheus::Gauge& gpu_nodes = gauge(registry, "gpu_nodes_total", "Nodes with nvidia.com/gpu.present=true");
  prometheus::Gauge& status = gauge(registry, "reconciliation_status",
                                    "1 all ready, 0 operands not ready, -1 no ClusterPolicy to act on");
  prometheus::Counter& passes = counter(registry, "reconciliation_total", "Reconciles of the ClusterPolicy");
  prometheus::Counter& failed = counter(registry, "reconciliation_failed_total",
                                        "Reconciles that ended with an error or with operands not ready");
  prometheus::Counter& errors =
      counter(registry, "reconciliation_errors_total", "Reconciles that ended with an error");
  prometheus::Gauge& last_success = gauge(registry, "reconciliation_last_success_ts_seconds",
                                          "When all operands were last found ready, in Unix seconds");
  prometheus::Gauge& has_nfd =
      gauge(registry, "reconciliation_has_nfd_labels", "1 when node feature discovery labels nodes");
  prometheus::Gauge& auto_upgrade =
      gauge(registry, "driver_auto_upgrade_enabled", "1 when driver upgrades are automatic");
  prometheus::Gauge& toolkit = gauge(
      registry, "openshift_driver_toolkit_enabled",
      "1 when drivers are built in OpenShift's driver toolkit, 0 when that is not asked for, -1 when it "
      "is and cannot be");
  prometheus::Gauge& toolkit_nfd = gauge(registry, "openshift_driver_toolkit_nfd_too_old",
                                         "1 when no GPU node has its RHCOS version in a label");
  prometheus::Gauge& toolkit_stream = gauge(registry, "openshift_driver_toolkit_imagestream_missing",
                                            "1 when there is no ImageStream driver-toolkit");
  prometheus::Gauge& toolkit_tags = gauge(registry, "openshift_driver_toolkit_rhcos_tags_missing",
                                          "1 when it has no image for an RHCOS version in use");
  prometheus::Gauge& toolkit_broken =
      gauge(registry, "openshift_driver_toolkit_imagestream_broken", "1 when it has a tag without a name");
  prometheus::Counter& writes =
      counter(registry, "object_writes_total", "Objects created, replaced or deleted");
  prometheus::Family<prometheus::Gauge>& compatibility =
      prometheus::BuildGauge()
          .Name("gpu_operator_compatibility_findings")
          .Help("What does not go together: errors cannot work, warnings are outside what is supported")
          .Register(registry);
  // Only nodes that are not ready have a series.
  prometheus::Family<prometheus::Gauge>& broken =
      prometheus::BuildGauge()
          .Name("gpu_operator_gpu_node_not_ready")
          .Help(
              "1 for each GPU node that is not ready: the first stage that it lacks, and the reason of its "
              "condition GPUReady")
          .Register(registry);
  struct Broken {
    std::string stage, reason;
    prometheus::Gauge* gauge;
  };
  std::map<std::string, Broken> nodes;
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  impl_->status.Set(-1);
}
Metrics::~Metrics() = default;

void Metrics::set_gpu_nodes(std::size_t count) {
  impl_->gpu_nodes.Set(static_cast<double>(count));
}
void Metrics::set_status(int status) {
  impl_->status.Set(status);
}
void Metrics::count_pass(bool failed) {
  impl_->passes.Increment();
  if (failed) impl_->failed.Increment();
}
void Metrics::count_error() {
  impl_->errors.Increment();
}
void Metrics::set_last_success(double unix_seconds) {
  impl_->last_success.Set(unix_seconds);
}
void Metrics::set_has_nfd_labels(bool yes) {
  impl_->has_nfd.Set(yes ? 1 : 0);
}
void Metrics::set_auto_upgrade(bool on) {
  impl_->auto_upgrade.Set(on ? 1 : 0);
}
void Metrics::set_driver_toolkit(const ToolkitFindings& findings) {
  impl_->toolkit.Set(findings.enabled);
  impl_->toolkit_nfd.Set(findings.nfd_too_old ? 1 : 0);
  impl_->toolkit_stream.Set(findings.stream_missing ? 1 : 0);
  impl_->toolkit_tags.Set(findings.tags_missing ? 1 : 0);
  impl_->toolkit_broken.Set(findings.stream_broken ? 1 : 0);
}
void Metrics::count_write(int count) {
  impl_->writes.Increment(count);
}

void Metrics::set_node(const std::string& node, const std::string& stage, const std::string& reason) {
  const auto found = impl_->nodes.find(node);
  if (found != impl_->nodes.end()) {
    if (found->second.stage == stage && found->second.reason == reason) return;
    impl_->broken.Remove(found->second.gauge);
    impl_->nodes.erase(found);
  }
  if (stage.empty()) return;
  auto& gauge = impl_->broken.Add({{"node", node}, {"stage", stage}, {"reason", reason}});
  gauge.Set(1);
  impl_->nodes.emplace(node, Impl::Broken{stage, reason, &gauge});
}

void Metrics::set_compatibility(std::size_t errors, std::size_t warnings) {
  impl_->compatibility.Add({{"severity", "error"}}).Set(static_cast<double>(errors));
  impl_->compatibility.Add({{"severity", "warning"}}).Set(static_cast<double>(warnings));
}

std::string Metrics::text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace gpuop::op

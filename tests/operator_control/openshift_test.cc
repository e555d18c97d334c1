// OpenShift as far as the operator sees it: its version, proxy, driver toolkit and the kinds that only it
// has (operator.md §3.1, §5.4, §7.1, §8.1).
#include <gtest/gtest.h>

#include "base/text.h"
#include "operator/cache.h"
#include "test_cluster.h"

namespace gpuop::op {
namespace {

constexpr const char* kRhcosGpu =
    R"("feature.node.kubernetes.io/pci-10de.present":"true","feature.node.kubernetes.io/system-os_release.ID":"rhcos",
       "feature.node.kubernetes.io/system-os_release.VERSION_ID":"4.19",
       "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION":"419.96",
       "feature.node.kubernetes.io/kernel-version.full":"5.14.0-570.el9_6.x86_64")";
constexpr const char* kDriver =
    R"({"driver":{"enabled":true,"repository":"r","image":"driver","version":"580.105.08"}})";

constexpr kube::Resource kClusterVersions{"config.openshift.io", "v1", "clusterversions", "ClusterVersion",
                                          false};

// A cluster of OpenShift 4.19, with the image stream of the driver toolkit; the operator starts when it is
// told.
struct Openshift : Cluster {
  Openshift() : Cluster(false) {
    for (const auto* type : {&kClusterVersions, &kProxies, &kImageStreams, &kSecurityContextConstraints,
                             &kPrometheusRules, &kube::kServiceMonitors})
      define(*type);
    create(kClusterVersions, "",
           R"({"metadata":{"name":"version"},"status":{"history":[{"state":"Partial","version":"4.20.1"},
             {"state":"Completed","version":"4.19.7"}]}})");
    create(kProxies, "",
           R"({"metadata":{"name":"cluster"},"spec":{"httpsProxy":"https://p:3128","noProxy":"10.0.0.0/8",
             "trustedCA":{"name":"user-ca-bundle"}}})");
    create(kube::kNamespaces, "", R"({"metadata":{"name":"openshift"}})");
    stream(R"([{"name":"latest","from":{"name":"quay.io/x"}},
               {"name":"419.96","from":{"name":"quay.io/dtk@sha256:12"}}])");
  }
  void stream(const std::string& tags) {
    create(kImageStreams, "openshift",
           R"({"metadata":{"name":"driver-toolkit"},"spec":{"tags":)" + tags + "}}");
  }
  // A node and a policy, and the operator to bring them together.
  void run(const std::string& spec) {
    node("n1", kRhcosGpu);
    policy("p", spec);
    start_operator();
    settle();
  }
};

std::string metric(const Cluster& cluster, const std::string& name) {
  const std::string text = cluster.metrics.text(),
                    key = "\ngpu_operator_openshift_driver_toolkit_" + name + " ";
  const auto at = text.find(key);
  return at == std::string::npos ? ""
                                 : text.substr(at + key.size(), text.find('\n', at + 1) - at - key.size());
}

const Json& container(const Json& daemonset, std::string_view name) {
  static const Json none;
  for (const Json& each : get_array(daemonset, {"spec", "template", "spec", "containers"}))
    if (get_string(each, {"name"}) == name) return each;
  return none;
}

TEST(operator_openshift,
     drivers_are_built_in_the_toolkit_behind_the_proxy_and_every_operand_has_its_constraints) {
  Openshift cluster;
  cluster.run(kDriver);
  const Json driver = cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset-419.96");
  ASSERT_FALSE(driver.is_null()) << to_text(cluster.condition("p", "Error"));
  EXPECT_TRUE(cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset").is_null());
  EXPECT_EQ(get_string(container(driver, "openshift-driver-toolkit-ctr"), {"image"}),
            "quay.io/dtk@sha256:12");
  EXPECT_NE(to_text(container(driver, "nvidia-driver-ctr")).find("https://p:3128"), std::string::npos);
  EXPECT_EQ(cluster.names(kSecurityContextConstraints, ""),
            (std::vector<std::string>{"nvidia-dcgm-exporter", "nvidia-driver", "nvidia-gpu-feature-discovery",
                                      "nvidia-mig-manager", "nvidia-operator-validator"}));
  EXPECT_EQ(cluster.names(kPrometheusRules, kNs),
            (std::vector<std::string>{"nvidia-dcgm-exporter", "nvidia-gpu-operator-metrics"}));
  EXPECT_FALSE(cluster.get(kube::kRoles, kNs, "prometheus-k8s").is_null());
  EXPECT_FALSE(cluster.get(kube::kServiceMonitors, kNs, "gpu-operator").is_null());
  EXPECT_EQ(metric(cluster, "enabled"), "1");
  EXPECT_EQ(metric(cluster, "rhcos_tags_missing"), "0");
  // The certificates are OpenShift's to fill in.
  const Json certificates = cluster.get(kube::kConfigMaps, kNs, "gpu-operator-trusted-ca");
  EXPECT_EQ(kube::label(certificates, kInjectCertificates), "true");
  cluster.merge(kube::kConfigMaps, kNs, "gpu-operator-trusted-ca", R"({"data":{"ca-bundle.crt":"PEM"}})");
  cluster.all_available();
  cluster.loop->run_for(10s);  // words that waited
  const int writes = cluster.writes;
  cluster.loop->run_for(10min);
  EXPECT_EQ(cluster.writes, writes);
  EXPECT_EQ(
      get_string(cluster.get(kube::kConfigMaps, kNs, "gpu-operator-trusted-ca"), {"data", "ca-bundle.crt"}),
      "PEM");

  // An edit of what is ours is put back, a state that is off takes its own away.
  cluster.merge(kSecurityContextConstraints, "", "nvidia-mig-manager", R"({"allowHostIPC":false})");
  cluster.settle();
  EXPECT_TRUE(get_bool(cluster.get(kSecurityContextConstraints, "", "nvidia-mig-manager"), {"allowHostIPC"}));
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"dcgmExporter":{"enabled":false}}})");
  cluster.settle();
  EXPECT_TRUE(cluster.get(kSecurityContextConstraints, "", "nvidia-dcgm-exporter").is_null());
  EXPECT_EQ(cluster.names(kPrometheusRules, kNs), std::vector<std::string>{"nvidia-gpu-operator-metrics"});
}

TEST(operator_openshift, what_the_toolkit_lacks_is_a_metric_and_drivers_build_without_it) {
  Openshift cluster;
  cluster.remove(kImageStreams, "openshift", "driver-toolkit");
  cluster.run(kDriver);
  EXPECT_EQ(metric(cluster, "enabled"), "-1");
  EXPECT_EQ(metric(cluster, "imagestream_missing"), "1");
  EXPECT_FALSE(cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset").is_null());
  // The stream comes, with a tag too few and one without a name.
  cluster.stream(R"([{"name":""},{"name":"418.1","from":{"name":"x"}}])");
  cluster.settle();
  EXPECT_EQ(metric(cluster, "enabled"), "1");
  EXPECT_EQ(metric(cluster, "imagestream_broken"), "1");
  EXPECT_EQ(metric(cluster, "rhcos_tags_missing"), "1");
  const Json driver = cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset-419.96");
  EXPECT_EQ(kube::label(driver, "openshift.driver-toolkit.rhcos-image-missing"), "true");
  EXPECT_TRUE(cluster.get(kube::kDaemonSets, kNs, "nvidia-driver-daemonset").is_null())
      << "the other layout goes";
  // Labels too old to tell the version, and nobody who asks.
  cluster.label("n1", R"("feature.node.kubernetes.io/system-os_release.OSTREE_VERSION":null)");
  cluster.settle();
  EXPECT_EQ(metric(cluster, "enabled"), "-1");
  EXPECT_EQ(metric(cluster, "nfd_too_old"), "1");
  cluster.merge(kube::kClusterPolicies, "", "p", R"({"spec":{"operator":{"use_ocp_driver_toolkit":false}}})");
  cluster.settle();
  EXPECT_EQ(metric(cluster, "enabled"), "0");
  EXPECT_EQ(metric(cluster, "nfd_too_old"), "0");
}

TEST(operator_openshift, nvidiadrivers_use_the_toolkit_too) {
  Openshift cluster;
  cluster.run(R"({"driver":{"enabled":true,"useNvidiaDriverCRD":true}})");
  cluster.create(
      kube::kNvidiaDrivers, "",
      R"({"metadata":{"name":"d"},"spec":{"default":true,"driverType":"gpu","repository":"r","image":"driver",
             "version":"580.105.08"}})");
  cluster.settle();
  Json driver;
  for (const auto& name : cluster.names(kube::kDaemonSets, kNs))
    if (name.starts_with("nvidia-gpu-driver-")) driver = cluster.get(kube::kDaemonSets, kNs, name);
  ASSERT_FALSE(driver.is_null());
  EXPECT_EQ(get_string(container(driver, "openshift-driver-toolkit-ctr"), {"image"}),
            "quay.io/dtk@sha256:12");
  EXPECT_EQ(kube::label(driver, "openshift.driver-toolkit.rhcos"), "419.96");
  EXPECT_FALSE(cluster.get(kSecurityContextConstraints, "", "nvidia-gpu-driver-d-rhcos4.19").is_null());
  EXPECT_EQ(kube::label(cluster.get(kube::kConfigMaps, kNs, "gpu-operator-trusted-ca"),
                        "nvidia.com/gpu-operator.state"),
            "state-driver");
}

TEST(operator_openshift, a_version_that_nobody_completed_is_an_error) {
  Openshift cluster;
  cluster.merge(kClusterVersions, "", "version",
                R"({"status":{"history":[{"state":"Partial","version":"4.20.1"}]}})");
  cluster.run(kDriver);
  EXPECT_NE(
      get_string(cluster.condition("p", "Error"), {"message"}).find("no completed update in its history"),
      std::string_view::npos)
      << to_text(cluster.condition("p", "Error"));
  EXPECT_TRUE(cluster.names(kube::kDaemonSets, kNs).empty());
  cluster.merge(kClusterVersions, "", "version",
                R"({"status":{"history":[{"state":"Completed","version":"4.20.1"}]}})");
  cluster.loop->run_for(10s);
  EXPECT_FALSE(cluster.names(kube::kDaemonSets, kNs).empty()) << "it is asked for again";
}

TEST(operator_openshift, a_namespace_of_openshift_s_own_name_is_watched_by_its_monitoring) {
  // psa_labels_the_namespace_once has the rule; here, that the policy's first pass carries it out.
  Openshift cluster;
  cluster.run("");
  EXPECT_EQ(kube::label(cluster.get(kube::kNamespaces, "", kNs), "openshift.io/cluster-monitoring"), "")
      << "another name is another's business";
}

}  // namespace
}  // namespace gpuop::op

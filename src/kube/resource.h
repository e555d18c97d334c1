// Names of Kubernetes resource types.
#pragma once

#include <string>
#include <string_view>

namespace gpuop::kube {

struct Resource {
  std::string_view group;    // "" is the core group
  std::string_view version;  // "v1"
  std::string_view plural;   // "pods"
  std::string_view kind;     // "Pod"
  bool namespaced = true;

  // "v1" or "apps/v1", as objects write it.
  std::string api_version() const;
  // Collection path: "/api/v1/namespaces/x/pods"; `ns` empty: all namespaces or cluster scope.
  std::string path(std::string_view ns = {}) const;
  // Object path; `ns` is ignored for cluster-scoped types. `sub`: "status", "log", …
  std::string path(std::string_view ns, std::string_view name, std::string_view sub = {}) const;
};

inline constexpr Resource kPods{"", "v1", "pods", "Pod", true};
inline constexpr Resource kNodes{"", "v1", "nodes", "Node", false};
inline constexpr Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};
inline constexpr Resource kServices{"", "v1", "services", "Service", true};
inline constexpr Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap", true};
inline constexpr Resource kSecrets{"", "v1", "secrets", "Secret", true};
inline constexpr Resource kServiceAccounts{"", "v1", "serviceaccounts", "ServiceAccount", true};
inline constexpr Resource kEvents{"", "v1", "events", "Event", true};
inline constexpr Resource kDaemonSets{"apps", "v1", "daemonsets", "DaemonSet", true};
inline constexpr Resource kDeployments{"apps", "v1", "deployments", "Deployment", true};
inline constexpr Resource kReplicaSets{"apps", "v1", "replicasets", "ReplicaSet", true};
inline constexpr Resource kControllerRevisions{"apps", "v1", "controllerrevisions", "ControllerRevision",
                                               true};
inline constexpr Resource kJobs{"batch", "v1", "jobs", "Job", true};
inline constexpr Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease", true};
inline constexpr Resource kRoles{"rbac.authorization.k8s.io", "v1", "roles", "Role", true};
inline constexpr Resource kRoleBindings{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding",
                                        true};
inline constexpr Resource kClusterRoles{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole",
                                        false};
inline constexpr Resource kClusterRoleBindings{"rbac.authorization.k8s.io", "v1", "clusterrolebindings",
                                               "ClusterRoleBinding", false};
inline constexpr Resource kRuntimeClasses{"node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", false};
inline constexpr Resource kCustomResourceDefinitions{
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false};
inline constexpr Resource kServiceMonitors{"monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor",
                                           true};
inline constexpr Resource kClusterPolicies{"nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", false};
inline constexpr Resource kNvidiaDrivers{"nvidia.com", "v1alpha1", "nvidiadrivers", "NVIDIADriver", false};
inline constexpr Resource kGpuClusters{"nvidia.com", "v1alpha1", "gpuclusters", "GPUCluster", false};
inline constexpr Resource kNodeFeatures{"nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", "NodeFeature", true};
inline constexpr Resource kNodeFeatureRules{"nfd.k8s-sigs.io", "v1alpha1", "nodefeaturerules",
                                            "NodeFeatureRule", false};

}  // namespace gpuop::kube

// The part of the cluster that the operator watches, and nothing beyond: reconciling reads from here, never
// by listing (kubernetes-api.md §18).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kube/client.h"
#include "kube/informer.h"
#include "operator/gpu_nodes.h"
#include "operator/render.h"

namespace gpuop::op {

// Kinds of OpenShift and of its monitoring.
inline constexpr kube::Resource kPrometheusRules{"monitoring.coreos.com", "v1", "prometheusrules",
                                                 "PrometheusRule", true};
inline constexpr kube::Resource kSecurityContextConstraints{
    "security.openshift.io", "v1", "securitycontextconstraints", "SecurityContextConstraints", false};
inline constexpr kube::Resource kProxies{"config.openshift.io", "v1", "proxies", "Proxy", false};
inline constexpr kube::Resource kImageStreams{"image.openshift.io", "v1", "imagestreams", "ImageStream",
                                              true};

// metadata.resourceVersion as a number: of one object, the higher is the newer.
std::int64_t version_of(const Json& object);

class ClusterCache {
 public:
  ClusterCache(kube::Client& client, std::string ns);

  // Starts every watch; `synced` is called once, when all have their first complete list.
  void start(std::function<void()> synced);
  bool synced() const;
  // Why one of the watches of start() has no list yet; "" when all do, or nothing is wrong.
  std::string fault() const;
  // Watches a kind that need not be there, once it is known to be: in a namespace ("": all), these fields.
  // Idempotent. Until its first list has come synced() is false.
  void watch(const kube::Resource& type, std::string ns = "", std::vector<std::string> keep = {"*"});
  // Whether it is watched and its first list has come.
  bool synced(const kube::Resource& type) const;
  // Called for every change: which informer, and the object before and after; both null: the first list of a
  // kind that is watched later has come.
  void on_change(std::function<void(const kube::Resource& type, const std::shared_ptr<const Json>& old,
                                    const std::shared_ptr<const Json>& now)>
                     changed);

  // The type behind apiVersion and kind; nullptr for one that is not watched.
  const kube::Resource* type_of(std::string_view api_version, std::string_view kind) const;
  // The cached object; nullptr when absent or not watched.
  std::shared_ptr<const Json> live(const ObjectRef& ref) const;
  kube::Informer& of(const kube::Resource& type) const;
  // Every cached object but nodes and pods.
  void for_each_object(const std::function<void(const std::shared_ptr<const Json>&)>& visit) const;
  // The pods of the operator's namespace on a node.
  std::vector<std::shared_ptr<const Json>> pods_on(std::string_view node) const;

  // Of a DaemonSet's pods, one for each form and whether they run: all that its readiness needs.
  std::vector<std::shared_ptr<const Json>> examples_of_pods(std::string_view owner_uid) const;
  // Some pod whose DaemonSet, of a name that begins so, is gone; "" when there is none.
  std::string pod_of_a_gone_daemonset(std::string_view name_prefix) const;
  // All nodes, as of the last change that was told of.
  const GpuNodes& gpu_nodes() const { return gpu_nodes_; }

  const std::string& ns() const { return ns_; }

 private:
  struct Watched {
    kube::Resource type;
    std::unique_ptr<kube::Informer> informer;
  };
  void add(const kube::Resource& type, std::string ns, std::vector<std::string> keep,
           std::vector<std::string> drop = {}, bool many = false);

  kube::Client& client_;
  std::string ns_;
  GpuNodes gpu_nodes_;
  std::map<std::string, Watched> watched_;  // "apps/v1/DaemonSet"
  std::function<void()> all_synced_;
  std::function<void(const kube::Resource&, const std::shared_ptr<const Json>&,
                     const std::shared_ptr<const Json>&)>
      changed_;
};

}  // namespace gpuop::op

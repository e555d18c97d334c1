// A kubelet: one node's side of the Kubernetes API, over any API server, with any runtime behind it
// (kubernetes-api.md §14.4). It registers the node, keeps its Lease and status, runs the pods that are bound
// to it, serves the device-plugin and pod-resources sockets, and serves logs over HTTPS.
//
// With the recording runtime (recording_runtime.h), no node root and no servers it is a hollow node: the same
// pod logic on a virtual clock, thousands to a process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "cluster/kubelet/devices.h"
#include "cluster/kubelet/net_probe.h"
#include "cluster/kubelet/node_facts.h"
#include "cluster/runtime/runtime.h"
#include "kube/client.h"

namespace gpuop::cluster {

struct KubeletOptions {
  std::string node_name;
  // Beside the kubernetes.io/{hostname,os,arch} ones, which are always set. Other people's labels stay.
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  // spec.taints entries {key, value, effect}; set when the node is first registered, as the real one does.
  JsonArray taints;
  std::string provider_id;
  NodeFacts facts;

  // The node's root as this process sees it: "/" inside the node's mount namespace. Every path of a pod is
  // beneath it. Empty: no file is written or looked at (hollow nodes).
  std::filesystem::path node_root = "/";
  // A path on the node. Sockets, volumes and the device checkpoint lie in it.
  std::string kubelet_dir = "/var/lib/kubelet";
  // Where device grants are kept that outlive the kubelet of a node without a root; null: nowhere.
  KeptCheckpoint kept_devices;
  // As this process sees it; empty: <node_root>/var/log/pods. Layout NS_NAME_UID/CONTAINER/N.log.
  std::filesystem::path log_dir;
  // Probes' sockets are made in this network namespace; empty: this process's own.
  std::string netns_path;
  // The topology manager's; `numa_nodes` of the machine, at most 8.
  TopologyPolicy topology_policy = TopologyPolicy::kNone;
  int numa_nodes = 1;
  // What the runtime's container ids begin with in statuses.
  std::string container_scheme = "containerd";
  // The node's address, and every pod's: pods share their node's network.
  std::string node_ip = "127.0.0.1";
  // KUBERNETES_SERVICE_HOST and _PORT of containers; an empty host leaves them out.
  std::string service_host;
  std::string service_port = "443";

  // Device-plugin and pod-resources sockets (gRPC). Real loop only.
  bool serve_devices = true;
  // Logs, /pods and /healthz over HTTPS on http_address. Real loop only.
  bool serve_http = true;
  std::string http_address = "127.0.0.1";
  std::uint16_t http_port = 0;  // 0: any free one; status.daemonEndpoints tells which
  // PEM. Clients with a certificate of this CA and group system:masters, as an API server has, may run
  // programs in containers; empty: nobody may.
  std::string client_ca;
  // Takes the place of sockets for httpGet and tcpSocket probes (hollow nodes, tests). Empty: real sockets.
  NetProber net_prober;
};

class Kubelet {
 public:
  // kInvalid: a name or folder that cannot be one, or a server asked for on a virtual loop; kIo, kPermission:
  // its folders cannot be made.
  static Result<std::unique_ptr<Kubelet>> create(Loop& loop, kube::Client& client, Runtime& runtime,
                                                 KubeletOptions options);
  // Stops as stop() does.
  ~Kubelet();
  Kubelet(const Kubelet&) = delete;
  Kubelet& operator=(const Kubelet&) = delete;

  // Registers the node, adopts what the runtime runs and begins. Faults from here on are logged, shown in the
  // node's conditions and retried.
  void start();
  // Lets go of everything at once; containers run on, and the next kubelet adopts them.
  void stop();

  // Where HTTPS is served; 0 when it is not.
  std::uint16_t http_port() const;
  // A plugin of this process, in place of one behind a socket (hollow nodes, tests).
  void add_plugin(const std::string& resource, const std::shared_ptr<DevicePlugin>& plugin);
  // Pods that are being looked after.
  std::size_t pods() const;
  struct Impl;

 private:
  explicit Kubelet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster

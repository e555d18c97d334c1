// The embedded Kubernetes API server: the whole API in memory, on one loop (kubernetes-api.md §1-§13), and in
// a folder where one is named.
//
// It is a HttpHandler, so it can be served by base's HttpServer (plain or TLS) or called in memory through
// kube::make_memory_transport. Under a virtual loop every time that it writes or waits for is virtual.
// It is never a production control plane: what it lacks is refused in plain words.
//
// Thread rules: everything happens on the loop's thread. The object must outlive every use of its handler.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/http.h"
#include "base/http_server.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/result.h"
#include "kube/transport.h"

namespace gpuop::cluster {

class FileLayer;

// How the real one treats clients that are slow, silent or send too much: a server that hands requests to an
// ApiServer starts from these.
HttpServerOptions api_http_options();

struct ApiUser {
  std::string name;
  std::string uid;
  std::vector<std::string> groups;
};

struct ApiServerOptions {
  // What GET /version says. kubectl warns when its own minor version differs by more than one.
  std::string git_version = "v1.34.0";

  // kAlwaysAllow: whoever can be named may do everything (the demo). kRbac: roles and bindings decide;
  // group system:masters may do everything.
  enum class Authorization { kAlwaysAllow, kRbac };
  Authorization authorization = Authorization::kAlwaysAllow;

  // Requests without credentials become system:anonymous. When false they get 401 (health and version
  // excepted).
  bool anonymous = true;

  // Static bearer tokens.
  std::map<std::string, ApiUser> tokens;

  // The cluster's CA (PEM), published as ConfigMap kube-root-ca.crt in each namespace. May be empty.
  std::string ca_pem;

  // EC private key (PEM) that signs service account tokens; empty: one is made at start.
  std::string service_account_key_pem;
  std::string service_account_issuer = "https://kubernetes.default.svc.cluster.local";

  // uids, generated names and addresses come from this; 0: from the operating system.
  std::uint64_t seed = 0;

  // Changes kept per resource type for watches and for lists of the past; older ones are compacted (410).
  std::size_t history_events = 10000;

  // Folder that keeps everything across restarts: objects, the version counter, the history since the last
  // snapshot. Empty: nothing is kept. Needs ApiServer::open. Nothing is answered and no event is sent before
  // what it tells of is on the disk; when the disk fails, requests that write get 500 until it works again.
  std::string data_dir;
  // Tests: the files themselves, instead of the folder's; and when a snapshot is due.
  std::shared_ptr<FileLayer> files;
  std::uint64_t rotate_bytes = 64u << 20;
  std::uint64_t ahead_bytes = 4u << 20;

  // How the kubelet of a node is reached, for pod logs. Unset: HTTPS to the node's InternalIP and
  // status.daemonEndpoints.kubeletEndpoint.Port (real loops only). A null answer: the node cannot be reached.
  std::function<std::shared_ptr<kube::Transport>(const Json& node)> kubelet;
  // Client certificate shown to kubelets (PEM); may be empty.
  std::string kubelet_client_certificate;
  std::string kubelet_client_key;
};

class ApiServer {
 public:
  // Starts with the namespaces, priority classes and RBAC objects that every cluster has.
  explicit ApiServer(Loop& loop, ApiServerOptions options = {});
  // The same, with what options.data_dir holds. kBusy: another process uses the folder; kInvalid: it is
  // damaged (the text names the file, the place and the fault); kUnsupported: written by a newer format.
  static Result<std::unique_ptr<ApiServer>> open(Loop& loop, ApiServerOptions options);
  ~ApiServer();  // ends every watch
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // Copies may be kept; each refers to this server.
  HttpHandler handler();

  // The newest resourceVersion given out.
  std::uint64_t resource_version() const;
  // Forgets all history: watches and continued lists from before now answer 410.
  void compact();
  // Ends every open watch, as a restarting server would. Clients come back.
  void cut_watches();

  std::size_t object_count() const;
  std::size_t watch_count() const;
  std::uint64_t request_count() const;

  struct Impl;

 private:
  explicit ApiServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::cluster

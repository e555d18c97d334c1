// Where the API server is and who we are: kubeconfig files, or the pod's service account.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "kube/client.h"

namespace gpuop::kube {

struct Config {
  std::string server;  // "https://host:port"
  std::string ca_pem;  // empty: the system's
  std::string client_cert_pem, client_key_pem;
  std::string client_cert_file, client_key_file;  // re-read on change
  std::string token;
  std::string token_file;  // re-read at most once a minute, and at once after a 401
  std::string ca_file;     // re-read every 60 s
  std::string tls_server_name;
  bool insecure = false;
  std::string username, password;
  std::string proxy_url;
  std::string default_namespace = "default";
  std::string impersonate_user;
  std::string impersonate_uid;
  std::vector<std::string> impersonate_groups;
  // The user's exec credential plugin, null when there is none (client.authentication.k8s.io), as the
  // kubeconfig has it; clusterConfig is the cluster's extension for it.
  Json exec;
};

// `paths`: as KUBECONFIG lists them; merged, first wins. `context` empty: current-context.
Result<Config> load_kubeconfig(const std::vector<std::string>& paths, std::string_view context = {});
// One text; `file` is where it stands, for messages and relative paths.
Result<Config> parse_kubeconfig(std::string_view text, const std::string& file,
                                std::string_view context = {});
// KUBERNETES_SERVICE_HOST/PORT and /var/run/secrets/kubernetes.io/serviceaccount.
Result<Config> in_cluster_config(
    const std::filesystem::path& folder = "/var/run/secrets/kubernetes.io/serviceaccount");
// `explicit_path` if given; else KUBECONFIG; else in-cluster when its environment is there; else
// ~/.kube/config.
Result<Config> find_config(std::string_view explicit_path = {});

// A client over HTTP/2 (HTTP/1.1 where the server speaks no better). Real loop only.
Result<std::unique_ptr<Client>> make_client(Loop& loop, const Config& config, ClientOptions options = {});
// The bare transport, for proxies.
Result<std::shared_ptr<Transport>> make_http_transport(Loop& loop, const Config& config);

}  // namespace gpuop::kube

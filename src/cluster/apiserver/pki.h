// Certificates and kubeconfig files for a cluster that makes its own.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace gpuop::cluster {

// PEM texts.
struct KeyPair {
  std::string certificate;
  std::string key;
};

struct CertificateRequest {
  std::string common_name;                 // the user's name in a client certificate
  std::vector<std::string> organizations;  // the user's groups in a client certificate
  std::vector<std::string> dns_names;
  std::vector<std::string> ip_addresses;
  Duration lifetime = std::chrono::hours(24 * 365);
};

// A self-signed CA (EC P-256), valid from an hour before `now` for ten years.
Result<KeyPair> make_ca(const std::string& common_name, Time now);
// A certificate for both server and client use, signed by `ca`. kInvalid for a bad address or CA.
Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request, Time now);
// A private key alone (EC P-256, PKCS#8 PEM).
Result<std::string> make_private_key();

// Everything that a cluster needs at its start.
struct ClusterCredentials {
  KeyPair ca;
  KeyPair server;                   // 127.0.0.1, ::1, localhost, kubernetes.default.svc…, and `extra_names`
  KeyPair admin;                    // user kubernetes-admin, group system:masters
  std::string service_account_key;  // ApiServerOptions::service_account_key_pem
};
// `extra_names`: more DNS names or IP addresses for the server's certificate.
Result<ClusterCredentials> make_cluster_credentials(Time now,
                                                    const std::vector<std::string>& extra_names = {});

// A kubeconfig with one cluster, user and context, all named `name`.
struct KubeconfigRequest {
  std::string name = "gpu-operator";
  std::string server;  // "https://127.0.0.1:6443"
  std::string ca_pem;  // empty for a plain http server
  KeyPair client;      // either a client certificate,
  std::string token;   // or a bearer token, or neither
  std::string default_namespace;
};
std::string make_kubeconfig(const KubeconfigRequest& request);

}  // namespace gpuop::cluster

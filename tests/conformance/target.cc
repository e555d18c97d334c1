#include "target.h"

namespace gpuop::conformance {

Result<std::unique_ptr<Embedded>> Embedded::start(Loop& loop) {
  // Keys cost more than the control plane does.
  static const Result<cluster::ClusterCredentials> keys = cluster::make_cluster_credentials(loop.now());
  if (!keys) return fail(keys.error());
  auto made = std::make_unique<Embedded>();
  cluster::ApiServerOptions options;
  options.authorization = cluster::ApiServerOptions::Authorization::kRbac;
  options.ca_pem = keys->ca.certificate;
  options.service_account_key_pem = keys->service_account_key;
  options.service_account_issuer = "https://kubernetes.default.svc";
  options.tokens["controllers"] = {"system:kube-controller-manager", "", {"system:masters"}};
  made->server_ = std::make_unique<cluster::ApiServer>(loop, std::move(options));
  HttpServerOptions http = cluster::api_http_options();
  http.tls = TlsFiles{keys->server.certificate, keys->server.key, keys->ca.certificate};
  made->http_ = TRY(HttpServer::create(loop, http, made->server_->handler()));
  kube::ClientOptions client;
  client.user_agent = "kube-controller-manager";
  client.field_manager = "kube-controller-manager";
  auto inner = made->server_->handler();
  auto named = [inner](HttpRequest request, std::shared_ptr<HttpResponder> out) {
    request.headers["Authorization"] = "Bearer controllers";
    inner(std::move(request), std::move(out));
  };
  made->client_ = std::make_unique<kube::Client>(loop, kube::make_memory_transport(loop, named), client);
  made->controllers_ = cluster::start_controllers(loop, *made->client_, {.ca_pem = keys->ca.certificate});
  loop.run_until([&] { return made->controllers_->synced(); }, 10s);
  cluster::KubeconfigRequest config;
  config.name = "real";
  config.server = "https://127.0.0.1:" + std::to_string(made->http_->port());
  config.ca_pem = keys->ca.certificate;
  config.client = keys->admin;
  made->kubeconfig_ = cluster::make_kubeconfig(config);
  return made;
}

}  // namespace gpuop::conformance

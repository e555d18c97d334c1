// The control plane of a simulated fleet: the embedded API server over TLS, and the controllers as its
// clients.
#include <signal.h>

#include <chrono>
#include <cstdio>

#include "base/files.h"
#include "base/http_server.h"
#include "base/log.h"
#include "cli.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/apiserver/pki.h"
#include "cluster/controllers/controllers.h"
#include "commands.h"
#include "kube/client.h"

namespace gpuop {
namespace {

using namespace gpuop::cluster;

Json to_json(const KeyPair& pair) {
  return JsonObject{{"certificate", pair.certificate}, {"key", pair.key}};
}
KeyPair pair_from(const Json& json, std::string_view key) {
  return {str(get_string(json, {key, "certificate"})), str(get_string(json, {key, "key"}))};
}

// Kept beside the state, so that a control plane that was ended comes back under the same names.
Result<ClusterCredentials> credentials(const fs::path& file, Time now) {
  if (auto text = read_file(file)) {
    Json json = TRY_IN(parse_json(*text), "read '" + file.string() + "'");
    return ClusterCredentials{pair_from(json, "ca"), pair_from(json, "server"), pair_from(json, "admin"),
                              str(get_string(json, {"serviceAccountKey"}))};
  }
  ClusterCredentials made = TRY(make_cluster_credentials(now));
  JsonObject json{{"ca", to_json(made.ca)},
                  {"server", to_json(made.server)},
                  {"admin", to_json(made.admin)},
                  {"serviceAccountKey", made.service_account_key}};
  TRY(write_file_atomic(file, to_text(Json(std::move(json))), 0600));
  return made;
}

Result<> serve(const fs::path& state, int listen_fd, int port) {
  Loop loop;
  ClusterCredentials keys = TRY(credentials(state / "pki.json", loop.now()));
  ApiServerOptions options;
  options.ca_pem = keys.ca.certificate;
  options.service_account_key_pem = keys.service_account_key;
  options.kubelet_client_certificate = keys.admin.certificate;
  options.kubelet_client_key = keys.admin.key;
  ApiServer server(loop, std::move(options));
  HttpServerOptions http;
  http.listen_fd = listen_fd;
  http.port = static_cast<std::uint16_t>(port);
  http.tls = TlsFiles{keys.server.certificate, keys.server.key, keys.ca.certificate};
  auto listening = TRY(HttpServer::create(loop, http, server.handler()));
  kube::ClientOptions client_options;
  client_options.user_agent = "kube-controller-manager";
  client_options.field_manager = "kube-controller-manager";
  kube::Client client(loop, kube::make_memory_transport(loop, server.handler()), client_options);
  auto controllers = start_controllers(loop, client, {.ca_pem = keys.ca.certificate});
  KubeconfigRequest request;
  request.server = "https://127.0.0.1:" + std::to_string(listening->port());
  request.ca_pem = keys.ca.certificate;
  request.client = keys.admin;
  TRY(write_file_atomic(state / "kubeconfig", make_kubeconfig(request), 0600));
  log::info("API server listens", {{"server", request.server}});
  auto signals = on_signals(loop, {SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  loop.run();
  return {};
}

}  // namespace

int sim_control_plane_main(int argc, char** argv) {
  CLI::App app("An embedded Kubernetes control plane; its kubeconfig is written to STATE/kubeconfig.");
  std::string state;
  int listen_fd = -1, port = 0;
  app.add_option("--state", state, "folder for its kubeconfig and keys")->required();
  app.add_option("--listen-fd", listen_fd, "a socket that listens already");
  app.add_option("--port", port, "on 127.0.0.1; 0: any free one");
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("control-plane");
  if (auto served = serve(state, listen_fd, port); !served) {
    std::fprintf(stderr, "gpuctl: control plane: %s\n", served.error().text().c_str());
    return 1;
  }
  return 0;
}

}  // namespace gpuop

// The control plane of a simulated fleet: the embedded API server over TLS, and the controllers as its
// clients.
#include <signal.h>

#include <chrono>
#include <cstdio>

#include "base/files.h"
#include "base/http_server.h"
#include "base/log.h"
#include "base/text.h"
#include "cli.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/apiserver/file_layer.h"
#include "cluster/apiserver/pki.h"
#include "cluster/controllers/controllers.h"
#include "cluster/faults/injector.h"
#include "cluster/fleet/kept.h"
#include "commands.h"
#include "data_dir.h"
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

struct Arguments {
  std::string state, data_dir, faults;
  int listen_fd = -1;
  int port = 0;
};

// A control plane that keeps its data keeps its port, so that kubeconfigs stay good.
Result<std::unique_ptr<HttpServer>> listen(Loop& loop, const Arguments& arguments, HttpServerOptions http,
                                           HttpHandler handler) {
  const fs::path file = fs::path(arguments.data_dir) / "port";
  const bool kept = !arguments.data_dir.empty();
  if (auto text = read_file(file); kept && text && http.listen_fd < 0 && http.port == 0)
    http.port = static_cast<std::uint16_t>(parse_int(trim(*text)).value_or(0));
  auto listening = HttpServer::create(loop, http, std::move(handler));
  if (!listening && kept && arguments.port == 0)
    return fail(Error(listening.error().code(), listening.error().text() +
                                                    " (the port that kubeconfigs for '" + arguments.data_dir +
                                                    "' name; --port takes another)"));
  if (listening && kept) TRY(write_file_atomic(file, std::to_string((*listening)->port()) + "\n", 0600));
  return listening;
}

// What a faults file does to requests; what it struck is logged, and what it did not is told to who asks.
struct Faults {
  Faults(Loop& loop, const FaultPlan& p, ApiServer& server)
      : plan(p),
        log(loop,
            [](std::string_view line) {
              if (line.find(" FAULT ") != std::string_view::npos) log::info(trim(line));
            }),
        injector(loop, plan, server.handler(),
                 {.version = [&server] { return server.resource_version(); }, .log = &log}) {}

  HttpHandler handler() {
    return [this, inner = injector.handler()](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
      if (request.path != kIdleFaultsPath) return inner(std::move(request), std::move(responder));
      JsonArray idle;
      for (const IdleFault& fault : idle_faults(plan, injector.records(), log.elapsed())) {
        const std::size_t place = plan.place(fault.index).size() + 2;
        idle.push_back(JsonObject{{"index", fault.index}, {"why", fault.text.substr(place)}});
      }
      responder->send({.status = 200, .body = to_text(Json(std::move(idle)))});
    };
  }

  const FaultPlan& plan;
  EventLog log;
  FaultInjector injector;
};

Result<> serve(const Arguments& arguments) {
  const fs::path state = arguments.state;
  Loop loop;
  FaultPlan plan;
  if (!arguments.faults.empty()) plan = TRY(parse_faults(TRY(read_file(arguments.faults)), arguments.faults));
  ApiServerOptions options;
  if (!arguments.data_dir.empty()) options.files = TRY(open_data_folder(arguments.data_dir));
  const fs::path keys_at = arguments.data_dir.empty() ? state : fs::path(arguments.data_dir);
  ClusterCredentials keys = TRY(credentials(keys_at / "pki.json", loop.now()));
  options.ca_pem = keys.ca.certificate;
  options.service_account_key_pem = keys.service_account_key;
  options.kubelet_client_certificate = keys.admin.certificate;
  options.kubelet_client_key = keys.admin.key;
  auto opened = TRY(ApiServer::open(loop, std::move(options)));
  ApiServer& server = *opened;
  std::unique_ptr<Faults> faults;
  HttpHandler handler = server.handler();
  if (!plan.faults.empty()) {
    faults = std::make_unique<Faults>(loop, plan, server);
    handler = faults->handler();
  }
  HttpServerOptions http = api_http_options();
  http.listen_fd = arguments.listen_fd;
  http.port = static_cast<std::uint16_t>(arguments.port);
  http.tls = TlsFiles{keys.server.certificate, keys.server.key, keys.ca.certificate};
  auto listening = TRY(listen(loop, arguments, http, handler));
  kube::ClientOptions client_options;
  client_options.user_agent = "kube-controller-manager";
  client_options.field_manager = "kube-controller-manager";
  kube::Client client(loop, kube::make_memory_transport(loop, handler), client_options);
  auto controllers = start_controllers(loop, client, {.ca_pem = keys.ca.certificate});
  KubeconfigRequest request;
  request.server = "https://127.0.0.1:" + std::to_string(listening->port());
  request.ca_pem = keys.ca.certificate;
  request.client = keys.admin;
  TRY(write_file_atomic(keys_at / "kubeconfig", make_kubeconfig(request), 0600));
  if (keys_at != state) TRY(write_file_atomic(state / "kubeconfig", make_kubeconfig(request), 0600));
  log::info("API server listens", {{"server", request.server}});
  auto signals = on_signals(loop, {SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  loop.run();
  return {};
}

}  // namespace

Result<KeptData> take_data_dir(const std::string& folder, const Fleet& fleet, const std::string& policy,
                               Time now) {
  const std::string doing = "open data folder '" + folder + "'";
  TRY_IN(make_dirs(folder, 0700), doing);
  Result<FileLock> lock = FileLock::acquire(fs::path(folder) / "demo-lock");
  if (!lock && lock.error().code() == Code::kBusy)
    return fail(Code::kBusy, doing + ": another demo has started with it; end it, or name another folder");
  if (!lock) return fail(std::move(lock).error().in(doing));
  auto loop = Loop::make_virtual(now);
  ApiServerOptions options;
  options.files = TRY(open_data_folder(folder));
  const auto server = TRY(ApiServer::open(*loop, std::move(options)));
  kube::Client client(*loop, kube::make_memory_transport(*loop, server->handler()), {.user_agent = "gpuctl"});
  KeptData out{std::move(*lock), TRY_IN(follow_fleet(*loop, client, fleet, folder), doing)};
  if (policy.empty()) return out;
  for (std::string& note : TRY_IN(follow_policy(*loop, client, policy, folder), doing))
    out.notes.push_back(std::move(note));
  return out;
}

int sim_control_plane_main(int argc, char** argv) {
  CLI::App app("An embedded Kubernetes control plane; its kubeconfig is written to STATE/kubeconfig.");
  Arguments arguments;
  app.add_option("--state", arguments.state, "folder for its kubeconfig and keys")->required();
  app.add_option(
      "--data-dir", arguments.data_dir,
      "folder that keeps all objects, keys and the port across restarts (default: nothing is kept)");
  app.add_option("--listen-fd", arguments.listen_fd, "a socket that listens already");
  app.add_option("--port", arguments.port, "on 127.0.0.1; 0: that of the data folder, else any free one");
  app.add_option("--faults", arguments.faults, "faults file: what goes wrong with requests");
  if (auto code = parse_command_line(app, argc, argv)) return *code;
  log::setup("control-plane");
  if (auto served = serve(arguments); !served) {
    std::fprintf(stderr, "gpuctl: control plane: %s\n", served.error().text().c_str());
    return 1;
  }
  return 0;
}

}  // namespace gpuop

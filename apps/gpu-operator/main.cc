// gpu-operator: arguments, and the wiring of controllers, leader election, metrics and health ports.
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "base/files.h"
#include "base/http_server.h"
#include "base/log.h"
#include "base/log_zap.h"
#include "base/loop.h"
#include "base/process.h"
#include "base/text.h"
#include "base/version.h"
#include "cli.h"
#include "features/master.h"
#include "hooks.h"
#include "kube/config.h"
#include "kube/lease.h"
#include "kube/object.h"
#include "operator/controller.h"

namespace gpuop {
namespace {

struct Arguments {
  std::string metrics_address = ":8080";
  std::string health_address = ":8081";
  bool leader_elect = false;
  std::string leader_namespace;
  std::string renew_deadline = "0s";
  std::string kubeconfig;
  std::string assets = "/opt/gpu-operator/assets";
  std::string nfd_master_config = "/etc/kubernetes/node-feature-discovery/nfd-master.conf";
  bool devel = false;
  std::string encoder = "json";
  std::string log_level = "info";
  std::string time_encoding = "epoch";
  std::string stacktrace_level;
  bool version = false;
};

// zap's levels: debug, info, error, panic, or a number above zero for more detail.
Result<log::Level> zap_level(const Arguments& arguments) {
  if (arguments.devel) return log::Level::kDebug;
  if (const auto number = parse_int(arguments.log_level)) {
    if (*number > 0) return log::Level::kDebug;
  }
  if (arguments.log_level == "panic" || arguments.log_level == "error") return log::Level::kError;
  if (arguments.log_level == "debug" || arguments.log_level == "info" || arguments.log_level == "warn") {
    return log::parse_level(arguments.log_level);
  }
  return fail(Code::kInvalid,
              "--zap-log-level: must be debug, info, error, panic or a number above 0; got '" +
                  arguments.log_level + "'");
}

struct Bind {
  std::string address;
  std::uint16_t port = 0;
};
// "HOST:PORT", ":PORT", or "0" for none.
Result<std::optional<Bind>> parse_bind(const std::string& flag, const std::string& text) {
  if (text == "0") return std::nullopt;
  const auto colon = text.rfind(':');
  const auto port = colon == std::string::npos ? std::nullopt : parse_int(text.substr(colon + 1));
  if (!port || *port < 0 || *port > 65535) {
    return fail(Code::kInvalid, flag + ": expected HOST:PORT or :PORT, or 0 for none; got '" + text + "'");
  }
  Bind bind{text.substr(0, colon), static_cast<std::uint16_t>(*port)};
  if (bind.address.empty()) bind.address = "0.0.0.0";
  if (bind.address.starts_with('[') && bind.address.ends_with(']')) {
    bind.address = bind.address.substr(1, bind.address.size() - 2);
  }
  return bind;
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> out;
  for (const auto& entry : current_environment()) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) out[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return out;
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// The Deployment that runs this program, as an owner: what it owns goes with it, however it is taken away.
// Nothing where the operator runs otherwise, or may not read it.
std::optional<Json> own_deployment(Loop& loop, kube::Client& client, const std::string& ns) {
  const auto found = kube::await(
      loop, [&](const auto& done) { return client.get(kube::kDeployments, ns, "gpu-operator", done); });
  if (!found || kube::uid_of(*found).empty()) return std::nullopt;
  return JsonObject{{"apiVersion", "apps/v1"},
                    {"kind", "Deployment"},
                    {"name", kube::name_of(*found)},
                    {"uid", kube::uid_of(*found)}};
}

using Servers = std::vector<std::unique_ptr<HttpServer>>;

Result<> serve(Loop& loop, Servers& servers, const std::string& flag, const std::string& text,
               HttpHandler handler) {
  const auto bind = TRY(parse_bind(flag, text));
  if (!bind) return {};
  HttpServerOptions options;
  options.address = bind->address;
  options.port = bind->port;
  servers.push_back(TRY_IN(HttpServer::create(loop, options, std::move(handler)), flag));
  return {};
}

Result<int> run(const Arguments& arguments) {
  const std::string ns = env_or("OPERATOR_NAMESPACE");
  if (ns.empty()) {
    return fail(Code::kInvalid,
                "environment variable OPERATOR_NAMESPACE: must be set to the namespace that operands run in");
  }
  const Duration renew = TRY_IN(parse_go_duration(arguments.renew_deadline), "--leader-lease-renew-deadline");
  Loop loop;
  kube::ClientOptions client_options;
  client_options.user_agent = "gpu-operator/" GPUOP_VERSION;
  const auto config = TRY(kube::find_config(arguments.kubeconfig));
  auto client = TRY(kube::make_client(loop, config, client_options));
  // Of its own: behind the writes of a large cluster's first minutes the lease would come too late.
  auto lease_client = TRY(kube::make_client(loop, config, client_options));

  op::ControllerOptions options;
  options.ns = ns;
  options.own_image = env_or("OPERATOR_IMAGE");
  options.env = environment();
  options.assets = TRY(op::load_assets(arguments.assets));

  op::Metrics metrics;
  op::Controller controller(loop, *client, std::move(options), metrics);
  features::MasterOptions master_options;
  master_options.ns = ns;
  std::vector<std::string> warnings;
  if (const auto text = read_file(arguments.nfd_master_config)) {
    TRY(features::merge_master_config(master_options, *text, arguments.nfd_master_config, warnings));
  } else if (text.error().code() != Code::kNotFound) {
    return fail(text.error());
  }
  for (const auto& warning : warnings) log::warn(warning, {{"file", arguments.nfd_master_config}});
  features::Master master(loop, *client, master_options, &controller.nodes());
  int code = 0;
  std::unique_ptr<kube::LeaderElector> elector;

  Servers servers;
  TRY(serve(loop, servers, "--metrics-bind-address", arguments.metrics_address,
            [&metrics](HttpRequest request, std::shared_ptr<HttpResponder> out) {
              if (request.path != "/metrics") return out->send(HttpResponse::text(404, "not found\n"));
              out->send(HttpResponse::text(200, metrics.text(), "text/plain; version=0.0.4; charset=utf-8"));
            }));
  TRY(serve(loop, servers, "--health-probe-bind-address", arguments.health_address,
            [&controller, &master](HttpRequest request, std::shared_ptr<HttpResponder> out) {
              if (request.path == "/healthz") return out->send(HttpResponse::text(200, "ok"));
              if (request.path != "/readyz") return out->send(HttpResponse::text(404, "not found\n"));
              // A follower that has seen the whole cluster is as ready as a leader.
              const bool ready = controller.synced() && master.synced();
              out->send(HttpResponse::text(ready ? 200 : 500,
                                           ready ? "ok" : "the cluster has not been read yet\n"));
            }));

  Handle signals = on_signals(loop, {SIGTERM, SIGINT, SIGHUP, SIGQUIT}, [&](int signal) {
    log::info("stopping", {{"signal", signal}});
    if (!elector || !elector->leading()) return loop.stop();
    elector->release([&loop] { loop.stop(); });
  });

  controller.start_watching();
  master.start_watching();
  if (arguments.leader_elect) {
    kube::LeaseOptions lease;
    lease.ns = arguments.leader_namespace.empty() ? ns : arguments.leader_namespace;
    lease.name = "53822513.nvidia.com";
    // A container that was killed and is started again in its pod goes on with its own lease at once: the
    // kubelet never runs two of them. Any other pod waits until the lease has run out, since a pod that is
    // gone from the API server may still run on a node that is cut off.
    lease.identity = host_name() + "_" + env_or("POD_UID", random_uuid());
    // An owner is of the same namespace.
    if (lease.ns == ns) lease.owner = own_deployment(loop, *lease_client, ns);
    if (renew > Duration::zero()) {
      lease.renew_deadline = renew;
      lease.lease_duration = renew + 5s;
    }
    elector = TRY(kube::LeaderElector::create(
        *lease_client, lease,
        [&controller, &master] {
          log::info("leading");
          controller.lead();
          master.lead();
        },
        [&loop, &code] {
          log::error("leadership was lost; stopping, so that nothing is written by two operators");
          code = 1;
          loop.stop();
        }));
    elector->start();
  } else {
    controller.lead();
    master.lead();
  }
  loop.run();
  return code;
}

}  // namespace
}  // namespace gpuop

int main(int argc, char** argv) {
  if (const auto code = gpuop::run_hook(argc, argv)) return *code;
  gpuop::Arguments arguments;
  CLI::App app{"Turns Kubernetes nodes with NVIDIA GPUs into schedulable, observed, validated capacity.",
               "gpu-operator"};
  app.add_option("--metrics-bind-address", arguments.metrics_address,
                 "Where /metrics is served; 0 for nowhere")
      ->capture_default_str();
  app.add_option("--health-probe-bind-address", arguments.health_address,
                 "Where /healthz and /readyz are served")
      ->capture_default_str();
  app.add_flag("--leader-elect", arguments.leader_elect,
               "Act only while holding the Lease 53822513.nvidia.com");
  app.add_option("--leader-elect-namespace", arguments.leader_namespace,
                 "Namespace of that Lease (default: OPERATOR_NAMESPACE)");
  app.add_option("--leader-lease-renew-deadline", arguments.renew_deadline,
                 "Give up leadership when it could not be renewed for so long; 0s: 10s")
      ->capture_default_str();
  app.add_option("--kubeconfig", arguments.kubeconfig,
                 "Cluster to work on (default: KUBECONFIG, else the pod's own)");
  app.add_option("--assets", arguments.assets, "Folder of the operand manifests")->capture_default_str();
  app.add_option("--nfd-master-config", arguments.nfd_master_config,
                 "Configuration of node feature discovery's master; need not exist")
      ->capture_default_str();
  app.add_flag("--zap-devel", arguments.devel, "Log as text, with debug lines");
  app.add_option("--zap-encoder", arguments.encoder, "json or console")
      ->check(CLI::IsMember({"json", "console"}))
      ->capture_default_str();
  app.add_option("--zap-log-level", arguments.log_level, "debug, info, error, panic or a number above 0")
      ->capture_default_str();
  app.add_option("--zap-time-encoding", arguments.time_encoding,
                 "Of times in JSON: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano")
      ->capture_default_str();
  app.add_option("--zap-stacktrace-level", arguments.stacktrace_level, "Accepted; there are no stack traces");
  app.add_flag("--version", arguments.version, "Print the version and end");
  if (auto code = gpuop::parse_command_line(app, argc, argv, 2)) return *code;
  if (arguments.version) {
    std::puts("gpu-operator " GPUOP_VERSION);
    return 0;
  }
  const auto level = gpuop::zap_level(arguments);
  if (!level) {
    std::fprintf(stderr, "gpu-operator: %s\n", level.error().text().c_str());
    return 2;
  }
  const bool console = arguments.devel || arguments.encoder == "console";
  gpuop::log::setup("gpu-operator", *level, console ? gpuop::log::Format::kText : gpuop::log::Format::kJson);
  const auto time_encoding = gpuop::log::parse_zap_time(arguments.time_encoding);
  if (!time_encoding) {
    std::fprintf(stderr, "gpu-operator: --zap-time-encoding: %s\n", time_encoding.error().text().c_str());
    return 2;
  }
  gpuop::log::use_zap_keys(*time_encoding);
  gpuop::log::info("gpu-operator starts", {{"logger", "setup"}, {"version", GPUOP_VERSION}});
  const auto result = gpuop::run(arguments);
  if (!result) {
    gpuop::log::error(result.error().text(), {{"logger", "setup"}});
    return 1;
  }
  return *result;
}

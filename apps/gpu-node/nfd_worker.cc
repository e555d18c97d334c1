// nfd-worker: flags of nfd.md §2.1, with one dash or two.
#include <csignal>
#include <cstdio>

#include "base/files.h"
#include "base/http_server.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/process.h"
#include "base/text.h"
#include "base/version.h"
#include "cli.h"
#include "features/worker.h"
#include "kube/config.h"
#include "roles.h"

namespace gpuop {
namespace {

std::string own_namespace() {
  if (const auto text = read_file("/var/run/secrets/kubernetes.io/serviceaccount/namespace", 256)) {
    return std::string(trim(*text));
  }
  return env_or("KUBERNETES_NAMESPACE");
}

struct Arguments {
  std::string config = "/etc/kubernetes/node-feature-discovery/nfd-worker.conf";
  std::string options, kubeconfig;
  std::string feature_sources, label_sources, owner_refs, no_publish_features, feature_gates;
  bool oneshot = false, no_publish = false, no_owner_refs = false;
  int port = 8080;
  std::string host_root_prefix = "/host-";
};

Result<features::WorkerConfig> load_config(const Arguments& arguments, const CLI::App& app) {
  features::WorkerConfig config;
  if (const auto text = read_file(arguments.config)) {
    TRY(features::merge_config(config, *text, arguments.config));
  } else if (text.error().code() == Code::kNotFound) {
    log::info("no configuration file, defaults are used", {{"file", arguments.config}});
  } else {
    return fail(text.error());
  }
  TRY(features::merge_config(config, arguments.options, "-options"));
  const auto list = [&app](const char* flag, const std::string& text, std::vector<std::string>& into) {
    if (app.count(flag) == 0) return;
    into.clear();
    for (const auto& part : split(text, ',')) {
      if (!trim(part).empty()) into.emplace_back(trim(part));
    }
  };
  list("--feature-sources", arguments.feature_sources, config.feature_sources);
  list("--label-sources", arguments.label_sources, config.label_sources);
  list("--no-publish-features", arguments.no_publish_features, config.no_publish_features);
  list("--owner-refs", arguments.owner_refs, config.owner_refs);
  config.owner_refs = TRY(features::check_owner_refs(config.owner_refs));
  if (arguments.no_owner_refs) {
    log::warn("-no-owner-refs is deprecated; write -owner-refs=");
    config.owner_refs.clear();
  }
  if (arguments.no_publish) config.no_publish = true;
  return config;
}

Result<> run(const Arguments& arguments, const CLI::App& app) {
  features::WorkerOptions options;
  options.config = TRY(load_config(arguments, app));
  options.node = env_or("NODE_NAME");
  options.pod_name = env_or("POD_NAME");
  options.pod_uid = env_or("POD_UID");
  options.ns = own_namespace();
  options.oneshot = arguments.oneshot;
  options.host = features::host_view(arguments.host_root_prefix);
  options.host.node_name = options.node;
  Loop loop;
  std::unique_ptr<kube::Client> client;
  if (!options.config.no_publish) {
    if (options.node.empty())
      return fail(Code::kInvalid, "environment variable NODE_NAME: must be set to publish");
    if (options.ns.empty())
      return fail(Code::kInvalid, "environment variable KUBERNETES_NAMESPACE: must be set outside a pod");
    kube::ClientOptions client_options;
    client_options.user_agent = "nfd-worker/" GPUOP_VERSION;
    client = TRY(kube::make_client(loop, TRY(kube::find_config(arguments.kubeconfig)), client_options));
  }
  Result<> outcome;
  bool finished = false;
  features::Worker worker(loop, client.get(), std::move(options), [&](Result<> result) {
    outcome = std::move(result);
    finished = true;
    loop.stop();
  });
  HttpServerOptions http;
  http.address = "0.0.0.0";
  http.port = static_cast<std::uint16_t>(arguments.port);
  std::unique_ptr<HttpServer> server;
  if (!arguments.oneshot) {
    server = TRY(
        HttpServer::create(loop, http, [&worker](HttpRequest request, std::shared_ptr<HttpResponder> out) {
          if (request.path == "/healthz" && worker.published())
            return out->send(HttpResponse::text(200, "ok"));
          if (request.path != "/metrics") return out->send(HttpResponse::text(404, "not found\n"));
          out->send(HttpResponse::text(
              200,
              "# HELP nfd_worker_build_info The worker's version\n# TYPE nfd_worker_build_info gauge\n"
              "nfd_worker_build_info{version=\"" GPUOP_VERSION "\"} 1\n",
              "text/plain; version=0.0.4; charset=utf-8"));
        }));
  }
  Handle signals = on_signals(loop, {SIGTERM, SIGINT}, [&loop](int) { loop.stop(); });
  TRY(worker.start());
  if (!finished) loop.run();
  return outcome;
}

}  // namespace

int nfd_worker_main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Discover this node's features and publish them as a NodeFeature object.");
  app.add_option("--config", arguments.config, "configuration file")->capture_default_str();
  app.add_option("--options", arguments.options, "configuration merged over the file, as YAML or JSON");
  app.add_option("--kubeconfig", arguments.kubeconfig, "cluster access (default: the pod's own)");
  app.add_flag("--oneshot", arguments.oneshot, "publish once and end");
  app.add_option("--port", arguments.port, "port of /metrics and /healthz")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  app.add_flag("--no-publish", arguments.no_publish, "discover only");
  app.add_flag("--no-owner-refs", arguments.no_owner_refs, "deprecated");
  app.add_option("--owner-refs", arguments.owner_refs, "owners of the object: node, pod, ds");
  app.add_option("--feature-sources", arguments.feature_sources, "sources to run, -name leaves one out");
  app.add_option("--label-sources", arguments.label_sources, "sources to label from");
  app.add_option("--no-publish-features", arguments.no_publish_features, "features kept out of the object");
  app.add_option("--feature-gates", arguments.feature_gates, "accepted, without effect");
  app.add_option("--host-root-prefix", arguments.host_root_prefix, "where the host's folders are mounted")
      ->capture_default_str();
  // klog's flags are accepted so that existing manifests start.
  std::string klog;
  for (const char* flag : {"--v", "--vmodule", "--logtostderr", "--alsologtostderr", "--stderrthreshold"}) {
    app.add_option(flag, klog)->group("");
  }
  // Go's flag package takes one dash for what CLI11 takes two.
  std::vector<std::string> words(argv, argv + argc);
  std::vector<char*> pointers;
  for (auto& word : words) {
    if (word.size() > 2 && word[0] == '-' && word[1] != '-') word.insert(0, "-");
    pointers.push_back(word.data());
  }
  if (auto code = parse_command_line(app, argc, pointers.data())) return *code == 0 ? 0 : 2;
  log::setup("nfd-worker");
  if (const auto result = run(arguments, app); !result) {
    log::error(result.error().text());
    return 1;
  }
  return 0;
}

}  // namespace gpuop

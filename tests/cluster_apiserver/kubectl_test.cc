// Real kubectl against the server over HTTP. Needs tests/tools/fetch-kubectl's cache (or GPUOP_KUBECTL).
#include <fstream>

#include "api.h"
#include "base/files.h"
#include "base/http_server.h"
#include "base/process.h"
#include "cluster/apiserver/pki.h"

namespace gpuop::cluster {
namespace {

std::string kubectl_path() {
  std::string given = env_or("GPUOP_KUBECTL");
  if (!given.empty()) return given;
  std::string cache = env_or("XDG_CACHE_HOME", env_or("HOME") + "/.cache");
  return cache + "/gpu-operator/kubectl/kubectl";
}

struct Kubectl {
  void start(ApiServerOptions options = {}) {
    server = std::make_unique<ApiServer>(loop, std::move(options));
    HttpHandler inner = server->handler();
    HttpHandler recording = [this, inner](HttpRequest request, std::shared_ptr<HttpResponder> out) {
      requests.push_back(request.method + " " + request.path);
      inner(std::move(request), std::move(out));
    };
    HttpServerOptions how = api_http_options();
    if (!user.empty()) {
      credentials = *make_cluster_credentials(loop.now());
      how.tls = TlsFiles{credentials.server.certificate, credentials.server.key, credentials.ca.certificate};
    }
    Result<std::unique_ptr<HttpServer>> made = HttpServer::create(loop, how, recording);
    ASSERT_TRUE(made) << made.error().text();
    http = std::move(*made);
    KubeconfigRequest config;
    config.server =
        (user.empty() ? "http://127.0.0.1:" : "https://127.0.0.1:") + std::to_string(http->port());
    if (!user.empty()) {
      config.ca_pem = credentials.ca.certificate;
      config.client = *make_certificate(credentials.ca, {.common_name = user}, loop.now());
    }
    ASSERT_TRUE(write_file_atomic(folder.path() / "config", make_kubeconfig(config)));
  }

  // Runs kubectl while the loop serves it; out and err together.
  ExitState run(std::vector<std::string> arguments, std::string input = {}) {
    Command command;
    std::string config = "--kubeconfig=" + (folder.path() / "config").string();
    command.argv = {kubectl_path(), config, "--cache-dir=" + (folder.path() / "cache").string()};
    if (!program.empty()) command.argv = {program, config};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    command.env = {"HOME=" + folder.path().string()};
    command.input = std::move(input);
    command.merge_output = true;
    std::optional<ExitState> state;
    Handle running = run_command(loop, command, 20s, [&](Result<ExitState> done) {
      if (done) {
        state = *done;
      } else {
        state = ExitState{.code = -1, .out = done.error().text()};
      }
    });
    loop.run_until([&] { return state.has_value(); }, 25s);
    return state.value_or(ExitState{.code = -2});
  }
  ExitState helm(std::string_view arguments) {
    std::string tool = kubectl_path();
    program = tool.substr(0, tool.rfind('/')) + "/helm";
    ExitState state = run(split_fields(arguments));
    program.clear();
    return state;
  }
  ExitState run(std::string_view arguments, std::string input = {}) {
    return run(split_fields(arguments), std::move(input));
  }

  // A request past kubectl, as a kubelet or controller would make it.
  Reply api(std::string_view line, std::string body = {}, std::string_view type = {}) {
    auto recorder = std::make_shared<Recorder>();
    server->handler()(Api::request(line, std::move(body), type), recorder);
    return Api::reply_of(*recorder);
  }

  void add_crds() {
    for (std::string_view name : {"nvidia.com_clusterpolicies", "nvidia.com_nvidiadrivers"}) {
      ExitState made = run("create -f " SOURCE_ROOT "/deploy/chart/crds/" + std::string(name) + ".yaml");
      ASSERT_EQ(made.code, 0) << made.out;
    }
  }

  Loop loop;
  TempDir folder;
  std::string program;  // set: run instead of kubectl
  std::string user;     // set: TLS, and a client certificate of that name
  ClusterCredentials credentials;
  std::unique_ptr<ApiServer> server;
  std::unique_ptr<HttpServer> http;
  std::vector<std::string> requests;
};

// Without kubectl there is nothing to test; where a run must be whole, that is a failure.
#define NEED_KUBECTL()                                                                       \
  if (!file_exists(kubectl_path())) {                                                        \
    if (env_or("CI") == "true") FAIL() << "kubectl is not there: tests/tools/fetch-kubectl"; \
    GTEST_SKIP() << "kubectl is not there: tests/tools/fetch-kubectl";                       \
  }

constexpr std::string_view kPolicy =
    "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata:\n  name: cp\nspec:\n  operator: {}\n  "
    "daemonsets: {}\n"
    "  driver: {}\n  toolkit: {}\n  devicePlugin: {}\n  dcgmExporter: {}\n  dcgm: {}\n  nodeStatusExporter: "
    "{}\n  gfd: {}\n";

TEST(cluster_apiserver, case03_kubectl_get_all) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  ASSERT_EQ(k.run("create namespace x").code, 0);
  ASSERT_EQ(k.run("run p -n x --image=busybox").code, 0);
  ExitState set = k.run(
      "apply -n x -f -",
      R"({"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},
"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"busybox"}]}}}})");
  ASSERT_EQ(set.code, 0) << set.out;
  ExitState all = k.run("get all -n x");
  EXPECT_EQ(all.code, 0);
  EXPECT_NE(all.out.find("pod/p"), std::string::npos) << all.out;
  EXPECT_NE(all.out.find("daemonset.apps/d"), std::string::npos) << all.out;
}

TEST(cluster_apiserver, case04_kubectl_apply_twice) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  std::string body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cm1\ndata:\n  a: b\n";
  EXPECT_EQ(k.run("apply -f -", body).out, "configmap/cm1 created\n");
  EXPECT_EQ(k.run("apply -f -", body).out, "configmap/cm1 unchanged\n");
}

TEST(cluster_apiserver, kubectl_apply_of_workloads_twice) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  std::string body =
      "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  selector:\n    matchLabels: {a: "
      "b}\n  template:\n    metadata:\n      labels: {a: b}\n"
      "    spec:\n      containers:\n      - name: c\n        image: busybox\n        ports: "
      "[{containerPort: 80}]\n        readinessProbe: {httpGet: {port: 80}}\n"
      "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  selector: {a: b}\n  ports: [{port: "
      "80}]\n";
  EXPECT_EQ(k.run("apply -f -", body).out, "deployment.apps/d created\nservice/s created\n");
  EXPECT_EQ(k.run("apply -f -", body).out, "deployment.apps/d unchanged\nservice/s unchanged\n");
  EXPECT_EQ(k.run("set image deployment/d c=busybox:2").out, "deployment.apps/d image updated\n");
  EXPECT_EQ(k.run("scale deployment/d --replicas=3").out, "deployment.apps/d scaled\n");
  EXPECT_EQ(k.run("get deployment d -o jsonpath={.spec.replicas}").out, "3");
}

TEST(cluster_apiserver, case05_kubectl_unknown_field) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  k.add_crds();
  std::string body = std::string(kPolicy) + "  foo: 1\n";
  ExitState strict = k.run("apply -f -", body);
  EXPECT_EQ(strict.code, 1);
  EXPECT_NE(strict.out.find("strict decoding error: unknown field \"spec.foo\""), std::string::npos)
      << strict.out;
  ExitState warned = k.run("apply --validate=warn -f -", body);
  EXPECT_EQ(warned.code, 0) << warned.out;
  EXPECT_NE(warned.out.find("Warning: unknown field \"spec.foo\""), std::string::npos) << warned.out;
  EXPECT_EQ(k.run("delete clusterpolicy cp").code, 0);
  EXPECT_EQ(k.run("apply --validate=false -f -", body).out, "clusterpolicy.nvidia.com/cp created\n");
}

TEST(cluster_apiserver, case06_kubectl_openapi_follows_the_definition) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  ExitState before = k.run("apply -f -", std::string(kPolicy));
  EXPECT_NE(before.code, 0);
  k.add_crds();
  ExitState after = k.run("apply -f -", std::string(kPolicy));
  EXPECT_EQ(after.code, 0) << after.out;
}

TEST(cluster_apiserver, case07_kubectl_generators) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  EXPECT_EQ(k.run("create configmap foo --from-literal=a=b").out, "configmap/foo created\n");
  Json map = k.api("GET /api/v1/namespaces/default/configmaps/foo").body;
  EXPECT_EQ(text_at(map, {"data", "a"}), "b");
  EXPECT_FALSE(text_at(map, {"metadata", "uid"}).empty());
  EXPECT_FALSE(text_at(map, {"metadata", "creationTimestamp"}).empty());
  EXPECT_EQ(k.run("create secret generic s --from-literal=p=q").code, 0);
  EXPECT_EQ(k.run("get secret s -o jsonpath={.data.p}").out, "cQ==");
  EXPECT_EQ(k.run("create serviceaccount sa").out, "serviceaccount/sa created\n");
  EXPECT_EQ(k.run("create namespace n").out, "namespace/n created\n");
  EXPECT_EQ(k.run("create job j --image=busybox -- true").out, "job.batch/j created\n");
  EXPECT_EQ(k.run("create clusterrole r --verb=get --resource=pods").code, 0);
  EXPECT_EQ(k.run("create deployment d --image=busybox").out, "deployment.apps/d created\n");
  ExitState token = k.run("create token sa");
  EXPECT_EQ(token.code, 0);
  EXPECT_EQ(std::count(token.out.begin(), token.out.end(), '.'), 2) << token.out;
}

TEST(cluster_apiserver, case10_kubectl_custom_columns) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  k.add_crds();
  ASSERT_EQ(k.run("apply -f -", std::string(kPolicy)).code, 0);
  ExitState listed = k.run("get clusterpolicies");
  std::vector<std::string> lines = split(listed.out, '\n');
  EXPECT_EQ(split_fields(lines[0]), (std::vector<std::string>{"NAME", "STATUS", "AGE"}));
  std::string born = k.run("get clusterpolicy cp -o jsonpath={.metadata.creationTimestamp}").out;
  EXPECT_EQ(split_fields(lines[1]), (std::vector<std::string>{"cp", born}));
}

TEST(cluster_apiserver, case15_kubectl_wait_for_a_ready_pod) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  ASSERT_EQ(k.run("run p --image=busybox").code, 0);
  k.api("PATCH /api/v1/namespaces/default/pods/p/status",
        R"({"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}})",
        "application/merge-patch+json");
  Duration before = k.loop.elapsed();
  ExitState waited = k.run("wait --for=condition=Ready pod/p --timeout=5s");
  EXPECT_EQ(waited.code, 0) << waited.out;
  EXPECT_LT(k.loop.elapsed() - before, 2s);
}

TEST(cluster_apiserver, case20_kubectl_taints) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  k.api("POST /api/v1/nodes", R"({"metadata":{"name":"n1"}})");
  EXPECT_EQ(k.run("taint node n1 a=b:NoSchedule").code, 0);
  EXPECT_EQ(k.run("cordon n1").out, "node/n1 cordoned\n");
  ExitState nodes = k.run("get nodes");
  EXPECT_NE(nodes.out.find("SchedulingDisabled"), std::string::npos) << nodes.out;
  EXPECT_EQ(k.run("label node n1 x=y").out, "node/n1 labeled\n");
  EXPECT_EQ(k.run("annotate node n1 x=y").out, "node/n1 annotated\n");
  ExitState described = k.run("describe node n1");
  EXPECT_EQ(described.code, 0);
  EXPECT_NE(described.out.find("a=b:NoSchedule"), std::string::npos) << described.out;
  EXPECT_EQ(k.run("uncordon n1").out, "node/n1 uncordoned\n");
}

TEST(cluster_apiserver, case39_helm_meets_a_scaled_deployment) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  fs::path chart = k.folder.path() / "chart";
  ASSERT_TRUE(make_dirs(chart / "templates"));
  ASSERT_TRUE(write_file_atomic(chart / "Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n"));
  ASSERT_TRUE(write_file_atomic(chart / "templates/x.yaml",
                                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec:\n  "
                                "replicas: 1\n  selector: {matchLabels: {a: b}}\n"
                                "  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: "
                                "c, image: \"busybox:{{ .Release.Revision }}\"}]}\n"));
  ExitState installed = k.helm("install r " + chart.string());
  ASSERT_EQ(installed.code, 0) << installed.out;
  Json secret = k.api("GET /api/v1/namespaces/default/secrets/sh.helm.release.v1.r.v1").body;
  EXPECT_EQ(text_at(secret, {"metadata", "labels", "status"}), "deployed");
  ASSERT_EQ(k.run("scale deploy x --replicas=3").code, 0);
  ExitState clash = k.helm("upgrade r " + chart.string());
  EXPECT_EQ(clash.code, 1);
  EXPECT_NE(clash.out.find("conflict with \"kubectl\" with subresource \"scale\""), std::string::npos)
      << clash.out;
  ExitState forced = k.helm("upgrade r --force-conflicts " + chart.string());
  EXPECT_EQ(forced.code, 0) << forced.out;
  EXPECT_EQ(k.run("get deploy x -o jsonpath={.spec.replicas}").out, "1");
  EXPECT_EQ(k.helm("rollback r 1").code, 0);
  EXPECT_EQ(k.helm("uninstall r --wait").code, 0);
  EXPECT_EQ(k.run("get deploy,secrets").out, "No resources found in default namespace.\n");
}

TEST(cluster_apiserver, case40_kubectl_health_version_access) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  EXPECT_EQ(k.run("get --raw /readyz").out, "ok");
  EXPECT_NE(k.run("version").out.find("Server Version: v1.34.0"), std::string::npos);
  EXPECT_EQ(k.run("auth can-i create pods").out, "yes\n");
  k.server.reset();
  k.http.reset();
  k.user = "u";
  ApiServerOptions options;
  options.authorization = ApiServerOptions::Authorization::kRbac;
  k.start(options);
  ExitState no = k.run("auth can-i create pods");
  EXPECT_EQ(no.code, 1);
  EXPECT_EQ(no.out, "no\n");
  ExitState denied = k.run("get pods");
  EXPECT_EQ(denied.code, 1);
  EXPECT_EQ(denied.out,
            "Error from server (Forbidden): pods is forbidden: User \"u\" cannot list resource \"pods\" in "
            "API group \"\" in the namespace \"default\"\n");
}

TEST(cluster_apiserver, case41_kubectl_refusals) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  ASSERT_EQ(k.run("run p --image=busybox").code, 0);
  ExitState exec = k.run("exec p -- ls");
  EXPECT_EQ(exec.code, 1);
  EXPECT_NE(exec.out.find("Error from server (BadRequest): pod p does not have a host assigned"),
            std::string::npos)
      << exec.out;
  EXPECT_NE(k.run("top node").out.find("Metrics API not available"), std::string::npos);
}

TEST(cluster_apiserver, kubectl_explain_and_delete) {
  NEED_KUBECTL();
  Kubectl k;
  k.start();
  k.add_crds();
  ExitState custom = k.run("explain clusterpolicy.spec.driver");
  EXPECT_EQ(custom.code, 0) << custom.out;
  ExitState pod = k.run("explain pod.spec.containers");
  EXPECT_EQ(pod.code, 0) << pod.out;
  ASSERT_EQ(k.run("run p --image=busybox").code, 0);
  EXPECT_EQ(k.run("delete pod p").out, "pod \"p\" deleted from default namespace\n");
  ASSERT_EQ(k.run("apply -f -", std::string(kPolicy)).code, 0);
  EXPECT_EQ(k.run("delete clusterpolicy cp").code, 0);
  EXPECT_EQ(k.run("get clusterpolicies").out, "No resources found\n");
}

TEST(cluster_apiserver, kubectl_every_policy_is_created_as_it_is) {
  NEED_KUBECTL();
  Kubectl k;
  const std::string cases = SOURCE_ROOT "/tests/policy/data";
  Result<std::vector<std::string>> names = list_dir(cases);
  ASSERT_TRUE(names) << names.error().text();
  k.start();
  k.add_crds();
  ASSERT_EQ(k.run("create namespace gpu-operator").code, 0);
  for (const std::string& name : *names) {
    if (!name.ends_with(".yaml")) continue;
    ExitState made = k.run("create -f " + cases + "/" + name);
    EXPECT_EQ(made.code, 0) << name << ": " << made.out;
    EXPECT_EQ(made.out.find("Error"), std::string::npos) << name << ": " << made.out;
    ExitState gone = k.run("delete -f " + cases + "/" + name);
    EXPECT_EQ(gone.code, 0) << name << ": " << gone.out;
  }
}

}  // namespace
}  // namespace gpuop::cluster

// Real helm against the whole control plane; the test plays the kubelet of one node: pods turn Ready, those
// of jobs end well. Needs tests/tools/fetch-kubectl's cache (or GPUOP_KUBECTL).
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/http_server.h"
#include "base/process.h"
#include "base/text.h"
#include "cluster/apiserver/api_server.h"
#include "cluster/apiserver/pki.h"
#include "cluster/controllers/controllers.h"
#include "kube/client.h"
#include "kube/informer.h"
#include "kube/object.h"

namespace gpuop::cluster::test {
namespace {

constexpr kube::Resource kThings{"example.com", "v1", "things", "Thing", true};

fs::path helm_path() {
  const std::string kubectl = env_or("GPUOP_KUBECTL");
  if (!kubectl.empty()) return fs::path(kubectl).parent_path() / "helm";
  return fs::path(env_or("XDG_CACHE_HOME", env_or("HOME") + "/.cache")) / "gpu-operator/kubectl/helm";
}

#define NEED_HELM()                                                                       \
  if (!file_exists(helm_path())) {                                                        \
    if (env_or("CI") == "true") FAIL() << "helm is not there: tests/tools/fetch-kubectl"; \
    GTEST_SKIP() << "helm is not there: tests/tools/fetch-kubectl";                       \
  }

class HelmCluster {
 public:
  HelmCluster() {
    HttpServerOptions options = api_http_options();
    http_ = std::move(*HttpServer::create(loop, options, server.handler()));
    KubeconfigRequest config;
    config.server = "http://127.0.0.1:" + std::to_string(http_->port());
    EXPECT_TRUE(write_file_atomic(folder.path() / "config", make_kubeconfig(config)));
    pods_.on_change([this](const auto&, const auto& now) {
      if (now) play_kubelet(*now);
    });
    pods_.start();
    EXPECT_TRUE(loop.run_until([&] { return controllers_->synced() && pods_.synced(); }, 10s));
    add_node();
  }

  struct Run {
    Handle handle;
    std::optional<ExitState> ended;
  };
  std::shared_ptr<Run> start_helm(std::string_view arguments) {
    Command command;
    command.argv = {helm_path().string(), "--kubeconfig=" + (folder.path() / "config").string()};
    for (const std::string& word : split_fields(arguments)) command.argv.push_back(word);
    command.env = {"HOME=" + folder.path().string()};
    command.cwd = folder.path();
    command.merge_output = true;
    command.output_limit = 4U << 20;
    auto run = std::make_shared<Run>();
    run->handle = run_command(loop, command, 60s, [run](Result<ExitState> done) {
      run->ended = done ? *done : ExitState{.code = -1, .out = done.error().text()};
    });
    return run;
  }
  ExitState helm(std::string_view arguments) {
    auto run = start_helm(arguments);
    loop.run_until([&] { return run->ended.has_value(); }, 65s);
    return run->ended.value_or(ExitState{.code = -2});
  }

  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(make_dirs((folder.path() / name).parent_path()));
    ASSERT_TRUE(write_file_atomic(folder.path() / name, text));
  }
  std::optional<Json> get(const kube::Resource& type, const std::string& ns, const std::string& name) {
    auto result = kube::await(loop, [&](auto done) { return user.get(type, ns, name, done); });
    return result ? std::optional(*result) : std::nullopt;
  }
  std::vector<std::string> names(const kube::Resource& type, const std::string& ns,
                                 const std::string& labels = "") {
    std::vector<std::string> out;
    auto result =
        kube::await(loop, [&](auto done) { return user.list(type, ns, {.label_selector = labels}, done); });
    const Json none = JsonObject();
    for (const Json& item : get_array(result ? *result : none, {"items"}))
      out.push_back(str(kube::name_of(item)));
    return out;
  }
  void set_status(const kube::Resource& type, std::string_view ns, std::string_view name,
                  const std::string& status) {
    user.patch(type, ns, name, kube::Patch::kMerge, *parse_json(R"({"status":)" + status + "}"),
               {.subresource = "status"}, [](kube::ApiResult<>) {})
        .detach();
  }

  std::string pods_text() const {
    std::string out;
    pods_.for_each([&](const auto& pod) { out += to_text(*pod) + "\n"; });
    return out;
  }

  TempDir folder;
  Loop loop;
  ApiServer server{loop, {}};
  std::shared_ptr<kube::Transport> transport = kube::make_memory_transport(loop, server.handler());
  kube::Client user{loop, transport, {.user_agent = "test"}};

 private:
  void add_node() {
    const Json node = *parse_json(
        R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"n","labels":{"kubernetes.io/os":"linux","kubernetes.io/arch":"amd64","kubernetes.io/hostname":"n"}}})");
    const auto made =
        kube::await(loop, [&](auto done) { return user.create(kube::kNodes, "", node, {}, done); });
    EXPECT_TRUE(made);
    set_status(kube::kNodes, "", "n",
               R"({"allocatable":{"cpu":"64","memory":"64Gi","pods":"110"},
                   "conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]})");
  }

  void play_kubelet(const Json& pod) {
    if (get_string(pod, {"spec", "nodeName"}).empty()) return;
    const std::string_view phase = get_string(pod, {"status", "phase"});
    const std::string now = format_time(loop.now());
    if (!get_string(pod, {"metadata", "deletionTimestamp"}).empty()) {
      user.remove(kube::kPods, kube::namespace_of(pod), kube::name_of(pod),
                  {.grace_seconds = 0, .precondition_uid = str(kube::uid_of(pod))}, [](kube::ApiResult<>) {})
          .detach();
    } else if (phase.empty() || phase == "Pending") {
      const bool ends = get_string(pod, {"spec", "restartPolicy"}) != "Always";
      set_status(kube::kPods, kube::namespace_of(pod), kube::name_of(pod),
                 R"({"phase":")" + std::string(ends ? "Succeeded" : "Running") +
                     R"(","podIP":"10.0.0.1","conditions":[{"type":"Ready","status":")" +
                     (ends ? "False" : "True") + R"(","lastTransitionTime":")" + now + R"("}]})");
    }
  }

  std::unique_ptr<HttpServer> http_;
  kube::Client client_{loop, transport, {.user_agent = "controllers"}};
  std::unique_ptr<Controllers> controllers_ = start_controllers(loop, client_);
  kube::Informer pods_{user, kube::kPods, {.keep = {"*"}}};
};

constexpr const char* kDefinition = R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
)";

constexpr const char* kAll = R"(
apiVersion: v1
kind: ServiceAccount
metadata: {name: sa}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: r}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}
subjects: [{kind: ServiceAccount, name: sa, namespace: {{ .Release.Namespace }}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: "x:{{ .Values.tag }}"}]}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: before
  annotations: {helm.sh/hook: "pre-install,pre-upgrade,pre-delete", helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: t}
spec: {tag: "{{ .Values.tag }}"}
)";

TEST(cluster_controllers, case37_helm_installs_upgrades_rolls_back_and_uninstalls) {
  NEED_HELM();
  HelmCluster c;
  c.write("chart/Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n");
  c.write("chart/values.yaml", "tag: one\n");
  c.write("chart/crds/things.yaml", kDefinition);
  c.write("chart/templates/all.yaml", kAll);
  const ExitState installed = c.helm("install r ./chart --wait --timeout 30s");
  ASSERT_EQ(installed.code, 0) << installed.out;
  const auto secret = c.get(kube::kSecrets, "default", "sh.helm.release.v1.r.v1");
  ASSERT_TRUE(secret);
  EXPECT_EQ(kube::label(*secret, "status"), "deployed");
  Command decode;
  decode.argv = {"/bin/sh", "-c", "base64 -d | base64 -d | gunzip"};
  decode.env = {"PATH=/usr/bin:/bin"};
  decode.input = str(get_string(*secret, {"data", "release"}));
  decode.output_limit = 4U << 20;
  const auto release = run_command(decode, 10s);
  ASSERT_TRUE(release);
  const auto parsed = parse_json(release->out);
  ASSERT_TRUE(parsed) << release->err;
  EXPECT_EQ(get_string(*parsed, {"name"}), "r");
  EXPECT_NE(c.helm("list").out.find("deployed"), std::string::npos);
  EXPECT_TRUE(c.names(kube::kJobs, "default").empty()) << "the hook is gone when it has done its work";

  const ExitState upgraded = c.helm("upgrade r ./chart --set tag=two --wait --timeout 30s");
  ASSERT_EQ(upgraded.code, 0) << upgraded.out;
  EXPECT_EQ(get_string(*c.get(kThings, "default", "t"), {"spec", "tag"}), "two");
  const ExitState back = c.helm("rollback r 1 --wait --timeout 30s");
  ASSERT_EQ(back.code, 0) << back.out;
  EXPECT_EQ(get_string(*c.get(kThings, "default", "t"), {"spec", "tag"}), "one");
  const ExitState removed = c.helm("uninstall r --wait --timeout 30s");
  ASSERT_EQ(removed.code, 0) << removed.out;
  for (const kube::Resource* type : {&kube::kDeployments, &kube::kReplicaSets, &kube::kPods, &kube::kJobs,
                                     &kube::kSecrets, &kube::kRoles, &kube::kRoleBindings, &kThings})
    EXPECT_TRUE(c.names(*type, "default").empty()) << type->plural;
  EXPECT_EQ(c.names(kube::kServiceAccounts, "default"), std::vector<std::string>{"default"});
}

TEST(cluster_controllers, case38_helm_waits_for_a_custom_resource_that_is_not_ready) {
  NEED_HELM();
  HelmCluster c;
  c.write("chart/Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n");
  c.write("chart/crds/things.yaml", kDefinition);
  c.write("chart/templates/t.yaml", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n");
  // Without conditions there is nothing to wait for.
  const ExitState plain = c.helm("install r ./chart --wait --timeout 30s");
  ASSERT_EQ(plain.code, 0) << plain.out;
  const auto ready = [&](const char* status) {
    c.set_status(kThings, "default", "t",
                 std::string(R"({"conditions":[{"type":"Ready","status":")") + status +
                     R"(","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]})");
  };
  ready("False");
  const auto upgrade = c.start_helm("upgrade r ./chart --wait --timeout 30s");
  EXPECT_FALSE(c.loop.run_until([&] { return upgrade->ended.has_value(); }, 3s)) << upgrade->ended->out;
  ready("True");
  const Duration from = c.loop.elapsed();
  ASSERT_TRUE(c.loop.run_until([&] { return upgrade->ended.has_value(); }, 20s));
  EXPECT_EQ(upgrade->ended->code, 0) << upgrade->ended->out;
  EXPECT_LT(c.loop.elapsed() - from, 2s);
}

// Our own chart from its first install to its end; what its pods would do is played.
TEST(cluster_controllers, helm_and_our_own_chart) {
  NEED_HELM();
  HelmCluster c;
  const std::string chart = SOURCE_ROOT "/deploy/chart";
  const std::string more = " -n gpu-operator --wait --timeout 50s";
  const ExitState installed = c.helm("install g " + chart + " --create-namespace" + more);
  ASSERT_EQ(installed.code, 0) << installed.out << c.pods_text();
  EXPECT_EQ(c.names(kube::kClusterPolicies, ""), std::vector<std::string>{"cluster-policy"});
  EXPECT_FALSE(c.names(kube::kDeployments, "gpu-operator").empty());

  const ExitState upgraded = c.helm("upgrade g " + chart + " --set devicePlugin.enabled=false" + more);
  ASSERT_EQ(upgraded.code, 0) << upgraded.out;
  const auto enabled = [&] {
    return get_bool(*c.get(kube::kClusterPolicies, "", "cluster-policy"),
                    {"spec", "devicePlugin", "enabled"});
  };
  EXPECT_FALSE(enabled());
  EXPECT_TRUE(c.names(kube::kJobs, "gpu-operator").empty())
      << "hooks are gone when they have done their work";

  const ExitState back = c.helm("rollback g 1" + more);
  ASSERT_EQ(back.code, 0) << back.out;
  EXPECT_TRUE(enabled());

  const ExitState removed = c.helm("uninstall g" + more);
  ASSERT_EQ(removed.code, 0) << removed.out;
  EXPECT_TRUE(c.names(kube::kClusterPolicies, "").empty());
  for (const kube::Resource* type : {&kube::kDeployments, &kube::kDaemonSets, &kube::kJobs, &kube::kRoles})
    EXPECT_TRUE(c.names(*type, "gpu-operator").empty()) << type->plural;
  EXPECT_TRUE(c.names(kube::kClusterRoles, "", "app.kubernetes.io/managed-by=Helm").empty());
}

}  // namespace
}  // namespace gpuop::cluster::test

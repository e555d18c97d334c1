// The kubelet against the embedded API server: patches, deletion and tokens as the real protocol has them.
#include "cluster/apiserver/api_server.h"
#include "fixture.h"

namespace gpuop::cluster {
namespace {

class Cluster {
 public:
  Cluster() {
    client = std::make_unique<kube::Client>(*loop, kube::make_memory_transport(*loop, server.handler()));
    options.node_name = "n1";
    options.node_root = dir.path();
    options.serve_devices = options.serve_http = false;
    kubelet = Kubelet::create(*loop, *client, runtime, options).value();
    kubelet->start();
    pass(1s);
  }
  ~Cluster() { kubelet.reset(); }
  void pass(Duration span) { loop->run_for(span); }
  Json get(const kube::Resource& type, const std::string& name, const std::string& ns = "default") {
    auto answer = kube::await(*loop, [&](auto done) { return client->get(type, ns, name, std::move(done)); });
    return answer ? *answer : Json();
  }
  void create(const kube::Resource& type, const std::string& text, const std::string& ns = "default") {
    auto answer = kube::await(
        *loop, [&](auto done) { return client->create(type, ns, yaml(text), {}, std::move(done)); });
    ASSERT_TRUE(answer) << answer.error().message;
  }
  std::string phase(const std::string& name) {
    return str(get_string(get(kube::kPods, name), {"status", "phase"}));
  }

  TempDir dir{"kubelet"};
  std::unique_ptr<Loop> loop = Loop::make_virtual(parse_time("2026-01-02T03:04:05Z").value());
  ApiServer server{*loop};
  RecordingRuntime runtime{*loop};
  KubeletOptions options;
  std::unique_ptr<kube::Client> client;
  std::unique_ptr<Kubelet> kubelet;
};

TEST(cluster_kubelet, a_pods_life_on_the_embedded_api_server) {
  Cluster c;
  const Json node = c.get(kube::kNodes, "n1", "");
  EXPECT_EQ(get_string(*kube::condition(node, "Ready"), {"status"}), "True");
  EXPECT_FALSE(c.get(kube::kLeases, "n1", "kube-node-lease").is_null());
  c.create(kube::kServiceAccounts, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: sa}}");
  c.create(kube::kConfigMaps, "{apiVersion: v1, kind: ConfigMap, metadata: {name: cm}, data: {a: b}}");
  c.create(kube::kPods, R"(
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  nodeName: n1
  serviceAccountName: sa
  automountServiceAccountToken: false
  volumes:
  - {name: v, configMap: {name: cm}}
  - {name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3600}}]}}
  containers:
  - {name: c, image: 'a:1', volumeMounts: [{name: v, mountPath: /v}, {name: t, mountPath: /t}]}
)");
  c.pass(1s);
  const Json pod = c.get(kube::kPods, "p");
  EXPECT_EQ(get_string(pod, {"status", "phase"}), "Running") << to_pretty_text(pod);
  EXPECT_EQ(get_string(*kube::condition(pod, "Ready"), {"status"}), "True");
  EXPECT_EQ(get_array(pod, {"status", "conditions"}).size(), 5u);
  // What the server stored is what the kubelet meant: nothing is written any more.
  const auto version = c.get(kube::kPods, "p").at("metadata").at("resourceVersion");
  c.pass(2s);
  EXPECT_EQ(c.get(kube::kPods, "p").at("metadata").at("resourceVersion"), version);
  EXPECT_EQ(c.get(kube::kNodes, "n1", "").at("metadata").at("resourceVersion"),
            node.at("metadata").at("resourceVersion"));
  const fs::path token = c.dir.path() / "var/lib/kubelet/pods" / str(kube::uid_of(pod)) /
                         "volumes/kubernetes.io~projected/t/token";
  EXPECT_EQ(split(read_file(token).value_or(""), '.').size(), 3u);
  auto gone = kube::await(
      *c.loop, [&](auto done) { return c.client->remove(kube::kPods, "default", "p", {}, std::move(done)); });
  ASSERT_TRUE(gone) << gone.error().message;
  c.pass(1s);
  EXPECT_TRUE(c.get(kube::kPods, "p").is_null());
  EXPECT_EQ(c.kubelet->pods(), 0u);
  EXPECT_FALSE(fs::exists(token));
}

TEST(cluster_kubelet, a_deleted_node_stays_away_until_the_kubelet_is_started_anew) {
  Cluster c;
  const auto remove = [&](const kube::Resource& type, const std::string& ns) {
    auto gone = kube::await(*c.loop,
                            [&](auto done) { return c.client->remove(type, ns, "n1", {}, std::move(done)); });
    ASSERT_TRUE(gone) << gone.error().message;
  };
  remove(kube::kNodes, "");
  remove(kube::kLeases, "kube-node-lease");
  c.pass(10min);
  EXPECT_TRUE(c.get(kube::kNodes, "n1", "").is_null());
  EXPECT_TRUE(c.get(kube::kLeases, "n1", "kube-node-lease").is_null());
  // What it was, it is again when somebody makes it, with a Lease of the new one.
  c.create(kube::kNodes, "{apiVersion: v1, kind: Node, metadata: {name: n1}}", "");
  c.pass(15s);
  const Json made = c.get(kube::kNodes, "n1", "");
  ASSERT_NE(kube::condition(made, "Ready"), nullptr) << to_pretty_text(made);
  EXPECT_EQ(get_string(*kube::condition(made, "Ready"), {"status"}), "True");
  const Json lease = c.get(kube::kLeases, "n1", "kube-node-lease");
  ASSERT_FALSE(lease.is_null());
  EXPECT_EQ(get_string(get_array(lease, {"metadata", "ownerReferences"}).at(0), {"uid"}), kube::uid_of(made));
  remove(kube::kNodes, "");
  c.pass(1s);
  c.kubelet = Kubelet::create(*c.loop, *c.client, c.runtime, c.options).value();
  c.kubelet->start();
  c.pass(1s);
  EXPECT_EQ(get_string(*kube::condition(c.get(kube::kNodes, "n1", ""), "Ready"), {"status"}), "True");
}

TEST(cluster_kubelet, watches_that_are_cut_lose_nothing) {
  Cluster c;
  c.server.cut_watches();
  c.server.compact();
  c.create(kube::kPods,
           "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: n1, containers: [{name: c, "
           "image: 'a:1'}]}}");
  c.pass(60s);
  EXPECT_EQ(c.phase("p"), "Running");
}

}  // namespace
}  // namespace gpuop::cluster

// The same over real sockets: one process, the controllers' client speaks TLS to the server.
#include "base/http_server.h"
#include "cluster/apiserver/pki.h"
#include "kube/config.h"
#include "small_cluster.h"

namespace gpuop::cluster::test {
namespace {

TEST(cluster_controllers, pods_are_bound_within_moments_over_tls) {
  Loop loop;
  const ClusterCredentials credentials = make_cluster_credentials(loop.now()).value();
  ApiServer server(loop);
  HttpServerOptions options;
  options.tls = TlsFiles{credentials.server.certificate, credentials.server.key, credentials.ca.certificate};
  const auto http = HttpServer::create(loop, options, server.handler()).value();
  kube::Config config;
  config.server = "https://127.0.0.1:" + std::to_string(http->port());
  config.ca_pem = credentials.ca.certificate;
  config.client_cert_pem = credentials.admin.certificate;
  config.client_key_pem = credentials.admin.key;
  const auto client = kube::make_client(loop, config).value();
  const auto user = kube::make_client(loop, config).value();
  const auto controllers = start_controllers(loop, *client);
  ASSERT_TRUE(loop.run_until([&] { return controllers->synced(); }, 10s));

  for (int i = 0; i < 4; ++i) {
    const std::string name = "n" + std::to_string(i);
    const Json node = *parse_json(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":")" + name +
                                  R"(","labels":{"gpu":"yes"}},
      "status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},"conditions":[{"type":"Ready","status":"True"}]}})");
    ASSERT_TRUE(kube::await(loop, [&](auto done) { return user->create(kube::kNodes, "", node, {}, done); }));
    ASSERT_TRUE(kube::await(loop, [&](auto done) {
      return user->patch(kube::kNodes, "", name, kube::Patch::kMerge, node, {.subresource = "status"}, done);
    }));
  }
  kube::Informer pods(*user, kube::kPods, {.keep = {"spec.nodeName"}});
  pods.start();
  ASSERT_TRUE(loop.run_until([&] { return pods.synced(); }, 10s));
  Json set = SmallCluster::yaml(kDaemonSet);
  set.as_object()["apiVersion"] = "apps/v1";
  set.as_object()["kind"] = "DaemonSet";
  const Duration before = loop.elapsed();
  ASSERT_TRUE(kube::await(
      loop, [&](auto done) { return user->create(kube::kDaemonSets, "default", set, {}, done); }));
  const bool bound = loop.run_until(
      [&] {
        int count = 0;
        pods.for_each([&](const auto& pod) { count += !get_string(*pod, {"spec", "nodeName"}).empty(); });
        return count == 4;
      },
      10s);
  EXPECT_TRUE(bound);
  RecordProperty("bound_ms", std::to_string((loop.elapsed() - before) / 1ms));
  std::printf("bound after %lld ms\n", static_cast<long long>((loop.elapsed() - before) / 1ms));
}

}  // namespace
}  // namespace gpuop::cluster::test

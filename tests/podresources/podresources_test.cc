#include <gtest/gtest.h>

#include "base/files.h"
#include "podresources/client.h"
#include "served.h"

namespace gpuop::podresources {
namespace {

// A kubelet of an older release: it lists, and knows nothing else.
class Answers : public v1::PodResourcesLister::Service {
 public:
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* out) override {
    *out = answer;
    return grpc::Status::OK;
  }
  v1::ListPodResourcesResponse answer;
};
using Kubelet = Served<Answers>;

template <class T, class Start>
Result<T> wait(Loop& loop, Start start) {
  std::optional<Result<T>> got;
  Handle call = start([&](Result<T> answer) { got = std::move(answer); });
  loop.run_until([&] { return got.has_value(); }, 5s);
  return got ? *got : fail(Code::kUnknown, "no answer");
}

TEST(podresources, replicas) {
  EXPECT_EQ(split_replica("GPU-1::3"), std::pair(std::string("GPU-1"), 3));
  EXPECT_EQ(split_replica("GPU-1"), std::pair(std::string("GPU-1"), -1));
  EXPECT_EQ(split_replica("GPU-1::x"), std::pair(std::string("GPU-1::x"), -1));
  EXPECT_EQ(split_replica("::"), std::pair(std::string("::"), -1));
}

TEST(podresources, pods_and_claims) {
  TempDir dir;
  Loop loop;
  Kubelet kubelet(dir.path() / "s");
  auto* pod = kubelet.answer.add_pod_resources();
  pod->set_name("p");
  pod->set_namespace_("ns");
  auto* container = pod->add_containers();
  container->set_name("c");
  auto* devices = container->add_devices();
  devices->set_resource_name("nvidia.com/gpu");
  devices->add_device_ids("GPU-1::2");
  devices->add_device_ids("GPU-2");
  auto* claim = container->add_dynamic_resources();
  claim->set_claim_name("claim");
  claim->set_claim_namespace("ns");
  auto* resource = claim->add_claim_resources();
  resource->set_driver_name("gpu.nvidia.com");
  resource->set_pool_name("node");
  resource->set_device_name("gpu-0");
  resource->add_cdi_devices()->set_name("k8s.gpu.nvidia.com/claim=x");

  Client client(loop, dir.path() / "s");
  auto uses = wait<std::vector<Use>>(loop, [&](auto done) { return client.list(2s, done); });
  ASSERT_TRUE(uses) << uses.error().text();
  ASSERT_EQ(uses->size(), 3u);
  EXPECT_EQ((*uses)[0], (Use{"ns", "p", "c", "nvidia.com/gpu", "GPU-1::2", "GPU-1", 2, "", "", "", {}}));
  EXPECT_EQ((*uses)[1].device, "GPU-2");
  EXPECT_EQ((*uses)[2], (Use{"ns",
                             "p",
                             "c",
                             "gpu.nvidia.com",
                             "gpu-0",
                             "gpu-0",
                             -1,
                             "ns",
                             "claim",
                             "node",
                             {"k8s.gpu.nvidia.com/claim=x"}}));

  auto none = wait<std::vector<Allocatable>>(loop, [&](auto done) { return client.allocatable(2s, done); });
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kUnsupported);
}

TEST(podresources, answers_larger_than_grpcs_default) {
  TempDir dir;
  Loop loop;
  Kubelet kubelet(dir.path() / "s");
  auto* pod = kubelet.answer.add_pod_resources();
  pod->set_name(std::string(6 << 20, 'x'));
  pod->add_containers()->add_devices()->add_device_ids("GPU-1");
  Client client(loop, dir.path() / "s");
  auto uses = wait<std::vector<Use>>(loop, [&](auto done) { return client.list(4s, done); });
  ASSERT_TRUE(uses) << uses.error().text();
  EXPECT_EQ(uses->size(), 1u);
}

TEST(podresources, no_kubelet) {
  TempDir dir;
  Loop loop;
  Client client(loop, dir.path() / "absent");
  auto uses = wait<std::vector<Use>>(loop, [&](auto done) { return client.list(2s, done); });
  ASSERT_FALSE(uses);
  EXPECT_EQ(uses.error().code(), Code::kUnavailable);
  EXPECT_NE(uses.error().text().find("absent"), std::string::npos);
}

}  // namespace
}  // namespace gpuop::podresources

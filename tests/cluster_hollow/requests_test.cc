// What the operator asks of the API server, at a small scale and on a virtual clock; bench/operator.cc has
// the program itself with thousands of nodes.
#include <gtest/gtest.h>

#include "requests.h"
#include "runs.h"

namespace gpuop::cluster::runs {
namespace {

class cluster_hollow_requests : public testing::Test {
 protected:
  void SetUp() override {
    auto options = options_of("mode: light\nnodes: [{name: n, count: 10, gpus: {model: H200, count: 8}}]\n");
    options.events = [](std::string_view) {};
    auto made = HollowFleet::create(std::move(options));
    ASSERT_TRUE(made) << made.error().text();
    fleet = std::move(*made);
    ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->ready(); }, 30min)) << fleet->first_broken_link();
    installed = now();
    ASSERT_TRUE(fleet->loop().run_until([&] { return fleet->stable(); }, 30min));
  }
  Requests now() const { return fleet->requests_by("gpu-operator"); }
  // Without the lease's.
  Requests after(const char* patch) {
    const Requests before = now();
    fleet->client()
        .patch(kube::kNodes, "", "n-3", kube::Patch::kMerge, *parse_json(patch), {}, [](const auto&) {})
        .detach();
    fleet->loop().run_for(1min);
    Requests out = minus(now(), before);
    std::erase_if(out, [](const auto& entry) { return entry.first.ends_with(" leases"); });
    return out;
  }

  std::unique_ptr<HollowFleet> fleet;
  Requests installed;
};

TEST_F(cluster_hollow_requests, a_first_install_costs_one_an_object_and_few_more) {
  const InstallCost cost = install_cost(installed);
  EXPECT_GT(cost.objects, 30u) << text_of(installed);
  // Of these, 19 are the watches.
  EXPECT_LE(cost.more, 30u) << text_of(installed);
  // Labels of feature discovery, of the operator, of GPU feature discovery, and its condition.
  EXPECT_LE(now().at("patch nodes"), 10u * 5) << text_of(now());
}

TEST_F(cluster_hollow_requests, while_nothing_happens_the_lease_alone_is_written) {
  const Requests before = now();
  fleet->loop().run_for(10min);
  for (const auto& [what, count] : minus(now(), before))
    EXPECT_TRUE(what == "update leases" || what.starts_with("watch ")) << count << " " << what;
}

TEST_F(cluster_hollow_requests, an_event_of_one_node_costs_three_at_most) {
  for (const char* patch :
       {R"({"metadata":{"labels":{"nvidia.com/gpu.deploy.dcgm-exporter":"false"}}})",
        R"({"metadata":{"labels":{"nvidia.com/gpu.deploy.dcgm-exporter":null}}})",
        R"({"metadata":{"labels":{"example.com/rack":"7"}}})", R"({"spec":{"unschedulable":true}})"}) {
    const Requests made = after(patch);
    EXPECT_LE(sum(made), 3u) << patch << ": " << text_of(made);
  }
}

}  // namespace
}  // namespace gpuop::cluster::runs

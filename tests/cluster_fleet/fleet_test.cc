#include "cluster/fleet/fleet.h"

#include <gtest/gtest.h>

#include "base/files.h"

namespace gpuop::cluster {
namespace {

std::string error(std::string_view text,
                  const std::vector<std::string>& models = {"A100-SXM4-80GB", "H200", "L4"}) {
  auto fleet = parse_fleet(text, "f.yaml", models);
  return fleet ? "fine" : fleet.error().text();
}

// What docs/simulator.md shows.
TEST(cluster_fleet, the_documented_file_is_one) {
  const std::string page = read_file(fs::path(SOURCE_ROOT) / "docs/simulator.md").value();
  const auto begin = page.find("```yaml\nseed:") + 8;
  const std::string example = page.substr(begin, page.find("```", begin) - begin);
  ASSERT_NE(example.find("nodes:"), std::string::npos);
  EXPECT_EQ(error(example), "fine");
}

TEST(cluster_fleet, nodes_with_their_defaults) {
  auto fleet = parse_fleet(R"(
seed: 7
nodes:
  - name: a100
    gpus: {model: a100-sxm4-80gb, count: 8}
    driver: preinstalled
    labels: {zone: a}
    taints: [{key: k}]
    memory: 1152Gi
  - name: cpu
    count: 2
    os: ubuntu24.04
)",
                           "f.yaml", {"A100-SXM4-80GB"});
  ASSERT_TRUE(fleet) << fleet.error().text();
  EXPECT_EQ(fleet->seed, 7u);
  ASSERT_EQ(fleet->nodes.size(), 3u);
  const FleetNode& a100 = fleet->nodes[0];
  EXPECT_EQ(a100.os_tag(), "ubuntu22.04");
  EXPECT_EQ(a100.driver, DriverSource::kPreinstalled);
  EXPECT_EQ(a100.driver_version, "580.95.05");
  EXPECT_EQ(a100.numa_nodes, 2);
  EXPECT_EQ(a100.memory_mib, 1152 * 1024);
  EXPECT_EQ(a100.taints, (std::vector<FleetTaint>{{"k", "", "NoSchedule"}}));
  EXPECT_EQ(fleet->nodes[1].name, "cpu-0");
  EXPECT_EQ(fleet->nodes[2].kernel, "6.8.0-60-generic");
  EXPECT_EQ(fleet->nodes[2].driver, DriverSource::kNone);
}

TEST(cluster_fleet, a_gpu_node_without_a_word_has_its_driver_from_a_container) {
  auto fleet = parse_fleet("nodes: [{name: l4, gpus: {model: L4}}]", "f");
  ASSERT_TRUE(fleet);
  EXPECT_EQ(fleet->nodes[0].gpu_count, 1);
  EXPECT_EQ(fleet->nodes[0].driver, DriverSource::kContainer);
}

TEST(cluster_fleet, os_tags_drop_the_minor_version_where_driver_images_do) {
  auto tag = [](const std::string& os) {
    return parse_fleet("nodes: [{name: n, os: " + os + "}]", "f")->nodes[0].os_tag();
  };
  EXPECT_EQ(tag("rhel9.4"), "rhel9");
  EXPECT_EQ(tag("rocky8.10"), "rocky8");
  EXPECT_EQ(tag("ubuntu24.04"), "ubuntu24.04");
  EXPECT_EQ(tag("sl-micro6.1"), "sl-micro6.1");
}

TEST(cluster_fleet, labels_that_no_api_server_takes_are_refused) {
  EXPECT_NE(error("nodes:\n  - name: a\n    labels: {\"bad key!\": v}\n").find("line 3"), std::string::npos);
  EXPECT_NE(error("nodes:\n  - name: a\n    labels: {zone: \"a b\"}\n").find("'a b'"), std::string::npos);
}

TEST(cluster_fleet, what_is_unknown_is_named_with_line_and_the_near_word) {
  EXPECT_EQ(error("nodes:\n  - name: a\n    kernal: x\n"),
            "read fleet 'f.yaml': line 3: nodes[0].kernal: unknown key (did you mean 'kernel'?)");
  EXPECT_EQ(error("node: []\n"), "read fleet 'f.yaml': line 1: node: unknown key (did you mean 'nodes'?)");
  EXPECT_EQ(error("nodes:\n  - name: a\n    gpus: {model: H20, count: 8}\n"),
            "read fleet 'f.yaml': line 3: nodes[0].gpus.model: no such model 'H20'; known are "
            "A100-SXM4-80GB, H200, L4 "
            "(did you mean 'H200'?)");
  EXPECT_NE(error("nodes: [{name: a, driver: contaner}]").find("(did you mean 'container'?)"),
            std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, os: ubunt22.04}]").find("(did you mean 'ubuntu'?)"), std::string::npos);
}

TEST(cluster_fleet, wrong_values_are_refused) {
  EXPECT_NE(error("nodes: []").find("at least one node"), std::string::npos);
  EXPECT_NE(error("nodes: [{name: A}]").find("lower-case"), std::string::npos);
  EXPECT_NE(error("nodes: [{name: a}, {name: a}]").find("there are two nodes 'a'"), std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, count: x}]").find("nodes[0].count: must be a whole number"),
            std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, count: 2000}]").find("must be from 0 to 1000; got 2000"),
            std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, gpus: {model: L4, count: 17}}]").find("from 0 to 16"),
            std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, driver: preinstalled}]").find("without GPUs"), std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, gpus: {model: L4}, driverVersion: \"580.1\"}]")
                .find("is that of a preinstalled"),
            std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, os: 22.04}]").find("put it in quotes"), std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, memory: lots}]").find("a quantity such as 256Gi"), std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, taints: [{key: k, effect: Never}]}]").find("NoExecute"),
            std::string::npos);
  EXPECT_NE(error("nodes: [{name: a, name: b}]").find("given twice"), std::string::npos);
  EXPECT_NE(error("- a").find("must be a map"), std::string::npos);
}

TEST(cluster_fleet, vgpu_hosts_are_boards_that_can_be_shared_out) {
  auto with = [](std::string_view node) {
    auto fleet = parse_fleet(std::string("nodes:\n  - name: a\n    ") + std::string(node), "f.yaml",
                             {"L4", "L40S", "T4"}, {"L40S", "T4"});
    return fleet ? fleet->nodes[0].vgpu_host ? "host" : "no host" : fleet.error().text();
  };
  EXPECT_EQ(with("gpus: {model: l40s}\n    vgpuHost: true"), "host");
  EXPECT_EQ(with("gpus: {model: L4}\n    vgpuHost: false"), "no host");
  EXPECT_EQ(with("gpus: {model: L4}\n    vgpuHost: true"),
            "read fleet 'f.yaml': line 4: nodes[0].vgpuHost: a board of model 'L4' cannot be shared out; "
            "those that "
            "can are L40S, T4");
  EXPECT_EQ(with("vgpuHost: true"),
            "read fleet 'f.yaml': line 3: nodes[0].vgpuHost: is for nodes with GPUs: give 'gpus'");
  EXPECT_EQ(with("vgpuHost: maybe"), "read fleet 'f.yaml': line 3: nodes[0].vgpuHost: must be true or false");
  EXPECT_EQ(with("vgpuhost: true"),
            "read fleet 'f.yaml': line 3: nodes[0].vgpuhost: unknown key (did you mean 'vgpuHost'?)");
  EXPECT_EQ(with("mode: hollow\n    gpus: {model: T4}\n    vgpuHost: true"),
            "read fleet 'f.yaml': line 5: nodes[0].vgpuHost: is for nodes with processes");
}

TEST(cluster_fleet, a_fleet_survives_json) {
  auto fleet = parse_fleet(
      "nodes: [{name: a, count: 2, gpus: {model: L4, count: 2}, vgpuHost: true, labels: {x: y}, "
      "taints: [{key: k, value: v, effect: NoExecute}]}]",
      "f");
  ASSERT_TRUE(fleet);
  auto back = fleet_from_json(*parse_json(to_text(to_json(*fleet))));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, *fleet);
}

}  // namespace
}  // namespace gpuop::cluster

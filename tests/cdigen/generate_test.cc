#include "cdigen/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"

namespace gpuop::cdigen {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

void node(Facts& facts, const std::string& path, std::uint32_t mode = 0666, std::uint32_t gid = 0) {
  facts.devices.nodes.emplace(
      path, Node{path, 195, static_cast<std::int64_t>(facts.devices.nodes.size()), mode, gid});
}

hardware::Gpu gpu(unsigned index, unsigned minor) {
  hardware::Gpu gpu;
  gpu.index = index;
  gpu.minor = minor;
  gpu.uuid = "GPU-0000000" + std::to_string(index);
  gpu.bus_id = "0000:0" + std::to_string(index) + ":00.0";
  return gpu;
}

Facts two_gpus() {
  Facts facts;
  facts.driver.version = "550.1";
  facts.driver.library_dirs = {"/usr/lib64"};
  facts.driver.libraries.push_back({"/usr/lib64/libcuda.so.550.1", "libcuda.so.1", true, true, false});
  facts.inventory.gpus = {gpu(0, 1), gpu(1, 0)};
  for (auto path : {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"}) node(facts, path);
  return facts;
}

std::vector<std::string> paths(const cdi::Edits& edits) {
  std::vector<std::string> list;
  for (const auto& node : edits.device_nodes) list.push_back(node.path);
  return list;
}

std::vector<std::string> device_names(const cdi::Spec& spec) {
  std::vector<std::string> list;
  for (const auto& device : spec.devices) list.push_back(device.name);
  return list;
}

const cdi::Hook* hook(const cdi::Spec& spec, std::string_view name) {
  for (const auto& hook : spec.edits.hooks) {
    if (hook.args.size() > 1 && hook.args[1] == name) return &hook;
  }
  return nullptr;
}

TEST(container_toolkit, case14_nodes_follow_the_minor_and_names_the_strategy) {
  Options options;
  auto spec = generate(two_gpus(), options);
  ASSERT_TRUE(spec) << spec.error().text();
  EXPECT_EQ(spec->devices[0].name, "0");
  EXPECT_EQ(paths(spec->devices[0].edits), std::vector<std::string>{"/dev/nvidia1"});
  options.strategies = {"index", "uuid"};
  spec = generate(two_gpus(), options);
  ASSERT_TRUE(spec);
  EXPECT_EQ(device_names(*spec), (std::vector<std::string>{"0", "1", "GPU-00000000", "GPU-00000001", "all"}));
  EXPECT_EQ(paths(spec->devices[4].edits), (std::vector<std::string>{"/dev/nvidia0", "/dev/nvidia1"}));
}

TEST(container_toolkit, case15_driver_files_lose_the_driver_root) {
  Options options;
  options.driver_root = "/run/nvidia/driver";
  options.dev_root = "/";
  auto spec = generate(two_gpus(), options);
  ASSERT_TRUE(spec);
  ASSERT_EQ(spec->edits.mounts.size(), 1u);
  EXPECT_EQ(spec->edits.mounts[0].host_path, "/run/nvidia/driver/usr/lib64/libcuda.so.550.1");
  EXPECT_EQ(spec->edits.mounts[0].container_path, "/usr/lib64/libcuda.so.550.1");
  EXPECT_EQ(spec->edits.env,
            (std::vector<std::string>{"NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"}));
  const auto* cache = hook(*spec, "update-ldcache");
  ASSERT_NE(cache, nullptr);
  EXPECT_EQ(cache->args,
            (std::vector<std::string>{"nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"}));
  const auto* links = hook(*spec, "create-symlinks");
  ASSERT_NE(links, nullptr);
  EXPECT_EQ(links->args, (std::vector<std::string>{"nvidia-cdi-hook", "create-symlinks", "--link",
                                                   "libcuda.so.1::/usr/lib64/libcuda.so", "--link",
                                                   "libcuda.so.550.1::/usr/lib64/libcuda.so.1"}));
}

TEST(container_toolkit, case16_mig_devices_have_their_capabilities) {
  Facts facts = two_gpus();
  auto& parent = facts.inventory.gpus[0];
  parent.mig_capable = true;
  parent.mig_mode = {true, true};
  parent.mig_devices.push_back({0, "MIG-1", 2, 0, "1g.10gb", {}});
  facts.devices.mig_minors = hardware::parse_mig_minors("gpu1/gi2/access 30\ngpu1/gi2/ci0/access 31\n");
  for (auto path : {"/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31", "/dev/dri/card1"})
    node(facts, path);
  facts.devices.drm[parent.bus_id] = {"card1"};
  auto spec = generate(facts, {});
  ASSERT_TRUE(spec) << spec.error().text();
  EXPECT_EQ(device_names(*spec), (std::vector<std::string>{"0:0", "1", "all"}));
  EXPECT_EQ(paths(spec->devices[0].edits),
            (std::vector<std::string>{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap30",
                                      "/dev/nvidia-caps/nvidia-cap31"}));
  parent.mig_devices[0].profile = "1g.24gb+gfx";
  spec = generate(facts, {});
  ASSERT_TRUE(spec);
  auto with = paths(spec->devices[0].edits);
  EXPECT_NE(std::ranges::find(with, "/dev/dri/card1"), with.end());
}

TEST(container_toolkit, case18_groups_of_private_nodes_are_added) {
  Facts facts = two_gpus();
  facts.devices.nodes.at("/dev/nvidia1").mode = 0660;
  facts.devices.nodes.at("/dev/nvidia1").gid = 44;
  auto spec = generate(facts, {});
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->devices[0].edits.device_nodes[0].gid, 44u);
  EXPECT_EQ(spec->devices[0].edits.additional_gids, std::vector<std::uint32_t>{44});
  EXPECT_EQ(spec->version, "0.7.0");
  facts.devices.nodes.at("/dev/nvidia1").mode = 0666;
  spec = generate(facts, {});
  EXPECT_TRUE(spec->devices[0].edits.additional_gids.empty());
  facts.devices.nodes.at("/dev/nvidia1").mode = 0660;
  Options options;
  options.features = {"no-additional-gids-for-device-nodes"};
  EXPECT_TRUE(generate(facts, options)->devices[0].edits.additional_gids.empty());
}

TEST(container_toolkit, case19_hooks_are_selected) {
  Options options;
  options.disabled_hooks = {"all"};
  options.enabled_hooks = {"update-ldcache"};
  auto spec = generate(two_gpus(), options);
  ASSERT_TRUE(spec);
  ASSERT_EQ(spec->edits.hooks.size(), 1u);
  EXPECT_EQ(spec->edits.hooks[0].args[1], "update-ldcache");
  options.enabled_hooks = {"all"};
  EXPECT_EQ(generate(two_gpus(), options).error().text(), "enabling all hooks is not supported");
}

TEST(container_toolkit, case20_management_holds_every_node_but_the_foreign_ones) {
  Facts facts;
  facts.driver = two_gpus().driver;
  for (auto path : {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-fs0", "/dev/nvidia-nvswitchctl",
                    "/dev/nvidia-caps-imex-channels/channel7"}) {
    node(facts, path);
  }
  Options options;
  options.mode = "management";
  auto spec = generate(facts, options);
  ASSERT_TRUE(spec) << spec.error().text();
  EXPECT_EQ(device_names(*spec), std::vector<std::string>{"all"});
  EXPECT_EQ(paths(spec->devices[0].edits),
            (std::vector<std::string>{"/dev/nvidia0", "/dev/nvidiactl",
                                      "/dev/nvidia-caps-imex-channels/channel7"}));
  EXPECT_EQ(hook(*spec, "disable-device-node-modification"), nullptr);
  EXPECT_NE(hook(*spec, "enable-cuda-compat"), nullptr);
  EXPECT_NE(hook(*generate(two_gpus(), {}), "disable-device-node-modification"), nullptr);
  facts.devices.nodes.clear();
  EXPECT_EQ(generate(facts, options).error().text(), "no NVIDIA device nodes found");
}

TEST(container_toolkit, case21_requested_ids) {
  Options options;
  options.device_ids = {"99"};
  auto spec = generate(two_gpus(), options);
  ASSERT_FALSE(spec);
  EXPECT_HAS(spec.error().text(), "failed to get device handle from index");
  options.device_ids = {"none"};
  spec = generate(two_gpus(), options);
  ASSERT_TRUE(spec);
  EXPECT_EQ(device_names(*spec), std::vector<std::string>{"none"});
  EXPECT_EQ(spec->devices[0].edits.env, std::vector<std::string>{"NVCT_EMPTY_DEVICE="});
  options.device_ids = {"what"};
  EXPECT_HAS(generate(two_gpus(), options).error().text(),
             "identifier is not a valid UUID or index: \"what\"");
  options.device_ids = {"0", "GPU-00000000"};
  EXPECT_HAS(generate(two_gpus(), options).error().text(), "multiple device \"0\"");
}

TEST(container_toolkit, case22_imex_channels) {
  Facts facts = two_gpus();
  node(facts, "/dev/nvidia-caps-imex-channels/channel3");
  node(facts, "/dev/nvidia-caps-imex-channels/channel5");
  Options options;
  options.mode = "imex";
  options.device_ids = {"channel3", "5"};
  auto spec = generate(facts, options);
  ASSERT_TRUE(spec) << spec.error().text();
  EXPECT_EQ(spec->kind, "nvidia.com/imex-channel");
  EXPECT_EQ(device_names(*spec), (std::vector<std::string>{"3", "5", "all"}));
  EXPECT_EQ(spec->devices[0].edits.device_nodes[0].major, 0);
  options.device_ids = {"1048576"};
  EXPECT_HAS(generate(facts, options).error().text(), "range");
  facts.devices.nodes.erase("/dev/nvidia-caps-imex-channels/channel5");
  options.device_ids = {"5"};
  EXPECT_HAS(generate(facts, options).error().text(), "/dev/nvidia-caps-imex-channels/channel5");
}

TEST(container_toolkit, case23_roots_are_transformed_at_component_boundaries) {
  EXPECT_EQ(transform_path("/driver/lib/a", "/driver", "/"), "/lib/a");
  EXPECT_EQ(transform_path("/driver2/lib/a", "/driver", "/"), "/driver2/lib/a");
  EXPECT_EQ(transform_path("/driver", "/driver", "/"), "/");
  EXPECT_EQ(transform_path("/dev/nvidia0", "/", "/run/nvidia/driver"), "/run/nvidia/driver/dev/nvidia0");
}

TEST(container_toolkit, case24_every_hook_has_an_environment) {
  Facts facts = two_gpus();
  facts.driver.allocator_dir = "/usr/lib64";
  facts.devices.drm["0000:00:00.0"] = {"card0"};
  node(facts, "/dev/dri/card0");
  facts.devices.links["/dev/dri/by-path/pci-0000:00:00.0-card"] = "../card0";
  Options options;
  options.enabled_hooks = {"chmod"};
  auto spec = generate(facts, options);
  ASSERT_TRUE(spec);
  std::size_t seen = 0;
  auto check = [&](const cdi::Edits& edits) {
    for (const auto& hook : edits.hooks) {
      EXPECT_FALSE(hook.env.empty()) << hook.args.at(1);
      ++seen;
    }
  };
  check(spec->edits);
  for (const auto& device : spec->devices) check(device.edits);
  EXPECT_GE(seen, 8u);
}

TEST(cdigen, a_device_without_its_node_is_an_error_that_names_it) {
  Facts facts = two_gpus();
  facts.devices.nodes.erase("/dev/nvidia1");
  EXPECT_HAS(generate(facts, {}).error().text(),
             "failed add device \"0\": invalid device, empty device edits");
}

TEST(cdigen, mig_mode_without_instances_offers_nothing) {
  Facts facts = two_gpus();
  for (auto& gpu : facts.inventory.gpus) gpu.mig_mode.current = true;
  EXPECT_TRUE(awaits_mig_instances(facts.inventory));
  EXPECT_EQ(generate(facts, {}).error().text(),
            "invalid spec, no devices: MIG is on and no instance has been made on GPU 0, 1");
  // One board of two: the other is all there is.
  facts.inventory.gpus[1].mig_mode.current = false;
  EXPECT_FALSE(awaits_mig_instances(facts.inventory));
  auto spec = generate(facts, {});
  ASSERT_TRUE(spec) << spec.error().text();
  EXPECT_EQ(device_names(*spec), (std::vector<std::string>{"1", "all"}));
  facts.inventory.gpus.clear();
  EXPECT_EQ(generate(facts, {}).error().text(), "invalid spec, no devices: there is no GPU");
}

TEST(cdigen, short_versions_have_no_links) {
  Facts facts = two_gpus();
  facts.driver.libraries.push_back(
      {"/usr/lib64/libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4", true, true, true});
  facts.driver.libraries.push_back(
      {"/usr/lib64/libnvidia-ml.so.550.1", "libnvidia-ml.so.1", true, true, true});
  auto spec = generate(facts, {});
  ASSERT_TRUE(spec) << spec.error().text();
  const std::string links = join(hook(*spec, "create-symlinks")->args, " ");
  EXPECT_EQ(links.find("nvvm70"), std::string::npos) << links;
  EXPECT_HAS(links, "libnvidia-ml.so.550.1::/usr/lib64/libnvidia-ml.so.1");
  EXPECT_TRUE(links.ends_with("--link libnvidia-ml.so.1::/usr/lib64/libnvidia-ml.so")) << links;
}

TEST(cdigen, hooks_come_in_the_order_that_they_need) {
  Facts facts = two_gpus();
  facts.driver.allocator_dir = "/usr/lib64";
  auto spec = generate(facts, {});
  ASSERT_TRUE(spec);
  std::vector<std::string> order;
  for (const auto& hook : spec->edits.hooks) order.push_back(hook.args[1]);
  EXPECT_EQ(order, (std::vector<std::string>{"create-symlinks", "create-symlinks", "enable-cuda-compat",
                                             "update-ldcache", "disable-device-node-modification",
                                             "update-application-profile"}));
}

TEST(cdigen, a_hook_called_nvidia_ctk_gets_its_sub_command) {
  Options options;
  options.hook_path = "/usr/bin/nvidia-ctk";
  auto spec = generate(two_gpus(), options);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->edits.hooks[0].args[0], "nvidia-ctk");
  EXPECT_EQ(spec->edits.hooks[0].args[1], "hook");
}

}  // namespace
}  // namespace gpuop::cdigen

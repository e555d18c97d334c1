#include "plugin/health.h"

#include <gtest/gtest.h>

namespace gpuop::plugin {
namespace {

Device replica(const std::string& gpu, int n) {
  Device device;
  device.gpu_uuid = device.uuid = gpu;
  device.replica = n;
  device.id = gpu + "::" + std::to_string(n);
  return device;
}

Device mig(const std::string& uuid, const std::string& gpu, unsigned gi, unsigned ci) {
  Device device;
  device.gpu_uuid = gpu;
  device.id = device.uuid = uuid;
  device.mig_index = 0;
  device.gpu_instance = gi;
  device.compute_instance = ci;
  return device;
}

std::vector<Resource> two_gpus() {
  return {{"nvidia.com/gpu", {replica("U0", 0), replica("U0", 1), replica("U1", 0), replica("U1", 1)}}};
}

std::vector<std::string> marked(const char* disable, const char* enable, std::uint64_t xid) {
  HealthState state(parse_health_rules(disable, enable));
  return state.apply({"U1", xid, {}, {}}, two_gpus(), Time{});
}

const std::vector<std::string> kNobody;
const std::vector<std::string> kU1 = {"U1"};

TEST(plugin, health_rules_name_what_they_ignore) {
  HealthRules rules = parse_health_rules(" 79, ALL ,x,,-3", "XIDS");
  EXPECT_TRUE(rules.disable_all);
  EXPECT_TRUE(rules.enable_all);
  EXPECT_EQ(rules.disabled, std::set<std::uint64_t>{79});
  EXPECT_EQ(rules.warnings.size(), 2u);
  EXPECT_TRUE(parse_health_rules("", "").needed());
  EXPECT_FALSE(parse_health_rules("all", "").needed());
  EXPECT_TRUE(parse_health_rules("xids", "48").needed());
}

TEST(plugin, unhealthy_devices_recover_unless_only_a_reboot_helps) {
  HealthState state(parse_health_rules("", ""));
  Time now{};
  state.apply({"U0", 95, {}, {}}, two_gpus(), now);
  EXPECT_TRUE(state.due(now + 1min, 5min).empty());
  EXPECT_EQ(state.next(now + 1min, 5min), Duration(4min));
  EXPECT_EQ(state.due(now + 5min, 5min), std::vector<std::string>{"U0"});
  EXPECT_EQ(state.next(now, Duration(0)), std::nullopt);
  // A new event starts the wait anew; one that needs a reboot ends it.
  EXPECT_EQ(state.apply({"U0", 95, {}, {}}, two_gpus(), now + 4min), kNobody);
  EXPECT_TRUE(state.due(now + 5min, 5min).empty());
  state.apply({"U0", 79, {}, {}}, two_gpus(), now + 5min);
  state.apply({"U0", 95, {}, {}}, two_gpus(), now + 6min);
  EXPECT_TRUE(state.due(now + 60min, 5min).empty());
  EXPECT_TRUE(state.clear("U0"));
  EXPECT_TRUE(state.healthy("U0"));
}

TEST(plugin, event_of_an_unidentified_gpu_concerns_everybody) {
  HealthState state(parse_health_rules("", ""));
  EXPECT_EQ(state.apply({"", 31, {}, {}}, two_gpus(), Time{}), (std::vector<std::string>{"U0", "U1"}));
  EXPECT_EQ(state.apply({"GPU-unknown", 79, {}, {}}, two_gpus(), Time{}), kNobody);
}

}  // namespace
}  // namespace gpuop::plugin

using namespace gpuop;          // NOLINT
using namespace gpuop::plugin;  // NOLINT

TEST(device_plugin, case27_skipped_disabled_and_enabled_xids) {
  EXPECT_EQ(marked("", "", 79), kU1);
  EXPECT_EQ(marked("", "", 31), kNobody);
  EXPECT_EQ(marked("79", "", 79), kNobody);
  EXPECT_EQ(marked("", "31", 31), kU1);
  EXPECT_EQ(marked("79", "79", 79), kU1);
}

TEST(device_plugin, case28_disable_all_enable_one) {
  EXPECT_EQ(marked("all", "48", 48), kU1);
  EXPECT_EQ(marked("all", "48", 79), kNobody);
  EXPECT_EQ(marked("all", "all", 13), kU1);
}

TEST(device_plugin, case29_mig_instances) {
  std::vector<Resource> resources = {
      {"nvidia.com/mig-3g.20gb", {mig("MIG-1", "U0", 1, 0), mig("MIG-2", "U0", 2, 0)}}};
  auto apply = [&](std::optional<unsigned> gi, std::optional<unsigned> ci) {
    HealthState state(parse_health_rules("", ""));
    return state.apply({"U0", 79, gi, ci}, resources, Time{});
  };
  EXPECT_EQ(apply(2, {}), std::vector<std::string>{"MIG-2"});
  EXPECT_EQ(apply({}, {}), (std::vector<std::string>{"MIG-1", "MIG-2"}));
  EXPECT_EQ(apply(1, 5), kNobody);
}

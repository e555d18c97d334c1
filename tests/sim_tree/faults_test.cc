// Faults from the command line, as NVML then shows them.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "driver_root.h"
#include "sim/faults.h"
#include "sim/nvml/nvml_abi.h"

namespace gpuop::sim {
namespace {

Fault fault(const std::vector<std::string>& words) {
  auto f = parse_fault(words);
  EXPECT_TRUE(f) << f.error().text();
  return f.value_or(Fault{});
}

const Live live(const DriverRoot& root, int gpu = 0) {
  StateFile file;
  EXPECT_EQ(file.open((root.kernel() / "sim/state").string()), StateFault::kNone);
  return file.read()->gpus[gpu].live;
}

TEST(sim_tree, faults_change_the_board_and_recover_heals_it) {
  DriverRoot root("A100", 2);
  ASSERT_TRUE(apply_fault(root.kernel(), 1, fault({"ecc", "double", "3"})));
  EXPECT_EQ(live(root, 1).ecc_dbe_volatile, 3u);
  EXPECT_EQ(live(root, 1).last_xid, 48u);
  EXPECT_EQ(live(root, 1).recovery_action, 1u);
  EXPECT_EQ(live(root, 0).last_xid, 0u);
  ASSERT_TRUE(apply_fault(root.kernel(), 1, fault({"lost"})));
  EXPECT_EQ(live(root, 1).lost, 1u);
  EXPECT_EQ(live(root, 1).last_xid, 79u);
  ASSERT_TRUE(apply_fault(root.kernel(), -1, fault({"recover"})));
  EXPECT_EQ(live(root, 1).lost, 0u);
  EXPECT_EQ(live(root, 1).recovery_action, 0u);
  EXPECT_EQ(live(root, 1).remapped_uncorrectable, 1u);
  EXPECT_EQ(live(root, 1).ecc_dbe_aggregate, 3u);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"load", "70"})));
  EXPECT_EQ(live(root, 0).load_percent, 70u);
}

TEST(sim_tree, faults_of_calls_are_seen_by_a_running_process) {
  DriverRoot root("L4", 1);
  void* lib = dlopen(root.library("libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  auto init = reinterpret_cast<int (*)()>(dlsym(lib, "nvmlInit_v2"));
  auto count = reinterpret_cast<int (*)(unsigned*)>(dlsym(lib, "nvmlDeviceGetCount_v2"));
  unsigned n = 0;
  ASSERT_EQ(init(), 0);
  ASSERT_EQ(count(&n), 0);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"fail", "nvmlDeviceGetCount_v2", "NVML_ERROR_UNKNOWN"})));
  EXPECT_EQ(count(&n), 999);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"fail", "nvmlDeviceGetCount_v2", "SUCCESS"})));
  EXPECT_EQ(count(&n), 0);
}

TEST(sim_tree, fault_errors_suggest) {
  auto text = [](const std::vector<std::string>& words) {
    auto f = parse_fault(words);
    return f ? std::string() : f.error().text();
  };
  EXPECT_NE(text({"lots"}).find("did you mean 'lost'"), std::string::npos);
  EXPECT_NE(text({"ecc", "dubble"}).find("did you mean 'double'"), std::string::npos);
  EXPECT_NE(text({"fail", "nvmlInit_v2", "NOT_SUPORTED"}).find("did you mean 'NOT_SUPPORTED'"),
            std::string::npos);
  EXPECT_NE(text({"xid", "seven"}).find("whole number"), std::string::npos);
  EXPECT_NE(text({"fail", "cuInit", "3"}).find("NVML function"), std::string::npos);
  DriverRoot root("L4", 2);
  EXPECT_NE(apply_fault(root.kernel(), 2, fault({"lost"})).error().text().find("the node has 2"),
            std::string::npos);
  EXPECT_NE(apply_fault(root.kernel(), 0, fault({"link-down", "0"})).error().text().find("has 0 NVLinks"),
            std::string::npos);
  EXPECT_EQ(apply_fault(root.root(), 0, fault({"lost"})).error().code(), Code::kNotFound);
}

TEST(sim_tree, fault_on_a_node_without_gpus_says_so) {
  TempDir dir;
  NodeHardware none;
  none.profiles = BUILD_ROOT "/sim/profiles";
  auto built = build_node_tree(none, dir.path());
  ASSERT_TRUE(built) << built.error().text();
  for (int gpu : {-1, 0, 3}) {
    auto done = apply_fault(dir.path(), gpu, fault({"lost"}));
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().text(), "apply fault: the node has no GPU");
  }
}

TEST(sim_tree, fault_chooses_among_fleets) {
  const std::map<std::string, std::vector<FoundNode>> running = {
      {"n1", {{"/tmp/b", "/proc/2"}, {"/tmp/a", "/proc/1"}}}, {"n2", {{"/tmp/b", "/proc/3"}}}};
  auto both = choose_node("n1", "", running);
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code(), Code::kConflict);
  EXPECT_EQ(
      both.error().text(),
      "find node 'n1': the fleets in '/tmp/a' and '/tmp/b' have one of this name: choose with --state-dir");
  EXPECT_EQ(choose_node("n1", "/tmp/a/", running).value_or(""), "/proc/1");
  EXPECT_EQ(choose_node("n2", "", running).value_or(""), "/proc/3");
  EXPECT_EQ(choose_node("n2", "/tmp/a", running).error().text(),
            "find node 'n2': there are n1 (did you mean 'n1'?)");
  EXPECT_EQ(choose_node("n1", "/tmp/c", running).error().text(),
            "find node 'n1': no fleet runs in '/tmp/c' (or root is needed to see it)");
}

TEST(sim_tree, fault_command_line) {
  DriverRoot root("A100", 1);
  std::string tree = root.kernel().string();
  auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "fault");
    std::vector<char*> argv;
    argv.reserve(words.size());
    for (auto& w : words) argv.push_back(w.data());
    return sim_fault_main(static_cast<int>(argv.size()), argv.data());
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--kernel-root", tree, "--gpu", "-1", "lost"}), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "--gpu: must be a GPU's index (0, 1, …) or 'all'; got '-1'"),
            std::string::npos);
  EXPECT_EQ(run({"--kernel-root", tree, "--gpu", "0", "xid", "31"}), 0);
  EXPECT_EQ(live(root).last_xid, 31u);
  EXPECT_EQ(run({"--kernel-root", tree, "--gpu=all", "heat", "40"}), 0);
  EXPECT_EQ(run({"--kernel-root", tree, "--gpq", "0", "xid", "31"}), 2);
  EXPECT_EQ(run({"--node", "no-such-node", "lost"}), 1);
  EXPECT_EQ(run({"lost"}), 2);
}

TEST(sim_tree, faults_of_fabric_memory_and_clocks) {
  DriverRoot root("GB200", 2);
  StateFile file;
  ASSERT_EQ(file.open((root.kernel() / "sim/state").string()), StateFault::kNone);
  auto board = [&] { return file.read()->gpus[0].board; };
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"fabric", "in-progress"})));
  EXPECT_EQ(board().fabric_state, 2u);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"fabric", "failed"})));
  EXPECT_EQ(board().fabric_state, 3u);
  EXPECT_EQ(board().fabric_status, 999u);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"fabric", "unhealthy"})));
  EXPECT_NE(live(root).fabric_health_mask, 0u);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"throttle", "brake"})));
  EXPECT_EQ(live(root).throttle, 0x80u);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"row-remap", "3"})));
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"row-remap", "pending"})));
  EXPECT_EQ(live(root).remapped_uncorrectable, 3u);
  EXPECT_EQ(live(root).recovery_action, 1u);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"link-errors", "5"})));
  EXPECT_EQ(live(root).nvlink_crc_flit, 5u);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"reset-required"})));
  EXPECT_EQ(live(root).lost, 2u);
  ASSERT_TRUE(apply_fault(root.kernel(), 0, fault({"recover"})));
  EXPECT_EQ(live(root).lost, 0u);
  EXPECT_EQ(live(root).throttle, 0u);
  EXPECT_EQ(live(root).remapped_uncorrectable, 4u);
  EXPECT_EQ(board().fabric_status, 0u);
  EXPECT_EQ(live(root, 1).nvlink_crc_flit, 0u);
}

TEST(sim_tree, faults_are_refused_where_the_board_cannot_have_them) {
  DriverRoot root("T4", 1);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"fabric", "completed"}, {"row-remap", "1"}, {"link-errors", "1"}}) {
    EXPECT_FALSE(apply_fault(root.kernel(), 0, fault(words))) << words[0];
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"throttle"},
                                                {"throttle", "hat"},
                                                {"row-remap", "0"},
                                                {"fabric", "x", "y"}}) {
    EXPECT_FALSE(parse_fault(words)) << words[0];
  }
  EXPECT_NE(parse_fault({"throttle", "pover"}).error().text().find("power"), std::string::npos);
}

}  // namespace
}  // namespace gpuop::sim

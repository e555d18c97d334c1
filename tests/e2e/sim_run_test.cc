// gpuctl sim run as a user's CI calls it: exit codes, the event log, and what is said.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/process.h"

namespace gpuop {
namespace {

class sim_run : public testing::Test {  // NOLINT(readability-identifier-naming): the suite's name
 protected:
  ExitState run(std::vector<std::string> arguments) {
    Command command;
    command.argv = {BUILD_ROOT "/bin/gpuctl", "sim", "run"};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    command.env = current_environment();
    command.merge_output = true;
    const auto ended = run_command(command, 60s);
    EXPECT_TRUE(ended) << ended.error().text();
    return ended ? *ended : ExitState{};
  }
  std::string file(const std::string& name, const std::string& text) {
    const fs::path path = dir_.path() / name;
    EXPECT_TRUE(write_file_atomic(path, text));
    return path;
  }

  TempDir dir_;
  std::string fleet_ = file("fleet.yaml", R"(
mode: hollow
nodes:
  - {name: gpu, gpus: {model: L4, count: 2}, driver: preinstalled, driverVersion: 580.95.05}
)");
};

TEST_F(sim_run, ready_is_zero_and_a_seed_replays) {
  const std::string faults = file("faults.yaml", "faults:\n  - {api: error, probability: 0.1, for: 30s}\n");
  std::vector<std::string> logs;
  for (const char* name : {"a", "b"}) {
    const std::string events = dir_.path() / name;
    const ExitState ended = run({fleet_, "--faults", faults, "--seed", "5", "--events", events});
    EXPECT_EQ(ended.code, 0) << ended.out;
    logs.push_back(*read_file(events));
  }
  EXPECT_GT(logs[0].size(), 1000u);
  EXPECT_TRUE(logs[0] == logs[1]);
  EXPECT_NE(logs[0].find(" FAULT error (fault 1)"), std::string::npos);
}

TEST_F(sim_run, not_ready_is_one_and_the_broken_link_is_named) {
  const std::string faults = file("faults.yaml", "faults:\n  - {node: gpu, event: lost}\n");
  const ExitState ended = run({fleet_, "--faults", faults, "--timeout", "2m"});
  EXPECT_EQ(ended.code, 1) << ended.out;
  EXPECT_NE(ended.out.find("not ready after 2m0s. First broken link: "), std::string::npos) << ended.out;
}

TEST_F(sim_run, a_kept_cluster_goes_on) {
  const std::string data = dir_.path() / "data";
  std::vector<std::string> ends;
  for (const char* name : {"first", "second"}) {
    const std::string objects = dir_.path() / name;
    const ExitState ended = run({fleet_, "--data-dir", data, "--until", "stable", "--objects", objects});
    EXPECT_EQ(ended.code, 0) << ended.out;
    ends.push_back(*read_file(objects));
  }
  EXPECT_GT(ends[0].size(), 1000u);
  EXPECT_EQ(ends[0], ends[1]);
}

TEST_F(sim_run, bad_input_is_two) {
  const std::string faults = file("faults.yaml", "faults:\n  - {node: gpu, event: rebot}\n");
  const ExitState bad = run({fleet_, "--faults", faults});
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.out.find("line 2: faults[0].event: must be one of"), std::string::npos) << bad.out;
  EXPECT_NE(bad.out.find("(did you mean 'reboot'?)"), std::string::npos) << bad.out;
  EXPECT_EQ(run({dir_.path() / "none.yaml"}).code, 2);
  const ExitState processes = run({file("real.yaml", "nodes: [{name: a}]\n")});
  EXPECT_EQ(processes.code, 2);
  EXPECT_NE(processes.out.find("write `mode: hollow`"), std::string::npos) << processes.out;
}

}  // namespace
}  // namespace gpuop

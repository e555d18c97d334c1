// gpuctl sim run as a user's CI calls it: exit codes, the event log, and what is said.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"

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

TEST_F(sim_run, what_keeps_a_ready_fleet_from_being_stable_is_named) {
  const ExitState late = run({fleet_, "--faults", file("late.yaml", "faults: [{clock: 1h, at: 9h}]\n"),
                              "--until", "stable", "--timeout", "3m"});
  EXPECT_EQ(late.code, 1) << late.out;
  EXPECT_NE(
      late.out.find("not stable after 3m0s. Everything is ready, but the faults are over only at 9h0m0s"),
      std::string::npos)
      << late.out;
  const std::string crashes = file("crashes.yaml", R"(
faults:
  - {at: 179s, node: gpu, event: container-crash, container: worker}
  - {at: 179500ms, node: gpu, event: container-crash, container: worker}
)");
  const ExitState waits = run({fleet_, "--faults", crashes, "--until", "stable", "--timeout", "3m"});
  EXPECT_EQ(waits.code, 1) << waits.out;
  EXPECT_NE(waits.out.find("Everything is ready, but pod "), std::string::npos) << waits.out;
  EXPECT_NE(waits.out.find(": container worker waits: CrashLoopBackOff"), std::string::npos) << waits.out;
}

TEST_F(sim_run, a_fault_without_an_end_is_named_and_one_that_shuts_the_operator_out_is_met) {
  const std::string slow = file("slow.yaml", "faults: [{at: 20s, api: delay, delay: 10ms}]\n");
  const ExitState stable = run({fleet_, "--faults", slow, "--until", "stable"});
  EXPECT_EQ(stable.code, 0) << stable.out;
  EXPECT_NE(stable.out.find("gpuctl sim run: " + slow + ":1: fault 'fault 1': has no end, and is still on\n"),
            std::string::npos)
      << stable.out;
  const std::string out =
      file("out.yaml", "faults: [{at: 20s, api: error, where: {component: gpu-operator}}]\n");
  const ExitState shut = run({fleet_, "--faults", out, "--until", "stable", "--timeout", "5m"});
  EXPECT_EQ(shut.code, 1) << shut.out;
  EXPECT_NE(shut.out.find("not stable after 5m0s. First broken link: operator: "), std::string::npos)
      << shut.out;
  EXPECT_EQ(shut.out.find("kubectl "), std::string::npos) << shut.out;
}

TEST_F(sim_run, faults_that_struck_nothing_are_named_and_counted) {
  const std::string faults = file("faults.yaml", R"(
faults:
  - {api: error, where: {component: gpu-operatr}}
  - {api: error, at: 3m, times: 1}
)");
  const ExitState ready = run({fleet_, "--faults", faults});
  EXPECT_EQ(ready.code, 0) << ready.out;
  EXPECT_NE(ready.out.find("warning: " + faults +
                           ":3: fault 'fault 1': struck nothing: no request fitted it; some "
                           "would but for where.component 'gpu-operatr' (did you mean 'gpu-operator'?)"),
            std::string::npos)
      << ready.out;
  EXPECT_NE(ready.out.find("warning: " + faults + ":4: fault 'fault 2': did not come: it begins at 3m0s"),
            std::string::npos)
      << ready.out;
  EXPECT_NE(ready.out.find("; --until stable waits for it\n"), std::string::npos) << ready.out;
  EXPECT_NE(ready.out.find(", 2 of the file's that struck nothing\n"), std::string::npos) << ready.out;
  const ExitState stable = run({fleet_, "--faults", faults, "--until", "stable"});
  EXPECT_EQ(stable.code, 0) << stable.out;
  EXPECT_NE(stable.out.find(", 1 of the file's that struck nothing\n"), std::string::npos) << stable.out;
  EXPECT_EQ(stable.out.find("fault 2"), std::string::npos) << stable.out;
}

// The chances of faults come from --seed and the file's seed together, the hardware from the fleet's alone.
TEST_F(sim_run, seeds_are_mixed_and_none_replaces_another) {
  const auto outcome = [&](const std::string& of_file, const std::string& flag) {
    const std::string faults =
        file("faults.yaml", "seed: " + of_file + "\nfaults:\n  - {api: error, probability: 0.1, for: 30s}\n");
    const std::string events = dir_.path() / "events", objects = dir_.path() / "objects";
    const ExitState ended =
        run({fleet_, "--faults", faults, "--seed", flag, "--events", events, "--objects", objects});
    EXPECT_EQ(ended.code, 0) << ended.out;
    std::string struck;
    for (const std::string& line : split(*read_file(events), '\n')) {
      if (line.find(" FAULT ") != std::string::npos) struck += line + "\n";
    }
    EXPECT_NE(struck, "");
    return struck;
  };
  const std::string first = outcome("1", "1");
  EXPECT_EQ(first, outcome("1", "1"));
  EXPECT_NE(first, outcome("1", "2")) << "--seed changes chances though the file has a seed";
  EXPECT_NE(first, outcome("2", "1")) << "the file's seed changes them though the flag is given";
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

TEST_F(sim_run, a_kept_cluster_follows_its_files) {
  const std::string data = dir_.path() / "data";
  const ExitState first = run({fleet_, "--data-dir", data});
  EXPECT_EQ(first.code, 0) << first.out;
  const std::string other = file("other.yaml", R"(
mode: hollow
nodes:
  - {name: new, gpus: {model: H200, count: 8}, driver: preinstalled}
)");
  const ExitState moved = run({other, "--data-dir", data});
  EXPECT_EQ(moved.code, 0) << moved.out;
  EXPECT_NE(moved.out.find("node 'gpu' is kept in '" + data +
                           "' and not in the fleet file: it is deleted, with the pods on it"),
            std::string::npos)
      << moved.out;
  EXPECT_NE(moved.out.find("8 × NVIDIA-H200"), std::string::npos) << moved.out;
  EXPECT_EQ(moved.out.find("ready after 0.0 s"), std::string::npos) << moved.out;
  const std::string lost = file("faults.yaml", "faults:\n  - {node: new, event: lost}\n");
  const ExitState gone = run({other, "--data-dir", data, "--faults", lost, "--timeout", "30s"});
  EXPECT_EQ(gone.code, 1) << gone.out;
  EXPECT_NE(gone.out.find("node new: its kubelet has not reported in this run"), std::string::npos)
      << gone.out;
}

TEST_F(sim_run, many_nodes_that_are_gone_are_counted) {
  const std::string data = dir_.path() / "data";
  const auto light = [&](const std::string& name, int count) {
    return file(name, "mode: light\nnodes:\n  - {name: n, count: " + std::to_string(count) +
                          ", gpus: {model: L4, count: 1}, driver: preinstalled}\n");
  };
  const ExitState first = run({light("ten.yaml", 10), "--data-dir", data});
  EXPECT_EQ(first.code, 0) << first.out;
  const ExitState second = run({light("two.yaml", 2), "--data-dir", data});
  EXPECT_EQ(second.code, 0) << second.out;
  int named = 0;
  for (const std::string& line : split(second.out, '\n'))
    named += line.find("' and not in the fleet file: it is deleted") != std::string::npos ? 1 : 0;
  EXPECT_EQ(named, 3) << second.out;
  EXPECT_NE(second.out.find("gpuctl sim run: and 5 more nodes that are not in the fleet file are deleted, "
                            "with the pods on them\n"),
            std::string::npos)
      << second.out;
}

TEST_F(sim_run, the_policy_that_is_given_is_the_one_that_is_judged) {
  const std::string data = dir_.path() / "data";
  const std::string demo = *read_file(BUILD_ROOT "/share/gpu-operator/fleets/demo-policy.yaml");
  const ExitState first = run({fleet_, "--data-dir", data});
  EXPECT_EQ(first.code, 0) << first.out;
  const std::string other = file("other.yaml", replace_all(demo, "name: cluster-policy", "name: other"));
  const ExitState second = run({fleet_, "--data-dir", data, "--policy", other});
  EXPECT_EQ(second.code, 0) << second.out;
  EXPECT_NE(second.out.find("ClusterPolicy 'cluster-policy', which the last run with '" + data +
                            "' applied, is deleted: 'other' of --policy takes its place"),
            std::string::npos)
      << second.out;
  EXPECT_NE(second.out.find("ClusterPolicy other: ready"), std::string::npos) << second.out;
  EXPECT_TRUE(remove_file(data + "/policy.json"));  // as if a user had made it
  const ExitState third =
      run({fleet_, "--data-dir", data, "--policy", file("p.yaml", demo), "--timeout", "3m"});
  EXPECT_EQ(third.code, 1) << third.out;
  EXPECT_NE(third.out.find("First broken link: ClusterPolicy 'cluster-policy' is ignored by the operator: "
                           "'other' is older"),
            std::string::npos)
      << third.out;
}

TEST_F(sim_run, a_seed_that_is_none_is_refused_in_a_sentence) {
  for (const char* seed : {"-1", "99999999999999999999", "1.5", "x"}) {
    const ExitState bad = run({fleet_, "--seed", seed});
    EXPECT_EQ(bad.code, 2) << bad.out;
    EXPECT_NE(bad.out.find("--seed: must be a whole number from 0 to 18446744073709551615; got '" +
                           std::string(seed) + "'\n"),
              std::string::npos)
        << bad.out;
  }
  const ExitState largest = run({fleet_, "--seed", "18446744073709551615"});
  EXPECT_EQ(largest.code, 0) << largest.out;
  EXPECT_NE(largest.out.find("seed 18446744073709551615,"), std::string::npos) << largest.out;
  const ExitState decimal = run({fleet_, "--seed", "010"});
  EXPECT_NE(decimal.out.find("seed 10,"), std::string::npos) << decimal.out;
}

TEST_F(sim_run, bad_input_is_two) {
  const std::string faults = file("faults.yaml", "faults:\n  - {node: gpu, event: rebot}\n");
  const ExitState bad = run({fleet_, "--faults", faults});
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.out.find("line 2: faults[0].event: must be one of"), std::string::npos) << bad.out;
  EXPECT_NE(bad.out.find("(did you mean 'reboot'?)"), std::string::npos) << bad.out;
  const std::string resource = file("resource.yaml", "faults:\n  - api: error\n    where: {resource: Pod}\n");
  const ExitState unknown = run({fleet_, "--faults", resource});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.out.find("line 3: faults[0].where.resource: must be the plural name"), std::string::npos)
      << unknown.out;
  EXPECT_NE(unknown.out.find("(did you mean 'pods'?)"), std::string::npos) << unknown.out;
  EXPECT_EQ(run({dir_.path() / "none.yaml"}).code, 2);
  const ExitState processes = run({file("real.yaml", "nodes: [{name: a}]\n")});
  EXPECT_EQ(processes.code, 2);
  EXPECT_NE(processes.out.find("write `mode: hollow`"), std::string::npos) << processes.out;
}

// A policy file as its writer's slips make it: each is told with its line.
TEST_F(sim_run, slips_in_a_policy_file_are_named_with_their_lines) {
  const auto policy = [](const std::string& name, const std::string& more) {
    return "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: " + name +
           "}\nspec:\n  {operator: {}, daemonsets: {}, toolkit: {}, devicePlugin: {}, dcgm: {}, "
           "dcgmExporter: {},\n"
           "   nodeStatusExporter: {}, gfd: {}, " +
           more + "}\n";
  };
  const auto told = [&](const std::string& text) {
    const ExitState ended = run({fleet_, "--timeout", "1s", "--policy", file("p.yaml", text)});
    return std::to_string(ended.code) + " " + ended.out;
  };
  const std::string wrong = told(policy("a", "driver: {},\n   mig: {strategy: mixd}"));
  EXPECT_NE(wrong.find("p.yaml': line 7: load ClusterPolicy 'a': spec.mig.strategy: must be one of"),
            std::string::npos)
      << wrong;
  const std::string missing = told(policy("a", "\n   drivr: {}"));
  EXPECT_NE(
      missing.find(
          "spec.driver: is required (an empty block {} will do); spec.drivr: unknown field, has no effect "
          "(did you mean 'driver'?)"),
      std::string::npos)
      << missing;
  const std::string two = told(policy("a", "driver: {}") + "---\n" + policy("b", "driver: {}"));
  EXPECT_TRUE(two.starts_with("2 ")) << two;
  EXPECT_NE(two.find("ClusterPolicy 'b' beside ClusterPolicy 'a': only one of them would be in force"),
            std::string::npos)
      << two;
  const std::string twice = told(policy("a", "driver: {},\n   psa: {}, drivre: {},\n   psa: {}"));
  EXPECT_NE(twice.find("p.yaml:8: spec.psa: is written twice; the last one counts"), std::string::npos)
      << twice;
  EXPECT_NE(twice.find("p.yaml:7: spec.drivre: unknown field"), std::string::npos) << twice;
}

}  // namespace
}  // namespace gpuop

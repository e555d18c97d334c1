// gpuctl demo --data-dir: what the next demo with the folder finds, and who may use a folder and its port.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "kept_demo.h"

namespace gpuop {
namespace {

constexpr const char* kFleet =
    "nodes:\n  - {name: gpu, gpus: {model: L4, count: 2}, driver: preinstalled, driverVersion: 580.95.05}\n";

// One that the next demo's file has no longer.
constexpr const char* kSpare = "  - {name: spare, taints: [{key: spare, effect: NoSchedule}]}\n";

constexpr const char* kImage = "ghcr.io/gpu-operator/gpu-operator:" GPUOP_VERSION;

class demo_data : public testing::Test {  // NOLINT(readability-identifier-naming): the suite's name
 protected:
  std::vector<std::string> arguments(const std::string& data, const std::string& more = "") {
    const fs::path fleet = dir_.path() / "fleet.yaml";
    EXPECT_TRUE(write_file_atomic(fleet, kFleet + more));
    return {"--fleet", fleet.string(), "--data-dir", (dir_.path() / data).string()};
  }
  // One that has to give up.
  ExitState refused(const std::string& data) {
    std::vector<std::string> argv{kGpuctl, "demo", "--state-dir", (dir_.path() / "other").string()};
    for (auto& word : arguments(data)) argv.push_back(std::move(word));
    return run(argv, 1min);
  }
  // Who the objects are that must be the same ones afterwards, and that they are well.
  std::string who(const KeptDemo& demo) {
    EXPECT_EQ(demo.kubectl({"wait", "--for=condition=Ready", "pod/sleeper", "--timeout=60s"}, "", 70s).code,
              0);
    const ExitState nodes = demo.kubectl({"get", "node/gpu", "-o", "jsonpath={.metadata.uid}"});
    const ExitState sleeper = demo.kubectl({"get", "pod/sleeper", "-o", "jsonpath={.metadata.uid}"});
    const ExitState plugin =
        demo.kubectl({"-n", "gpu-operator", "get", "pods", "-l", "app=nvidia-device-plugin-daemonset", "-o",
                      "jsonpath={.items[*].metadata.uid}"});
    EXPECT_FALSE(nodes.out.empty() || sleeper.out.empty() || plugin.out.empty());
    return nodes.out + " " + sleeper.out + " " + plugin.out;
  }

  TempDir dir_;
};

// Two demos with these words at the same instant: what each came to, the good one first.
struct Two {
  std::string codes, loser;
};
Two two_at_once(const fs::path& dir, const std::vector<std::string>& arguments) {
  std::string words = std::string(kGpuctl) + " demo";
  for (const std::string& word : arguments) words += " '" + word + "'";
  const std::string a = (dir / "a").string(), b = (dir / "b").string();
  const ExitState both = run(
      {"/bin/sh", "-c",
       words + " >" + a + " 2>&1 & one=$!; " + words + " >" + b + " 2>&1; two=$?; wait $one; echo $? $two"},
      2min);
  const std::string codes(trim(both.out));
  return {codes, read_file(codes == "0 1" ? b : a).value_or("")};
}

TEST_F(demo_data, of_two_that_start_at_once_the_second_is_refused_in_one_line) {
  const Two data = two_at_once(dir_.path(), arguments("new"));
  EXPECT_TRUE(data.codes == "0 1" || data.codes == "1 0") << data.codes << data.loser;
  EXPECT_EQ(data.loser, "gpuctl demo: open data folder '" + (dir_.path() / "new").string() +
                            "': another demo has started with it; end it, or name another folder\n");
  const fs::path state = dir_.path() / "state";
  const Two fleet = two_at_once(
      dir_.path(), {"--fleet", (dir_.path() / "fleet.yaml").string(), "--state-dir", state.string()});
  EXPECT_TRUE(fleet.codes == "0 1" || fleet.codes == "1 0") << fleet.codes << fleet.loser;
  const std::string begin = "gpuctl demo: start a fleet: '" + state.string() + "': ";
  EXPECT_TRUE(fleet.loser == begin + "another fleet is being started there\n" ||
              fleet.loser == begin + "a fleet runs there already\n")
      << fleet.loser;
  EXPECT_FALSE(file_exists(state));
}

TEST_F(demo_data, the_next_one_goes_on_where_the_last_one_ended) {
  std::string before;
  {
    const std::string faults = (dir_.path() / "faults.yaml").string();
    ASSERT_TRUE(write_file_atomic(faults,
                                  "faults:\n  - {api: error, where: {component: gpu-operatr}}\n"
                                  "  - {api: delay, delay: 1ms, where: {component: gpu-operator}}\n"));
    auto words = arguments("data", kSpare);
    words.insert(words.end(), {"--faults", faults});
    KeptDemo demo(words);
    ASSERT_EQ(demo.demo.code, 0) << demo.demo.out << demo.demo.err;
    EXPECT_TRUE(contains(demo.demo.err,
                         "gpuctl demo: warning: " + faults +
                             ":2: fault 'fault 1': struck nothing: no request fitted it; some would but for "
                             "where.component 'gpu-operatr' (did you mean 'gpu-operator'?)"))
        << demo.demo.err;
    EXPECT_FALSE(contains(demo.demo.err, "faults.yaml:3")) << demo.demo.err;
    EXPECT_EQ(demo.kubectl({"get", "node", "spare"}).code, 0);
    EXPECT_EQ(demo.kubectl({"create", "configmap", "mine", "--from-literal=a=b"}).code, 0);
    const ExitState made = demo.kubectl(
        {"run", "sleeper", "--image=" + std::string(kImage), "--command", "--", "sleep", "3600"});
    EXPECT_EQ(made.code, 0) << made.err;
    const ExitState edited =
        demo.kubectl({"patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p",
                      R"({"spec":{"nodeStatusExporter":{"enabled":true},"gfd":{"enabled":false}}})"});
    EXPECT_EQ(edited.code, 0) << edited.err;
    EXPECT_EQ(demo.kubectl({"-n", "gpu-operator", "wait", "--for=create",
                            "daemonset/nvidia-node-status-exporter", "--timeout=20s"})
                  .code,
              0);
    before = who(demo);
    const auto exec = [&](std::vector<std::string> words) {
      words.insert(words.begin(), {kGpuctl, "sim", "exec", "--state-dir", demo.state(), "-n", "default"});
      return run(words, 30s);
    };
    const ExitState inside = exec({"sleeper", "--", "sh", "-c", "cat /proc/1/comm; exit 3"});
    EXPECT_EQ(inside.code, 3) << inside.err;
    EXPECT_EQ(inside.out, "sleep\n");
    const ExitState nobody = exec({"sleepr", "--", "true"});
    EXPECT_EQ(nobody.code, 1);
    EXPECT_TRUE(contains(nobody.err, "(did you mean 'sleeper'?)")) << nobody.err;
    const ExitState by_kubectl =
        demo.kubectl({"exec", "sleeper", "--", "sh", "-c", "cat /proc/1/comm; exit 3"});
    EXPECT_EQ(by_kubectl.code, 3) << by_kubectl.err;
    EXPECT_EQ(by_kubectl.out, "sleep\n");

    const ExitState second = refused("data");
    EXPECT_EQ(second.code, 1);
    EXPECT_EQ(second.err, "gpuctl demo: open data folder '" + (dir_.path() / "data").string() +
                              "': another process uses this data folder; end it, or name another folder\n");
    const std::string port(trim(*read_file(dir_.path() / "data/port")));
    ASSERT_TRUE(make_dirs(dir_.path() / "copy"));
    ASSERT_TRUE(write_file_atomic(dir_.path() / "copy/port", port));
    const ExitState third = refused("copy");
    EXPECT_EQ(third.code, 1);
    EXPECT_EQ(third.err, "gpuctl demo: start the fleet: listen on '127.0.0.1:" + port +
                             "': Address already in use (the port that kubeconfigs for '" +
                             (dir_.path() / "copy").string() + "' name)\n");
  }
  KeptDemo demo(arguments("data"));
  ASSERT_EQ(demo.demo.code, 0) << demo.demo.out << demo.demo.err;
  EXPECT_TRUE(contains(demo.demo.out, "stays as it is")) << demo.demo.out;
  EXPECT_TRUE(contains(demo.demo.out, "node 'spare' is kept in '")) << demo.demo.out;
  EXPECT_EQ(demo.kubectl({"get", "node", "spare"}).code, 1);
  EXPECT_EQ(demo.kubectl({"get", "configmap", "mine", "-o", "jsonpath={.data.a}"}).out, "b");
  EXPECT_EQ(demo.kubectl({"get", "clusterpolicy", "cluster-policy", "-o",
                          "jsonpath={.spec.nodeStatusExporter.enabled}"})
                .out,
            "true");
  EXPECT_EQ(who(demo), before);
  EXPECT_FALSE(contains(demo.demo.out, "labels: ")) << "what is switched off is not waited for\n"
                                                    << demo.demo.out;
  EXPECT_EQ(demo.kubectl({"-n", "gpu-operator", "get", "daemonset/nvidia-node-status-exporter"}).code, 0);
}

// The nodes of another demo's file, and its policy, in a folder that is kept.
TEST_F(demo_data, a_changed_driver_and_another_policy_are_followed) {
  {
    const KeptDemo first(arguments("data"));
    ASSERT_EQ(first.demo.code, 0) << first.demo.out << first.demo.err;
  }
  auto words = arguments("data");
  const fs::path fleet = dir_.path() / "fleet.yaml", policy = dir_.path() / "policy.yaml";
  ASSERT_TRUE(
      write_file_atomic(fleet, "nodes:\n  - {name: gpu, gpus: {model: L4, count: 2}, driver: container}\n"));
  ASSERT_TRUE(write_file_atomic(
      policy, replace_all(*read_file(BUILD_ROOT "/share/gpu-operator/fleets/demo-policy.yaml"),
                          "name: cluster-policy", "name: other")));
  words.insert(words.end(), {"--policy", policy.string()});
  const KeptDemo demo(words);
  ASSERT_EQ(demo.demo.code, 0) << demo.demo.out << demo.demo.err;
  EXPECT_TRUE(contains(demo.demo.out, "node 'gpu': its driver was 'preinstalled' and is 'container' now"))
      << demo.demo.out;
  EXPECT_TRUE(contains(demo.demo.out, "is deleted: 'other' of --policy takes its place")) << demo.demo.out;
  EXPECT_EQ(demo.kubectl({"get", "clusterpolicy", "-o", "jsonpath={.items[*].metadata.name}"}).out, "other");
  EXPECT_EQ(demo.kubectl({"-n", "gpu-operator", "get", "pods", "-l", "app=nvidia-driver-daemonset", "-o",
                          "jsonpath={.items[*].status.phase}"})
                .out,
            "Running");
}

// A disk that is full: the reason is told, though the folder with the logs goes.
TEST_F(demo_data, a_full_disk_is_told_with_its_reason) {
  const fs::path disk = dir_.path() / "disk";
  ASSERT_TRUE(make_dirs(disk));
  for (const char* size : {"size=16k", "size=300k"}) {
    ASSERT_EQ(::mount("disk", disk.c_str(), "tmpfs", 0, size), 0);
    const ExitState full = refused("disk/data");
    EXPECT_EQ(::umount(disk.c_str()), 0);
    EXPECT_EQ(full.code, 1) << size;
    EXPECT_TRUE(contains(full.err, "No space left on device")) << size << "\n" << full.err;
  }
}

// A control plane that ends at each start: no use to wait, and its log's last line says why.
TEST_F(demo_data, a_control_plane_that_does_not_come_up_is_told_with_its_last_words) {
  const fs::path in_the_way = dir_.path() / "data/kubeconfig";
  ASSERT_TRUE(make_dirs(in_the_way / "x"));
  EXPECT_EQ(
      refused("data").err,
      "gpuctl demo: start the fleet: it did not come up; log/control-plane.log ends with: gpuctl: control "
      "plane: write '" +
          in_the_way.string() + "': Is a directory\n");
}

}  // namespace
}  // namespace gpuop

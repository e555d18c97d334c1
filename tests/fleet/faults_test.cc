#include "fleet/faults.h"

#include <gtest/gtest.h>

#include "fleet/manifests.h"

namespace gpuop::fleet {
namespace {

const Json kPod = JsonObject{{"metadata", JsonObject{{"name", "p"}, {"namespace", "ns"}}}};

Json status(const std::string& text) {
  return *parse_json(text);
}

TEST(fleet, a_crash_without_a_message_leads_to_its_log) {
  const auto loop = container_fault(kPod, status(R"({"name":"c","restartCount":3,"state":{"waiting":{
      "reason":"CrashLoopBackOff","message":"back-off 40s"}},"lastState":{"terminated":{"exitCode":1}}})"));
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->text, "container c: CrashLoopBackOff: back-off 40s");
  EXPECT_EQ(loop->log, (LogRef{"p", "c", false}));
  EXPECT_TRUE(loop->stuck);

  const auto first = container_fault(kPod, status(R"({"name":"c","restartCount":1,"state":{"waiting":{
      "reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":1,"message":"a\nno driver"}}})"));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->text, "container c: CrashLoopBackOff: no driver");
  EXPECT_FALSE(first->log);
  EXPECT_FALSE(first->stuck);

  const auto again = container_fault(
      kPod, status(R"({"name":"c","state":{"running":{}},"lastState":{"terminated":{"exitCode":137}}})"));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->log, (LogRef{"p", "c", true})) << "the words are in the log of the run before";

  const auto image =
      container_fault(kPod, status(R"({"name":"c","state":{"waiting":{"reason":"ErrImagePull"}}})"));
  ASSERT_TRUE(image);
  EXPECT_TRUE(image->stuck);
  EXPECT_FALSE(image->log) << "it never ran";
  EXPECT_FALSE(
      container_fault(kPod, status(R"({"name":"c","state":{"waiting":{"reason":"PodInitializing"}}})")));
}

TEST(fleet, last_words_are_the_last_error) {
  EXPECT_EQ(last_words("2026-01-01T00:00:00.000000Z info nvidia-toolkit: starts\n"
                       "2026-01-01T00:00:01.000000Z error nvidia-toolkit: no driver: 'x' why=y\n"
                       "2026-01-01T00:00:02.000000Z info nvidia-toolkit: stopping\n"),
            "no driver: 'x' why=y");
  EXPECT_EQ(
      last_words(
          "{\"level\":\"error\",\"message\":\"lost the lease\"}\n{\"level\":\"info\",\"message\":\"bye\"}"),
      "lost the lease");
  // What was said before it was killed is no reason.
  EXPECT_EQ(last_words(R"({"level":"info","message":"ClusterPolicy is ready"})"), "");
  EXPECT_EQ(last_words("2026-01-01T00:00:00.000000Z warn nvidia-toolkit: starts\n"), "");
  EXPECT_EQ(last_words("I1130 10:00:00.000000       1 main.go:12] Starting"), "");
  EXPECT_EQ(last_words("F1130 10:00:00.000000       1 main.go:12] no NVML\nI1130 10:00:01.0  1 a.go:1] x"),
            "no NVML");
  EXPECT_EQ(last_words(R"(time="2026-01-01T00:00:00Z" level=info msg="Starting")"), "");
  EXPECT_EQ(last_words(R"(time="2026-01-01T00:00:00Z" level=fatal msg="no \"driver\"")"), "no \"driver\"");
  EXPECT_EQ(last_words("plain text\nand its end\n\n"), "and its end");
  EXPECT_EQ(last_words("\n"), "");
}

TEST(fleet, a_signal_is_named_and_an_info_line_is_no_reason) {
  const auto killed = container_fault(kPod, status(R"({"name":"c","state":{"terminated":{"exitCode":137,
      "reason":"Error","message":"{\"level\":\"info\",\"message\":\"node is ready\"}\n"}}})"));
  ASSERT_TRUE(killed);
  EXPECT_EQ(killed->text, "container c ended with code 137 (killed by signal 9)");
  EXPECT_EQ(killed->log, (LogRef{"p", "c", false})) << "an error may stand further up";
  const auto loop = container_fault(kPod, status(R"({"name":"c","state":{"waiting":{
      "reason":"CrashLoopBackOff","message":"back-off 10s"}},"lastState":{"terminated":{"exitCode":139,
      "reason":"Error","message":"I0101 10:00:00.000000       1 main.go:12] Starting"}}})"));
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->text,
            "container c: CrashLoopBackOff: ended with code 139 (killed by signal 11): back-off 10s");
  const auto memory = container_fault(
      kPod,
      status(R"({"name":"c","state":{"terminated":{"exitCode":137,"reason":"OOMKilled","message":"e"}}})"));
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->text, "container c ended with code 137 (OOMKilled): e");
}

TEST(fleet, plugin_log_tells_of_gpus_as_they_are_now) {
  const std::string start = "2026-01-01T00:00:00.000000Z info nvidia-device-plugin: ";
  const std::string marked = start + "GPU event xid=79 gpu=GPU-a index=3 marked_unhealthy=GPU-a\n" + start +
                             "GPU event xid=31 gpu=GPU-b marked_unhealthy=\"\"\n" + start +
                             "GPU is unhealthy: nvmlDeviceGetHandleByUUID: GPU is lost gpu=GPU-c "
                             "marked_unhealthy=GPU-c\n";
  EXPECT_EQ(
      plugin_faults(marked),
      (std::vector<std::string>{
          "GPU 3 (GPU-a): XID 79, the GPU has fallen off the bus; drain and reboot the node; if it comes "
          "again, check the board's seat and power",
          "GPU-c: nvmlDeviceGetHandleByUUID: GPU is lost; run nvidia-smi on the node, and reboot it if the "
          "GPU is not there"}));
  EXPECT_EQ(plugin_faults(marked + start + "device is healthy again device=GPU-a was=\"XID 79\"\n").size(),
            1u);
  // A restart looks anew at what was missing, and keeps its marks.
  EXPECT_EQ(plugin_faults(marked + start + "not offered: GPU 3: GPU is lost\n").size(), 3u);
  EXPECT_EQ(plugin_faults(marked + start + "not offered: GPU 3: GPU is lost\n" + start +
                          "restarting: a GPU answers that did not before\n")
                .size(),
            2u);
  EXPECT_TRUE(plugin_faults(marked + start + "restarting: asked to reload\n").empty());

  const std::string refused = start + "start failed: register with the kubelet: no such file retry=30s\n";
  EXPECT_EQ(
      plugin_faults(refused),
      std::vector<std::string>{"the device plugin did not start: register with the kubelet: no such file"});
  EXPECT_TRUE(
      plugin_faults(refused + start + "registered with the kubelet resource=nvidia.com/gpu\n").empty());
  EXPECT_EQ(
      plugin_faults("I0101 XidCriticalError: Xid=48 on Device=GPU-d; marking device as unhealthy."),
      std::vector<std::string>{"GPU-d: XID 48, two bits of its memory are wrong; reset it on the node while "
                               "nothing uses it (nvidia-smi --gpu-reset -i GPU-d); if it comes again, have "
                               "the board replaced"});
  // A number that we have no words for has a cure all the same.
  EXPECT_EQ(
      plugin_faults(start + "GPU event xid=777 gpu=GPU-e index=0 marked_unhealthy=GPU-e\n"),
      std::vector<std::string>{"GPU 0 (GPU-e): XID 777; look the number up in NVIDIA's list of XID errors, "
                               "and read nvidia-smi -q on the node"});
}

TEST(fleet, an_operator_that_does_not_work_is_named) {
  const Time now = *parse_time("2026-01-01T00:01:00Z");
  const auto lease = [](const char* renewed) {
    return *parse_json(
        std::string(R"({"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":")") + renewed +
        "\"}}");
  };
  const auto deployments = [](const char* status, int replicas = 1) {
    return parse_json(R"([{"metadata":{"name":"gpu-operator"},"spec":{"replicas":)" +
                      std::to_string(replicas) +
                      R"(,"selector":{"matchLabels":{"app":"gpu-operator"}},"template":{"spec":{"containers":[
                      {"args":["--leader-elect"]}]}}},"status":)" +
                      status + "}]")
        ->as_array();
  };
  const auto fresh = lease("2026-01-01T00:00:55.000000Z");
  EXPECT_EQ(operator_fault(deployments(R"({"availableReplicas":1})"), fresh, {}, "ns", now), "");
  EXPECT_EQ(operator_fault({}, fresh, {}, "ns", now),
            "namespace 'ns' has no Deployment gpu-operator: nothing acts on the policy (--namespace names "
            "another)");
  EXPECT_EQ(operator_fault(deployments("{}", 0), fresh, {}, "ns", now),
            "Deployment gpu-operator is scaled to 0: nothing acts on the policy");
  const auto pod =
      std::make_shared<const Json>(*parse_json(R"({"metadata":{"name":"op-1","labels":{"app":"gpu-operator"}},
      "status":{"containerStatuses":[{"name":"gpu-operator","state":{"waiting":{"reason":"ErrImagePull"}}}]}})"));
  EXPECT_EQ(
      operator_fault(deployments("{}"), fresh, {pod}, "ns", now),
      "Deployment gpu-operator: 0 of 1 replicas available; pod op-1: container gpu-operator: ErrImagePull");
  EXPECT_EQ(operator_fault(deployments(R"({"availableReplicas":1})"), nullptr, {}, "ns", now),
            "no operator leads: the Lease 53822513.nvidia.com does not exist");
  EXPECT_EQ(
      operator_fault(deployments(R"({"availableReplicas":1})"), lease("2026-01-01T00:00:00Z"), {}, "ns", now),
      "no operator leads: the Lease 53822513.nvidia.com was last renewed 1m0s ago by a");
}

TEST(fleet, objects_that_cannot_be_meant_so_are_refused) {
  const auto text = [](const char* object) {
    const auto checked = check_identity(*parse_json(object));
    return checked ? std::string() : checked.error().text();
  };
  EXPECT_EQ(text(R"({"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":"p"}})"), "");
  EXPECT_EQ(text(R"({"apiVersion":"nvidia.com/v1alpha1","kind":"ClusterPolicy","metadata":{"name":"p"}})"),
            "ClusterPolicy 'p': apiVersion: must be nvidia.com/v1; got 'nvidia.com/v1alpha1'");
  EXPECT_EQ(text(R"({"kind":"ClusterPolicy","metadata":{"name":"p"}})"),
            "ClusterPolicy 'p': apiVersion: must be nvidia.com/v1; it is missing");
  EXPECT_EQ(text(R"({"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy"})"),
            "ClusterPolicy: metadata.name: is missing");
  EXPECT_EQ(
      text(R"({"apiVersion":"nvidia.com/v1","kind":"ClusterPolcy","metadata":{"name":"p"}})"),
      "apply ClusterPolcy 'p': kind ClusterPolcy of 'nvidia.com/v1' is not among those that an install holds "
      "(did you mean 'ClusterPolicy'?)");
}

}  // namespace
}  // namespace gpuop::fleet

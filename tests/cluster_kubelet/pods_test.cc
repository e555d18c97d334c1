// Pods on a virtual clock: start order, restarts, probes, the end.
#include "fixture.h"

namespace gpuop::cluster {
namespace {

constexpr const char* kOne = "containers: [{name: c, image: app:1}]";

TEST(cluster_kubelet, registers_the_node_and_renews_its_lease) {
  Node n;
  n.options.labels["nvidia.com/x"] = "y";
  n.options.facts.os_image = "Ubuntu 24.04.1 LTS";
  n.start();
  EXPECT_EQ(get_string(n.node(), {"metadata", "labels", "kubernetes.io/hostname"}), "n1");
  EXPECT_EQ(get_string(n.node(), {"metadata", "labels", "nvidia.com/x"}), "y");
  EXPECT_EQ(get_string(n.node(), {"status", "nodeInfo", "osImage"}), "Ubuntu 24.04.1 LTS");
  EXPECT_EQ(get_string(n.node(), {"status", "nodeInfo", "containerRuntimeVersion"}), "containerd://2.1.0");
  EXPECT_EQ(get_string(n.node(), {"status", "allocatable", "pods"}), "110");
  EXPECT_EQ(get_string(*kube::condition(n.node(), "Ready"), {"reason"}), "KubeletReady");
  const std::string lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
  EXPECT_EQ(get_string(n.api->at(lease), {"spec", "renewTime"}), "2026-01-02T03:04:05.000000Z");
  EXPECT_EQ(get_string(get_array(n.api->at(lease), {"metadata", "ownerReferences"}).at(0), {"kind"}), "Node");
  n.pass(10s);
  EXPECT_EQ(get_string(n.api->at(lease), {"spec", "renewTime"}), "2026-01-02T03:04:15.000000Z");
  // Nothing changed: the status is not written again before five minutes are over.
  const auto writes = std::ranges::count(n.api->writes, "PATCH /api/v1/nodes/n1/status");
  n.pass(4min);
  EXPECT_EQ(std::ranges::count(n.api->writes, "PATCH /api/v1/nodes/n1/status"), writes);
  n.pass(1min);
  EXPECT_EQ(std::ranges::count(n.api->writes, "PATCH /api/v1/nodes/n1/status"), writes + 1);
}

TEST(cluster_kubelet, other_peoples_labels_stay) {
  Node n;
  n.api->put("/api/v1/nodes/n1", yaml("{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {a: b}}}"));
  n.start();
  EXPECT_EQ(get_string(n.node(), {"metadata", "labels", "a"}), "b");
  EXPECT_EQ(get_string(n.node(), {"metadata", "labels", "kubernetes.io/os"}), "linux");
  EXPECT_FALSE(get_string(n.node(), {"status", "capacity", "cpu"}).empty());
}

TEST(cluster_kubelet, a_condition_set_by_others_is_put_right_at_once) {
  Node n;
  n.start();
  Json node = n.node();
  kube::set_condition(node, "Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.",
                      "x");
  n.api->put("/api/v1/nodes/n1", node);
  n.settle();
  EXPECT_EQ(get_string(*kube::condition(n.node(), "Ready"), {"status"}), "True");
}

TEST(cluster_kubelet, a_node_whose_runtime_does_not_answer_is_not_ready) {
  Node n;
  n.runtime->go_away();
  n.start();
  EXPECT_TRUE(n.node().is_null());
  n.pass(1s);
  EXPECT_EQ(get_string(*kube::condition(n.node(), "Ready"), {"status"}), "False");
  n.runtime->come_back(false);
  n.settle();
  EXPECT_EQ(get_string(*kube::condition(n.node(), "Ready"), {"status"}), "True");
}

TEST(cluster_kubelet, runs_a_pod_and_tells) {
  Node n;
  n.start();
  const std::string uid = n.add_pod("p", kOne);
  EXPECT_EQ(n.phase("p"), "Running");
  for (const char* type :
       {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    EXPECT_EQ(n.condition("p", type), "True") << type;
  }
  const Json status = n.container("p", "c");
  EXPECT_TRUE(get_bool(status, {"ready"}));
  EXPECT_TRUE(get_bool(status, {"started"}));
  EXPECT_EQ(get_int(status, {"restartCount"}), 0);
  EXPECT_EQ(get_string(status, {"containerID"}), "containerd://" + n.runtime->container(uid, "c")->id);
  EXPECT_EQ(get_string(n.pod_of("p"), {"status", "podIP"}), "127.0.0.1");
  EXPECT_EQ(get_string(n.pod_of("p"), {"status", "qosClass"}), "BestEffort");
  for (const char* reason : {"Pulled", "Created", "Started"}) EXPECT_EQ(n.events(reason), 1) << reason;
  // What is written says what is new, and no more than a few times.
  EXPECT_LE(std::ranges::count(n.api->writes, "PATCH " + Node::pod_path("p") + "/status"), 3);
  const auto writes = n.api->writes.size();
  n.pass(1s);
  EXPECT_EQ(n.api->writes.size(), writes);
}

TEST(cluster_kubelet, init_containers_and_sidecars_start_in_order) {
  Node n;
  n.runtime->behave = [](const ContainerSpec& spec) {
    return spec.name.starts_with("init") ? lives(2s, 0) : RecordingRuntime::Play{};
  };
  n.start();
  n.add_pod("p", R"(
initContainers:
- {name: init1, image: a:1}
- {name: side, image: a:1, restartPolicy: Always}
- {name: init2, image: a:1}
containers: [{name: c, image: app:1}]
)");
  EXPECT_EQ(n.phase("p"), "Pending");
  EXPECT_EQ(n.waiting("p", "c"), "PodInitializing");
  EXPECT_EQ(n.condition("p", "Initialized"), "False");
  EXPECT_EQ(get_string(*kube::condition(n.pod_of("p"), "Initialized"), {"message"}),
            "containers with incomplete status: [init1 side init2]");
  EXPECT_EQ(n.calls("start"), 1);
  n.pass(2s);
  EXPECT_EQ(n.calls("start"), 3);  // the sidecar counts as started at once
  n.pass(2s);
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(n.condition("p", "Initialized"), "True");
  EXPECT_TRUE(get_bool(n.container("p", "init1"), {"ready"}));
  EXPECT_EQ(get_string(n.container("p", "init1"), {"state", "terminated", "reason"}), "Completed");
}

TEST(cluster_kubelet, an_init_container_that_fails_for_good_fails_the_pod) {
  Node n;
  n.runtime->behave = [](const ContainerSpec&) { return lives(1s, 7); };
  n.start();
  n.add_pod(
      "p",
      "{restartPolicy: Never, initContainers: [{name: i, image: a:1}], containers: [{name: c, image: a:1}]}");
  n.pass(2s);
  EXPECT_EQ(n.phase("p"), "Failed");
  EXPECT_EQ(get_int(n.container("p", "i"), {"state", "terminated", "exitCode"}), 7);
  EXPECT_EQ(n.calls("start"), 1);
}

// kubernetes-api.md case 36.
TEST(cluster_kubelet, case36_crash_loop_back_off) {
  Node n;
  n.runtime->behave = [](const ContainerSpec&) { return lives(0s, 1); };
  n.start();
  const std::string uid = n.add_pod("p", kOne);
  EXPECT_EQ(n.restarts("p", "c"), 1);  // the first restart is immediate
  EXPECT_EQ(n.waiting("p", "c"), "CrashLoopBackOff");
  EXPECT_EQ(get_string(n.container("p", "c"), {"state", "waiting", "message"}),
            "back-off 10s restarting failed container=c pod=p_default(" + uid + ")");
  EXPECT_EQ(get_int(n.container("p", "c"), {"lastState", "terminated", "exitCode"}), 1);
  EXPECT_EQ(n.phase("p"), "Running");
  n.pass(9s);
  EXPECT_EQ(n.restarts("p", "c"), 1);
  n.pass(1s);
  EXPECT_EQ(n.restarts("p", "c"), 2);
  n.pass(19s);
  EXPECT_EQ(n.restarts("p", "c"), 2);
  n.pass(1s);
  EXPECT_EQ(n.restarts("p", "c"), 3);
  n.pass(39s);
  EXPECT_EQ(n.restarts("p", "c"), 3);
  n.pass(1s);
  EXPECT_EQ(n.restarts("p", "c"), 4);
  // The delay stops growing at five minutes.
  n.pass(80s + 160s + 300s);
  const int before = n.restarts("p", "c");
  n.pass(299s);
  EXPECT_EQ(n.restarts("p", "c"), before);
  n.pass(1s);
  EXPECT_EQ(n.restarts("p", "c"), before + 1);
  EXPECT_GE(n.events("BackOff"), 1);
}

TEST(cluster_kubelet, ten_good_minutes_forget_the_back_off) {
  Node n;
  int starts = 0;
  n.runtime->behave = [&](const ContainerSpec&) { return ++starts == 3 ? lives(10min, 1) : lives(0s, 1); };
  n.start();
  n.add_pod("p", kOne);
  n.pass(10s);  // the third start, which lives for ten minutes
  EXPECT_EQ(n.restarts("p", "c"), 2);
  n.pass(10min);
  EXPECT_EQ(n.restarts("p", "c"), 3);  // at once
  n.pass(10s);
  EXPECT_EQ(n.restarts("p", "c"), 4);  // and from the beginning again
}

TEST(cluster_kubelet, jobs_succeed_and_fail_by_their_policy) {
  Node n;
  n.runtime->behave = [](const ContainerSpec& spec) {
    return lives(1s, spec.image == "bad:1" && spec.attempt == 0 ? 3 : 0);
  };
  n.start();
  n.add_pod("ok", "{restartPolicy: Never, containers: [{name: c, image: ok:1}]}");
  n.add_pod("bad", "{restartPolicy: Never, containers: [{name: c, image: bad:1}]}");
  n.add_pod("again", "{restartPolicy: OnFailure, containers: [{name: c, image: bad:1}]}");
  n.pass(5s);
  EXPECT_EQ(n.phase("ok"), "Succeeded");
  EXPECT_EQ(get_string(*kube::condition(n.pod_of("ok"), "Ready"), {"reason"}), "PodCompleted");
  EXPECT_EQ(n.phase("bad"), "Failed");
  EXPECT_EQ(n.phase("again"), "Succeeded");
  EXPECT_EQ(n.restarts("again", "c"), 1);
  EXPECT_EQ(n.calls("remove-sandbox"), 3);
}

TEST(cluster_kubelet, images_that_are_not_to_be_had) {
  Node n;
  n.runtime->missing_images = {"gone:1"};
  n.start();
  n.add_pod("p", "containers: [{name: c, image: 'gone:1'}]");
  EXPECT_EQ(n.phase("p"), "Pending");
  EXPECT_EQ(n.waiting("p", "c"), "ImagePullBackOff");
  EXPECT_NE(get_string(n.container("p", "c"), {"state", "waiting", "message"})
                .find("Back-off pulling image \"gone:1\""),
            std::string_view::npos);
  EXPECT_EQ(n.calls("image gone:1 pull"), 1);
  n.pass(9s);
  EXPECT_EQ(n.calls("image gone:1 pull"), 1);
  n.runtime->missing_images.clear();
  n.pass(2s);
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(n.waiting("p", "c"), "");
}

TEST(cluster_kubelet, never_pull) {
  Node n;
  n.runtime->missing_images = {"gone:1"};
  n.start();
  n.add_pod("p", "containers: [{name: c, image: 'gone:1', imagePullPolicy: Never}]");
  EXPECT_EQ(n.waiting("p", "c"), "ErrImageNeverPull");
  EXPECT_EQ(n.calls("image gone:1 pull"), 0);
}

TEST(cluster_kubelet, start_errors_are_shown_and_retried) {
  Node n;
  int tries = 0;
  n.runtime->behave = [&](const ContainerSpec&) {
    RecordingRuntime::Play play;
    if (++tries < 3) play.refuses = Error(Code::kInvalid, "unresolvable CDI devices nvidia.com/gpu=0");
    return play;
  };
  n.start();
  n.add_pod("p", kOne);
  EXPECT_EQ(n.waiting("p", "c"), "CreateContainerError");
  EXPECT_EQ(get_string(n.container("p", "c"), {"state", "waiting", "message"}),
            "unresolvable CDI devices nvidia.com/gpu=0");
  EXPECT_EQ(n.event_text("Failed"), "Error: unresolvable CDI devices nvidia.com/gpu=0");
  n.pass(1s);
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(n.restarts("p", "c"), 0);
}

TEST(cluster_kubelet, runtime_classes) {
  Node n;
  n.start();
  const std::string uid = n.add_pod("p", "{runtimeClassName: nvidia, containers: [{name: c, image: 'a:1'}]}");
  EXPECT_EQ(n.waiting("p", "c"), "ContainerCreating");
  EXPECT_EQ(n.event_text("FailedCreatePodSandBox"),
            "Failed to create pod sandbox: RuntimeClass \"nvidia\" not found");
  n.api->put(
      "/apis/node.k8s.io/v1/runtimeclasses/nvidia",
      yaml("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}"));
  n.settle();
  EXPECT_EQ(n.phase("p"), "Pending");  // the runtime does not know the handler
  n.runtime->handlers.insert("nvidia");
  n.runtime->come_back(false);  // its new configuration came with a restart
  n.settle();
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(n.runtime->sandboxes().at(0).runtime_handler, "nvidia");
}

TEST(cluster_kubelet, probes_in_time) {
  Node n;
  int startup = 0, ready = 0, live = 0;
  Time startup_ok{};
  n.runtime->on_exec = [&](const ContainerInfo&, const std::vector<std::string>& argv) -> Result<ExitState> {
    ExitState state;
    if (argv[0] == "startup") {
      ++startup;
      state.code = n.loop->now() >= startup_ok ? 0 : 1;
    } else if (argv[0] == "ready") {
      ++ready;
    } else {
      ++live;
      state.code = live > 2 ? 1 : 0;
      state.err = "dead";
    }
    return state;
  };
  n.start();
  startup_ok = n.loop->now() + 25s;
  n.add_pod("p", R"(
containers:
- name: c
  image: a:1
  startupProbe: {exec: {command: [startup]}, periodSeconds: 10, failureThreshold: 30}
  livenessProbe: {exec: {command: [live]}, periodSeconds: 5, failureThreshold: 2}
  readinessProbe: {exec: {command: [ready]}, periodSeconds: 10}
)");
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(n.condition("p", "Ready"), "False");
  EXPECT_FALSE(get_bool(n.container("p", "c"), {"started"}));
  EXPECT_EQ(ready + live, 0);  // held off
  n.pass(24s);
  EXPECT_EQ(n.condition("p", "Ready"), "False");
  EXPECT_EQ(n.events("Unhealthy") > 0, true);
  n.pass(6s);  // the third period begins at 30 s
  EXPECT_TRUE(get_bool(n.container("p", "c"), {"started"}));
  EXPECT_EQ(n.condition("p", "Ready"), "True");
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(live, 1);
  // Liveness succeeds at 30 and 35 s, fails at 40 and 45 s: the container is restarted.
  n.pass(14s);
  EXPECT_EQ(n.restarts("p", "c"), 0);
  startup_ok = {};
  n.pass(2s);
  EXPECT_EQ(n.restarts("p", "c"), 1);
  EXPECT_EQ(n.event_text("Killing"), "Container c failed liveness probe, will be restarted");
}

TEST(cluster_kubelet, a_container_is_ready_as_soon_as_it_says_so) {
  Node n;
  const Time ok = n.loop->now() + 250ms;
  n.options.net_prober = [&](const NetProbe& probe, std::function<void(Result<>)> done) {
    EXPECT_EQ(probe.port, 8080);
    EXPECT_EQ(probe.path, "/healthz");
    n.loop->post([&, done] { done(n.loop->now() >= ok ? Result<>() : fail(Code::kUnavailable, "refused")); });
    return Handle();
  };
  n.start();
  n.add_pod("p", R"(
containers:
- name: c
  image: a:1
  ports: [{name: http, containerPort: 8080}]
  readinessProbe: {httpGet: {port: http, path: /healthz}}
)");
  EXPECT_EQ(n.condition("p", "Ready"), "False");
  n.pass(500ms);
  EXPECT_EQ(n.condition("p", "Ready"), "True");
  // The early tries' failures do not count and are not told.
  EXPECT_EQ(n.events("Unhealthy"), 1);
}

TEST(cluster_kubelet, an_initial_delay_that_a_user_set_is_kept) {
  Node n;
  std::vector<Duration> tries;
  const Time begun = n.loop->now();
  n.runtime->on_exec = [&](const auto&, const auto&) -> Result<ExitState> {
    tries.push_back(std::chrono::floor<std::chrono::seconds>(n.loop->now() - begun));
    return ExitState{};
  };
  n.start();
  n.add_pod("p", R"(
containers:
- {name: c, image: 'a:1', readinessProbe: {exec: {command: [x]}, initialDelaySeconds: 5, periodSeconds: 7}}
)");
  n.pass(20s);
  EXPECT_EQ(tries, (std::vector<Duration>{5s, 12s, 19s}));
}

TEST(cluster_kubelet, graceful_deletion) {
  Node n;
  n.runtime->behave = [](const ContainerSpec&) {
    RecordingRuntime::Play play;
    play.stops_after = 3s;
    play.stop_code = 0;
    return play;
  };
  n.start();
  n.add_pod("p", R"(
terminationGracePeriodSeconds: 30
initContainers: [{name: side, image: 'a:1', restartPolicy: Always}]
containers:
- {name: c, image: 'a:1', lifecycle: {preStop: {sleep: {seconds: 5}}}}
)");
  EXPECT_EQ(n.phase("p"), "Running");
  n.api->delete_pod(Node::pod_path("p"), 30);
  n.settle();
  EXPECT_EQ(n.calls("stop"), 0);  // the hook runs first
  EXPECT_EQ(n.event_text("Killing"), "Stopping container c");
  n.pass(5s);
  ASSERT_EQ(n.calls("stop"), 1);
  EXPECT_TRUE(n.runtime->calls.back().ends_with("/c#0 25s")) << n.runtime->calls.back();  // the hook counts
  n.pass(3s);
  ASSERT_EQ(n.calls("stop"), 2);  // sidecars end after the others
  EXPECT_TRUE(n.api->has(Node::pod_path("p")));
  EXPECT_EQ(get_int(n.container("p", "c"), {"state", "terminated", "exitCode"}, -1), 0);
  n.pass(3s);
  EXPECT_FALSE(n.api->has(Node::pod_path("p")));
  EXPECT_EQ(n.runtime->sandboxes().size(), 0u);
  EXPECT_EQ(n.kubelet->pods(), 0u);
}

TEST(cluster_kubelet, a_container_that_ignores_sigterm_is_killed) {
  Node n;
  n.runtime->behave = [](const ContainerSpec&) {
    RecordingRuntime::Play play;
    play.stops_after = 1h;
    return play;
  };
  n.start();
  n.add_pod("p", kOne);
  n.api->delete_pod(Node::pod_path("p"), 30);
  n.pass(29s);
  EXPECT_TRUE(n.api->has(Node::pod_path("p")));
  // A second delete with less grace shortens the wait.
  n.api->delete_pod(Node::pod_path("p"), 0);
  n.pass(1s);
  EXPECT_FALSE(n.api->has(Node::pod_path("p")));
}

TEST(cluster_kubelet, a_forced_delete_ends_the_containers_too) {
  Node n;
  n.start();
  n.add_pod("p", kOne);
  n.api->erase(Node::pod_path("p"));
  n.pass(1s);
  EXPECT_EQ(n.calls("stop"), 1);
  EXPECT_EQ(n.runtime->sandboxes().size(), 0u);
  EXPECT_EQ(n.kubelet->pods(), 0u);
}

TEST(cluster_kubelet, a_pod_of_the_same_name_is_another_pod) {
  Node n;
  n.start();
  const std::string first = n.add_pod("p", kOne);
  n.api->erase(Node::pod_path("p"));
  const std::string second = n.add_pod("p", kOne);
  n.pass(1s);
  EXPECT_NE(first, second);
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(n.runtime->container(first, "c"), nullptr);
  EXPECT_NE(n.runtime->container(second, "c"), nullptr);
}

TEST(cluster_kubelet, post_start_holds_readiness_and_its_failure_restarts) {
  Node n;
  int runs = 0;
  n.runtime->on_exec = [&](const auto&, const auto&) -> Result<ExitState> {
    return ExitState{.code = ++runs == 1 ? 1 : 0};
  };
  n.start();
  n.add_pod("p", "containers: [{name: c, image: 'a:1', lifecycle: {postStart: {exec: {command: [hook]}}}}]");
  n.pass(1s);
  EXPECT_EQ(n.events("FailedPostStartHook"), 1);
  EXPECT_EQ(n.restarts("p", "c"), 1);
  EXPECT_EQ(n.condition("p", "Ready"), "True");
}

TEST(cluster_kubelet, active_deadline) {
  Node n;
  n.start();
  n.add_pod("p", "{activeDeadlineSeconds: 60, containers: [{name: c, image: 'a:1'}]}");
  n.pass(59s);
  EXPECT_EQ(n.phase("p"), "Running");
  n.pass(2s);
  EXPECT_EQ(n.phase("p"), "Failed");
  EXPECT_EQ(get_string(n.pod_of("p"), {"status", "reason"}), "DeadlineExceeded");
  EXPECT_EQ(n.runtime->sandboxes().size(), 0u);
}

TEST(cluster_kubelet, readiness_gates) {
  Node n;
  n.start();
  n.add_pod("p",
            "{readinessGates: [{conditionType: example.com/ok}], containers: [{name: c, image: 'a:1'}]}");
  EXPECT_EQ(n.condition("p", "ContainersReady"), "True");
  EXPECT_EQ(n.condition("p", "Ready"), "False");
  Json pod = n.pod_of("p");
  kube::set_condition(pod, "example.com/ok", "True", "", "", "x");
  n.api->put(Node::pod_path("p"), pod);
  n.settle();
  EXPECT_EQ(n.condition("p", "Ready"), "True");
  EXPECT_EQ(n.condition("p", "example.com/ok"), "True");
}

TEST(cluster_kubelet, a_new_kubelet_adopts_what_runs) {
  Node n;
  n.start();
  const std::string uid = n.add_pod("p", R"(
initContainers: [{name: i, image: 'a:1', restartPolicy: Always}]
containers: [{name: c, image: 'a:1', readinessProbe: {exec: {command: [x]}, initialDelaySeconds: 30}}]
)");
  n.pass(31s);
  EXPECT_EQ(n.condition("p", "Ready"), "True");
  const std::string id = n.runtime->container(uid, "c")->id;
  n.runtime->calls.clear();
  n.api->writes.clear();
  n.restart();
  EXPECT_EQ(n.calls("start"), 0);
  EXPECT_EQ(n.calls("stop"), 0);
  EXPECT_EQ(n.runtime->container(uid, "c")->id, id);
  EXPECT_EQ(n.condition("p", "Ready"), "True");
  // It was told already: nothing is written about the pod.
  EXPECT_EQ(std::ranges::count(n.api->writes, "PATCH " + Node::pod_path("p") + "/status"), 0);
  // A container that ended while nobody looked is restarted by the next kubelet.
  n.kubelet.reset();
  n.runtime->exit(uid, "c", 1);
  n.restart();
  EXPECT_EQ(n.restarts("p", "c"), 1);
  EXPECT_EQ(n.calls("start"), 1);
}

TEST(cluster_kubelet, pods_that_went_while_no_kubelet_ran_are_cleaned_up) {
  Node n(true);
  n.start();
  const std::string uid =
      n.add_pod("p",
                "{volumes: [{name: e, emptyDir: {}}], containers: [{name: c, image: 'a:1', "
                "volumeMounts: [{name: e, mountPath: /e}]}]}");
  const fs::path folder = n.dir.path() / "var/lib/kubelet/pods" / uid;
  EXPECT_TRUE(fs::exists(folder));
  n.kubelet.reset();
  n.api->erase(Node::pod_path("p"));
  n.restart();
  EXPECT_EQ(n.runtime->sandboxes().size(), 0u);
  EXPECT_FALSE(fs::exists(folder));
}

TEST(cluster_kubelet, a_finished_pod_is_not_run_again) {
  Node n;
  n.runtime->behave = [](const ContainerSpec&) { return lives(1s, 0); };
  n.start();
  n.add_pod("p", "{restartPolicy: Never, containers: [{name: c, image: 'a:1'}]}");
  n.pass(2s);
  EXPECT_EQ(n.phase("p"), "Succeeded");
  n.runtime->calls.clear();
  n.restart();
  n.pass(1s);
  EXPECT_EQ(n.calls("start"), 0);
  EXPECT_EQ(n.phase("p"), "Succeeded");
  n.api->delete_pod(Node::pod_path("p"), 30);
  n.settle();
  EXPECT_FALSE(n.api->has(Node::pod_path("p")));
}

TEST(cluster_kubelet, the_runtime_goes_and_comes_back) {
  Node n;
  n.start();
  n.add_pod("p", kOne);
  n.runtime->go_away();
  n.pass(1s);
  EXPECT_EQ(get_string(*kube::condition(n.node(), "Ready"), {"status"}), "True");  // it may be a mere restart
  n.add_pod("q", kOne);
  EXPECT_EQ(n.phase("q"), "Pending");
  n.runtime->come_back(false);
  n.settle();
  EXPECT_EQ(n.phase("q"), "Running");
  EXPECT_EQ(n.restarts("p", "c"), 0);
  n.runtime->go_away();
  n.pass(31s);
  EXPECT_EQ(get_string(*kube::condition(n.node(), "Ready"), {"message"}), "container runtime is down");
  n.runtime->come_back(true);
  n.pass(1s);
  EXPECT_EQ(get_string(*kube::condition(n.node(), "Ready"), {"status"}), "True");
  EXPECT_EQ(n.restarts("p", "c"), 1);
  EXPECT_EQ(n.phase("p"), "Running");
}

TEST(cluster_kubelet, a_probe_that_cannot_be_made_counts_for_nothing) {
  Node n;
  n.runtime->on_exec = [](const auto&, const auto&) -> Result<ExitState> {
    return fail(Code::kUnavailable, "call the runtime: it is away");
  };
  n.start();
  n.add_pod("p",
            "containers: [{name: c, image: 'a:1', livenessProbe: {exec: {command: [x]}, periodSeconds: 1}}]");
  n.pass(30s);
  EXPECT_EQ(n.restarts("p", "c"), 0);
  EXPECT_EQ(n.event_text("Unhealthy"), "Liveness probe errored: call the runtime: it is away");
}

TEST(cluster_kubelet, a_stop_that_failed_is_made_again) {
  Node n;
  bool alive = true;
  n.runtime->on_exec = [&](const auto&, const auto&) -> Result<ExitState> {
    return ExitState{.code = alive ? 0 : 1};
  };
  n.start();
  n.add_pod("p",
            "containers: [{name: c, image: 'a:1', livenessProbe: {exec: {command: [x]}, periodSeconds: 1, "
            "failureThreshold: 1}}]");
  n.pass(500ms);
  alive = false;
  n.loop->run_until([&] { return n.calls("stop") > 0; }, 5s);
  n.runtime->go_away();
  n.pass(5s);
  alive = true;
  n.runtime->come_back(false);
  n.pass(1s);
  EXPECT_EQ(n.restarts("p", "c"), 1);
}

TEST(cluster_kubelet, another_image_restarts_the_container) {
  Node n;
  n.start();
  n.add_pod("p", kOne);
  Json pod = n.pod_of("p");
  pod.at("spec").at("containers").at(0).at("image") = "app:2";
  n.api->put(Node::pod_path("p"), pod);
  n.settle();
  EXPECT_EQ(n.restarts("p", "c"), 1);
  EXPECT_EQ(n.runtime->specs.back().image, "app:2");
}

TEST(cluster_kubelet, what_a_container_says_in_other_encodings_is_passed_on) {
  Node n(true);
  n.runtime->behave = [](const ContainerSpec&) {
    auto play = lives(1s, 2);
    play.termination_text = "caf\xe9 \xe2\x82\xac";
    return play;
  };
  n.start();
  n.add_pod("p", "{restartPolicy: Never, containers: [{name: c, image: 'a:1'}]}");
  n.pass(2s);
  EXPECT_EQ(get_string(n.container("p", "c"), {"state", "terminated", "message"}),
            "caf\xef\xbf\xbd \xe2\x82\xac");
}

TEST(cluster_kubelet, an_api_server_that_refuses_writes_is_caught_up_with) {
  Node n;
  n.start();
  n.api->refuse_writes = true;
  n.add_pod("p", kOne);
  n.pass(3s);
  EXPECT_EQ(n.phase("p"), "Pending");
  n.api->refuse_writes = false;
  n.pass(60s);
  EXPECT_EQ(n.phase("p"), "Running");
}

}  // namespace
}  // namespace gpuop::cluster

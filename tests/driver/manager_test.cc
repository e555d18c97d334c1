#include "driver/manager.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "cluster/apiserver/api_server.h"
#include "driver/pods.h"
#include "kube/object.h"

namespace gpuop::driver {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

void put(const fs::path& path, std::string_view content = "", mode_t mode = 0644) {
  ASSERT_TRUE(make_dirs(path.parent_path()));
  ASSERT_TRUE(write_file_atomic(path, content, mode));
}

// A cluster of one node, its kernel tree and its /run/nvidia.
class Cluster {
 public:
  Cluster()
      : loop(Loop::make_virtual(Time(1700000000s))),
        server(*loop),
        client(*loop, kube::make_memory_transport(*loop, server.handler())) {
    setenv("GPUOP_KERNEL_ROOT", path("kernel").c_str(), 1);
    put(path("kernel/proc/modules"));
    options.node = "n1";
    options.host_root = path("host");
    options.run = path("run");
    options.auto_drain = false;
    put(path("run/nvidia-driver.pid"), "7\n");
    EXPECT_TRUE(make_dirs(path("host")));
    create(kube::kNodes, "",
           JsonObject{{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", JsonObject{{"name", "n1"}}}});
    create(
        kube::kNamespaces, "",
        JsonObject{
            {"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", JsonObject{{"name", "gpu-operator"}}}});
  }
  ~Cluster() { unsetenv("GPUOP_KERNEL_ROOT"); }

  fs::path path(const fs::path& inner) const { return dir_.path() / inner; }
  void create(const kube::Resource& type, const std::string& ns, const Json& object) {
    auto done = kube::await(*loop, [&](auto answer) { return client.create(type, ns, object, {}, answer); });
    ASSERT_TRUE(done) << done.error().message;
  }
  void label(const std::string& key, const std::string& value) {
    Json patch = JsonObject{{"metadata", JsonObject{{"labels", JsonObject{{key, value}}}}}};
    auto done = kube::await(*loop, [&](auto answer) {
      return client.patch(kube::kNodes, "", "n1", kube::Patch::kMerge, patch, {}, answer);
    });
    ASSERT_TRUE(done) << done.error().message;
  }
  void pod(const std::string& ns, const std::string& name, const JsonObject& labels, bool gpu, bool owned) {
    Json object =
        parse_json(
            R"({"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}})")
            .value();
    set(object, {"metadata", "name"}, name);
    set(object, {"metadata", "labels"}, labels);
    if (owned) {
      set(object, {"metadata", "ownerReferences"},
          parse_json(
              R"([{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"u","controller":true}])")
              .value());
    }
    if (gpu) {
      set(object, {"spec", "containers"},
          parse_json(
              R"([{"name":"c","image":"i","resources":{"limits":{"nvidia.com/gpu":"1"},"requests":{"nvidia.com/gpu":"1"}}}])")
              .value());
    }
    create(kube::kPods, ns, object);
  }
  // What a kubelet does with pods that are to end.
  Handle end_pods_like_a_kubelet() {
    kube::WatchOptions watch;
    return client.watch(kube::kPods, "", watch,
                        {[this](std::string_view, Json object) {
                           if (get_string(object, {"metadata", "deletionTimestamp"}).empty()) return;
                           remove(str(kube::namespace_of(object)), str(kube::name_of(object)));
                         },
                         [](kube::ApiResult<void>) {}});
  }
  void remove(const std::string& ns, const std::string& name) {
    kube::DeleteOptions now;
    now.grace_seconds = 0;
    client.remove(kube::kPods, ns, name, now, [](kube::ApiResult<>) {}).detach();
  }
  void driver_is_loaded() {
    put(path("kernel/sys/module/nvidia/refcnt"), "0\n");
    put(path("kernel/proc/modules"), "nvidia_uvm 1 0 - Live\nnvidia 2 1 nvidia_uvm, Live\n");
    put(path("kernel/sbin/modprobe"),
        "#!/bin/sh\n[ \"$1\" = -r ] || exit 2\ngrep -v \"^$2 \" \"$GPUOP_KERNEL_ROOT/proc/modules\" > "
        "\"$GPUOP_KERNEL_ROOT/m\"\n"
        "cat \"$GPUOP_KERNEL_ROOT/m\" > \"$GPUOP_KERNEL_ROOT/proc/modules\"\n"
        "[ \"$2\" != nvidia ] || rm \"$GPUOP_KERNEL_ROOT/sys/module/nvidia/refcnt\"\n",
        0755);
  }
  Json node() {
    return kube::await(*loop, [&](auto answer) { return client.get(kube::kNodes, "", "n1", answer); })
        .value();
  }
  std::string node_label(std::string_view key) { return str(kube::label(node(), key)); }
  bool has_pod(const std::string& ns, const std::string& name) {
    return kube::await(*loop, [&](auto answer) { return client.get(kube::kPods, ns, name, answer); })
        .has_value();
  }
  Result<> uninstall() { return DriverManager(*loop, client, options).uninstall(); }

  std::unique_ptr<Loop> loop;
  cluster::ApiServer server;
  kube::Client client;
  ManagerOptions options;

 private:
  TempDir dir_;
};

TEST(driver, a_node_without_a_driver_is_ready_at_once) {
  Cluster cluster;
  cluster.label("nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade");
  auto done = cluster.uninstall();
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_EQ(cluster.node_label("nvidia.com/gpu.deploy.device-plugin"), "true");
  EXPECT_FALSE(file_exists(cluster.path("run/nvidia-driver.pid")));
}

TEST(driver, a_host_driver_is_labelled_and_ends_the_pod) {
  if (geteuid() != 0 || !file_exists("/bin/busybox")) GTEST_SKIP() << "needs root and busybox";
  Cluster cluster;
  auto busybox = read_file("/bin/busybox").value();
  put(cluster.path("host/bin/sh"), busybox, 0755);
  put(cluster.path("host/usr/bin/nvidia-smi"), "#!/bin/sh\necho 550.54.14\n", 0755);
  auto done = cluster.uninstall();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().text(), "driver is pre-installed on host");
  EXPECT_EQ(cluster.node_label("nvidia.com/gpu.deploy.driver"), "pre-installed");
  EXPECT_TRUE(file_exists(cluster.path("run/nvidia-driver.pid"))) << "nothing of the host is touched";

  put(cluster.path("host/usr/bin/nvidia-smi"), "#!/bin/sh\necho mismatch >&2\nexit 18\n", 0755);
  cluster.label("nvidia.com/gpu.deploy.driver", "true");
  done = cluster.uninstall();
  ASSERT_FALSE(done);
  EXPECT_HAS(done.error().text(), "exit status 18: mismatch");
  EXPECT_EQ(cluster.node_label("nvidia.com/gpu.deploy.driver"), "true");
}

TEST(driver, a_loaded_driver_is_replaced_after_its_users_are_gone) {
  Cluster cluster;
  cluster.driver_is_loaded();
  cluster.label("nvidia.com/gpu.deploy.device-plugin", "true");
  cluster.pod("gpu-operator", "plugin", {{"app", "nvidia-device-plugin-daemonset"}}, false, false);
  cluster.pod("default", "training", {}, true, true);
  cluster.pod("default", "web", {}, false, false);
  bool paused_seen = false;
  Handle kubelet = cluster.end_pods_like_a_kubelet();
  // The DaemonSet's pod goes when its node is paused.
  Handle controller = cluster.loop->after(10s, [&] {
    paused_seen = true;
    cluster.remove("gpu-operator", "plugin");
  });
  auto done = cluster.uninstall();
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_TRUE(paused_seen);
  EXPECT_FALSE(cluster.has_pod("default", "training"));
  EXPECT_TRUE(cluster.has_pod("default", "web"));
  EXPECT_EQ(read_file(cluster.path("kernel/proc/modules")).value(), "");
  EXPECT_EQ(cluster.node_label("nvidia.com/gpu.deploy.device-plugin"), "true");
  EXPECT_FALSE(get_bool(cluster.node(), {"spec", "unschedulable"}));
}

TEST(driver, the_same_configuration_keeps_modules_and_workloads) {
  Cluster cluster;
  cluster.driver_is_loaded();
  put(cluster.path("run/nvidia-driver.state"), "abc\n");
  cluster.options.config_digest = "abc";
  cluster.label("nvidia.com/gpu.deploy.container-toolkit", "true");
  cluster.pod("default", "training", {}, true, true);
  auto done = cluster.uninstall();
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_TRUE(cluster.has_pod("default", "training"));
  EXPECT_NE(read_file(cluster.path("kernel/proc/modules")).value(), "");
  EXPECT_EQ(cluster.node_label("nvidia.com/gpu.deploy.container-toolkit"), "true");
}

TEST(driver, one_pod_that_cannot_go_keeps_all) {
  Cluster cluster;
  cluster.driver_is_loaded();
  cluster.label("nvidia.com/gpu.deploy.container-toolkit", "true");
  cluster.pod("default", "training", {}, true, true);
  cluster.pod("default", "bare", {}, true, false);
  auto done = cluster.uninstall();
  ASSERT_FALSE(done);
  EXPECT_HAS(done.error().text(), "default/bare: no controller");
  EXPECT_TRUE(cluster.has_pod("default", "training"));
  EXPECT_EQ(cluster.node_label("nvidia.com/gpu.deploy.container-toolkit"), "true");
  EXPECT_FALSE(get_bool(cluster.node(), {"spec", "unschedulable"}));
}

TEST(driver, pods_that_never_end_are_named) {
  Cluster cluster;
  cluster.driver_is_loaded();
  cluster.pod("gpu-operator", "dcgm", {{"app", "nvidia-dcgm"}}, false, false);
  auto done = cluster.uninstall();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), Code::kTimeout);
  EXPECT_HAS(done.error().text(), "gpu-operator/dcgm");
}

TEST(driver, label_values_are_paused_and_restored) {
  for (std::string value : {"", "false", "true", "pre-installed", "x_y"})
    EXPECT_EQ(restored(paused(value)), value);
  EXPECT_EQ(paused("true"), "paused-for-driver-upgrade");
  EXPECT_EQ(paused("v"), "v_paused-for-driver-upgrade");
  EXPECT_EQ(paused(paused("true")), "paused-for-driver-upgrade");
  EXPECT_EQ(restored("paused-for-driver-upgrade_v"), "v");
}

TEST(driver, daemon_set_pods_are_left_and_empty_dirs_need_leave) {
  std::vector<Json> pods;
  auto add = [&](std::string name, std::string owner, bool empty_dir) {
    Json pod =
        parse_json(
            R"({"metadata":{"namespace":"d"},"spec":{"initContainers":[{"resources":{"limits":{"nvidia.com/mig-1g.5gb":"1"}}}]}})")
            .value();
    set(pod, {"metadata", "name"}, name);
    set(pod, {"metadata", "ownerReferences"}, JsonArray{JsonObject{{"kind", owner}, {"controller", true}}});
    if (empty_dir) set(pod, {"spec", "volumes"}, parse_json(R"([{"name":"v","emptyDir":{}}])").value());
    pods.push_back(pod);
  };
  add("daemon", "DaemonSet", false);
  add("cache", "ReplicaSet", true);
  auto plan = plan_drain(pods, {});
  EXPECT_EQ(plan.left, std::vector<std::string>{"d/daemon"});
  ASSERT_EQ(plan.blockers.size(), 1u);
  EXPECT_HAS(plan.blockers[0], "d/cache: it has emptyDir volumes");
  EXPECT_EQ(plan_drain(pods, {.delete_empty_dir = true}).evict.size(), 1u);
}

}  // namespace
}  // namespace gpuop::driver

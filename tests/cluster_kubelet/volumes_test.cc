// Volumes and environment, on disk beneath a node root.
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "cluster/kubelet/volume_files.h"
#include "fixture.h"

namespace gpuop::cluster {
namespace {

void config_map(Node& n, const std::string& name, const std::string& data) {
  n.api->put("/api/v1/namespaces/default/configmaps/" + name,
             yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name +
                  ", namespace: default}, data: " + data + "}"));
}

std::string text_at(const Node& n, const std::string& node_path) {
  return read_file(n.dir.path() / fs::path(node_path).relative_path()).value_or("<missing>");
}

std::string mount_of(const Node& n, const std::string& container_path, std::size_t spec = 0) {
  for (const RuntimeMount& mount : n.runtime->specs.at(spec).mounts) {
    if (mount.container_path == container_path) return mount.host_path;
  }
  return "<none>";
}

std::string env_of(const Node& n, const std::string& name, std::size_t spec = 0) {
  for (const std::string& item : n.runtime->specs.at(spec).env) {
    if (item.starts_with(name + "=")) return item.substr(name.size() + 1);
  }
  return "<unset>";
}

TEST(cluster_kubelet, config_map_volumes_wait_and_follow) {
  Node n(true);
  n.start();
  n.add_pod("p", R"(
volumes: [{name: v, configMap: {name: cm, items: [{key: a, path: sub/a.txt, mode: 256}, {key: b, path: b}]}}]
containers: [{name: c, image: 'a:1', volumeMounts: [{name: v, mountPath: /etc/v}]}]
)");
  EXPECT_EQ(n.waiting("p", "c"), "ContainerCreating");
  EXPECT_EQ(n.event_text("FailedMount"),
            "MountVolume.SetUp failed for volume \"v\" : configmap \"cm\" not found");
  config_map(n, "cm", "{a: '1'}");
  n.settle();
  EXPECT_EQ(n.phase("p"), "Pending");  // key b is missing
  config_map(n, "cm", "{a: '1', b: '2'}");
  n.settle();
  EXPECT_EQ(n.phase("p"), "Running");
  const std::string path = mount_of(n, "/etc/v");
  EXPECT_EQ(text_at(n, path + "/sub/a.txt"), "1");
  struct stat info{};
  ASSERT_EQ(::stat((n.dir.path() / path.substr(1) / "sub/a.txt").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0400u);
  const auto data = fs::read_symlink(n.dir.path() / path.substr(1) / "..data");
  config_map(n, "cm", "{a: '3', b: '2', c: '4'}");
  n.settle();
  EXPECT_EQ(text_at(n, path + "/sub/a.txt"), "3");
  const auto after = fs::read_symlink(n.dir.path() / path.substr(1) / "..data");
  EXPECT_NE(data, after);
  EXPECT_FALSE(fs::exists(n.dir.path() / path.substr(1) / data));
  // A change that shows in no file touches none; a ConfigMap that goes leaves the volume.
  config_map(n, "cm", "{a: '3', b: '2', c: '5'}");
  n.settle();
  EXPECT_EQ(fs::read_symlink(n.dir.path() / path.substr(1) / "..data"), after);
  n.api->erase("/api/v1/namespaces/default/configmaps/cm");
  n.settle();
  EXPECT_EQ(text_at(n, path + "/b"), "2");
}

TEST(cluster_kubelet, optional_sources_may_be_missing) {
  Node n(true);
  n.start();
  n.add_pod("p", R"(
volumes:
- {name: v, configMap: {name: cm, optional: true}}
- {name: s, secret: {secretName: s, optional: true}}
containers:
- name: c
  image: a:1
  env: [{name: A, valueFrom: {configMapKeyRef: {name: cm, key: x, optional: true}}}]
  envFrom: [{secretRef: {name: s, optional: true}}]
  volumeMounts: [{name: v, mountPath: /v}, {name: s, mountPath: /s}]
)");
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(env_of(n, "A"), "<unset>");
  config_map(n, "cm", "{x: late}");
  n.settle();
  EXPECT_EQ(text_at(n, mount_of(n, "/v") + "/x"), "late");
}

TEST(cluster_kubelet, secrets_and_sub_paths) {
  Node n(true);
  n.api->put(
      "/api/v1/namespaces/default/secrets/s",
      yaml("{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: default}, data: {k: dmFsdWU=}}"));
  n.start();
  n.add_pod("p", R"(
volumes: [{name: v, secret: {secretName: s, defaultMode: 256}}, {name: e, emptyDir: {}}]
containers:
- name: c
  image: a:1
  env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
  volumeMounts:
  - {name: v, mountPath: /etc/k, subPath: k, readOnly: true}
  - {name: e, mountPath: /deep/e, subPathExpr: 'x/$(NODE)', mountPropagation: HostToContainer}
)");
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(text_at(n, mount_of(n, "/etc/k")), "value");
  EXPECT_TRUE(mount_of(n, "/deep/e").ends_with("/e/x/n1"));
  EXPECT_TRUE(fs::is_directory(n.dir.path() / mount_of(n, "/deep/e").substr(1)));
  const auto& mounts = n.runtime->specs.at(0).mounts;
  const auto deep = std::ranges::find(mounts, "/deep/e", &RuntimeMount::container_path);
  EXPECT_EQ(deep->propagation, Propagation::kHostToContainer);
}

TEST(cluster_kubelet, a_sub_path_cannot_leave_its_volume) {
  Node n(true);
  ASSERT_TRUE(make_dirs(n.dir.path() / "data"));
  fs::create_symlink("/etc", n.dir.path() / "data/out");
  ASSERT_TRUE(make_dirs(n.dir.path() / "etc"));
  n.start();
  n.add_pod("p", R"(
volumes: [{name: h, hostPath: {path: /data}}]
containers: [{name: c, image: 'a:1', volumeMounts: [{name: h, mountPath: /h, subPath: out}]}]
)");
  EXPECT_EQ(n.waiting("p", "c"), "CreateContainerConfigError");
  EXPECT_EQ(n.calls("start"), 0);
}

TEST(cluster_kubelet, host_paths_by_type) {
  Node n(true);
  n.start();
  n.add_pod("p", R"(
volumes:
- {name: a, hostPath: {path: /made/dir, type: DirectoryOrCreate}}
- {name: b, hostPath: {path: /made/file, type: FileOrCreate}}
- {name: c, hostPath: {path: /plain}}
- {name: d, hostPath: {path: /later, type: Directory}}
containers: [{name: c, image: 'a:1', volumeMounts: [{name: d, mountPath: /d, mountPropagation: Bidirectional}]}]
)");
  EXPECT_TRUE(fs::is_directory(n.dir.path() / "made/dir"));
  EXPECT_TRUE(fs::is_regular_file(n.dir.path() / "made/file"));
  EXPECT_TRUE(fs::is_directory(n.dir.path() / "plain"));
  EXPECT_EQ(n.phase("p"), "Pending");
  EXPECT_EQ(
      n.event_text("FailedMount"),
      "MountVolume.SetUp failed for volume \"d\" : hostPath type check failed: /later is not a directory");
  ASSERT_TRUE(make_dirs(n.dir.path() / "later"));
  n.pass(1s);
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(mount_of(n, "/d"), "/later");
  EXPECT_EQ(n.runtime->specs.at(0).mounts.at(0).propagation, Propagation::kBidirectional);
}

TEST(cluster_kubelet, host_paths_through_the_nodes_own_links) {
  Node n(true);
  ASSERT_TRUE(make_dirs(n.dir.path() / "run"));
  ASSERT_TRUE(make_dirs(n.dir.path() / "var"));
  fs::create_symlink("/run", n.dir.path() / "var/run");
  n.start();
  n.add_pod("p", R"(
volumes: [{name: h, hostPath: {path: /var/run/cdi, type: DirectoryOrCreate}}]
containers: [{name: c, image: 'a:1', volumeMounts: [{name: h, mountPath: /var/run/cdi}]}]
)");
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(mount_of(n, "/var/run/cdi"), "/run/cdi");
  EXPECT_TRUE(fs::is_directory(n.dir.path() / "run/cdi"));
}

TEST(cluster_kubelet, projected_tokens_are_renewed) {
  Node n(true);
  n.api->token_seconds = 1000;
  config_map(n, "kube-root-ca.crt", "{ca.crt: CA}");
  n.start();
  n.add_pod("p", R"(
serviceAccountName: sa
volumes:
- name: t
  projected:
    defaultMode: 420
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3607}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
containers: [{name: c, image: 'a:1', volumeMounts: [{name: t, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}]
)");
  EXPECT_EQ(n.phase("p"), "Running");
  const std::string path = mount_of(n, "/var/run/secrets/kubernetes.io/serviceaccount");
  EXPECT_EQ(text_at(n, path + "/token"), "token-1");
  EXPECT_EQ(text_at(n, path + "/ca.crt"), "CA");
  EXPECT_EQ(text_at(n, path + "/namespace"), "default");
  n.pass(799s);
  EXPECT_EQ(text_at(n, path + "/token"), "token-1");
  n.pass(2s);
  EXPECT_EQ(text_at(n, path + "/token"), "token-2");
}

TEST(cluster_kubelet, downward_files_follow_the_pod) {
  Node n(true);
  n.start();
  n.add_pod("p", R"(
volumes: [{name: d, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}},
                                          {path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}}]
containers: [{name: c, image: 'a:1', resources: {limits: {cpu: 1500m}}, volumeMounts: [{name: d, mountPath: /d}]}]
)",
            JsonObject{{"labels", JsonObject{{"b", "x\"y"}, {"a", "1"}}}});
  const std::string path = mount_of(n, "/d");
  EXPECT_EQ(text_at(n, path + "/labels"), "a=\"1\"\nb=\"x\\\"y\"");
  EXPECT_EQ(text_at(n, path + "/cpu"), "2");
  n.api->merge(Node::pod_path("p"), yaml("{metadata: {labels: {c: new}}}"));
  n.settle();
  EXPECT_EQ(text_at(n, path + "/labels"), "a=\"1\"\nb=\"x\\\"y\"\nc=\"new\"");
}

TEST(cluster_kubelet, environment) {
  Node n;
  n.options.node_ip = "10.1.2.3";
  config_map(n, "cm", "{key: from-cm, other: o}");
  n.start();
  n.add_pod("p", R"(
serviceAccountName: sa
containers:
- name: c
  image: a:1
  command: [run, '--name=$(NAME)', '$(UNKNOWN)', '$$(NAME)']
  resources: {limits: {memory: 1Gi}}
  envFrom: [{prefix: P_, configMapRef: {name: cm}}]
  env:
  - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
  - {name: POD, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: LABEL, valueFrom: {fieldRef: {fieldPath: 'metadata.labels[''app'']'}}}
  - {name: MEM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
  - {name: CM, valueFrom: {configMapKeyRef: {name: cm, key: key}}}
  - {name: MIX, value: '$(NAME)-$(HOST)-$(LATER)'}
  - {name: LATER, value: z}
  - {name: NAME2, value: a}
  - {name: NAME2, value: b}
)",
            JsonObject{{"labels", JsonObject{{"app", "x"}}}});
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(env_of(n, "KUBERNETES_SERVICE_HOST"), "10.96.0.1");
  EXPECT_EQ(env_of(n, "KUBERNETES_SERVICE_PORT"), "443");
  EXPECT_EQ(env_of(n, "P_key"), "from-cm");
  EXPECT_EQ(env_of(n, "NAME"), "p");
  EXPECT_EQ(env_of(n, "HOST"), "10.1.2.3");
  EXPECT_EQ(env_of(n, "POD"), "10.1.2.3");
  EXPECT_EQ(env_of(n, "LABEL"), "x");
  EXPECT_EQ(env_of(n, "MEM"), "1024");
  EXPECT_EQ(env_of(n, "CM"), "from-cm");
  EXPECT_EQ(env_of(n, "MIX"), "p-10.1.2.3-$(LATER)");
  EXPECT_EQ(env_of(n, "NAME2"), "b");
  EXPECT_EQ(n.runtime->specs.at(0).command,
            (std::vector<std::string>{"run", "--name=p", "$(UNKNOWN)", "$(NAME)"}));
}

TEST(cluster_kubelet, a_missing_reference_of_the_environment_waits) {
  Node n;
  n.start();
  n.add_pod("p",
            "containers: [{name: c, image: 'a:1', env: [{name: A, valueFrom: {configMapKeyRef: {name: cm, "
            "key: k}}}]}]");
  EXPECT_EQ(n.waiting("p", "c"), "CreateContainerConfigError");
  EXPECT_EQ(get_string(n.container("p", "c"), {"state", "waiting", "message"}), "configmap \"cm\" not found");
  config_map(n, "cm", "{x: y}");
  n.settle();
  EXPECT_EQ(get_string(n.container("p", "c"), {"state", "waiting", "message"}),
            "couldn't find key k in ConfigMap default/cm");
  config_map(n, "cm", "{k: v}");
  n.settle();
  EXPECT_EQ(n.phase("p"), "Running");
  EXPECT_EQ(env_of(n, "A"), "v");
}

TEST(cluster_kubelet, termination_messages) {
  Node n(true);
  n.runtime->behave = [](const ContainerSpec&) {
    auto play = lives(1s, 2);
    play.termination_text = "why it ended";
    return play;
  };
  n.start();
  n.add_pod("p", "{restartPolicy: Never, containers: [{name: c, image: 'a:1'}]}");
  n.pass(2s);
  EXPECT_EQ(get_string(n.container("p", "c"), {"state", "terminated", "message"}), "why it ended");
}

TEST(cluster_kubelet, watches_end_with_the_pods_that_need_them) {
  Node n(true);
  config_map(n, "cm", "{k: v}");
  n.start();
  const auto before = n.api->watches();
  n.add_pod("p", "{volumes: [{name: v, configMap: {name: cm}}], containers: [{name: c, image: 'a:1'}]}");
  EXPECT_EQ(n.api->watches(), before + 1);
  n.api->delete_pod(Node::pod_path("p"), 1);
  n.pass(2s);
  config_map(n, "cm", "{k: w}");
  EXPECT_EQ(n.api->watches(), before);
}

TEST(cluster_kubelet, memory_volumes_are_a_tmpfs_and_go_with_the_pod) {
  if (::unshare(CLONE_NEWNS) != 0) GTEST_SKIP() << "mounting needs root";
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  Node n(true);
  n.start();
  n.add_pod("p",
            "{volumes: [{name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}], "
            "containers: [{name: c, image: 'a:1', volumeMounts: [{name: m, mountPath: /m}]}]}");
  const fs::path path = n.dir.path() / mount_of(n, "/m").substr(1);
  struct statfs info{};
  ASSERT_EQ(::statfs(path.c_str(), &info), 0);
  EXPECT_EQ(info.f_type, TMPFS_MAGIC);
  EXPECT_EQ(info.f_blocks * static_cast<unsigned long>(info.f_bsize), 1u << 20);
  ASSERT_TRUE(write_file_atomic(path / "f", "x"));
  n.restart();  // the next kubelet finds it mounted and leaves it
  EXPECT_EQ(read_file(path / "f").value_or(""), "x");
  n.api->delete_pod(Node::pod_path("p"), 0);
  n.settle();
  EXPECT_FALSE(fs::exists(path));
}

TEST(cluster_kubelet, trees_are_removed_without_following_links) {
  TempDir dir("tree");
  ASSERT_TRUE(make_dirs(dir.path() / "keep"));
  ASSERT_TRUE(write_file_atomic(dir.path() / "keep/file", "x"));
  ASSERT_TRUE(make_dirs(dir.path() / "gone/a/b"));
  fs::create_symlink(dir.path() / "keep", dir.path() / "gone/a/link");
  ASSERT_TRUE(remove_tree(dir.path() / "gone"));
  EXPECT_FALSE(fs::exists(dir.path() / "gone"));
  EXPECT_TRUE(fs::exists(dir.path() / "keep/file"));
  EXPECT_TRUE(remove_tree(dir.path() / "never-there"));
}

}  // namespace
}  // namespace gpuop::cluster

#include <gtest/gtest.h>

#include "base/files.h"
#include "cluster/runtime/containerd_config.h"
#include "cluster/runtime/images.h"
#include "cluster/runtime/oci_build.h"
#include "cluster/runtime/wire.h"

namespace gpuop::cluster {
namespace {

struct Files {
  TempDir dir{"containerd"};
  void put(const std::string& name, std::string_view text) {
    ASSERT_TRUE(make_dirs((dir.path() / name).parent_path()));
    ASSERT_TRUE(write_file_atomic(dir.path() / name, text));
  }
  Result<EngineConfig> load() { return load_containerd_config(dir.path() / "config.toml"); }
};

TEST(containerd_config, no_file_is_runc_with_cdi_on) {
  Files files;
  auto config = files.load();
  ASSERT_TRUE(config);
  EXPECT_EQ(config->default_handler, "runc");
  EXPECT_TRUE(config->enable_cdi);
  EXPECT_NE(config->handler(""), nullptr);
  EXPECT_EQ(config->handler("nvidia"), nullptr);
  EXPECT_EQ(config->cdi_dirs, (std::vector<std::string>{"/etc/cdi", "/var/run/cdi"}));
}

TEST(containerd_config, a_drop_in_adds_handlers_and_the_default) {
  Files files;
  files.put("config.toml",
            "version = 3\nimports = [\"conf.d/*.toml\"]\n"
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = \"runc\"\n");
  files.put("conf.d/99-nvidia.toml",
            "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = true\n"
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = \"nvidia\"\n"
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]\n"
            "runtime_type = \"io.containerd.runc.v2\"\ncontainer_annotations = [\"nvidia.cdi.k8s.io/*\"]\n"
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia.options]\n"
            "BinaryName = \"/usr/local/nvidia/toolkit/nvidia-container-runtime\"\n");
  files.put("conf.d/ignored.conf", "not toml at all");
  auto config = files.load();
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->files.size(), 2u);
  EXPECT_EQ(config->default_handler, "nvidia");
  const RuntimeHandler* handler = config->handler("");
  ASSERT_NE(handler, nullptr);
  EXPECT_EQ(handler->binary_name, "/usr/local/nvidia/toolkit/nvidia-container-runtime");
  EXPECT_EQ(handler->container_annotations, std::vector<std::string>{"nvidia.cdi.k8s.io/*"});
  EXPECT_NE(config->handler("runc"), nullptr) << "tables merge key by key";
}

TEST(containerd_config, version_2_tables_count_in_version_2_files_only) {
  Files files;
  files.put("config.toml",
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.a]\n"
            "runtime_type = \"io.containerd.runc.v2\"\n"
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.b]\nruntime_type = \"x\"\n");
  auto config = files.load();
  ASSERT_TRUE(config);
  EXPECT_NE(config->handler("a"), nullptr);
  EXPECT_EQ(config->handler("b"), nullptr);
  ASSERT_EQ(config->warnings.size(), 1u);
  EXPECT_NE(config->warnings[0].find("io.containerd.cri.v1.runtime"), std::string::npos);
}

TEST(containerd_config, errors_are_containerds) {
  auto error = [](std::string_view text) {
    Files files;
    files.put("config.toml", text);
    auto config = files.load();
    return config ? std::string("fine") : config.error().text();
  };
  EXPECT_NE(error("version = 4").find("equal to or less than `3`, got `4`"), std::string::npos);
  EXPECT_NE(error("a = [").find("line 1"), std::string::npos);
  EXPECT_NE(error("[*x]").find("malformed TOML"), std::string::npos);
  EXPECT_NE(error("a\xEF\xBB\xBE = 1").find("load '"), std::string::npos)
      << "a character that toml++ stumbles over";
  EXPECT_NE(
      error(
          "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = \"x\"")
          .find("'x', which no runtime has"),
      std::string::npos);
}

TEST(containerd_config, imports_in_a_circle_end) {
  Files files;
  files.put("config.toml", "version = 2\nimports = [\"config.toml\", \"b.toml\"]\n");
  files.put("b.toml", "version = 2\nimports = [\"config.toml\"]\n");
  auto config = files.load();
  ASSERT_TRUE(config);
  EXPECT_EQ(config->files.size(), 2u);
}

ImageTable table() {
  return ImageTable{{{"ghcr.io/gpu-operator/gpu-operator:v0.1.0", {"/images/ours"}, {}, {}},
                     {"*/driver", {"/images/driver", "/images/ours"}, {"nvidia-driver"}, {}, true}},
                    "ubuntu22.04",
                    "5.15.0-91-generic"};
}

TEST(images, ours_by_its_whole_reference) {
  auto image = table().resolve("ghcr.io/gpu-operator/gpu-operator:v0.1.0");
  ASSERT_TRUE(image);
  EXPECT_EQ(image->layers, std::vector<std::string>{"/images/ours"});
  EXPECT_TRUE(image->id.starts_with("sha256:"));
  auto other = table().resolve("ghcr.io/gpu-operator/gpu-operator:v9.9.9");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::kNotFound);
}

TEST(images, the_drivers_tag_must_fit_the_node) {
  auto image = table().resolve("nvcr.io/nvidia/driver:580.95.05-ubuntu22.04");
  ASSERT_TRUE(image) << image.error().text();
  EXPECT_EQ(image->env, std::vector<std::string>{"DRIVER_VERSION=580.95.05"});
  EXPECT_TRUE(table().resolve("registry.local:5000/a/b/driver:580-5.15.0-91-generic-ubuntu22.04"));
  auto foreign = table().resolve("nvcr.io/nvidia/driver:580.95.05-ubuntu24.04");
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code(), Code::kNotFound);
  EXPECT_NE(foreign.error().text().find("failed to pull and unpack image"), std::string::npos);
  EXPECT_NE(foreign.error().text().find("this node runs ubuntu22.04"), std::string::npos);
  EXPECT_FALSE(table().resolve("nvcr.io/nvidia/driver:580-6.8.0-ubuntu22.04"));
  EXPECT_FALSE(table().resolve("nvcr.io/nvidia/driver:latest"));
  EXPECT_FALSE(table().resolve("nvcr.io/nvidia/mydriver:580.95.05-ubuntu22.04"));
}

TEST(images, references_are_normalized_and_checked) {
  EXPECT_EQ(normal_reference("busybox").value_or(""), "docker.io/library/busybox:latest");
  EXPECT_EQ(normal_reference("a/b:1").value_or(""), "docker.io/a/b:1");
  EXPECT_EQ(normal_reference("localhost:5000/x").value_or(""), "localhost:5000/x:latest");
  for (const char* bad : {"", "UPPER/case", "a//b", "x:", "x:ta g", "x@sha256:12"}) {
    auto reference = normal_reference(bad);
    EXPECT_EQ(reference ? Code::kUnknown : reference.error().code(), Code::kInvalid) << bad;
  }
}

TEST(images, a_table_survives_json) {
  auto back = image_table_from_json(to_json(table()));
  ASSERT_TRUE(back);
  EXPECT_EQ(to_text(to_json(*back)), to_text(to_json(table())));
}

TEST(cluster_runtime, specs_survive_the_wire) {
  SandboxSpec sandbox{"uid", "ns", "name", "host", "nvidia", true, true, {{"a", "b"}}, {{"c", "d"}}};
  EXPECT_EQ(to_text(to_json(sandbox_from_json(to_json(sandbox)))), to_text(to_json(sandbox)));
  ContainerSpec spec;
  spec.pod_uid = "p";
  spec.name = "c";
  spec.attempt = 3;
  spec.init = true;
  spec.mounts = {{"/a", "/b", true, Propagation::kBidirectional}};
  spec.devices = {{"/dev/x", "/dev/y", "rw"}};
  spec.cdi_devices = {"nvidia.com/gpu=0"};
  spec.annotations = {{"k", "v"}};
  spec.run_as_user = 7;
  ContainerSpec back = container_from_json(to_json(spec));
  EXPECT_EQ(to_text(to_json(back)), to_text(to_json(spec)));
  EXPECT_EQ(back.mounts.at(0).propagation, Propagation::kBidirectional);
  EXPECT_EQ(error_from_json(to_json(Error(Code::kNotFound, "x"))).code(), Code::kNotFound);
}

struct Built {
  SandboxSpec sandbox{.uid = "u", .ns = "gpu", .name = "pod", .hostname = "pod"};
  ContainerSpec container;
  Image image{"sha256:1", {"/l"}, {"entry"}, {"PATH=/image", "A=1"}};
  RuntimeHandler handler;
  bool drivers = true;
  Json build(std::string kernel = "/.gpuop-kernel") {
    return build_oci_spec({sandbox, container, image, handler, "id", "/r", kernel, true, "", {}, drivers});
  }
  static std::string texts(const Json& oci, Keys keys) {
    std::string out;
    for (const Json& item : get_array(oci, keys)) out += str(as_text(item)) + " ";
    return out;
  }
};

TEST(cluster_runtime, command_and_environment_as_the_cri_has_them) {
  Built built;
  built.container.args = {"x"};
  EXPECT_EQ(Built::texts(built.build(), {"process", "args"}), "entry x ");
  built.container.command = {"sh", "-c"};
  built.container.env = {"A=2", "B=3"};
  Json oci = built.build();
  EXPECT_EQ(Built::texts(oci, {"process", "args"}), "sh -c x ");
  EXPECT_EQ(Built::texts(oci, {"process", "env"}),
            "PATH=/image HOSTNAME=pod A=2 B=3 GPUOP_KERNEL_ROOT=/.gpuop-kernel ");
  EXPECT_EQ(Built::texts(built.build(""), {"process", "env"}), "PATH=/image HOSTNAME=pod A=2 B=3 ");
}

TEST(cluster_runtime, volumes_replace_default_mounts_and_sort_by_depth) {
  Built built;
  built.container.mounts = {{"/run/a/b", "/run/a/b", false, Propagation::kHostToContainer},
                            {"/", "/host", true, Propagation::kPrivate},
                            {"/run/mps/shm", "/dev/shm", false, Propagation::kBidirectional}};
  Json oci = built.build();
  std::vector<std::string> order;
  int shm = 0;
  for (const Json& mount : get_array(oci, {"mounts"})) {
    order.push_back(str(get_string(mount, {"destination"})));
    if (order.back() == "/dev/shm") {
      ++shm;
      EXPECT_EQ(get_string(mount, {"source"}), "/run/mps/shm");
    }
  }
  EXPECT_EQ(shm, 1);
  EXPECT_EQ(order.back(), "/proc/sys/kernel/osrelease");
  EXPECT_LT(std::find(order.begin(), order.end(), "/proc"),
            std::find(order.begin(), order.end(), "/proc/driver"));
  EXPECT_LT(std::find(order.begin(), order.end(), "/host"),
            std::find(order.begin(), order.end(), "/run/a/b"));
  EXPECT_EQ(get_string(oci, {"linux", "rootfsPropagation"}), "rshared");
}

TEST(cluster_runtime, the_drivers_part_of_proc_is_the_nodes) {
  Built built;
  for (bool privileged : {false, true}) {
    built.container.privileged = privileged;
    Json oci = built.build();
    int seen = 0;
    for (const Json& mount : get_array(oci, {"mounts"})) {
      if (get_string(mount, {"destination"}) != "/proc/driver") continue;
      ++seen;
      EXPECT_EQ(get_string(mount, {"source"}), "/.gpuop-kernel/proc/driver");
      EXPECT_EQ(Built::texts(mount, {"options"}), "bind rprivate nosuid noexec nodev ro ");
    }
    EXPECT_EQ(seen, 1);
    for (const char* list : {"maskedPaths", "readonlyPaths"})
      EXPECT_EQ(Built::texts(oci, {"linux", list}).find("/proc/driver"), std::string::npos);
  }
  built.drivers = false;
  EXPECT_EQ(to_text(built.build()).find("/proc/driver"), std::string::npos);
}

TEST(cluster_runtime, pid_namespaces_follow_the_pod) {
  Built built;
  auto pid = [&] {
    Json oci = built.build();
    for (const Json& ns : get_array(oci, {"linux", "namespaces"})) {
      if (get_string(ns, {"type"}) == "pid") return true;
    }
    return false;
  };
  EXPECT_TRUE(pid());
  built.sandbox.host_pid = true;
  EXPECT_FALSE(pid());
}

TEST(cluster_runtime, annotations_pass_by_the_handlers_patterns) {
  Built built;
  built.container.annotations = {{"nvidia.cdi.k8s.io/x", "v"}, {"other", "v"}};
  built.handler.container_annotations = {"nvidia.cdi.k8s.io/*"};
  Json oci = built.build();
  EXPECT_EQ(get_string(oci, {"annotations", "nvidia.cdi.k8s.io/x"}), "v");
  EXPECT_FALSE(has(oci, {"annotations", "other"}));
}

TEST(cluster_runtime, cdi_requests_are_the_field_then_annotations) {
  ContainerSpec spec;
  spec.cdi_devices = {"nvidia.com/gpu=1"};
  spec.annotations = {{"cdi.k8s.io/plugin_a", "nvidia.com/gpu=1,nvidia.com/gpu=2"},
                      {"nvidia.cdi.k8s.io/x", "y"}};
  EXPECT_EQ(requested_cdi_devices(spec).value_or(std::vector<std::string>{}),
            (std::vector<std::string>{"nvidia.com/gpu=1", "nvidia.com/gpu=2"}));
  spec.annotations = {{"cdi.k8s.io/plugin_a", "gpu0"}};
  EXPECT_FALSE(requested_cdi_devices(spec));
}

}  // namespace
}  // namespace gpuop::cluster

// CRI-O's, Docker's and containerd 1.7's own readings of their files (container-toolkit-cdi.md §4.3, §1.6).
#include "cluster/runtime/engine_config.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "cluster/runtime/node_runtime.h"

namespace gpuop::cluster {
namespace {

class engine_config : public ::testing::Test {
 protected:
  Engine engine(const std::string& name, const std::string& version = {}) {
    Engine out = *find_engine(name, version);
    out.config = dir_.path() / "etc" / out.config.filename();
    return out;
  }
  void put(const std::string& name, std::string_view text) {
    const fs::path path = dir_.path() / "etc" / name;
    ASSERT_TRUE(make_dirs(path.parent_path()));
    ASSERT_TRUE(write_file_atomic(path, text));
  }
  TempDir dir_;
};

TEST_F(engine_config, crio_reads_its_drop_ins_in_order) {
  put("crio.conf", "[crio.runtime]\ndefault_runtime = \"runc\"\n");
  put("crio.conf.d/10-crio.conf", "[crio.runtime.runtimes.runc]\nruntime_path = \"/usr/bin/runc\"\n");
  put("crio.conf.d/99-nvidia.conf",
      "\n[crio.runtime]\ndefault_runtime = \"nvidia\"\n[crio.runtime.runtimes.nvidia]\n"
      "runtime_path = \"/usr/local/nvidia/toolkit/nvidia-container-runtime\"\nruntime_type = \"oci\"\n");
  auto config = load_engine_config(engine("crio"));
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->default_handler, "nvidia");
  EXPECT_EQ(config->handler("")->binary_name, "/usr/local/nvidia/toolkit/nvidia-container-runtime");
  EXPECT_EQ(config->handler("runc")->binary_name, "/usr/bin/runc");
  EXPECT_TRUE(config->enable_cdi);
  EXPECT_EQ(config->files.size(), 3u);
  EXPECT_EQ(config->handler("kata"), nullptr);
}

TEST_F(engine_config, crio_does_not_start_without_its_default_runtime) {
  put("crio.conf.d/99-nvidia.conf", "[crio.runtime]\ndefault_runtime = \"nvidia\"\n");
  auto config = load_engine_config(engine("crio"));
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().text(),
            "validating runtime config: default_runtime set to \"nvidia\", but no such entry in runtimes");
  auto broken = [&] {
    put("crio.conf.d/99-nvidia.conf", "[crio.runtime\n");
    return load_engine_config(engine("crio"));
  }();
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().text().find("99-nvidia.conf': line 1"), std::string::npos)
      << broken.error().text();
}

TEST_F(engine_config, crio_before_1_31_starts_with_runc) {
  EXPECT_EQ(load_engine_config(engine("crio", "1.30.4"))->default_handler, "runc");
  EXPECT_EQ(load_engine_config(engine("crio", "1.31.0"))->default_handler, "crun");
}

TEST_F(engine_config, docker_reads_daemon_json) {
  auto none = load_engine_config(engine("docker"));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->default_handler, "runc");
  EXPECT_TRUE(none->enable_cdi);  // since 28.2
  EXPECT_FALSE(none->passes_cdi);
  EXPECT_FALSE(load_engine_config(engine("docker", "27.5.1"))->enable_cdi);
  put("daemon.json",
      R"({"default-runtime":"nvidia","runtimes":{"nvidia":{"args":[],"path":"/opt/nvidia-container-runtime"}},)"
      R"("features":{"cdi":true},"cdi-spec-dirs":["/x"]})");
  auto config = load_engine_config(engine("docker", "27.5.1"));
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->handler("")->binary_name, "/opt/nvidia-container-runtime");
  EXPECT_TRUE(config->enable_cdi);
  EXPECT_EQ(config->cdi_dirs, std::vector<std::string>{"/x"});
  put("daemon.json", R"({"default-runtime":"nvidia"})");
  EXPECT_EQ(load_engine_config(engine("docker")).error().text(),
            "specified default runtime 'nvidia' does not exist");
  put("daemon.json", "{");
  EXPECT_NE(load_engine_config(engine("docker")).error().text().find("unable to configure the Docker daemon"),
            std::string::npos);
}

TEST_F(engine_config, containerd_1_7_has_cdi_off_and_knows_no_version_3) {
  const Engine old = engine("containerd", "1.7.27");
  EXPECT_FALSE(load_engine_config(old)->enable_cdi);
  put("config.toml", "version = 3\n");
  EXPECT_NE(load_engine_config(old).error().text().find("equal to or less than `2`, got `3`"),
            std::string::npos);
  put("config.toml",
      "version = 2\nimports = [\"conf.d/*.toml\"]\n"
      "[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n");
  EXPECT_TRUE(load_engine_config(old)->enable_cdi);
  // A drop-in's table takes the place of the whole one before it.
  put("conf.d/99-nvidia.toml",
      "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n"
      "runtime_type = \"io.containerd.runc.v2\"\n");
  EXPECT_FALSE(load_engine_config(old)->enable_cdi);
  EXPECT_NE(load_engine_config(old)->handler("nvidia"), nullptr);
  EXPECT_TRUE(load_engine_config(engine("containerd", "2.1.0"))->enable_cdi);
}

TEST_F(engine_config, engines_have_names) {
  EXPECT_EQ(find_engine("cri-o").error().text(),
            "container runtime 'cri-o': must be one of containerd, crio, docker (did you mean 'crio'?)");
  EXPECT_TRUE(at_least("2.1.0", 2, 1));
  EXPECT_FALSE(at_least("2.0.5", 2, 1));
  EXPECT_TRUE(at_least("10.0", 9, 9));
}

TEST_F(engine_config, pull_rules_are_taken_in_order) {
  const Json rules = *parse_json(
      R"([{"image":"*/driver:*","delay":5000000000,"error":""},{"image":"*","delay":0,"error":"no route to host"}])");
  EXPECT_EQ(pull_rule(rules, "nvcr.io/nvidia/driver:1").delay, 5s);
  EXPECT_EQ(pull_rule(rules, "nvcr.io/nvidia/driver:1").error, "");
  EXPECT_EQ(pull_rule(rules, "busybox").error, "no route to host");
  EXPECT_EQ(pull_rule(Json(), "busybox").error, "");
}

}  // namespace
}  // namespace gpuop::cluster

#include "shim/config.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "shim/toml.h"

namespace gpuop::shim {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

TEST(shim, configuration_is_read_with_defaults) {
  auto config = parse_config(R"(
accept-nvidia-visible-devices-as-volume-mounts = true
[nvidia-container-cli]
ldconfig = "@/sbin/ldconfig.real"
[nvidia-container-runtime]
mode = "cdi"
runtimes = ["/usr/bin/crun"]
[nvidia-container-runtime.modes.cdi]
default-kind = "management.nvidia.com/gpu"
[features]
ignore-imex-channel-requests = true
)",
                             "config.toml");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_TRUE(config->accept_volume_mounts);
  EXPECT_TRUE(config->accept_envvar_unprivileged);
  EXPECT_EQ(config->mode, "cdi");
  EXPECT_EQ(config->runtimes, std::vector<std::string>{"/usr/bin/crun"});
  EXPECT_EQ(config->default_kind, "management.nvidia.com/gpu");
  EXPECT_EQ(config->spec_dirs, (std::vector<std::string>{"/etc/cdi", "/var/run/cdi"}));
  EXPECT_TRUE(config->features.ignore_imex_channel_requests);
  EXPECT_TRUE(check_config(*config));
  EXPECT_TRUE(config->warnings.empty());
}

TEST(shim, unknown_keys_are_named_and_wrong_types_are_errors) {
  auto config = parse_config("[nvidia-container-runtime]\nmod = \"cdi\"\n", "config.toml");
  ASSERT_TRUE(config);
  ASSERT_EQ(config->warnings.size(), 1u);
  EXPECT_HAS(config->warnings[0],
             "unknown key nvidia-container-runtime.mod (did you mean 'nvidia-container-runtime.mode'?)");
  EXPECT_HAS(parse_config("disable-require = 3\n", "c").error().text(), "disable-require: wrong type");
  EXPECT_HAS(parse_config("a = \n", "c").error().text(), "line 1");
}

TEST(shim, a_missing_file_means_the_defaults) {
  TempDir dir;
  auto config = load_config(dir.path() / "none.toml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->mode, "auto");
  EXPECT_TRUE(check_config(*config));
}

TEST(shim, the_default_tree_reads_back_as_the_defaults) {
  auto config = parse_config(to_toml(default_config_tree()), "config.toml");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_TRUE(config->warnings.empty());
  EXPECT_EQ(config->mode, "auto");
  EXPECT_EQ(config->annotation_prefixes, std::vector<std::string>{"cdi.k8s.io/"});
}

TEST(shim, toml_is_written_sorted_and_reads_back) {
  Json tree =
      parse_json(R"({"b":{"z":1,"a":{"io.x":{"k":[1,2]}}},"a":"te\"xt","list":[{"n":1},{"n":2}],"f":true})")
          .value();
  std::string text = to_toml(tree);
  EXPECT_EQ(text, R"(a = "te\"xt"
f = true

[b]
  z = 1

  [b.a]

    [b.a."io.x"]
      k = [1, 2]

[[list]]
  n = 1

[[list]]
  n = 2
)");
  EXPECT_EQ(to_canonical_text(parse_toml(text, "t").value()), to_canonical_text(tree));
}

}  // namespace
}  // namespace gpuop::shim

#include "cdi/spec.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "cdi/registry.h"

namespace gpuop::cdi {
namespace {

std::string simple(std::string_view version, std::string_view device,
                   std::string_view node = "path: /dev/foo", std::string_view kind = "acme.com/gpu") {
  return "cdiVersion: \"" + std::string(version) + "\"\nkind: " + std::string(kind) +
         "\ndevices:\n- name: \"" + std::string(device) + "\"\n  containerEdits:\n    deviceNodes:\n    - " +
         std::string(node) + "\n";
}

std::string error_of(std::string_view text) {
  auto spec = parse_spec(text, "t.yaml");
  return spec ? std::string() : spec.error().text();
}

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

TEST(container_toolkit, case01_plain_spec_needs_0_3_0) {
  auto spec = parse_spec(simple("0.3.0", "gpu0"), "t.yaml");
  ASSERT_TRUE(spec) << spec.error().text();
  EXPECT_EQ(minimum_version(*spec), "0.3.0");
}

TEST(container_toolkit, case02_digit_name_needs_0_5_0) {
  EXPECT_HAS(error_of(simple("0.4.0", "0")), "must be at least v0.5.0");
}

TEST(container_toolkit, case03_versions) {
  std::string gids = simple("v0.7.0", "gpu0") + "containerEdits:\n  additionalGids: [44]\n";
  EXPECT_EQ(error_of(gids), "");
  EXPECT_HAS(error_of(simple("1.2.0", "gpu0")), "invalid version \"1.2.0\"");
  EXPECT_HAS(error_of(simple("0.2.0", "gpu0")), "must be at least v0.3.0");
}

TEST(container_toolkit, case04_rdt_versions) {
  auto first = parse_spec(simple("1.1.0", "gpu0") + "containerEdits:\n  intelRdt: {}\n", "t.yaml");
  ASSERT_TRUE(first) << first.error().text();
  EXPECT_EQ(minimum_version(*first), "0.7.0");
  auto second =
      parse_spec(simple("1.1.0", "gpu0") + "containerEdits:\n  intelRdt:\n    schemata: []\n", "t.yaml");
  ASSERT_TRUE(second) << second.error().text();
  EXPECT_EQ(minimum_version(*second), "1.1.0");
  EXPECT_HAS(error_of(simple("1.1.0", "gpu0") + "containerEdits:\n  intelRdt:\n    enableCMT: true\n"),
             "unknown field \"enableCMT\"");
}

TEST(container_toolkit, case05_classes) {
  auto spec = parse_spec(simple("1.1.0", "gpu0", "path: /dev/foo", "acme.com/gpu.large"), "t.yaml");
  ASSERT_TRUE(spec);
  EXPECT_EQ(minimum_version(*spec), "0.6.0");
  EXPECT_HAS(error_of(simple("1.1.0", "gpu0", "path: /dev/foo", "acme.com/9gpu")),
             "should start with letter");
}

TEST(container_toolkit, case06_device_names) {
  for (std::string_view good : {"a", "0:1", "GPU-12ab"}) EXPECT_TRUE(check_device_name(good)) << good;
  for (std::string_view bad : {"-a", "a:", "a b", ""}) {
    auto result = check_device_name(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_HAS(result.error().text(), "'" + std::string(bad) + "'");
  }
}

TEST(cdi, qualified_names_are_taken_apart) {
  auto name = parse_qualified_name("nvidia.com/gpu=0:1");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->vendor, "nvidia.com");
  EXPECT_EQ(name->device_class, "gpu");
  EXPECT_EQ(name->name, "0:1");
  for (std::string_view bad :
       {"", "/dev/x", "nvidia.com/gpu", "gpu=0", "nvidia.com/=0", "/gpu=0", "v.com/c=", "v.com/c=a b"}) {
    EXPECT_FALSE(is_qualified_name(bad)) << bad;
  }
}

TEST(cdi, faults_carry_line_and_suggestion) {
  std::string text = simple("0.5.0", "gpu0", "path: /dev/foo\n      hostpath: /x");
  std::string error = error_of(text);
  EXPECT_HAS(error, "line 8");
  EXPECT_HAS(error, "did you mean 'hostPath'?");
  EXPECT_HAS(error_of(""), "no Spec data");
  EXPECT_HAS(error_of(simple("0.5.0", "gpu0") + "kind: a.com/b\n"), "duplicate key \"kind\"");
  EXPECT_HAS(
      error_of(
          R"({"cdiVersion":"0.5.0","kind":"a.com/b","kind":"a.com/c","devices":[{"name":"x","containerEdits":{"env":["A=1"]}}]})"),
      "duplicate key \"kind\"");
  EXPECT_HAS(error_of("cdiVersion: 0.5.0\nkind: a.com/b\ndevices:\n- name: x\n  containerEdits: {}\n"),
             "empty device edits");
}

TEST(cdi, yaml_has_the_house_form_and_reads_back) {
  Spec spec;
  spec.kind = "nvidia.com/gpu";
  Device device;
  device.name = "0";
  device.edits.device_nodes.push_back({"/dev/nvidia0", "", "", 195, 0, 0660, "rwm", std::nullopt, 44});
  spec.devices.push_back(device);
  device.name = "0:1";
  spec.devices.push_back(device);
  spec.edits.env = {"NVIDIA_VISIBLE_DEVICES=void"};
  spec.edits.hooks.push_back({"createContainer",
                              "/usr/bin/nvidia-cdi-hook",
                              {"nvidia-cdi-hook", "update-ldcache"},
                              {"NVIDIA_CTK_DEBUG=false"},
                              {}});
  spec.version = minimum_version(spec);
  EXPECT_EQ(to_yaml_text(spec), R"(---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              major: 195
              fileMode: 432
              permissions: rwm
              gid: 44
    - name: "0:1"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              major: 195
              fileMode: 432
              permissions: rwm
              gid: 44
containerEdits:
    env:
        - NVIDIA_VISIBLE_DEVICES=void
    hooks:
        - hookName: createContainer
          path: /usr/bin/nvidia-cdi-hook
          args:
            - nvidia-cdi-hook
            - update-ldcache
          env:
            - NVIDIA_CTK_DEBUG=false
)");
  EXPECT_EQ(parse_spec(to_yaml_text(spec), "t.yaml").value(), spec);
  EXPECT_EQ(parse_spec(to_json_text(spec), "t.json").value(), spec);
}

TEST(cdi, saving_writes_only_a_difference) {
  TempDir dir;
  Spec spec = parse_spec(simple("1.1.0", "gpu0"), "t.yaml").value();
  EXPECT_TRUE(save_spec(spec, dir.path() / "cdi/acme").value());
  EXPECT_FALSE(save_spec(spec, dir.path() / "cdi/acme").value());
  auto text = read_file(dir.path() / "cdi/acme.yaml").value();
  EXPECT_TRUE(text.starts_with("---\ncdiVersion: 0.3.0\n")) << text;
  EXPECT_FALSE(save_spec(spec, dir.path() / "x.yml"));
  spec.devices[0].edits.device_nodes[0].permissions = "none";
  EXPECT_FALSE(save_spec(spec, dir.path() / "y.yaml"));
}

}  // namespace
}  // namespace gpuop::cdi

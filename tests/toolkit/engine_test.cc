#include "toolkit/engine.h"

#include <gtest/gtest.h>

#include "shim/toml.h"
#include "toolkit/install.h"
#include "toolkit/restart.h"
#include "toolkit/toml_edit.h"
#include "toolkit/toolkit.h"

namespace gpuop::toolkit {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

EngineSettings settings() {
  EngineSettings settings;
  settings.runtimes = {{"nvidia", "/t/nvidia-container-runtime"},
                       {"nvidia-cdi", "/t/nvidia-container-runtime.cdi"},
                       {"nvidia-legacy", "/t/nvidia-container-runtime.legacy"}};
  settings.default_name = "nvidia";
  settings.import_glob = "/etc/containerd/conf.d/*.toml";
  return settings;
}

Json toml(const FileText& text) {
  return parse_toml(text.value_or(""), "t").value();
}

constexpr std::string_view kV2 = "io.containerd.grpc.v1.cri";
constexpr std::string_view kV3 = "io.containerd.cri.v1.runtime";

TEST(container_toolkit, case38_no_containerd_configuration) {
  auto set_up = containerd_setup({}, std::nullopt, settings());
  ASSERT_TRUE(set_up) << set_up.error().text();
  EXPECT_EQ(*set_up->main, "imports = [\"/etc/containerd/conf.d/*.toml\"]\nversion = 2\n");
  Json drop_in = toml(set_up->drop_in);
  EXPECT_EQ(
      to_canonical_text(*find(drop_in, {"plugins", kV2, "containerd", "runtimes", "nvidia"})),
      R"({"options":{"BinaryName":"/t/nvidia-container-runtime"},"privileged_without_host_devices":false,)"
      R"("runtime_engine":"","runtime_root":"","runtime_type":"io.containerd.runc.v2"})");
  auto again = containerd_setup(*set_up, set_up->main, settings());
  EXPECT_EQ(*again, *set_up);
  auto cleaned = containerd_cleanup(*set_up, settings());
  ASSERT_TRUE(cleaned);
  EXPECT_EQ(*cleaned, EngineFiles{});
}

TEST(container_toolkit, case39_a_users_file_keeps_its_text) {
  std::string main =
      "# mine\nversion = 3\nimports = [\"/x/*.toml\"]  # "
      "theirs\n\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n"
      "  default_runtime_name = \"runc\"\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n"
      "  runtime_type = \"io.containerd.runc.v2\"\n  "
      "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n"
      "    SystemdCgroup = true\n";
  auto set_up = containerd_setup({main, std::nullopt}, main, settings());
  ASSERT_TRUE(set_up) << set_up.error().text();
  std::string expected = main;
  expected.replace(expected.find("\"/x/*.toml\"]"), 12, "\"/x/*.toml\", \"/etc/containerd/conf.d/*.toml\"]");
  EXPECT_EQ(*set_up->main, expected);
  Json drop_in = toml(set_up->drop_in);
  EXPECT_EQ(get_int(drop_in, {"version"}), 3);
  for (const auto& runtime : settings().runtimes) {
    EXPECT_TRUE(get_bool(
        drop_in, {"plugins", kV3, "containerd", "runtimes", runtime.name, "options", "SystemdCgroup"}));
    EXPECT_EQ(get_string(drop_in,
                         {"plugins", kV3, "containerd", "runtimes", runtime.name, "options", "BinaryName"}),
              runtime.path);
  }
  EXPECT_EQ(*containerd_setup(*set_up, set_up->main, settings()), *set_up);
  auto cleaned = containerd_cleanup(*set_up, settings());
  ASSERT_TRUE(cleaned);
  EXPECT_EQ(cleaned->main, set_up->main);  // the import stays: a glob without files
  EXPECT_EQ(cleaned->drop_in, std::nullopt);
}

TEST(container_toolkit, case40_our_name_is_not_the_default_any_more) {
  std::string main =
      "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"nvidia\"\n";
  auto set_up = containerd_setup({main, std::nullopt}, main, settings());
  ASSERT_TRUE(set_up);
  EXPECT_FALSE(has(toml(set_up->drop_in), {"plugins", kV2, "containerd", "default_runtime_name"}));
  auto as_default = settings();
  as_default.set_as_default = true;
  as_default.enable_cdi = true;
  set_up = containerd_setup({main, std::nullopt}, main, as_default);
  EXPECT_EQ(get_string(toml(set_up->drop_in), {"plugins", kV2, "containerd", "default_runtime_name"}),
            "nvidia");
  EXPECT_TRUE(get_bool(toml(set_up->drop_in), {"plugins", kV2, "enable_cdi"}));
}

TEST(container_toolkit, case41_templates_are_refused) {
  std::string main = "version = 2\n{{ .X }}\n";
  auto set_up = containerd_setup({main, std::nullopt}, main, settings());
  ASSERT_FALSE(set_up);
  EXPECT_HAS(set_up.error().text(), "template");
}

TEST(container_toolkit, case42_docker_keeps_other_features) {
  auto with_cdi = settings();
  with_cdi.enable_cdi = true;
  auto set_up = docker_setup({R"({"features":{"x":true}})", std::nullopt}, {}, with_cdi);
  ASSERT_TRUE(set_up);
  Json daemon = parse_json(*set_up->main).value();
  EXPECT_TRUE(get_bool(daemon, {"features", "x"}));
  EXPECT_TRUE(get_bool(daemon, {"features", "cdi"}));
  EXPECT_TRUE(set_up->main->starts_with(
      "{\n    \"features\": {\n        \"cdi\": true,\n        \"x\": true\n    },\n"));
  EXPECT_FALSE(set_up->main->ends_with('\n'));
  EXPECT_EQ(*docker_setup(*set_up, {}, with_cdi), *set_up);
  auto wrong = docker_setup({R"({"runtimes":[]})", std::nullopt}, {}, settings());
  ASSERT_FALSE(wrong);
  EXPECT_HAS(wrong.error().text(), "runtimes: must be an object; got []");
  auto as_default = settings();
  as_default.set_as_default = true;
  auto cleaned = docker_cleanup(*docker_setup({}, {}, as_default), settings());
  EXPECT_EQ(*cleaned->main, "{\n    \"default-runtime\": \"runc\"\n}");
}

TEST(container_toolkit, case43_crio_keeps_its_handlers) {
  auto as_default = settings();
  as_default.set_as_default = true;
  std::string main =
      "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nmonitor_path = "
      "\"/usr/bin/conmon\"\n";
  auto set_up = crio_setup({main, std::nullopt}, main, as_default);
  ASSERT_TRUE(set_up);
  EXPECT_EQ(*set_up->main, main);
  EXPECT_TRUE(set_up->drop_in->starts_with("\n"));
  Json drop_in = toml(set_up->drop_in);
  EXPECT_EQ(get_string(drop_in, {"crio", "runtime", "runtimes", "nvidia", "monitor_path"}),
            "/usr/bin/conmon");
  EXPECT_EQ(get_string(drop_in, {"crio", "runtime", "runtimes", "nvidia", "runtime_path"}),
            "/t/nvidia-container-runtime");
  EXPECT_EQ(get_string(drop_in, {"crio", "runtime", "default_runtime"}), "nvidia");
  auto cleaned = crio_cleanup(*set_up, as_default);
  ASSERT_TRUE(cleaned);
  EXPECT_TRUE(has(toml(cleaned->drop_in), {"crio", "runtime", "runtimes", "nvidia"}));
  EXPECT_FALSE(has(toml(cleaned->drop_in), {"crio", "runtime", "default_runtime"}));
}

TEST(container_toolkit, case45_restart_modes) {
  EXPECT_HAS(check_restart_mode("signal", "crio").error().text(), "unsupported");
  EXPECT_EQ(check_restart_mode("reboot", "docker").error().text(), "invalid restart mode specified: reboot");
  TempDir dir;
  Loop loop;
  RestartOptions options{.mode = "signal",
                         .engine = "containerd",
                         .socket = dir.path() / "none.sock",
                         .attempts = 6,
                         .pause = 1ms};
  EXPECT_FALSE(restart_engine(loop, options));
}

TEST(toolkit, lists_are_edited_in_every_form) {
  auto edit = [](std::string_view text) {
    auto edited = add_to_top_level_list(text, "imports", "/g/*.toml");
    return edited ? *edited : "error: " + edited.error().text();
  };
  EXPECT_EQ(edit("imports = []\n"), "imports = [\"/g/*.toml\"]\n");
  EXPECT_EQ(edit("imports = ['a' , # one\n]\n"), "imports = ['a' , # one\n  \"/g/*.toml\"\n]\n");
  EXPECT_EQ(edit("imports = [\n  \"a\"\n]\nversion = 2\n"),
            "imports = [\n  \"a\"\n  , \"/g/*.toml\"\n]\nversion = 2\n");
  EXPECT_EQ(edit("# c\n\nversion = 2\n[a]\nimports = [1]\n"),
            "# c\n\nimports = [\"/g/*.toml\"]\nversion = 2\n[a]\nimports = [1]\n");
  EXPECT_EQ(edit("[a]\nb = 1"), "imports = [\"/g/*.toml\"]\n[a]\nb = 1");
  EXPECT_EQ(edit("imports = [\"/g/*.toml\"]"), "imports = [\"/g/*.toml\"]");
  EXPECT_EQ(edit("x = \"\"\"\nimports = [ ]\n\"\"\"\n"),
            "imports = [\"/g/*.toml\"]\nx = \"\"\"\nimports = [ ]\n\"\"\"\n");
  EXPECT_HAS(edit("imports = 3\n"), "must be a list");
  EXPECT_HAS(edit("imports = \n"), "line 1");
}

TEST(toolkit, overrides_reach_every_runtime) {
  auto with = settings();
  with.overrides = parse_json(R"({"SystemdCgroup":true,"snapshotter":"nydus"})").value();
  with.annotation_prefixes = {"cdi.k8s.io/"};
  Json drop_in = toml(containerd_setup({}, std::nullopt, with)->drop_in);
  for (const auto& runtime : with.runtimes) {
    EXPECT_TRUE(get_bool(
        drop_in, {"plugins", kV2, "containerd", "runtimes", runtime.name, "options", "SystemdCgroup"}));
    EXPECT_EQ(get_string(drop_in, {"plugins", kV2, "containerd", "runtimes", runtime.name, "snapshotter"}),
              "nydus");
    EXPECT_EQ(
        get_array(drop_in, {"plugins", kV2, "containerd", "runtimes", runtime.name, "container_annotations"}),
        JsonArray{Json("cdi.k8s.io/*")});
  }
}

TEST(toolkit, version_one_is_the_main_file_alone) {
  std::string main = "[plugins.cri.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v1\"\n";
  auto cdi = settings();
  cdi.enable_cdi = true;
  auto set_up = containerd_setup({main, std::nullopt}, main, cdi);
  ASSERT_TRUE(set_up);
  EXPECT_EQ(set_up->drop_in, std::nullopt);
  Json tree = toml(set_up->main);
  EXPECT_EQ(get_int(tree, {"version"}), 1);
  EXPECT_TRUE(get_bool(tree, {"plugins", "cri", "enable_cdi"}));
  EXPECT_EQ(get_string(tree, {"plugins", "cri", "containerd", "runtimes", "nvidia", "options", "Runtime"}),
            "/t/nvidia-container-runtime");
}

TEST(toolkit, low_level_runtimes_come_from_the_engine) {
  std::string main =
      "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"fast\"\n"
      "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.fast.options]\nBinaryName = "
      "\"/opt/fast\"\n";
  EXPECT_EQ(low_level_runtimes("containerd", main), (std::vector<std::string>{"/opt/fast", "runc", "crun"}));
  EXPECT_EQ(low_level_runtimes("docker", std::nullopt), (std::vector<std::string>{"runc", "crun"}));
}

TEST(toolkit, a_fixed_name_becomes_the_default) {
  Options options;
  options.runtime_name = "nvidia-legacy";
  auto made = engine_settings(options);
  EXPECT_EQ(made.runtimes[0].name, "nvidia");
  EXPECT_EQ(made.default_name, "nvidia-legacy");
}

TEST(toolkit, wrong_options_are_named) {
  Options options;
  options.engine = "podman";
  EXPECT_HAS(complete(options).error().text(), "unsupported runtime 'podman'");
  options = {};
  options.pid_file = "/run/x.pid";
  EXPECT_HAS(complete(options).error().text(), "the name must be toolkit.pid");
}

}  // namespace
}  // namespace gpuop::toolkit

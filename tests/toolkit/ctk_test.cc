// The real nvidia-ctk and nvidia-container-runtime, on files of their own.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "base/process.h"
#include "shim/config.h"

namespace gpuop {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

ExitState ctk(std::vector<std::string> args, std::vector<std::string> env = {}) {
  args.insert(args.begin(), std::string(BUILD_ROOT) + "/bin/nvidia-ctk");
  return run_command({.argv = std::move(args), .env = std::move(env)}, 20s).value();
}

TEST(container_toolkit, case44_wrong_engines_and_paths) {
  auto wrong = ctk({"runtime", "configure", "--runtime", "podman"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_HAS(wrong.err, "unrecognized runtime 'podman'");
  EXPECT_HAS(ctk({"runtime", "configure", "--runtime", "containerd", "--drop-in-config", "x.toml"}).err,
             "not absolute");
  EXPECT_HAS(ctk({"runtime", "configure", "--runtime", "docker", "--drop-in-config", "/x.toml"}).err,
             "docker has no drop-in");
}

TEST(container_toolkit, case44_containerd_gets_one_runtime) {
  TempDir dir;
  std::vector<std::string> args = {"runtime",          "configure",
                                   "--runtime",        "containerd",
                                   "--config",         (dir.path() / "config.toml").string(),
                                   "--drop-in-config", (dir.path() / "conf.d/99-nvidia.toml").string()};
  EXPECT_EQ(ctk(args).code, 0);
  EXPECT_HAS(read_file(dir.path() / "config.toml").value(), (dir.path() / "conf.d/*.toml").string());
  std::string drop_in = read_file(dir.path() / "conf.d/99-nvidia.toml").value();
  EXPECT_HAS(drop_in, "BinaryName = \"/usr/bin/nvidia-container-runtime\"");
  EXPECT_EQ(drop_in.find("nvidia-cdi"), std::string::npos);
}

TEST(container_toolkit, case55_one_assignment_is_one_list) {
  auto changed =
      ctk({"config", "--set", "nvidia-container-runtime.runtimes=a,b", "--set", "disable-require"});
  ASSERT_EQ(changed.code, 0) << changed.err;
  auto config = shim::parse_config(changed.out, "out");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->runtimes, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(config->disable_require);
  EXPECT_HAS(ctk({"config", "--set", "foo=1"}).err, "invalid config option: undefined field: \"foo\"");
  EXPECT_EQ(ctk({"config", "-i", "-o", "/x"}).code, 1);
}

TEST(container_toolkit, case08_listing_warns_and_goes_on) {
  TempDir dir;
  ASSERT_TRUE(write_file_atomic(dir.path() / "bad.yaml", "kind: 3\n"));
  ASSERT_TRUE(write_file_atomic(
      dir.path() / "good.yaml",
      "cdiVersion: 0.5.0\nkind: a.com/b\ndevices:\n- name: x\n  containerEdits:\n    env: [A=1]\n"));
  auto listed = ctk({"cdi", "list", "--spec-dir", dir.path().string()});
  EXPECT_EQ(listed.code, 0);
  EXPECT_EQ(listed.out, "a.com/b=x\n");
  EXPECT_HAS(listed.err, "The following registry errors were reported:");
  EXPECT_HAS(listed.err, "Found 1 CDI devices");
}

TEST(container_toolkit, case19_wrong_generation_options) {
  EXPECT_HAS(ctk({"cdi", "generate", "--mode", "nvlm"}).err,
             "invalid discovery mode: nvlm (did you mean 'nvml'?)");
  EXPECT_HAS(ctk({"cdi", "generate", "--format", "toml"}).err, "invalid output format: toml");
  EXPECT_HAS(ctk({"cdi", "generate", "--output", "x.yml"}).err, "CDI readers ignore .yml");
  EXPECT_HAS(ctk({"cdi", "generate", "--device-name-strategy", "name"}).err,
             "invalid device name strategy: name");
  EXPECT_HAS(ctk({"cdi", "generate", "--vendor", "9x"}).err, "invalid CDI vendor name");
  auto none = ctk({"cdi", "generate", "--mode", "gds", "--dev-root", "/nowhere"});
  EXPECT_EQ(none.code, 1);
}

TEST(container_toolkit, case52_hooks_under_the_other_name) {
  EXPECT_EQ(ctk({"hook", "future-hook", "--x"}).code, 0);
}

// An installed toolkit with a low-level runtime that says how it was called.
struct Installed {
  TempDir dir;
  fs::path folder = dir.path() / "toolkit";
  Installed() {
    EXPECT_TRUE(make_dirs(folder / ".config/nvidia-container-runtime"));
    EXPECT_TRUE(make_dirs(dir.path() / "kernel/proc"));
    fs::copy_file(std::string(BUILD_ROOT) + "/bin/nvidia-container-runtime",
                  folder / "nvidia-container-runtime");
    EXPECT_TRUE(write_file_atomic(dir.path() / "runc", "#!/bin/sh\necho \"$@\"\n", 0755));
    config("runtimes = [\"" + (dir.path() / "runc").string() + "\"]");
    modules("");
  }
  void config(const std::string& text) {
    EXPECT_TRUE(write_file_atomic(folder / ".config/nvidia-container-runtime/config.toml",
                                  "[nvidia-container-runtime]\nmode = \"cdi\"\n" + text + "\n"));
  }
  void modules(const std::string& text) {
    EXPECT_TRUE(write_file_atomic(dir.path() / "kernel/proc/modules", text));
  }
  ExitState run(std::vector<std::string> args) {
    args.insert(args.begin(), (folder / "nvidia-container-runtime").string());
    return run_command(
               {.argv = std::move(args),
                .env = {"PATH=/usr/bin:/bin", "GPUOP_KERNEL_ROOT=" + (dir.path() / "kernel").string()}},
               20s)
        .value();
  }
};

TEST(container_toolkit, case49_without_the_driver_the_low_level_runtime_runs_alone) {
  Installed installed;
  installed.modules("nvidia_uvm 1 0 - Live\n");
  auto ran = installed.run({"--root", "/r", "create", "--bundle", "/nowhere", "id"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "--root /r create --bundle /nowhere id\n");
  EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1);
  installed.modules("nvidia 1 0 - Live\n");
  ran = installed.run({"create", "--bundle", "/nowhere", "id"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_HAS(ran.err, "/nowhere/config.json");
}

TEST(container_toolkit, case36_a_broken_configuration_does_not_block_delete) {
  Installed installed;
  installed.config("runtimes = 3");
  auto created = installed.run({"create", "id"});
  EXPECT_EQ(created.code, 1);
  EXPECT_HAS(created.err, "runtimes: wrong type");
  // Whatever low-level runtime this machine has or not: the configuration is not what stops it.
  EXPECT_EQ(installed.run({"delete", "id"}).err.find("wrong type"), std::string::npos);
}

}  // namespace
}  // namespace gpuop

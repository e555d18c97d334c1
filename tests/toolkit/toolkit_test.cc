#include "toolkit/toolkit.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "cdi/registry.h"
#include "shim/config.h"
#include "shim/facts.h"
#include "tests/node_fixture.h"
#include "toolkit/restart.h"

namespace gpuop::toolkit {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

void put(const fs::path& path, std::string_view content = "x", mode_t mode = 0644) {
  ASSERT_TRUE(make_dirs(path.parent_path()));
  ASSERT_TRUE(write_file_atomic(path, content, mode));
}

// A node's folders: host root with a driver, the engine's configuration, our programs.
class Node {
 public:
  Node() {
    put(path("host/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14"));
    put(path("host/usr/bin/nvidia-smi"), "#!", 0755);
    for (auto name : {"nvidia-container-runtime", "nvidia-cdi-hook", "nvidia-container-runtime-hook"})
      put(path("src") / name, name, 0755);
    put(path("host/dev/null"));  // replaced by a device where tests may make one
    options.engine = "containerd";
    options.root = path("usr/local/nvidia");
    options.source = path("src");
    options.pid_file = path("run/toolkit.pid");
    options.driver_ready = path("validations/driver-ready");
    options.cdi_output_dir = path("cdi").string();
    options.cdi_enabled = true;
    options.create_device_nodes = "none";
    options.config = path("etc/config.toml");
    options.drop_in = path("etc/conf.d/99-nvidia.toml");
    options.drop_in_host_path = "/etc/containerd/conf.d/99-nvidia.toml";
    options.socket = path("sock/containerd.sock");
    options.restart_mode = "none";
    options.set_as_default = false;
    options.runtime.mode = "cdi";
    options.runtime.default_kind = "management.nvidia.com/gpu";
  }
  fs::path path(const fs::path& inner) const { return dir_.path() / inner; }
  bool make_nodes() {
    return make_dirs(path("host/dev")).has_value() &&
           mknod(path("host/dev/nvidiactl").c_str(), S_IFCHR | 0666, makedev(195, 255)) == 0;
  }
  void driver_ready(std::string_view root = "/") {
    hardware::DriverReady facts{true, std::string(root), path("host").string(), std::string(root),
                                path("host").string()};
    put(options.driver_ready, hardware::format_driver_ready(facts));
  }
  Options options;

 private:
  TempDir dir_;
};

TEST(container_toolkit, case46_a_running_instance_keeps_its_pid_file) {
  Node node;
  Loop loop;
  auto first = Toolkit::create(loop, node.options);
  ASSERT_TRUE(first) << first.error().text();
  std::string before = read_file(node.options.pid_file).value();
  EXPECT_EQ(before, std::to_string(getpid()) + "\n");
  auto second = Toolkit::create(loop, node.options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kBusy);
  EXPECT_EQ(read_file(node.options.pid_file).value(), before);
  (*first)->release();
  EXPECT_FALSE(file_exists(node.options.pid_file));
}

TEST(container_toolkit, case47_set_up_is_taken_back) {
  Node node;
  if (!node.make_nodes()) GTEST_SKIP() << "device nodes cannot be made here";
  node.driver_ready();
  node.options.configured = {node.path("own/run/runtime-configured"), node.path("gates/.configured")};
  Loop loop;
  auto tool = Toolkit::create(loop, node.options);
  ASSERT_TRUE(tool);
  // Of an earlier container.
  ASSERT_TRUE(make_dirs(node.path("gates")));
  ASSERT_TRUE(write_file_atomic(node.options.configured[1], "old"));
  EXPECT_FALSE(file_exists(node.options.configured[0]));
  auto done = (*tool)->set_up();
  ASSERT_TRUE(done) << done.error().text();
  for (const fs::path& file : node.options.configured) EXPECT_EQ(read_file(file).value(), "") << file;
  fs::path folder = node.options.root / "toolkit";
  for (auto name : {"nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-toolkit",
                    "nvidia-cdi-hook"}) {
    EXPECT_TRUE(file_exists(folder / name)) << name;
  }
  auto config = shim::load_config(runtime_config_file(folder));
  ASSERT_TRUE(config);
  EXPECT_EQ(config->mode, "cdi");
  EXPECT_EQ(config->default_kind, "management.nvidia.com/gpu");
  EXPECT_EQ(config->ctk_path, (folder / "nvidia-ctk").string());
  auto registry = cdi::Registry::load({node.path("cdi")});
  EXPECT_EQ(registry.device_names(), std::vector<std::string>{"management.nvidia.com/gpu=all"});
  EXPECT_HAS(read_file(node.options.config).value(), "imports = [\"/etc/containerd/conf.d/*.toml\"]");
  EXPECT_TRUE(file_exists(node.options.drop_in));

  ASSERT_TRUE((*tool)->clean_up());
  EXPECT_FALSE(file_exists(node.options.config));
  EXPECT_FALSE(file_exists(node.options.drop_in));
  EXPECT_FALSE(file_exists(node.options.pid_file));
  for (const fs::path& file : node.options.configured) EXPECT_FALSE(file_exists(file)) << file;
  EXPECT_TRUE(file_exists(folder / "nvidia-container-runtime")) << "running containers need it";
}

TEST(container_toolkit, case47_a_signal_before_the_driver_is_a_clean_end) {
  Node node;
  Loop loop;
  auto tool = Toolkit::create(loop, node.options);
  ASSERT_TRUE(tool);
  loop.post([&] { loop.stop(); });
  auto done = (*tool)->set_up();
  ASSERT_FALSE(done);
  EXPECT_TRUE(loop.stopped());
  (*tool)->release();
  EXPECT_FALSE(file_exists(node.options.pid_file));
}

TEST(container_toolkit, case48_the_runtime_is_never_missing_while_it_is_replaced) {
  TempDir dir;
  fs::path folder = dir.path() / "toolkit";
  auto source = [&](const std::string& text) {
    for (auto name : {"nvidia-container-runtime", "nvidia-cdi-hook", "nvidia-container-runtime-hook"}) {
      put(dir.path() / text / name, text, 0755);
    }
    return dir.path() / text;
  };
  fs::path one = source("one");
  fs::path two = source("two");
  ASSERT_TRUE(install_programs(one, folder));
  std::atomic<bool> stop = false;
  std::atomic<int> missing = 0;
  std::atomic<int> calls = 0;
  std::thread caller([&] {
    while (!stop) {
      for (auto name :
           {"nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-toolkit"}) {
        if (access((folder / name).c_str(), X_OK) != 0) ++missing;
        ++calls;
      }
    }
  });
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(install_programs(i % 2 != 0 ? one : two, folder));
  while (calls < 100) std::this_thread::yield();
  stop = true;
  caller.join();
  EXPECT_EQ(missing, 0);
}

TEST(toolkit, a_second_run_writes_nothing) {
  Node node;
  if (!node.make_nodes()) GTEST_SKIP() << "device nodes cannot be made here";
  node.driver_ready();
  Loop loop;
  auto run = [&] {
    auto tool = Toolkit::create(loop, node.options);
    ASSERT_TRUE(tool);
    ASSERT_TRUE((*tool)->set_up());
    (*tool)->release();
  };
  auto stamp = [&] {
    std::string text;
    for (const auto& entry : fs::recursive_directory_iterator(node.path("."))) {
      struct stat info{};
      lstat(entry.path().c_str(), &info);
      if (S_ISREG(info.st_mode)) text += entry.path().string() + " " + std::to_string(info.st_ino) + "\n";
    }
    return text;
  };
  run();
  std::string first = stamp();
  run();
  EXPECT_EQ(stamp(), first);
}

TEST(toolkit, a_driver_that_moves_is_followed) {
  Node node;
  if (!node.make_nodes()) GTEST_SKIP() << "device nodes cannot be made here";
  node.driver_ready();
  Loop loop;
  auto tool = Toolkit::create(loop, node.options);
  ASSERT_TRUE(tool);
  ASSERT_TRUE((*tool)->set_up());
  fs::path spec = node.path("cdi/management.nvidia.com-gpu.yaml");
  auto moved = [&] {
    return read_file(spec).value_or("").find("/run/nvidia/driver/usr/lib") != std::string::npos;
  };
  EXPECT_FALSE(moved());
  loop.post([&] { node.driver_ready("/run/nvidia/driver"); });
  Handle deadline = loop.after(5s, [&] { loop.stop(); });
  std::function<void()> check = [&] { moved() ? loop.stop() : loop.post(check); };
  loop.post(check);
  ASSERT_TRUE((*tool)->serve());
  EXPECT_TRUE(moved());
}

TEST(toolkit, no_driver_files_is_an_error_that_says_where) {
  Node node;
  ASSERT_TRUE(remove_file(node.path("host/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14")));
  node.driver_ready();
  Loop loop;
  auto tool = Toolkit::create(loop, node.options);
  ASSERT_TRUE(tool);
  auto done = (*tool)->set_up();
  ASSERT_FALSE(done);
  EXPECT_HAS(done.error().text(), node.path("host").string());
}

inline constexpr char kL4[] = "L4";

// Facts come from the hardware: here with a fake driver beneath the root.
class toolkit_facts : public NodeFixture<kL4, 2> {
 protected:
  std::vector<std::string> gpus() const {
    std::vector<std::string> uuids;
    auto facts = shim::read_facts(node_files_.path("run/facts.json"));
    if (!facts) return uuids;
    for (const auto& gpu : facts->gpus) uuids.push_back(gpu.uuid);
    return uuids;
  }
  // Serves until the facts name exactly these.
  bool serves_until(Loop& loop, Toolkit& tool, const std::vector<std::string>& wanted) {
    Handle deadline = loop.after(5s, [&] { loop.stop(); });
    std::function<void()> check = [&] { gpus() == wanted ? loop.stop() : loop.post(check); };
    loop.post(check);
    return tool.serve() && gpus() == wanted;
  }
  Node node_files_;
};

TEST_F(toolkit_facts, follow_gpus_that_were_lost_at_the_start) {
  hardware::DriverReady ready{true, driver().string(), driver().string(), driver().string(),
                              driver().string()};
  put(node_files_.options.driver_ready, hardware::format_driver_ready(ready));
  node_files_.options.device_rescan_interval = 20ms;
  fault(-1, {"lost"});
  Loop loop;
  auto tool = Toolkit::create(loop, node_files_.options);
  ASSERT_TRUE(tool) << tool.error().text();
  auto done = (*tool)->set_up();
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_TRUE(gpus().empty());
  loop.post([&] { fault(1, {"recover"}); });
  EXPECT_TRUE(serves_until(loop, **tool, {uuids_[1]}));
  EXPECT_TRUE((*tool)->clean_up());
}

TEST_F(toolkit_facts, follow_the_last_lost_gpu) {
  hardware::DriverReady ready{true, driver().string(), driver().string(), driver().string(),
                              driver().string()};
  put(node_files_.options.driver_ready, hardware::format_driver_ready(ready));
  node_files_.options.device_rescan_interval = 0ms;  // the device node is the event
  fault(1, {"lost"});
  ASSERT_TRUE(remove_file(driver() / "dev/nvidia1"));
  Loop loop;
  auto tool = Toolkit::create(loop, node_files_.options);
  ASSERT_TRUE(tool) << tool.error().text();
  auto done = (*tool)->set_up();
  ASSERT_TRUE(done) << done.error().text();
  EXPECT_EQ(gpus(), std::vector{uuids_[0]});
  loop.post([&] {
    fault(1, {"recover"});
    ASSERT_TRUE(sim::make_device_nodes(kernel(), driver() / "dev"));
  });
  EXPECT_TRUE(serves_until(loop, **tool, uuids_));
  EXPECT_TRUE((*tool)->clean_up());
}

inline constexpr char kGb200[] = "GB200";

class toolkit_mig : public NodeFixture<kGb200, 1> {
 protected:
  Node node_files_;
};

// Whoever makes the instances asks for all GPUs through the runtime, and needs the driver.
TEST_F(toolkit_mig, a_board_without_instances_leaves_the_driver) {
  hardware::DriverReady ready{true, driver().string(), driver().string(), driver().string(),
                              driver().string()};
  put(node_files_.options.driver_ready, hardware::format_driver_ready(ready));
  change([](sim::State& state) { state.gpus[0].live.mig_current = state.gpus[0].live.mig_pending = 1; });
  Loop loop;
  auto tool = Toolkit::create(loop, node_files_.options);
  ASSERT_TRUE(tool) << tool.error().text();
  auto done = (*tool)->set_up();
  ASSERT_TRUE(done) << done.error().text();
  auto facts = shim::read_facts(node_files_.path("run/facts.json"));
  ASSERT_TRUE(facts) << facts.error().text();
  ASSERT_TRUE(facts->specs.contains("gpu"));
  const cdi::Spec& spec = facts->specs.at("gpu");
  std::vector<std::string> names;
  for (const auto& device : spec.devices) {
    names.push_back(device.name);
    EXPECT_EQ(device.edits.env, std::vector<std::string>{"NVCT_EMPTY_DEVICE="});
    EXPECT_TRUE(device.edits.device_nodes.empty());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"none", "all"}));
  EXPECT_FALSE(spec.edits.mounts.empty());
  EXPECT_TRUE((*tool)->clean_up());
}

}  // namespace
}  // namespace gpuop::toolkit

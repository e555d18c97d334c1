// A vGPU host among a fleet's nodes: what its /sys and NVML show, and what writing there does.
#include "base/process.h"
#include "cluster/fleet/control.h"
#include "demo_fleet.h"

namespace gpuop {
namespace {

class vgpu : public DemoFleet {
 protected:
  // A program of the node, in the node's mount namespace; its output.
  std::string on_node(const std::string& node, std::vector<std::string> argv) {
    const std::string pid = root_of(node).parent_path().filename();
    argv.insert(argv.begin(), {"/usr/bin/nsenter", "-t", pid, "-m", "--"});
    Command command{std::move(argv), {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}};
    const auto done = run_command(command, 20s);
    EXPECT_TRUE(done) << done.error().text();
    if (!done) return {};
    EXPECT_EQ(done->code, 0) << done->out << done->err;
    return done->out;
  }
  std::string shell(const std::string& node, const std::string& script) {
    return on_node(node, {"/bin/sh", "-c", script});
  }
};

TEST_F(vgpu, hosts_show_devices_and_take_writes) {
  bring_up(
      "nodes: [{name: t4, gpus: {model: T4}, vgpuHost: true, driver: preinstalled}, "
      "{name: l40s, kernel: 6.8.0-60-generic, gpus: {model: L40S}, vgpuHost: true, driver: preinstalled}, "
      "{name: l4, gpus: {model: L4}, driver: preinstalled}]");
  ASSERT_FALSE(HasFatalFailure());
  // NVML says what the driver is for.
  for (const auto& [node, mode] :
       std::map<std::string, std::string>{{"t4", "Host VGPU"}, {"l40s", "Host VGPU"}, {"l4", "None"}}) {
    EXPECT_NE(on_node(node, {"nvidia-smi", "-q"}).find(": " + mode + "\n"), std::string::npos) << node;
  }
  EXPECT_FALSE(file_exists(root_of("l4") / "sys/class/mdev_bus"));

  // Turing: mediated devices of the board itself.
  const std::string uuid = "6b2ab1d4-4d6b-4a1b-9b1e-0c4a7f2f3a01";
  shell("t4", "cd /sys/class/mdev_bus/*/mdev_supported_types/nvidia-233 && echo " + uuid + " > create");
  const fs::path device = root_of("t4") / "sys/bus/mdev/devices" / uuid;
  ASSERT_TRUE(wait([&] { return file_exists(device); }, 10s)) << logs();
  EXPECT_EQ(shell("t4", "cat /sys/bus/mdev/devices/*/mdev_type/name"), "GRID T4-8Q\n");

  // Later boards on a newer kernel: the driver's files on virtual functions.
  const std::string first = "$(ls -d /sys/bus/pci/devices/*/nvidia/current_vgpu_type | head -1)";
  shell("l40s", "echo 1561 > " + first);
  const std::string nothing = "ID : vGPU Name\n";
  auto creatable = [&](int line) {
    return shell("l40s", "cat $(ls -d /sys/bus/pci/devices/*/nvidia/creatable_vgpu_types | sed -n " +
                             std::to_string(line) + "p)");
  };
  ASSERT_TRUE(wait([&] { return creatable(1) == nothing; }, 10s)) << creatable(1) << logs();
  EXPECT_EQ(creatable(2), nothing + "1561 : NVIDIA L40S-24Q\n");

  // What it runs in comes back when it is killed, and with the node.
  const auto processes = cluster::list_fleet_processes(state_);
  ASSERT_TRUE(processes);
  int killed = 0;
  for (const auto& info : *processes) {
    if (info.role == "vgpus" && info.node == "t4") killed += ::kill(info.pid, SIGKILL) == 0 ? 1 : 0;
  }
  EXPECT_EQ(killed, 1);
  shell("t4", "echo 1 > /sys/bus/mdev/devices/" + uuid + "/remove");
  EXPECT_TRUE(wait([&] { return !file_exists(device); }, 10s)) << logs();
  const auto rebooted = cluster::send_node_event(loop_, state_, "l40s", {});
  ASSERT_TRUE(rebooted) << rebooted.error().text() << logs();
  EXPECT_EQ(shell("l40s", "cat " + first), "0\n");
  shell("l40s", "echo 1561 > " + first);
  EXPECT_TRUE(wait([&] { return creatable(1) == nothing; }, 10s)) << creatable(1) << logs();
}

}  // namespace
}  // namespace gpuop

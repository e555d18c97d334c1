// Nodes whose GPUs go to virtual machines (operands-driver-validator.md §4.2).
#include "validate/machines.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/files.h"
#include "base/http_server.h"
#include "base/text.h"
#include "kube/transport.h"
#include "validate/validator.h"

namespace gpuop::validate {
namespace {

constexpr const char* kGpu0 = "0000:3b:00.0";
constexpr const char* kGpu1 = "0000:86:00.0";

class operands_driver_validator : public ::testing::Test {
 protected:
  operands_driver_validator() {
    ::setenv("GPUOP_KERNEL_ROOT", kernel().c_str(), 1);
    put(kernel() / "proc/sys/kernel/osrelease", "6.8.0-60-generic\n");
    put(kernel() / "proc/modules", "");
    options.node = "n1";
    options.output_dir = dir_.path() / "gates";
    options.driver.host = dir_.path() / "host";
    options.driver.install_dir_ctr = dir_.path() / "driver";
    options.driver.status_dir = options.output_dir;
    options.client = &client_;
    EXPECT_TRUE(make_dirs(options.driver.host));
    EXPECT_TRUE(make_dirs(options.driver.install_dir_ctr));
    EXPECT_TRUE(make_dirs(options.output_dir));
  }
  ~operands_driver_validator() override { ::unsetenv("GPUOP_KERNEL_ROOT"); }

  static void put(const fs::path& path, std::string_view text, mode_t mode = 0644) {
    ASSERT_TRUE(make_dirs(path.parent_path()));
    ASSERT_TRUE(write_file_atomic(path, text, mode));
  }
  fs::path kernel() const { return dir_.path() / "kernel"; }
  fs::path function(const std::string& address) const { return kernel() / "sys/bus/pci/devices" / address; }
  void gpu(const std::string& address, const std::string& driver, int group = 0) {
    put(function(address) / "vendor", "0x10de\n");
    put(function(address) / "device", "0x2330\n");
    put(function(address) / "class", "0x030200\n");
    put(function(address) / "modalias", "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00\n");
    if (!driver.empty()) {
      EXPECT_TRUE(make_symlink_atomic("../../../drivers/" + driver, function(address) / "driver"));
    }
    if (group > 0) {
      EXPECT_TRUE(
          make_symlink_atomic("../../../groups/" + std::to_string(group), function(address) / "iommu_group"));
    }
  }
  void functions(const std::string& address, int enabled, int all) {
    put(function(address) / "sriov_numvfs", std::to_string(enabled) + "\n");
    put(function(address) / "sriov_totalvfs", std::to_string(all) + "\n");
  }
  // The error's text; "" when it passed.
  std::string run(const std::string& component) {
    options.component = component;
    const auto done = validate::run(*loop_, options);
    return done ? "" : done.error().text();
  }
  std::string gates() const {
    auto names = list_dir(options.output_dir);
    EXPECT_TRUE(names);
    return names ? join(*names, " ") : "";
  }
  std::string workload_type() const {
    auto text = read_file(options.output_dir / "workload-type");
    return text ? *text : "none";
  }
  void answer(const HttpRequest& request, const std::shared_ptr<HttpResponder>& out) {
    ++reads;
    EXPECT_EQ(request.method + " " + request.path, "GET /api/v1/nodes/n1");
    if (status != 200)
      return out->send(HttpResponse::text(
          status,
          R"({"kind":"Status","reason":"Forbidden","message":"nodes \"n1\" is forbidden","code":403})",
          "application/json"));
    const Json node = JsonObject{{"metadata", JsonObject{{"name", "n1"}, {"labels", labels}}}};
    out->send(HttpResponse::text(200, to_text(node), "application/json"));
  }
  void workload(std::string_view value) { labels["nvidia.com/gpu.workload.config"] = value; }

  TempDir dir_;
  std::unique_ptr<Loop> loop_ = Loop::make_virtual(*parse_time("2026-01-01T00:00:00Z"));
  std::shared_ptr<kube::Transport> transport_ = kube::make_memory_transport(
      *loop_, [this](HttpRequest request, std::shared_ptr<HttpResponder> out) { answer(request, out); });
  kube::Client client_{*loop_, transport_};
  ValidatorOptions options;
  JsonObject labels;
  int reads = 0, status = 200;
};

TEST_F(operands_driver_validator, case02_components_of_a_node_need_its_name) {
  options.node.clear();
  for (const char* component : {"vfio-pci", "vgpu-manager", "vgpu-devices", "cc-manager"})
    EXPECT_EQ(run(component), "invalid -n <node-name> flag: must not be empty") << component;
  EXPECT_EQ(reads, 0);
}

TEST_F(operands_driver_validator, case18_workload_of_the_node) {
  gpu(kGpu0, "nvidia");
  put(options.output_dir / "vfio-pci-ready", "");
  workload("container");
  EXPECT_EQ(run("vfio-pci"), "");
  EXPECT_EQ(workload_type(), "container\n");
  EXPECT_EQ(gates(), "workload-type") << "its own gate of an earlier time is gone";
  for (const char* component : {"vgpu-manager", "vgpu-devices"}) EXPECT_EQ(run(component), "");
  EXPECT_EQ(gates(), "workload-type");

  workload("bogus");
  EXPECT_NE(run("vfio-pci"), "");
  EXPECT_EQ(workload_type(), "vm-passthrough\n");
  options.default_workload = "container";
  EXPECT_EQ(run("vfio-pci"), "");
  EXPECT_EQ(workload_type(), "container\n");
  options.default_workload = "vm";
  EXPECT_EQ(workload_of(Json(JsonObject{}), "vm"), "vm-passthrough");
}

TEST_F(operands_driver_validator, case19_gpu_that_vfio_does_not_have) {
  workload("vm-passthrough");
  gpu(kGpu0, "vfio-pci", 11);
  gpu(kGpu1, "nvidia", 12);
  EXPECT_EQ(run("vfio-pci"),
            "check that VFIO has the GPUs: GPU '0000:86:00.0' has the driver 'nvidia' instead of 'vfio-pci' "
            "(IOMMU group 12)");
  EXPECT_EQ(gates(), "workload-type");
  gpu(kGpu1, "vfio-pci", 12);
  EXPECT_EQ(run("vfio-pci"), "");
  EXPECT_EQ(gates(), "vfio-pci-ready workload-type");
}

TEST_F(operands_driver_validator, vfio_of_a_board_with_a_variant_is_that_variant) {
  workload("vm-passthrough");
  gpu(kGpu0, "vfio-pci", 3);
  // In a container the modules are the host's.
  put(options.driver.host / "lib/modules/6.8.0-60-generic/modules.alias",
      "alias vfio_pci:v000010DEd00002330sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci\n");
  EXPECT_NE(run("vfio-pci").find("'vfio-pci' instead of 'nvgrace_gpu_vfio_pci'"), std::string::npos);
  gpu(kGpu0, "nvgrace-gpu-vfio-pci", 3);
  EXPECT_EQ(run("vfio-pci"), "");
}

TEST_F(operands_driver_validator, vfio_needs_a_gpu_and_does_not_count_virtual_functions) {
  workload("vm-passthrough");
  EXPECT_EQ(run("vfio-pci"), "check that VFIO has the GPUs: no NVIDIA GPU found under /sys/bus/pci/devices");
  gpu(kGpu0, "");
  EXPECT_NE(run("vfio-pci").find("has no driver instead of 'vfio-pci' (in no IOMMU group: "),
            std::string::npos);
  gpu(kGpu0, "vfio-pci");
  gpu("0000:3b:00.4", "nvidia");
  ASSERT_TRUE(make_symlink_atomic("../0000:3b:00.0", function("0000:3b:00.4") / "physfn"));
  EXPECT_EQ(run("vfio-pci"), "");
}

TEST_F(operands_driver_validator, vfio_waits_until_the_gpus_are_bound_or_the_node_is_for_something_else) {
  workload("vm-passthrough");
  gpu(kGpu0, "nvidia", 4);
  options.with_wait = true;
  std::vector<std::string> told;
  options.waiting = [&](bool failing, const std::string& why) {
    EXPECT_TRUE(failing);
    told.push_back(why);
  };
  Handle later = loop_->after(8min, [this] { gpu(kGpu0, "vfio-pci", 4); });
  EXPECT_EQ(run("vfio-pci"), "");
  EXPECT_EQ(gates(), "vfio-pci-ready workload-type");
  EXPECT_EQ(told.size(), 1u) << "the same reason is told once";
  EXPECT_LE(reads, 10) << "the node is not asked for at each look";

  gpu(kGpu0, "nvidia", 4);
  later = loop_->after(5min, [this] { workload("vm-vgpu"); });
  EXPECT_EQ(run("vfio-pci"), "");
  EXPECT_EQ(gates(), "workload-type");
  EXPECT_EQ(workload_type(), "vm-vgpu\n");
}

TEST_F(operands_driver_validator, node_that_may_not_be_read_is_said_at_once) {
  status = 403;
  options.with_wait = true;
  const std::string text = run("vfio-pci");
  EXPECT_NE(text.find("read node 'n1': nodes \"n1\" is forbidden"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("must allow it to get nodes")) << text;
  EXPECT_EQ(gates(), "");
}

TEST_F(operands_driver_validator, case20_virtual_functions_of_all_boards) {
  gpu(kGpu0, "nvidia");
  gpu(kGpu1, "nvidia");
  functions(kGpu0, 16, 16);
  functions(kGpu1, 0, 16);
  const auto half = check_vgpu_parents();
  ASSERT_FALSE(half);
  EXPECT_EQ(
      half.error().text(),
      "check that the GPUs can be shared: GPU '0000:86:00.0' has 0 of its 16 virtual functions enabled");
  functions(kGpu1, 8, 8);
  EXPECT_TRUE(check_vgpu_parents());
  functions(kGpu0, 0, 16);
  functions(kGpu1, 0, 8);
  EXPECT_FALSE(check_vgpu_parents());
  ASSERT_TRUE(make_dirs(kernel() / "sys/class/mdev_bus" / kGpu0));
  EXPECT_TRUE(check_vgpu_parents());
}

TEST_F(operands_driver_validator, case20_driver_of_the_host_or_of_the_container) {
  std::vector<Command> commands;
  ExitState state;
  const RunSmi smi = [&](const Command& command) -> Result<ExitState> {
    commands.push_back(command);
    return state;
  };
  const auto nowhere = find_vgpu_manager(options.driver, smi);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code(), Code::kNotFound);
  put(options.driver.install_dir_ctr / "usr/bin/nvidia-smi", "x", 0755);
  EXPECT_EQ(*find_vgpu_manager(options.driver, smi), false);
  EXPECT_EQ(commands.back().chroot, options.driver.install_dir_ctr);
  EXPECT_EQ(commands.back().argv.at(0), "/usr/bin/nvidia-smi");
  put(options.driver.host / "usr/bin/nvidia-smi", "x", 0755);
  EXPECT_EQ(*find_vgpu_manager(options.driver, smi), true);
  EXPECT_EQ(commands.back().chroot, options.driver.host);
  state.code = 9;
  const auto broken = find_vgpu_manager(options.driver, smi);
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().text().find("nvidia-smi of the host: it ended with code 9"), std::string::npos);
}

TEST_F(operands_driver_validator, vgpus_are_mediated_devices_or_functions_with_a_type) {
  workload("vm-vgpu");
  gpu(kGpu0, "nvidia");
  const std::string none = run("vgpu-devices");
  EXPECT_TRUE(
      none.starts_with("check that there are vGPUs: no mediated device of NVIDIA under "
                       "/sys/bus/mdev/devices"))
      << none;
  const auto mediated = [this](const std::string& parent, const std::string& uuid) {
    ASSERT_TRUE(make_dirs(kernel() / "sys/bus/mdev/devices"));
    ASSERT_TRUE(make_dirs(function(parent) / uuid));
    ASSERT_TRUE(make_symlink_atomic("../../pci/devices/" + parent + "/" + uuid,
                                    kernel() / "sys/bus/mdev/devices" / uuid));
  };
  put(function("0000:00:02.0") / "vendor", "0x8086\n");
  mediated("0000:00:02.0", "6b2ab1d4-4d6b-4a1b-9b1e-0c4a7f2f3a01");
  EXPECT_NE(run("vgpu-devices"), "") << "another maker's";
  mediated(kGpu0, "6b2ab1d4-4d6b-4a1b-9b1e-0c4a7f2f3a02");
  EXPECT_EQ(run("vgpu-devices"), "");
  EXPECT_EQ(gates(), "vgpu-devices-ready workload-type");

  ASSERT_TRUE(remove_file(kernel() / "sys/bus/mdev/devices/6b2ab1d4-4d6b-4a1b-9b1e-0c4a7f2f3a02"));
  put(function(kGpu0) / "nvidia/current_vgpu_type", "0\n");
  EXPECT_NE(run("vgpu-devices"), "");
  EXPECT_EQ(gates(), "workload-type");
  options.with_wait = true;
  const Handle later =
      loop_->after(1h, [this] { put(function(kGpu0) / "nvidia/current_vgpu_type", "1561\n"); });
  EXPECT_EQ(run("vgpu-devices"), "");
}

TEST_F(operands_driver_validator, cc_manager_only_where_the_node_is_capable) {
  EXPECT_EQ(run("cc-manager"), "");
  EXPECT_EQ(gates(), "cc-manager-ready") << "and the workload is not its to say";
  labels["nvidia.com/cc.capable"] = "true";
  EXPECT_NE(run("cc-manager").find(".cc-manager-ctr-ready' is not there yet"), std::string::npos);
  EXPECT_EQ(gates(), "");
  put(options.output_dir / ".cc-manager-ctr-ready", "");
  EXPECT_EQ(run("cc-manager"), "");
}

// A real loop, for the folder's events; far quicker than a look each 5 s.
TEST_F(operands_driver_validator, cc_manager_is_waited_for_by_the_events_of_its_file) {
  Loop loop;
  kube::Client client(loop, kube::make_memory_transport(
                                loop, [this](HttpRequest request, std::shared_ptr<HttpResponder> out) {
                                  answer(request, out);
                                }));
  options.client = &client;
  options.component = "cc-manager";
  options.with_wait = true;
  options.interval = 1h;
  labels["nvidia.com/cc.capable"] = "true";
  const Handle later = loop.after(20ms, [this] { put(options.output_dir / ".cc-manager-ctr-ready", ""); });
  const auto done = validate::run(loop, options);
  EXPECT_TRUE(done) << done.error().text();
  EXPECT_TRUE(file_exists(options.output_dir / "cc-manager-ready"));
}

}  // namespace
}  // namespace gpuop::validate

// The fake NVML, loaded as its users load it: from a driver root, by dlopen.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "driver_root.h"
#include "sim/nvml/nvml_abi.h"
#include "sim/state/mig.h"

namespace gpuop::sim {
namespace {

using namespace nvml;  // NOLINT

using Handle = void*;

class Nvml {
 public:
  explicit Nvml(const DriverRoot& root) {
    handle_ = dlopen(root.library("libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) ADD_FAILURE() << dlerror();
  }
  template <class... Args>
  int call(const char* symbol, Args... args) {
    auto f = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, symbol));
    if (!f) return ADD_FAILURE() << symbol, kFunctionNotFound;
    return f(args...);
  }
  Handle device(unsigned index) {
    Handle h = nullptr;
    EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", index, &h), 0);
    return h;
  }
  std::string text(const char* symbol, Handle device) {
    char out[96] = {};
    EXPECT_EQ(call(symbol, device, static_cast<char*>(out), 96u), 0) << symbol;
    return out;
  }

 private:
  void* handle_ = nullptr;
};

TEST(sim_tree, nvml_inventory_of_eight_a100) {
  DriverRoot root("A100-80", 8);
  Nvml n(root);
  unsigned count = 0;
  EXPECT_EQ(n.call("nvmlDeviceGetCount_v2", &count), kUninitialized);
  ASSERT_EQ(n.call("nvmlInit_v2"), 0);
  ASSERT_EQ(n.call("nvmlDeviceGetCount_v2", &count), 0);
  EXPECT_EQ(count, 8u);
  Handle d = n.device(3);
  EXPECT_EQ(n.text("nvmlDeviceGetName", d), "NVIDIA A100-SXM4-80GB");
  std::string uuid = n.text("nvmlDeviceGetUUID", d);
  EXPECT_EQ(uuid.size(), 40u);
  Handle same = nullptr;
  ASSERT_EQ(n.call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &same), 0);
  EXPECT_EQ(same, d);
  unsigned minor = 0;
  ASSERT_EQ(n.call("nvmlDeviceGetMinorNumber", d, &minor), 0);
  EXPECT_EQ(minor, 3u);
  PciInfo pci{};
  ASSERT_EQ(n.call("nvmlDeviceGetPciInfo_v3", d, &pci), 0);
  EXPECT_STREQ(pci.bus_id, "00000000:4E:00.0");
  EXPECT_EQ(pci.pci_device_id, 0x20B210DEu);
  ASSERT_EQ(n.call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(pci.bus_id), &same), 0);
  EXPECT_EQ(same, d);
  Memory m{};
  ASSERT_EQ(n.call("nvmlDeviceGetMemoryInfo", d, &m), 0);
  EXPECT_EQ(m.total, 81920ull << 20);
  EXPECT_EQ(m.used + m.free, m.total);
  MemoryV2 v2{};
  EXPECT_EQ(n.call("nvmlDeviceGetMemoryInfo_v2", d, &v2), kArgumentVersionMismatch);
  v2.version = 0x02000028;
  ASSERT_EQ(n.call("nvmlDeviceGetMemoryInfo_v2", d, &v2), 0);
  EXPECT_EQ(v2.used + v2.free + v2.reserved, v2.total);
  char text[80];
  ASSERT_EQ(n.call("nvmlSystemGetDriverVersion", static_cast<char*>(text), 80u), 0);
  EXPECT_STREQ(text, kDriver);
  EXPECT_EQ(n.call("nvmlSystemGetDriverVersion", static_cast<char*>(text), 4u), kInsufficientSize);
  EXPECT_EQ(n.call("nvmlDeviceGetHandleByIndex_v2", 8u, &same), kInvalidArgument);
  EXPECT_EQ(n.call("nvmlDeviceGetName", static_cast<Handle>(text), static_cast<char*>(text), 80u),
            kInvalidArgument);
  EXPECT_EQ(n.call("nvmlShutdown"), 0);
  EXPECT_EQ(n.call("nvmlShutdown"), kUninitialized);
}

TEST(sim_tree, nvml_offers_boards_whose_nodes_exist) {
  DriverRoot root("H200", 8);
  root.keep_devices({"nvidiactl", "nvidia2", "nvidia5"});
  Nvml n(root);
  ASSERT_EQ(n.call("nvmlInit_v2"), 0);
  unsigned count = 0, minor = 0;
  ASSERT_EQ(n.call("nvmlDeviceGetCount_v2", &count), 0);
  ASSERT_EQ(count, 2u);
  ASSERT_EQ(n.call("nvmlDeviceGetMinorNumber", n.device(1), &minor), 0);
  EXPECT_EQ(minor, 5u);
  root.keep_devices({});
  ASSERT_EQ(n.call("nvmlShutdown"), 0);
  EXPECT_EQ(n.call("nvmlInit_v2"), kUnknown);
}

TEST(sim_tree, nvml_needs_the_module_and_its_version) {
  DriverRoot root("L4", 1);
  ASSERT_TRUE(unload_module(root.kernel(), "nvidia-modeset"));
  ASSERT_TRUE(unload_module(root.kernel(), "nvidia-uvm"));
  ASSERT_TRUE(unload_module(root.kernel(), "nvidia"));
  {
    Nvml n(root);
    EXPECT_EQ(n.call("nvmlInit_v2"), kDriverNotLoaded);
  }
  root.change([](State& s) {
    s.driver_loaded = 1;
    std::strcpy(s.kernel_driver, "570.1.2");
  });
  Nvml n(root);
  EXPECT_EQ(n.call("nvmlInit_v2"), kVersionMismatch);
}

TEST(sim_tree, nvml_forced_codes) {
  DriverRoot root("L4", 2);
  root.change([](State& s) {
    s.forced_count = 1;
    std::strcpy(s.forced[0].symbol, "nvmlDeviceGetMemoryInfo");
    s.forced[0].code = 999;
    s.forced[0].after = 1;
  });
  Nvml n(root);
  ASSERT_EQ(n.call("nvmlInit_v2"), 0);
  Memory m{};
  EXPECT_EQ(n.call("nvmlDeviceGetMemoryInfo", n.device(0), &m), 0);
  EXPECT_EQ(n.call("nvmlDeviceGetMemoryInfo", n.device(0), &m), 999);
  root.change([](State& s) { s.gpus[1].live.lost = 1; });
  Handle h = nullptr;
  EXPECT_EQ(n.call("nvmlDeviceGetHandleByIndex_v2", 1u, &h), kGpuIsLost);
}

TEST(sim_tree, nvml_events_cross_processes) {
  DriverRoot root("A100", 2);
  Nvml n(root);
  ASSERT_EQ(n.call("nvmlInit_v2"), 0);
  Handle set = nullptr;
  ASSERT_EQ(n.call("nvmlEventSetCreate", &set), 0);
  unsigned long long mask = 0;
  ASSERT_EQ(n.call("nvmlDeviceGetSupportedEventTypes", n.device(1), &mask), 0);
  EXPECT_EQ(mask & 0xBu, 0xBu);
  ASSERT_EQ(n.call("nvmlDeviceRegisterEvents", n.device(1), 0x8ull, set), 0);
  EventData e{};
  EXPECT_EQ(n.call("nvmlEventSetWait_v2", set, &e, 1u), kTimeout);
  pid_t child = fork();
  if (child == 0) {
    root.change([](State& s) {
      push_event(s, 0, 0x8, 31);  // not registered
      push_event(s, 1, 0x8, 79);
    });
    _exit(0);
  }
  ASSERT_EQ(n.call("nvmlEventSetWait_v2", set, &e, 10000u), 0);
  EXPECT_EQ(e.device, n.device(1));
  EXPECT_EQ(e.data, 79u);
  EXPECT_EQ(e.gi, 0xFFFFFFFFu);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(n.call("nvmlEventSetWait_v2", set, &e, 1u), kTimeout);
  EXPECT_EQ(n.call("nvmlEventSetFree", set), 0);
}

TEST(sim_tree, nvml_mig_on_a100_waits_for_reset_and_on_h200_does_not) {
  DriverRoot a100("A100", 1), h200("H200", 1);
  int activation = -1;
  unsigned current = 9, pending = 9;
  Nvml a(a100);
  ASSERT_EQ(a.call("nvmlInit_v2"), 0);
  ASSERT_EQ(a.call("nvmlDeviceSetMigMode", a.device(0), 1u, &activation), 0);
  ASSERT_EQ(a.call("nvmlDeviceGetMigMode", a.device(0), &current, &pending), 0);
  EXPECT_EQ(current, 0u);
  EXPECT_EQ(pending, 1u);
  Nvml h(h200);
  ASSERT_EQ(h.call("nvmlInit_v2"), 0);
  ASSERT_EQ(h.call("nvmlDeviceSetMigMode", h.device(0), 1u, &activation), 0);
  ASSERT_EQ(h.call("nvmlDeviceGetMigMode", h.device(0), &current, &pending), 0);
  EXPECT_EQ(current, 1u);

  // Profile 9 is 3g: two fit, a third does not.
  Handle gi = nullptr, ci = nullptr, none = nullptr, d = h.device(0);
  ASSERT_EQ(h.call("nvmlDeviceCreateGpuInstance", d, 9u, &gi), 0);
  ASSERT_EQ(h.call("nvmlGpuInstanceCreateComputeInstance", gi, 2u, &ci), 0);
  ASSERT_EQ(h.call("nvmlDeviceCreateGpuInstance", d, 9u, &none), 0);
  EXPECT_EQ(h.call("nvmlDeviceCreateGpuInstance", d, 9u, &none), kInsufficientResources);
  EXPECT_EQ(h.call("nvmlGpuInstanceDestroy", gi), kInUse);
  Handle mig = nullptr;
  ASSERT_EQ(h.call("nvmlDeviceGetMigDeviceHandleByIndex", d, 0u, &mig), 0);
  EXPECT_EQ(h.text("nvmlDeviceGetName", mig), "NVIDIA H200 MIG 3g.71gb");
  DeviceAttributes attributes{};
  ASSERT_EQ(h.call("nvmlDeviceGetAttributes_v2", mig, &attributes), 0);
  EXPECT_EQ(attributes.memory_mib, 71168u);
  EXPECT_EQ(attributes.multiprocessors, 60u);
  EXPECT_EQ(attributes.gi_slices, 3u);
  EXPECT_EQ(h.call("nvmlDeviceSetMigMode", d, 0u, &activation), kInUse);
  ASSERT_EQ(h.call("nvmlComputeInstanceDestroy", ci), 0);
  EXPECT_EQ(h.call("nvmlGpuInstanceDestroy", gi), 0);
  EXPECT_EQ(h.call("nvmlDeviceGetMigDeviceHandleByIndex", d, 0u, &mig), kNotFound);
}

TEST(sim_tree, nvml_sensors_follow_load) {
  DriverRoot root("A100", 1);
  Nvml n(root);
  ASSERT_EQ(n.call("nvmlInit_v2"), 0);
  Handle d = n.device(0);
  Utilization idle{}, busy{};
  unsigned idle_power = 0, busy_power = 0, temperature = 0;
  ASSERT_EQ(n.call("nvmlDeviceGetUtilizationRates", d, &idle), 0);
  EXPECT_EQ(idle.gpu, 0u);
  ASSERT_EQ(n.call("nvmlDeviceGetPowerUsage", d, &idle_power), 0);
  root.change([](State& s) { s.gpus[0].live.load_percent = 80; });
  ASSERT_EQ(n.call("nvmlDeviceGetUtilizationRates", d, &busy), 0);
  EXPECT_NEAR(busy.gpu, 80, 5);
  ASSERT_EQ(n.call("nvmlDeviceGetPowerUsage", d, &busy_power), 0);
  EXPECT_GT(busy_power, idle_power * 3);
  ASSERT_EQ(n.call("nvmlDeviceGetTemperature", d, 0, &temperature), 0);
  EXPECT_GT(temperature, 50u);
  FieldValue fields[4]{};
  fields[0].field = 83;
  fields[1].field = 138;
  fields[1].scope = 0xFFFFFFFF;
  fields[2].field = 230;
  fields[3].field = 9999;
  ASSERT_EQ(n.call("nvmlDeviceGetFieldValues", d, 4, static_cast<FieldValue*>(fields)), 0);
  EXPECT_EQ(fields[0].result, 0);
  EXPECT_EQ(fields[1].type, static_cast<unsigned>(kUlonglong));
  EXPECT_EQ(fields[2].value.u, 0u);
  EXPECT_EQ(fields[3].result, kNotSupported);
}

}  // namespace
}  // namespace gpuop::sim

// The fake NVML, loaded as its users load it: from a driver root, by dlopen.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "driver_root.h"
#include "sim/nvml/nvml_abi.h"
#include "sim/state/contexts.h"
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

TEST(sim_tree, nvml_of_a_driver_lacks_what_is_hidden_or_newer) {
  DriverRoot root("L4", 1, 7, {"nvmlDeviceGetMigMode"});
  void* library = dlopen(root.library("libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  EXPECT_EQ(dlsym(library, "nvmlDeviceGetMigMode"), nullptr);
  EXPECT_NE(dlsym(library, "nvmlDeviceSetMigMode"), nullptr);
  EXPECT_NE(dlsym(library, "nvmlDeviceGetAddressingMode"), nullptr);
  DriverInstall older = root.install();
  older.version = "550.54.14";
  older.user_space_only = true;
  ASSERT_TRUE(install_driver(older));
  void* old =
      dlopen((state_path(root.root(), older.version).parent_path() / "libnvidia-ml.so.550.54.14").c_str(),
             RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(old) << dlerror();
  EXPECT_EQ(dlsym(old, "nvmlDeviceGetAddressingMode"), nullptr);  // came with 575
  EXPECT_NE(dlsym(old, "nvmlDeviceGetGpuFabricInfoV"), nullptr);
  EXPECT_NE(dlsym(library, "nvmlInit_v2"), nullptr);
}

TEST(sim_tree, nvml_a_board_that_needs_a_reset_says_so) {
  DriverRoot root("H100", 2);
  Nvml n(root);
  ASSERT_EQ(n.call("nvmlInit_v2"), 0);
  Handle d = n.device(1), other = nullptr;
  root.change([](State& s) { s.gpus[1].live.lost = 2; });
  EXPECT_EQ(n.call("nvmlDeviceGetHandleByIndex_v2", 1u, &other), kResetRequired);
  unsigned power = 0;
  EXPECT_EQ(n.call("nvmlDeviceGetPowerUsage", d, &power), kResetRequired);
  EXPECT_EQ(n.call("nvmlDeviceGetPowerUsage", n.device(0), &power), 0);
}

TEST(sim_tree, nvml_fabric_of_a_rack_is_one_cluster) {
  auto info_of = [](const DriverRoot& root) {
    Nvml n(root);
    EXPECT_EQ(n.call("nvmlInit_v2"), 0);
    FabricInfoV3 info{};
    info.version = version_word(sizeof info, 3);
    EXPECT_EQ(n.call("nvmlDeviceGetGpuFabricInfoV", n.device(0), static_cast<void*>(&info)), 0);
    return info;
  };
  DriverRoot one("GB200", 4, 1), two("GB200", 4, 2), chassis("H200", 1);
  FabricInfoV3 a = info_of(one), b = info_of(two), c = info_of(chassis);
  EXPECT_EQ(a.state, 3);
  EXPECT_EQ(a.health_summary, 1);
  EXPECT_NE(std::string(reinterpret_cast<char*>(a.cluster), 16), std::string(16, '\0'));
  EXPECT_EQ(std::memcmp(a.cluster, b.cluster, 16), 0);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(c.cluster), 16), std::string(16, '\0'));
  EXPECT_EQ(c.state, 3);
}

TEST(sim_tree, nvml_instances_show_in_the_kernels_capabilities) {
  DriverRoot root("H100", 1);
  setenv("GPUOP_KERNEL_ROOT", root.kernel().c_str(), 1);
  fs::path mig = root.kernel() / "proc/driver/nvidia/capabilities/gpu0/mig";
  {
    Nvml n(root);
    ASSERT_EQ(n.call("nvmlInit_v2"), 0);
    int activation = -1;
    Handle d = n.device(0), gi = nullptr, ci = nullptr;
    ASSERT_EQ(n.call("nvmlDeviceSetMigMode", d, 1u, &activation), 0);
    ASSERT_EQ(n.call("nvmlDeviceCreateGpuInstance", d, 19u, &gi), 0);
    ASSERT_EQ(n.call("nvmlGpuInstanceCreateComputeInstance", gi, 0u, &ci), 0);
    GiInfo info{};
    ASSERT_EQ(n.call("nvmlGpuInstanceGetInfo", gi, &info), 0);
    fs::path access = mig / ("gi" + std::to_string(info.id)) / "ci0/access";
    std::string minor = std::to_string(ci_cap_minor(0, info.id, 0));
    EXPECT_EQ(*read_file(access),
              "DeviceFileMinor: " + minor + "\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
    EXPECT_TRUE(file_exists(root.dev() / ("nvidia-caps/nvidia-cap" + minor)));
    ASSERT_EQ(n.call("nvmlComputeInstanceDestroy", ci), 0);
    EXPECT_FALSE(file_exists(access));
    ASSERT_EQ(n.call("nvmlGpuInstanceDestroy", gi), 0);
    EXPECT_TRUE(list_dir(mig)->empty());
  }
  unsetenv("GPUOP_KERNEL_ROOT");
}

// A process with a context on one board, until it goes.
class Client {
 public:
  Client(const DriverRoot& root, std::uint32_t gpu, std::uint64_t memory_mib) {
    int ready[2] = {}, leave[2] = {};
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(leave), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(leave[1]);
      StateFile file;
      bool held = file.open((root.kernel() / "sim/state").string()) == StateFault::kNone &&
                  claim_context(file.fd(), {.gpu = gpu, .memory_mib = memory_mib}) >= 0;
      char word = held ? 'y' : 'n';
      held = write(ready[1], &word, 1) == 1 && read(leave[0], &word, 1) == 0 && held;
      _exit(held ? 0 : 1);
    }
    close(ready[1]);
    close(leave[0]);
    leave_ = leave[1];
    char word = 0;
    EXPECT_EQ(read(ready[0], &word, 1), 1);
    EXPECT_EQ(word, 'y');
    close(ready[0]);
  }
  ~Client() {
    close(leave_);
    waitpid(pid_, nullptr, 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }

 private:
  pid_t pid_ = -1;
  int leave_ = -1;
};

// Asked with too little room, then with enough, of `size` bytes a process; what is behind is another's.
void expect_list_of(Nvml& n, const std::string& symbol, std::size_t size, Handle d,
                    const std::set<std::uint32_t>& pids) {
  std::vector<unsigned char> bytes(512, 0xA5), guard = bytes;
  unsigned count = static_cast<unsigned>(pids.size()) - 1;
  EXPECT_EQ(n.call(symbol.c_str(), d, &count, static_cast<void*>(bytes.data())), kInsufficientSize) << symbol;
  EXPECT_EQ(count, pids.size()) << symbol;
  EXPECT_EQ(bytes, guard) << symbol;
  ASSERT_EQ(n.call(symbol.c_str(), d, &count, static_cast<void*>(bytes.data())), 0) << symbol;
  ASSERT_EQ(count, pids.size()) << symbol;
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < count; ++i) {
    ProcessInfoV1 p{};
    std::memcpy(&p, bytes.data() + i * size, sizeof p);
    seen.insert(p.pid);
    EXPECT_EQ(p.memory, 300u << 20) << symbol;
  }
  EXPECT_EQ(seen, pids) << symbol;
  for (std::size_t i = count * size; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], 0xA5) << symbol << " " << i;
}

TEST(sim_tree, nvml_process_lists_have_the_layout_of_their_version) {
  DriverRoot root("L4", 2);
  Client a(root, 0, 300), b(root, 0, 300), elsewhere(root, 1, 200);
  Nvml n(root);
  ASSERT_EQ(n.call("nvmlInit_v2"), 0);
  Handle d = n.device(0);
  const std::string name = "nvmlDeviceGetComputeRunningProcesses";
  expect_list_of(n, name, 16, d, {a.pid(), b.pid()});
  expect_list_of(n, name + "_v2", 24, d, {a.pid(), b.pid()});
  expect_list_of(n, name + "_v3", 24, d, {a.pid(), b.pid()});
  ProcessDetail details[3];
  std::memset(static_cast<void*>(details), 0xA5, sizeof details);
  ProcessDetailList list{version_word(sizeof list, 1), 0, 2, details};
  ASSERT_EQ(n.call("nvmlDeviceGetRunningProcessDetailList", d, &list), 0);
  EXPECT_EQ(list.count, 2u);
  EXPECT_EQ(details[1].gi, kNone);
  EXPECT_EQ(details[2].pid, 0xA5A5A5A5u);
}

// Upstream's tools go on over boards without instances when these answer so, and stop otherwise.
TEST(sim_tree, nvml_boards_with_mig_off_have_holes_where_instances_could_be) {
  for (const char* model : {"A100", "H100", "GB200"}) {
    DriverRoot root(model, 1);
    Nvml n(root);
    ASSERT_EQ(n.call("nvmlInit_v2"), 0);
    Handle mig = nullptr;
    unsigned most = 9;
    EXPECT_EQ(n.call("nvmlDeviceGetMaxMigDeviceCount", n.device(0), &most), 0) << model;
    EXPECT_EQ(most, 0u) << model;
    EXPECT_EQ(n.call("nvmlDeviceGetMigDeviceHandleByIndex", n.device(0), 0u, &mig), kNotFound) << model;
    root.change([](State& s) { s.gpus[0].live.mig_current = s.gpus[0].live.mig_pending = 1; });
    EXPECT_EQ(n.call("nvmlDeviceGetMaxMigDeviceCount", n.device(0), &most), 0) << model;
    EXPECT_GE(most, 4u) << model;
    for (unsigned i = 0; i < most; ++i)
      EXPECT_EQ(n.call("nvmlDeviceGetMigDeviceHandleByIndex", n.device(0), i, &mig), kNotFound) << model;
    EXPECT_EQ(n.call("nvmlDeviceGetMigDeviceHandleByIndex", n.device(0), most, &mig), kInvalidArgument);
  }
}

// Processes that partition boards at the same time, as a tool that works on all of them does.
TEST(sim_tree, nvml_capabilities_follow_instances_that_several_processes_make) {
  constexpr int kBoards = 4;
  DriverRoot root("H100", kBoards);
  setenv("GPUOP_KERNEL_ROOT", root.kernel().c_str(), 1);
  root.change([](State& s) {
    for (int g = 0; g < kBoards; ++g) s.gpus[g].live.mig_current = s.gpus[g].live.mig_pending = 1;
  });
  std::vector<pid_t> children;
  for (unsigned g = 0; g < kBoards; ++g) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    Nvml n(root);
    bool good = n.call("nvmlInit_v2") == 0;
    for (int i = 0; good && i < 7; ++i) {
      Handle gi = nullptr, ci = nullptr;
      good = n.call("nvmlDeviceCreateGpuInstance", n.device(g), 19u, &gi) == 0 &&
             n.call("nvmlGpuInstanceCreateComputeInstance", gi, 0u, &ci) == 0;
      if (good && i == 6)
        good = n.call("nvmlComputeInstanceDestroy", ci) == 0 && n.call("nvmlGpuInstanceDestroy", gi) == 0;
    }
    _exit(good && !HasFailure() ? 0 : 1);
  }
  for (pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (int g = 0; g < kBoards; ++g) {
    fs::path mig = root.kernel() / "proc/driver/nvidia/capabilities" / ("gpu" + std::to_string(g)) / "mig";
    auto instances = list_dir(mig);
    ASSERT_TRUE(instances);
    EXPECT_EQ(instances->size(), 6u) << g;
    for (const auto& gi : *instances) {
      EXPECT_TRUE(file_exists(mig / gi / "access")) << gi;
      EXPECT_TRUE(file_exists(mig / gi / "ci0/access")) << gi;
    }
  }
  unsetenv("GPUOP_KERNEL_ROOT");
}

}  // namespace
}  // namespace gpuop::sim

// The fake CUDA driver, loaded as its users load it: from a driver root, by dlopen.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver_root.h"
#include "kernels.h"
#include "sim/cuda/cuda_abi.h"
#include "sim/state/contexts.h"

namespace gpuop::sim {
namespace {

using namespace cuda;  // NOLINT

class Cuda {
 public:
  explicit Cuda(const DriverRoot& root) {
    handle_ = dlopen(root.library("libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) ADD_FAILURE() << dlerror();
  }
  template <class... Args>
  int call(const char* symbol, Args... args) {
    auto f = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, symbol));
    if (!f) return ADD_FAILURE() << symbol, 999;
    return f(args...);
  }
  void* start(int device = 0) {
    void* context = nullptr;
    EXPECT_EQ(call("cuInit", 0u), 0);
    EXPECT_EQ(call("cuCtxCreate_v2", &context, 0u, device), 0);
    return context;
  }
  // Runs vectorAdd of `text` over n elements; the sum of the results.
  double add(const std::string& text, int n) {
    void *module = nullptr, *function = nullptr;
    EXPECT_EQ(call("cuModuleLoadData", &module, text.c_str()), 0);
    EXPECT_EQ(call("cuModuleGetFunction", &function, module, "vectorAdd"), 0);
    std::vector<float> a(static_cast<std::size_t>(n), 1.5f), b(static_cast<std::size_t>(n), 2.0f),
        c(a.size());
    DevicePtr p[3];
    for (auto& d : p) EXPECT_EQ(call("cuMemAlloc_v2", &d, a.size() * 4), 0);
    EXPECT_EQ(call("cuMemcpyHtoD_v2", p[0], static_cast<const void*>(a.data()), a.size() * 4), 0);
    EXPECT_EQ(call("cuMemcpyHtoD_v2", p[1], static_cast<const void*>(b.data()), b.size() * 4), 0);
    void* parameters[] = {&p[0], &p[1], &p[2], &n};
    EXPECT_EQ(
        call("cuLaunchKernel", function, static_cast<unsigned>(n + 255) / 256, 1u, 1u, 256u, 1u, 1u, 0u,
             static_cast<void*>(nullptr), static_cast<void**>(parameters), static_cast<void**>(nullptr)),
        0);
    EXPECT_EQ(call("cuCtxSynchronize"), 0);
    EXPECT_EQ(call("cuMemcpyDtoH_v2", static_cast<void*>(c.data()), p[2], c.size() * 4), 0);
    for (auto d : p) EXPECT_EQ(call("cuMemFree_v2", d), 0);
    EXPECT_EQ(call("cuModuleUnload", module), 0);
    double sum = 0;
    for (float f : c) sum += f;
    return sum;
  }
  void* handle_ = nullptr;
};

TEST(sim_tree, cuda_vector_add_and_a_changed_constant) {
  DriverRoot root("A100", 2);
  Cuda c(root);
  int count = 0, major = 0;
  EXPECT_EQ(c.call("cuDeviceGetCount", &count), kNotInitialized);
  void* context = c.start();
  ASSERT_EQ(c.call("cuDeviceGetCount", &count), 0);
  EXPECT_EQ(count, 2);
  ASSERT_EQ(c.call("cuDeviceGetAttribute", &major, static_cast<int>(kCcMajor), 0), 0);
  EXPECT_EQ(major, 8);
  EXPECT_DOUBLE_EQ(c.add(vector_add(), 5000), 5000 * 3.5);
  EXPECT_DOUBLE_EQ(c.add(vector_add("0f3F800000"), 5000), 5000 * 4.5);
  EXPECT_EQ(c.call("cuCtxDestroy_v2", context), 0);
  EXPECT_EQ(c.call("cuCtxSynchronize"), kInvalidContext);
}

TEST(sim_tree, cuda_refuses_bad_ptx_with_a_log) {
  DriverRoot root("L4", 1);
  Cuda c(root);
  c.start();
  std::string bad = vector_add();
  bad.replace(bad.find("mad.lo.s32"), 10, "mud.lo.s32");
  char log[256] = {};
  int options[] = {kErrorLogBuffer, kErrorLogSize};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};  // NOLINT: the API's way to hand in a number
  void* module = nullptr;
  EXPECT_EQ(c.call("cuModuleLoadDataEx", &module, bad.c_str(), 2u, static_cast<int*>(options),
                   static_cast<void**>(values)),
            kInvalidPtx);
  EXPECT_NE(std::string(log).find("'mud'"), std::string::npos);
  std::string newer = vector_add();
  newer.replace(newer.find("sm_52"), 5, "sm_90");
  EXPECT_EQ(c.call("cuModuleLoadData", &module, newer.c_str()), kNoBinaryForGpu);
  newer = vector_add();
  newer.replace(newer.find("7.0"), 3, "9.9");
  EXPECT_EQ(c.call("cuModuleLoadData", &module, newer.c_str()), kUnsupportedPtxVersion);
  const char *name = nullptr, *text = nullptr;
  EXPECT_EQ(c.call("cuGetErrorName", 218, &name), 0);
  EXPECT_EQ(c.call("cuGetErrorString", 100, &text), 0);
  EXPECT_STREQ(name, "CUDA_ERROR_INVALID_PTX");
  EXPECT_STREQ(text, "no CUDA-capable device is detected");
}

TEST(sim_tree, cuda_illegal_address_sticks) {
  DriverRoot root("A100", 1);
  Cuda c(root);
  void* first = c.start();
  void *module = nullptr, *function = nullptr;
  ASSERT_EQ(c.call("cuModuleLoadData", &module, vector_add().c_str()), 0);
  ASSERT_EQ(c.call("cuModuleGetFunction", &function, module, "vectorAdd"), 0);
  EXPECT_EQ(c.call("cuModuleGetFunction", &function, module, "other"), kNotFound);
  DevicePtr p = 0;
  ASSERT_EQ(c.call("cuMemAlloc_v2", &p, std::size_t{1024}), 0);
  int n = 257;  // one element more than there is
  void* parameters[] = {&p, &p, &p, &n};
  EXPECT_EQ(c.call("cuLaunchKernel", function, 2u, 1u, 1u, 256u, 1u, 1u, 0u, static_cast<void*>(nullptr),
                   static_cast<void**>(parameters), static_cast<void**>(nullptr)),
            0);
  EXPECT_EQ(c.call("cuCtxSynchronize"), kIllegalAddress);
  EXPECT_EQ(c.call("cuMemAlloc_v2", &p, std::size_t{16}), kIllegalAddress);
  EXPECT_EQ(c.call("cuCtxDestroy_v2", first), 0);
  c.start();
  EXPECT_EQ(c.call("cuMemAlloc_v2", &p, std::size_t{16}), 0);
}

TEST(sim_tree, cuda_memory_is_the_boards) {
  DriverRoot root("L4", 1);
  Cuda c(root);
  c.start();
  std::size_t left = 0, total = 0;
  ASSERT_EQ(c.call("cuMemGetInfo_v2", &left, &total), 0);
  EXPECT_EQ(total, (23034ull - 449) << 20);
  DevicePtr p = 0;
  EXPECT_EQ(c.call("cuMemAlloc_v2", &p, total), kOutOfMemory);
  ASSERT_EQ(c.call("cuMemAlloc_v2", &p, std::size_t{10} << 30), 0);
  std::size_t now = 0;
  ASSERT_EQ(c.call("cuMemGetInfo_v2", &now, &total), 0);
  EXPECT_EQ(left - now, 10ull << 30);
  // Other processes see this one as a client of the board, by its pid and its memory.
  int out[2];
  ASSERT_EQ(pipe(out), 0);
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    StateFile file;
    bool ok = file.open((root.kernel() / "sim/state").string()) == StateFault::kNone;
    auto all = list_contexts(file.fd());
    ok = ok && all.size() == 1 && all[0].pid == parent && all[0].memory_mib == 10240 + 418 && all[0].gpu == 0;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(sim_tree, cuda_sees_device_nodes_then_visible_devices) {
  DriverRoot root("H200", 4);
  root.keep_devices({"nvidiactl", "nvidia-uvm", "nvidia1", "nvidia3"});
  {
    Cuda c(root);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    ASSERT_EQ(c.call("cuInit", 0u), 0);
    unsetenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    char bus[32] = {};
    ASSERT_EQ(c.call("cuDeviceGetCount", &count), 0);
    EXPECT_EQ(count, 1);
    ASSERT_EQ(c.call("cuDeviceGetPCIBusId", static_cast<char*>(bus), 32, 0), 0);
    EXPECT_STREQ(bus, "0000:5D:00.0");
  }
  DriverRoot no_uvm("L4", 1), no_board("L4", 1), no_driver("L4", 1);
  no_uvm.keep_devices({"nvidiactl", "nvidia0"});
  EXPECT_EQ(Cuda(no_uvm).call("cuInit", 0u), kUnknown);
  no_board.keep_devices({"nvidiactl", "nvidia-uvm"});
  EXPECT_EQ(Cuda(no_board).call("cuInit", 0u), kNoDevice);
  no_driver.change([](State& s) { s.driver_loaded = 0; });
  EXPECT_EQ(Cuda(no_driver).call("cuInit", 0u), kNoDevice);
}

TEST(sim_tree, cuda_proc_address_gives_the_newest_form) {
  DriverRoot root("L4", 1);
  Cuda c(root);
  void *f = nullptr, *expected = dlsym(c.handle_, "cuMemAlloc_v2");
  ASSERT_EQ(c.call("cuGetProcAddress", "cuMemAlloc", &f, 12000, std::uint64_t{0}), 0);
  EXPECT_EQ(f, expected);
  EXPECT_EQ(c.call("cuGetProcAddress", "cuFrobnicate", &f, 12000, std::uint64_t{0}), kNotFound);
}

TEST(sim_tree, cuda_attributes_follow_the_board) {
  struct Want {
    const char* model;
    int shared_optin, threads, blocks, double_ratio, clusters, pageable, bus_width;
  };
  for (const Want& w :
       {Want{"T4", 65536, 1024, 16, 32, 0, 0, 256}, Want{"A100-40", 166912, 2048, 32, 2, 0, 0, 5120},
        Want{"L40S", 101376, 1536, 24, 64, 0, 0, 384}, Want{"H100", 232448, 2048, 32, 2, 1, 0, 5120},
        Want{"GB200", 232448, 2048, 32, 2, 1, 1, 8192},
        Want{"RTX-PRO-6000", 101376, 1536, 24, 64, 1, 0, 512}}) {
    DriverRoot root(w.model, 1);
    Cuda c(root);
    ASSERT_EQ(c.call("cuInit", 0u), 0);
    auto attribute = [&](int number) {
      int v = -1;
      EXPECT_EQ(c.call("cuDeviceGetAttribute", &v, number, 0), 0) << w.model << " " << number;
      return v;
    };
    EXPECT_EQ(attribute(97), w.shared_optin) << w.model;
    EXPECT_EQ(attribute(39), w.threads) << w.model;
    EXPECT_EQ(attribute(106), w.blocks) << w.model;
    EXPECT_EQ(attribute(87), w.double_ratio) << w.model;
    EXPECT_EQ(attribute(120), w.clusters) << w.model;
    EXPECT_EQ(attribute(88), w.pageable) << w.model;
    EXPECT_EQ(attribute(37), w.bus_width) << w.model;
    for (int number = 1; number <= 147; ++number) attribute(number);
    int none = 0;
    EXPECT_EQ(c.call("cuDeviceGetAttribute", &none, 0, 0), kInvalidValue);
    EXPECT_EQ(c.call("cuDeviceGetAttribute", &none, 4000, 0), kInvalidValue);
  }
}

TEST(sim_tree, cuda_peers_pointers_pools_and_occupancy) {
  DriverRoot root("A100", 2);
  Cuda c(root);
  c.start();
  int can = 0, rank = -1;
  ASSERT_EQ(c.call("cuDeviceCanAccessPeer", &can, 0, 1), 0);
  EXPECT_EQ(can, 1);
  ASSERT_EQ(c.call("cuDeviceGetP2PAttribute", &rank, 3, 0, 1), 0);
  EXPECT_EQ(rank, 1);  // atomics over NVLink
  void* pool = nullptr;
  ASSERT_EQ(c.call("cuDeviceGetDefaultMemPool", &pool, 0), 0);
  DevicePtr p = 0, base = 0;
  ASSERT_EQ(c.call("cuMemAllocAsync", &p, std::size_t{4096}, static_cast<void*>(nullptr)), 0);
  unsigned kind = 0;
  ASSERT_EQ(c.call("cuPointerGetAttribute", static_cast<void*>(&kind), 2, p + 100), 0);
  EXPECT_EQ(kind, 2u);
  ASSERT_EQ(c.call("cuPointerGetAttribute", static_cast<void*>(&base), 11, p + 100), 0);
  EXPECT_EQ(base, p);
  EXPECT_EQ(c.call("cuPointerGetAttribute", static_cast<void*>(&kind), 2, DevicePtr{64}), kInvalidValue);
  ASSERT_EQ(c.call("cuMemFreeAsync", p, static_cast<void*>(nullptr)), 0);
  void *library = nullptr, *kernel = nullptr, *function = nullptr;
  std::string text = vector_add();
  ASSERT_EQ(c.call("cuLibraryLoadData", &library, static_cast<const void*>(text.c_str()),
                   static_cast<int*>(nullptr), static_cast<void**>(nullptr), 0u, static_cast<int*>(nullptr),
                   static_cast<void**>(nullptr), 0u),
            0);
  ASSERT_EQ(c.call("cuLibraryGetKernel", &kernel, library, "vectorAdd"), 0);
  ASSERT_EQ(c.call("cuKernelGetFunction", &function, kernel), 0);
  int blocks = 0;
  ASSERT_EQ(c.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", &blocks, function, 256, std::size_t{0}), 0);
  EXPECT_EQ(blocks, 8);
  const char* name = nullptr;
  ASSERT_EQ(c.call("cuGetErrorName", 807, &name), 0);
  EXPECT_STREQ(name, "CUDA_ERROR_MPS_SERVER_NOT_READY");
}

}  // namespace
}  // namespace gpuop::sim

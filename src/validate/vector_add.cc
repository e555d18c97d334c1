#include "validate/vector_add.h"

#include <dlfcn.h>

#include <array>
#include <functional>
#include <memory>
#include <vector>

namespace gpuop::validate {
namespace {

// The CUDA driver API's ABI (CUDA driver API reference, v2 entry points where a function has several).
using CuResult = int;
using CuDevice = int;
using CuHandle = void*;
using CuAddress = unsigned long long;

struct Cuda {
  std::shared_ptr<void> library;
  CuResult (*init)(unsigned) = nullptr;
  CuResult (*driver_version)(int*) = nullptr;
  CuResult (*device_count)(int*) = nullptr;
  CuResult (*device_get)(CuDevice*, int) = nullptr;
  CuResult (*device_name)(char*, int, CuDevice) = nullptr;
  CuResult (*context_create)(CuHandle*, unsigned, CuDevice) = nullptr;
  CuResult (*context_destroy)(CuHandle) = nullptr;
  CuResult (*module_load)(CuHandle*, const void*) = nullptr;
  CuResult (*module_unload)(CuHandle) = nullptr;
  CuResult (*module_function)(CuHandle*, CuHandle, const char*) = nullptr;
  CuResult (*allocate)(CuAddress*, std::size_t) = nullptr;
  CuResult (*release)(CuAddress) = nullptr;
  CuResult (*to_device)(CuAddress, const void*, std::size_t) = nullptr;
  CuResult (*to_host)(void*, CuAddress, std::size_t) = nullptr;
  CuResult (*launch)(CuHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuHandle,
                     void**, void**) = nullptr;
  CuResult (*synchronize)() = nullptr;
  CuResult (*error_name)(CuResult, const char**) = nullptr;
  CuResult (*error_string)(CuResult, const char**) = nullptr;

  Result<> check(CuResult code, const char* call) const {
    if (code == 0) return {};
    const char* name = nullptr;
    const char* text = nullptr;
    error_name(code, &name);
    error_string(code, &text);
    return fail(Code::kUnavailable, std::string(call) + ": " +
                                        (name ? name : "error " + std::to_string(code)) +
                                        (text ? ": " + std::string(text) : std::string()));
  }
};

Result<Cuda> open_cuda(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = ::dlerror();
    return fail(Code::kNotFound, "load '" + path + "': " + (why ? why : "unknown error"));
  }
  Cuda cuda;
  cuda.library = std::shared_ptr<void>(handle, [](void* h) { ::dlclose(h); });
  std::string missing;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (!function && missing.empty()) missing = name;
  };
  bind(cuda.init, "cuInit");
  bind(cuda.driver_version, "cuDriverGetVersion");
  bind(cuda.device_count, "cuDeviceGetCount");
  bind(cuda.device_get, "cuDeviceGet");
  bind(cuda.device_name, "cuDeviceGetName");
  bind(cuda.context_create, "cuCtxCreate_v2");
  bind(cuda.context_destroy, "cuCtxDestroy_v2");
  bind(cuda.module_load, "cuModuleLoadData");
  bind(cuda.module_unload, "cuModuleUnload");
  bind(cuda.module_function, "cuModuleGetFunction");
  bind(cuda.allocate, "cuMemAlloc_v2");
  bind(cuda.release, "cuMemFree_v2");
  bind(cuda.to_device, "cuMemcpyHtoD_v2");
  bind(cuda.to_host, "cuMemcpyDtoH_v2");
  bind(cuda.launch, "cuLaunchKernel");
  bind(cuda.synchronize, "cuCtxSynchronize");
  bind(cuda.error_name, "cuGetErrorName");
  bind(cuda.error_string, "cuGetErrorString");
  if (!missing.empty()) return fail(Code::kUnsupported, "load '" + path + "': it has no function " + missing);
  return cuda;
}

// Gives back what was taken, in reverse order, whatever happened in between.
class Undo {
 public:
  ~Undo() {
    for (auto at = steps_.rbegin(); at != steps_.rend(); ++at) (*at)();
  }
  void add(std::function<void()> step) { steps_.push_back(std::move(step)); }

 private:
  std::vector<std::function<void()>> steps_;
};

Result<> compute(const Cuda& cuda, const VectorAddOptions& options, CuDevice device) {
  Undo undo;
  CuHandle context = nullptr;
  TRY(cuda.check(cuda.context_create(&context, 0, device), "cuCtxCreate"));
  undo.add([&] { cuda.context_destroy(context); });
  CuHandle module = nullptr;
  TRY(cuda.check(cuda.module_load(&module, vector_add_ptx().data()), "cuModuleLoadData"));
  undo.add([&] { cuda.module_unload(module); });
  CuHandle function = nullptr;
  TRY(cuda.check(cuda.module_function(&function, module, "vector_add"), "cuModuleGetFunction"));

  const std::uint32_t n = options.elements;
  const std::size_t bytes = n * sizeof(float);
  std::vector<float> a(n);
  std::vector<float> b(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    a[i] = static_cast<float>(i % 1000) * 0.5F;
    b[i] = static_cast<float>(i % 777) * 0.25F;
  }
  std::array<CuAddress, 3> memory{};
  for (auto& address : memory) {
    TRY(cuda.check(cuda.allocate(&address, bytes), "cuMemAlloc"));
    undo.add([&cuda, &address] { cuda.release(address); });
  }
  TRY(cuda.check(cuda.to_device(memory[0], a.data(), bytes), "cuMemcpyHtoD"));
  TRY(cuda.check(cuda.to_device(memory[1], b.data(), bytes), "cuMemcpyHtoD"));
  std::uint32_t count = n;
  std::array<void*, 4> arguments{&memory[0], &memory[1], &memory[2], &count};
  constexpr unsigned kThreads = 256;
  TRY(cuda.check(cuda.launch(function, (n + kThreads - 1) / kThreads, 1, 1, kThreads, 1, 1, 0, nullptr,
                             arguments.data(), nullptr),
                 "cuLaunchKernel"));
  TRY(cuda.check(cuda.synchronize(), "cuCtxSynchronize"));
  std::vector<float> sum(n);
  TRY(cuda.check(cuda.to_host(sum.data(), memory[2], bytes), "cuMemcpyDtoH"));
  for (std::uint32_t i = 0; i < n; ++i) {
    const float want = a[i] + b[i];
    if (sum[i] != want) {
      return fail(Code::kUnknown, "element " + std::to_string(i) + ": the GPU computed " +
                                      std::to_string(sum[i]) + ", the CPU " + std::to_string(want));
    }
  }
  return {};
}

}  // namespace

std::string_view vector_add_ptx() {
  // One thread an element; compute capability 5.0 is the oldest that present drivers run.
  static constexpr std::string_view kPtx = R"(.version 6.0
.target sm_50
.address_size 64

.visible .entry vector_add(
    .param .u64 first,
    .param .u64 second,
    .param .u64 sum,
    .param .u32 count
)
{
    .reg .pred  %outside;
    .reg .b32   %n, %block, %width, %thread, %i;
    .reg .b64   %pa, %pb, %pc, %offset;
    .reg .f32   %x, %y, %z;

    ld.param.u64        %pa, [first];
    ld.param.u64        %pb, [second];
    ld.param.u64        %pc, [sum];
    ld.param.u32        %n, [count];
    mov.u32             %block, %ctaid.x;
    mov.u32             %width, %ntid.x;
    mov.u32             %thread, %tid.x;
    mad.lo.s32          %i, %block, %width, %thread;
    setp.ge.u32         %outside, %i, %n;
    @%outside bra       done;
    cvta.to.global.u64  %pa, %pa;
    cvta.to.global.u64  %pb, %pb;
    cvta.to.global.u64  %pc, %pc;
    mul.wide.u32        %offset, %i, 4;
    add.s64             %pa, %pa, %offset;
    add.s64             %pb, %pb, %offset;
    add.s64             %pc, %pc, %offset;
    ld.global.f32       %x, [%pa];
    ld.global.f32       %y, [%pb];
    add.f32             %z, %x, %y;
    st.global.f32       [%pc], %z;
done:
    ret;
}
)";
  return kPtx;
}

Result<VectorAddResult> vector_add(const VectorAddOptions& options) {
  const Cuda cuda = TRY(open_cuda(options.library));
  VectorAddResult result;
  TRY(cuda.check(cuda.init(0), "cuInit"));
  TRY(cuda.check(cuda.driver_version(&result.driver_version), "cuDriverGetVersion"));
  TRY(cuda.check(cuda.device_count(&result.devices), "cuDeviceGetCount"));
  if (result.devices == 0) return fail(Code::kNotFound, "look for CUDA devices: there are none");
  CuDevice device = 0;
  TRY(cuda.check(cuda.device_get(&device, options.device), "cuDeviceGet"));
  std::array<char, 128> name{};
  TRY(cuda.check(cuda.device_name(name.data(), static_cast<int>(name.size()) - 1, device),
                 "cuDeviceGetName"));
  result.device_name = name.data();
  TRY_IN(compute(cuda, options, device), "add vectors on '" + result.device_name + "'");
  return result;
}

}  // namespace gpuop::validate

// Modules, kernels, streams and events.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <mutex>

#include "sim/cuda/context.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::cuda;  // NOLINT
using CudaContext = gpuop::sim::cuda::Context;

namespace {

// A kernel that runs longer than this many instructions hangs for all that anybody waits.
constexpr std::uint64_t kInstructionLimit = std::uint64_t{1} << 36;

// The log buffers that cuModuleLoadDataEx was given.
struct Logs {
  char *error = nullptr, *info = nullptr;
  std::size_t error_size = 0, info_size = 0;
};

Logs read_options(unsigned count, const int* options, void** values) {
  Logs logs;
  for (unsigned i = 0; i < count && options && values; ++i) {
    auto size = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(values[i]) & 0xFFFFFFFFu);
    if (options[i] == kErrorLogBuffer) logs.error = static_cast<char*>(values[i]);
    if (options[i] == kErrorLogSize) logs.error_size = size;
    if (options[i] == kInfoLogBuffer) logs.info = static_cast<char*>(values[i]);
    if (options[i] == kInfoLogSize) logs.info_size = size;
  }
  if (logs.error && logs.error_size) logs.error[0] = '\0';
  if (logs.info && logs.info_size) logs.info[0] = '\0';
  return logs;
}

// CUDA 12.n reads PTX 8.n, 13.n reads 9.n.
bool version_supported(int cuda, const ptx::Module& m) {
  int major = cuda / 1000 - 4, minor = cuda % 1000 / 10;
  return m.version_major < major || (m.version_major == major && m.version_minor <= minor);
}

int load(CudaContext* context, const char* text, const Logs& logs, LoadedModule** out) {
  auto module = std::make_unique<LoadedModule>();
  module->context = context;
  std::string log;
  auto refuse = [&](int code) {
    if (logs.error && logs.error_size) snprintf(logs.error, logs.error_size, "%s", log.c_str());
    return code;
  };
  // Cubins and fat binaries hold machine code.
  if (memcmp(text,
             "\x7f"
             "ELF",
             4) == 0 ||
      memcmp(text, "\x50\xed\x55\xba", 4) == 0) {
    log = "device code for real hardware cannot run here; embed PTX\n";
    return refuse(kNoBinaryForGpu);
  }
  if (!ptx::parse(text, &module->code, &log)) return refuse(kInvalidPtx);
  const State* state = driver().file.read();
  if (!version_supported(state->cuda_version, module->code)) {
    log = "ptxas fatal   : Unsupported .version " + std::to_string(module->code.version_major) + "." +
          std::to_string(module->code.version_minor) + "\n";
    return refuse(kUnsupportedPtxVersion);
  }
  const Board& b = state->gpus[driver().devices[static_cast<std::size_t>(context->ordinal)].gpu].board;
  if (module->code.target > static_cast<int>(b.cc_major * 10 + b.cc_minor)) {
    log = "ptxas fatal   : SM version of the module is higher than the device's\n";
    return refuse(kNoBinaryForGpu);
  }
  for (ptx::Variable& v : module->code.variables) {
    v.address = context->memory.allocate(std::max<std::size_t>(v.size, 1));
    if (v.address == 0) return kOutOfMemory;
    memcpy(context->memory.at(v.address, v.size), v.initial.data(), v.initial.size());
  }
  ptx::bind_variables(module->code);
  if (logs.info && logs.info_size) {
    snprintf(logs.info, logs.info_size, "ptxas info    : %zu entry functions\n", module->code.kernels.size());
  }
  *out = module.get();
  context->modules[*out] = std::move(module);
  return kSuccess;
}

Function* find_function(CudaContext* context, Function* f) {
  auto it = context->functions.find(f);
  return it == context->functions.end() ? nullptr : it->second.get();
}

// The kernel's parameters, from an array of pointers or from one packed buffer.
bool pack_parameters(const ptx::Kernel& kernel, void** parameters, void** extra, std::string* out) {
  out->assign(kernel.parameter_bytes, '\0');
  if (parameters) {
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
      if (!parameters[i]) return false;
      memcpy(out->data() + kernel.parameters[i].offset, parameters[i], kernel.parameters[i].size);
    }
    return true;
  }
  if (!extra) return kernel.parameters.empty();
  const void* buffer = nullptr;
  std::size_t size = 0;
  for (; *extra; extra += 2) {  // 1: buffer, 2: size, 0: end
    auto key = reinterpret_cast<std::uintptr_t>(*extra);
    if (key == 1)
      buffer = extra[1];
    else if (key == 2)
      size = *static_cast<std::size_t*>(extra[1]);
    else
      return false;
  }
  if (!buffer || size < kernel.parameter_bytes) return false;
  memcpy(out->data(), buffer, kernel.parameter_bytes);
  return true;
}

std::uint64_t steady_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000u + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

CUDA_EXPORT int cuModuleLoadDataEx(LoadedModule** out, const void* image, unsigned count, int* options,
                                   void** values) {
  if (!out || !image) return kInvalidValue;
  CUDA_CONTEXT();
  return load(context, static_cast<const char*>(image), read_options(count, options, values), out);
}
CUDA_EXPORT int cuModuleLoadData(LoadedModule** out, const void* image) {
  return cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}
CUDA_EXPORT int cuModuleLoadFatBinary(LoadedModule** out, const void* image) {
  return cuModuleLoadData(out, image);
}

CUDA_EXPORT int cuModuleLoad(LoadedModule** out, const char* path) {
  if (!out || !path) return kInvalidValue;
  FILE* f = fopen(path, "re");
  if (!f) return kFileNotFound;
  std::string text;
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, f)) > 0 && text.size() < (64u << 20);)
    text.append(buffer, n);
  fclose(f);
  return cuModuleLoadData(out, text.c_str());
}

CUDA_EXPORT int cuModuleUnload(LoadedModule* module) {
  CUDA_CONTEXT();
  auto it = context->modules.find(module);
  if (it == context->modules.end()) return kInvalidHandle;
  for (const ptx::Variable& v : module->code.variables) context->memory.free(v.address);
  std::erase_if(context->functions, [&](const auto& f) { return f.second->module == module; });
  context->modules.erase(it);
  return kSuccess;
}

CUDA_EXPORT int cuModuleGetFunction(Function** out, LoadedModule* module, const char* name) {
  if (!out || !name) return kInvalidValue;
  CUDA_CONTEXT();
  if (!context->modules.contains(module)) return kInvalidHandle;
  for (const ptx::Kernel& kernel : module->code.kernels) {
    if (kernel.name != name) continue;
    for (const auto& [known, f] : context->functions) {
      if (f->kernel == &kernel) {
        *out = known;
        return kSuccess;
      }
    }
    auto f = std::make_unique<Function>(Function{module, &kernel});
    *out = f.get();
    context->functions[*out] = std::move(f);
    return kSuccess;
  }
  return kNotFound;
}

CUDA_EXPORT int cuModuleGetGlobal_v2(DevicePtr* address, std::size_t* size, LoadedModule* module,
                                     const char* name) {
  if (!name) return kInvalidValue;
  CUDA_CONTEXT();
  if (!context->modules.contains(module)) return kInvalidHandle;
  for (const ptx::Variable& v : module->code.variables) {
    if (v.name != name) continue;
    if (address) *address = v.address;
    if (size) *size = v.size;
    return kSuccess;
  }
  return kNotFound;
}

CUDA_EXPORT int cuFuncGetAttribute(int* out, int attribute, Function* function) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  Function* f = find_function(context, function);
  if (!f) return kInvalidHandle;
  switch (attribute) {
    case 0:
      *out = static_cast<int>(f->kernel->max_threads);
      return kSuccess;
    case 1:
      *out = static_cast<int>(f->kernel->shared_bytes);
      return kSuccess;
    case 2:
      *out = 0;
      return kSuccess;
    case 3:
      *out = static_cast<int>(f->kernel->local_bytes);
      return kSuccess;
    case 4:
      *out = static_cast<int>(std::min<std::uint32_t>(f->kernel->registers, 255));
      return kSuccess;
    case 5:
      *out = f->module->code.version_major * 10 + f->module->code.version_minor;
      return kSuccess;
    case 6:
      *out = f->module->code.target;
      return kSuccess;
    default:
      return attribute < 0 || attribute > 15 ? kInvalidValue : (*out = 0, kSuccess);
  }
}

CUDA_EXPORT int cuFuncSetAttribute(Function* function, int, int) {
  CUDA_CONTEXT();
  return find_function(context, function) ? kSuccess : kInvalidHandle;
}

CUDA_EXPORT int cuFuncSetCacheConfig(Function* function, int) {
  CUDA_CONTEXT();
  return find_function(context, function) ? kSuccess : kInvalidHandle;
}

CUDA_EXPORT int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, void*, void** parameters,
                               void** extra) {
  CUDA_CONTEXT();
  Function* f = find_function(context, function);
  if (!f) return kInvalidHandle;
  if (!gx || !gy || !gz || !bx || !by || !bz || gx > 0x7FFFFFFFu || gy > 65535 || gz > 65535)
    return kInvalidValue;
  if (bx > 1024 || by > 1024 || bz > 64 || std::uint64_t{bx} * by * bz > 1024) return kInvalidValue;
  if (bx * by * bz > f->kernel->max_threads) return kLaunchOutOfResources;
  if (shared > (227u << 10) || f->kernel->shared_bytes + shared > (227u << 10)) return kInvalidValue;
  std::string packed;
  if (!pack_parameters(*f->kernel, parameters, extra, &packed)) return kInvalidValue;
  publish(*context, true);
  ptx::Outcome outcome =
      ptx::run(*f->kernel, {gx, gy, gz}, {bx, by, bz}, packed, shared, context->memory, kInstructionLimit);
  publish(*context, false);
  switch (outcome) {
    case ptx::Outcome::kDone:
      return kSuccess;
    case ptx::Outcome::kIllegalAddress:
      context->sticky = kIllegalAddress;
      break;
    case ptx::Outcome::kMisaligned:
      context->sticky = kMisalignedAddress;
      break;
    case ptx::Outcome::kTrap:
      context->sticky = kLaunchFailed;
      break;
    case ptx::Outcome::kTimeout:
      context->sticky = kLaunchTimeout;
      break;
  }
  // A launch itself succeeds; the fault shows at the next call that looks.
  return kSuccess;
}

CUDA_EXPORT int cuStreamCreate(Stream** out, unsigned) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  auto s = std::make_unique<Stream>(Stream{context});
  *out = s.get();
  context->streams[*out] = std::move(s);
  return kSuccess;
}
CUDA_EXPORT int cuStreamCreateWithPriority(Stream** out, unsigned flags, int) {
  return cuStreamCreate(out, flags);
}

CUDA_EXPORT int cuStreamDestroy_v2(Stream* stream) {
  CUDA_CONTEXT();
  return context->streams.erase(stream) ? kSuccess : kInvalidHandle;
}

namespace {
int check_stream(Stream* stream) {
  CUDA_CONTEXT();
  // 0, 1 and 2 are the default streams.
  return reinterpret_cast<std::uintptr_t>(stream) <= 2 || context->streams.contains(stream) ? kSuccess
                                                                                            : kInvalidHandle;
}
}  // namespace

CUDA_EXPORT int cuStreamSynchronize(Stream* stream) {
  return check_stream(stream);
}
CUDA_EXPORT int cuStreamQuery(Stream* stream) {
  return check_stream(stream);
}
CUDA_EXPORT int cuStreamWaitEvent(Stream* stream, CudaEvent*, unsigned) {
  return check_stream(stream);
}

CUDA_EXPORT int cuEventCreate(CudaEvent** out, unsigned) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  auto e = std::make_unique<CudaEvent>();
  e->context = context;
  *out = e.get();
  context->events[*out] = std::move(e);
  return kSuccess;
}

CUDA_EXPORT int cuEventRecord(CudaEvent* event, Stream*) {
  CUDA_CONTEXT();
  if (!context->events.contains(event)) return kInvalidHandle;
  event->recorded = true;
  event->at_ns = steady_ns();
  return kSuccess;
}

CUDA_EXPORT int cuEventSynchronize(CudaEvent* event) {
  CUDA_CONTEXT();
  return context->events.contains(event) ? kSuccess : kInvalidHandle;
}
CUDA_EXPORT int cuEventQuery(CudaEvent* event) {
  return cuEventSynchronize(event);
}

CUDA_EXPORT int cuEventElapsedTime(float* out, CudaEvent* from, CudaEvent* to) {
  if (!out) return kInvalidValue;
  CUDA_CONTEXT();
  if (!context->events.contains(from) || !context->events.contains(to) || !from->recorded || !to->recorded) {
    return kInvalidHandle;
  }
  *out = static_cast<float>(static_cast<double>(to->at_ns - from->at_ns) / 1e6);
  return kSuccess;
}

CUDA_EXPORT int cuEventDestroy_v2(CudaEvent* event) {
  CUDA_CONTEXT();
  return context->events.erase(event) ? kSuccess : kInvalidHandle;
}
CUDA_EXPORT int cuEventDestroy(CudaEvent* event) {
  return cuEventDestroy_v2(event);
}

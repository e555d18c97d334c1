// Contexts, and what lives in them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/cuda/driver.h"
#include "sim/cuda/ptx.h"

namespace gpuop::sim::cuda {

struct Allocation {
  unsigned char* host = nullptr;
  std::size_t size = 0;
};

// Device memory: made-up addresses in front of anonymous pages, so that host code which follows a device
// pointer faults as it would on hardware.
class DeviceMemory : public ptx::Memory {
 public:
  ~DeviceMemory() override;
  // 0 when the host cannot map so much. `managed`: the address is the host's own.
  DevicePtr allocate(std::size_t size, bool managed = false);
  bool free(DevicePtr address);
  unsigned char* at(std::uint64_t address, std::uint64_t size) override;
  // The allocation that `address` lies in.
  bool find(DevicePtr address, DevicePtr* base, std::size_t* size) const;
  std::uint64_t used() const { return used_; }

 private:
  std::map<DevicePtr, Allocation> allocations_;
  DevicePtr next_ = 0x7f0000000000ULL >> 4;  // grows upwards from here
  std::uint64_t used_ = 0;
};

struct Context;

struct LoadedModule {
  ptx::Module code;
  Context* context = nullptr;
};

struct Function {
  LoadedModule* module = nullptr;
  const ptx::Kernel* kernel = nullptr;
};

struct Stream {
  Context* context = nullptr;
};

struct CudaEvent {
  Context* context = nullptr;
  bool recorded = false;
  std::uint64_t at_ns = 0;
};

struct Context {
  int ordinal = 0;
  unsigned flags = 0;
  bool primary = false;
  int slot = -1;          // in the hardware state: what nvidia-smi shows as a process
  int sticky = kSuccess;  // after a device fault every call answers this
  DeviceMemory memory;
  std::map<LoadedModule*, std::unique_ptr<LoadedModule>> modules;
  std::map<Function*, std::unique_ptr<Function>> functions;
  std::map<Stream*, std::unique_ptr<Stream>> streams;
  std::map<CudaEvent*, std::unique_ptr<CudaEvent>> events;
  std::map<void*, std::size_t> host_memory;  // made here …
  std::map<void*, std::size_t> registered;   // … and the program's own
};

struct Contexts {
  std::map<Context*, std::unique_ptr<Context>> all;
  std::map<int, std::pair<Context*, int>> primaries;  // by device: context and references
};
Contexts& contexts();

// Makes a context on a device: a code of CUDA's.
int make_context(int ordinal, unsigned flags, bool primary, Context** out);
void end_context(Context* context);
// Tells the hardware state what the context uses now.
void publish(Context& context, bool busy);

// The calling thread's stack of contexts.
std::vector<Context*>& context_stack();
// The current context, if it is still alive; its sticky fault comes first.
int current_context(Context** out);

}  // namespace gpuop::sim::cuda

// The first lines of a function that needs a current context.
#define CUDA_CONTEXT()                                       \
  std::scoped_lock lock(::gpuop::sim::cuda::driver().mutex); \
  ::gpuop::sim::cuda::Context* context = nullptr;            \
  if (int code = ::gpuop::sim::cuda::current_context(&context)) return code

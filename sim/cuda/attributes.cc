// cuDeviceGetAttribute: what a device of each generation can do.
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "sim/cuda/driver.h"

using namespace gpuop::sim;        // NOLINT: the file defines C symbols only
using namespace gpuop::sim::cuda;  // NOLINT

namespace {

// What follows from the compute capability alone.
struct Generation {
  std::uint32_t major, minor;
  int threads_per_sm, blocks_per_sm, shared_per_sm, shared_optin, reserved_shared, double_ratio;
};
constexpr Generation kGenerations[] = {
    {7, 5, 1024, 16, 64 << 10, 64 << 10, 0, 32},      {8, 0, 2048, 32, 164 << 10, 163 << 10, 1024, 2},
    {8, 9, 1536, 24, 100 << 10, 99 << 10, 1024, 64},  {9, 0, 2048, 32, 228 << 10, 227 << 10, 1024, 2},
    {10, 0, 2048, 32, 228 << 10, 227 << 10, 1024, 2}, {12, 0, 1536, 24, 100 << 10, 99 << 10, 1024, 64},
};

const Generation& generation(const Board& b) {
  const Generation* best = &kGenerations[0];
  for (const Generation& g : kGenerations) {
    if (g.major < b.cc_major || (g.major == b.cc_major && g.minor <= b.cc_minor)) best = &g;
  }
  return *best;
}

// Sizes of textures and surfaces, the same since Turing. Attribute numbers and values.
constexpr std::pair<int, int> kImages[] = {
    {21, 131072}, {22, 131072},  {23, 65536}, {24, 16384}, {25, 16384}, {26, 16384},   {27, 32768},
    {28, 32768},  {29, 2048},    {42, 32768}, {43, 2048},  {45, 32768}, {46, 32768},   {47, 8192},
    {48, 8192},   {49, 32768},   {52, 32768}, {53, 32768}, {54, 2046},  {55, 32768},   {56, 131072},
    {57, 65536},  {58, 16384},   {59, 16384}, {60, 16384}, {61, 32768}, {62, 2048},    {63, 32768},
    {64, 32768},  {65, 2048},    {66, 32768}, {67, 32768}, {68, 2046},  {69, 1 << 28}, {70, 131072},
    {71, 65000},  {72, 2097120}, {73, 32768}, {74, 32768}, {77, 32768},
};

// The same on every device here.
constexpr std::pair<int, int> kCommon[] = {
    {1, 1024},                                      // threads of a block …
    {2, 1024},                                      // … and their dimensions
    {3, 1024},        {4, 64},    {5, 2147483647},  // of a grid
    {6, 65535},       {7, 65535}, {8, 48 << 10},    // shared memory of a block
    {9, 64 << 10},                                  // constant memory
    {10, 32},                                       // warp
    {11, 2147483647},                               // pitch
    {12, 65536},                                    // registers of a block
    {14, 512},                                      // texture alignment
    {15, 1},                                        // copies beside kernels
    {17, 0},                                        // time limit of kernels
    {18, 0},                                        // part of a chip with the CPU
    {19, 1},                                        // maps host memory
    {30, 512},                                      // surface alignment
    {31, 1},                                        // kernels beside each other
    {35, 0},                                        // TCC driver
    {41, 1},                                        // one address space with the host
    {44, 1},                                        // texture gather
    {51, 32},                                       // texture pitch alignment
    {78, 1},                                        // stream priorities
    {79, 1},                                        // L1 caches global …
    {80, 1},                                        // … and local memory
    {82, 65536},                                    // registers of a multiprocessor
    {83, 1},                                        // managed memory
    {84, 0},                                        // two GPUs on a board
    {89, 1},                                        // managed memory from both sides at once
    {90, 1},                                        // compute preemption
    {91, 1},                                        // host pointers of registered memory
    {92, 0},          {93, 0},    {94, 0},          // stream memory operations of the first kind
    {95, 1},                                        // cooperative launches
    {96, 1},          {98, 0},                      // flush of remote writes
    {99, 1},                                        // registers host memory
    {102, 1},                                       // virtual memory management …
    {103, 1},                                       // … with file descriptors
    {104, 0},         {105, 0},                     // Windows handles
    {110, 1},                                       // GPUDirect RDMA with it
    {112, 1},                                       // sparse arrays
    {113, 1},                                       // read-only registered memory
    {114, 1},                                       // timeline semaphores
    {115, 1},                                       // memory pools
    {116, 1},         {117, 1},   {118, 100},       // GPUDirect RDMA; its writes are ordered for the owner
    {121, 1},                                       // deferred mapping
    {122, 1},         {123, 1},                     // stream memory operations
    {124, 1},                                       // DMA buffers
    {125, 1},                                       // events of other processes
    {129, 1},                                       // one kind of function pointers
    {135, 0},         {138, 0},                     // graphics contexts
    {141, 1},         {142, 1},   {144, 1},        {145, 1}, {146, 1},  // host memory by NUMA node
};

std::uint32_t multiprocessors(const Gpu& gpu, const CudaDevice& device) {
  if (device.gi < 0) return gpu.board.multiprocessors;
  const GpuInstance& gi = gpu.live.gis[device.gi];
  const GiProfile* row = find_gi_profile(gpu.board, gi.profile);
  return row ? row->multiprocessors * gi.cis[device.ci].slices / row->slices : gpu.board.multiprocessors;
}

// Where the board is and what it is made of. False: another kind of attribute.
bool of_board(const Gpu& gpu, const CudaDevice& device, int attribute, int* out) {
  const Board& b = gpu.board;
  auto set = [&](std::uint64_t v) {
    *out = static_cast<int>(v);
    return true;
  };
  switch (attribute) {
    case kClockRate:
      return set(std::uint64_t{b.sm_clock_max} * 1000);
    case kMultiprocessors:
      return set(multiprocessors(gpu, device));
    case kComputeMode:
      return set(gpu.live.compute_mode);
    case kEccEnabled:
      return set(gpu.live.ecc_current);
    case kPciBus:
      return set(b.bus);
    case kPciDevice:
      return set(b.device);
    case kPciDomain:
      return set(b.domain);
    case kMemoryClockRate:
      return set(std::uint64_t{b.mem_clock_max} * 1000);
    case kMemoryBusWidth:
      return set(b.memory_bus_bits);
    case kL2CacheSize:
      return set(b.l2_kib << 10);
    case kAsyncEngines:
      return set(device.gi < 0 ? b.copy_engines
                               : std::max(1u, multiprocessors(gpu, device) * b.copy_engines /
                                                  std::max(1u, b.multiprocessors)));
    case kCcMajor:
      return set(b.cc_major);
    case kCcMinor:
      return set(b.cc_minor);
    case kPciDeviceId:
      return set(b.pci_id);
    case kPciSubsystemId:
      return set(b.subsystem_id);
    case kMultiBoardGroup:
      return set(device.gpu);
    case kHostNumaId:
      *out = b.numa_node;
      return true;
    default:
      return false;
  }
}

// What came with a generation, or with coherent memory.
bool of_generation(const Board& b, int attribute, int* out) {
  const Generation& g = generation(b);
  bool ats = b.addressing_mode == kAddressingAts, hmm = b.addressing_mode == kAddressingHmm;
  bool hopper = b.cc_major >= 9, ampere = b.cc_major >= 8;
  auto set = [&](std::uint64_t v) {
    *out = static_cast<int>(v);
    return true;
  };
  switch (attribute) {
    case kMaxThreadsPerMultiprocessor:
      return set(static_cast<std::uint64_t>(g.threads_per_sm));
    case kMaxSharedPerMultiprocessor:
      return set(static_cast<std::uint64_t>(g.shared_per_sm));
    case kMaxSharedOptin:
      return set(static_cast<std::uint64_t>(g.shared_optin));
    case kMaxBlocksPerMultiprocessor:
      return set(static_cast<std::uint64_t>(g.blocks_per_sm));
    case kReservedShared:
      return set(static_cast<std::uint64_t>(g.reserved_shared));
    case kDoubleRatio:
      return set(static_cast<std::uint64_t>(g.double_ratio));
    case 86:   // atomics on host memory
    case 100:  // pageable memory by the host's page tables
    case 101:  // managed memory from the host in place
      return set(ats);
    case 88:  // pageable memory
      return set(ats || hmm);
    case 107:  // compressible memory
      return set(ampere);
    case 108:  // of the L2 cache, for persisting accesses
      return set(ampere ? std::uint64_t{b.l2_kib} * 768 : 0);
    case 109:  // bytes of an access policy
      return set(ampere ? 134213632 : 0);
    case 119:  // handles of memory pools: file descriptors, and fabric handles
      return set(b.fabric_supported ? 9 : 1);
    case 120:  // clusters of blocks
    case 127:  // tensor maps
      return set(hopper);
    case 126:  // memory synchronisation domains
      return set(hopper ? 4 : 1);
    case 128:  // fabric handles
      return set(b.fabric_supported);
    case 130:  // memory is a NUMA node …
      return set(b.memory_numa_node >= 0);
    case 131:  // … which
      *out = b.memory_numa_node;
      return true;
    case 132:  // multicast over switches
      return set(hopper && b.nvlink_switched);
    case 136:  // decompression engines: algorithms …
      return set(b.cc_major == 10 ? 7 : 0);
    case 137:  // … and bytes at once
      return set(b.cc_major == 10 ? 4u << 20 : 0);
    case 143:  // host memory of other nodes
      return set(b.fabric_supported && ats);
    case 147:  // some host atomics only
      return set(!ats);
    default:
      return false;
  }
}

bool constant(int attribute, int* out) {
  for (const auto& [number, value] : kCommon) {
    if (number == attribute) return *out = value, true;
  }
  for (const auto& [number, value] : kImages) {
    if (number == attribute) return *out = value, true;
  }
  return false;
}

}  // namespace

CUDA_EXPORT int cuDeviceGetAttribute(int* out, int attribute, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  if (attribute == kMpsEnabled) {
    *out = getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr;
    return kSuccess;
  }
  bool known = of_board(gpu, device, attribute, out) || of_generation(gpu.board, attribute, out) ||
               constant(attribute, out);
  return known ? kSuccess : kInvalidValue;
}

// The properties of before attributes: a struct of ten numbers.
CUDA_EXPORT int cuDeviceGetProperties(void* out, int ordinal) {
  if (!out) return kInvalidValue;
  CUDA_DEVICE(ordinal);
  const int numbers[] = {1024,
                         1024,
                         1024,
                         64,
                         2147483647,
                         65535,
                         65535,
                         48 << 10,
                         64 << 10,
                         32,
                         2147483647,
                         65536,
                         static_cast<int>(gpu.board.sm_clock_max * 1000),
                         512};
  memcpy(out, numbers, sizeof numbers);
  return kSuccess;
}

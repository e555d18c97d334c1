// The CUDA driver API's C ABI as far as this library serves it: numbers and layouts only.
#pragma once

#include <cstddef>
#include <cstdint>

#define CUDA_EXPORT extern "C" __attribute__((visibility("default")))

namespace gpuop::sim::cuda {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kInvalidSource = 300,
  kFileNotFound = 301,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kPrimaryContextActive = 708,
  kContextIsDestroyed = 709,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemDriverMismatch = 803,
  kMpsConnectionFailed = 805,
  kUnknown = 999,
};

using DevicePtr = std::uint64_t;

// CUdevice_attribute numbers.
enum Attribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxBlockX = 2,
  kMaxBlockY = 3,
  kMaxBlockZ = 4,
  kMaxGridX = 5,
  kMaxGridY = 6,
  kMaxGridZ = 7,
  kMaxSharedPerBlock = 8,
  kTotalConstant = 9,
  kWarpSize = 10,
  kMaxRegistersPerBlock = 12,
  kClockRate = 13,
  kMultiprocessors = 16,
  kIntegrated = 18,
  kCanMapHostMemory = 19,
  kComputeMode = 20,
  kConcurrentKernels = 31,
  kEccEnabled = 32,
  kPciBus = 33,
  kPciDevice = 34,
  kMemoryClockRate = 36,
  kL2CacheSize = 38,
  kMaxThreadsPerMultiprocessor = 39,
  kAsyncEngines = 40,
  kUnifiedAddressing = 41,
  kPciDomain = 50,
  kCcMajor = 75,
  kCcMinor = 76,
  kManagedMemory = 83,
};

// cuModuleLoadDataEx options.
enum JitOption : int { kInfoLogBuffer = 3, kInfoLogSize = 4, kErrorLogBuffer = 5, kErrorLogSize = 6 };

struct Uuid {
  unsigned char bytes[16];
};

}  // namespace gpuop::sim::cuda

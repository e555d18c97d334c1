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
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kPeerAccessUnsupported = 217,
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
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kPrimaryContextActive = 708,
  kContextIsDestroyed = 709,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kMisalignedAddress = 716,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kMpsConnectionFailed = 805,
  kUnknown = 999,
};

using DevicePtr = std::uint64_t;

// CUdevice_attribute numbers of those that depend on the device.
enum Attribute : int {
  kClockRate = 13,
  kMultiprocessors = 16,
  kComputeMode = 20,
  kEccEnabled = 32,
  kPciBus = 33,
  kPciDevice = 34,
  kMemoryClockRate = 36,
  kMemoryBusWidth = 37,
  kL2CacheSize = 38,
  kMaxThreadsPerMultiprocessor = 39,
  kAsyncEngines = 40,
  kPciDomain = 50,
  kCcMajor = 75,
  kCcMinor = 76,
  kMaxSharedPerMultiprocessor = 81,
  kMultiBoardGroup = 85,
  kDoubleRatio = 87,
  kMaxSharedOptin = 97,
  kMaxBlocksPerMultiprocessor = 106,
  kReservedShared = 111,
  kMpsEnabled = 133,
  kHostNumaId = 134,
  kPciDeviceId = 139,
  kPciSubsystemId = 140,
};

// cuModuleLoadDataEx options.
enum JitOption : int { kInfoLogBuffer = 3, kInfoLogSize = 4, kErrorLogBuffer = 5, kErrorLogSize = 6 };

struct Uuid {
  unsigned char bytes[16];
};

}  // namespace gpuop::sim::cuda

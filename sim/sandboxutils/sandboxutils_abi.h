// The C ABI of libnvidia-sandboxutils (container-toolkit-cdi.md §2.3): names, numbers and layouts only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuop::sim::sandboxutils {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kNotSupported = 2,
  kInvalidArgument = 3,
  kInsufficientSize = 4,
  kVersionNotSupported = 5,
  kDeviceNotFound = 8,
  kNvmlCall = 9,
  kFileNotFound = 11,
};

enum RootType : std::uint32_t { kRootDefault, kRootPath, kRootOfProcess };
struct InitInput {
  std::uint32_t version, type;
  char value[256];
};

enum FileType : std::uint32_t { kDev };
enum FileSubType : std::uint32_t { kDevNvidia = 0, kDevNvidiaCap = 10 };
enum FileModule : std::uint32_t { kModuleGpu, kModuleMig };
struct FileInfo {
  FileInfo* next;
  std::uint32_t type, sub_type, module, flags;
  char* path;
};

enum InputType : std::uint32_t { kGpuUuid, kMigUuid, kPciId, kPciIndex };
struct GpuResource {
  std::uint32_t version, input_type;
  char input[256];
  FileInfo* files;
};

static_assert(sizeof(InitInput) == 264 && sizeof(FileInfo) == 32 && sizeof(GpuResource) == 272);
static_assert(offsetof(FileInfo, path) == 24 && offsetof(GpuResource, files) == 264);

}  // namespace gpuop::sim::sandboxutils

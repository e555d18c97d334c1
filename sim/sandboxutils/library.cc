// The fake libnvidia-sandboxutils: which device nodes a container needs for a GPU or a MIG device. Container
// toolkits ask it before they look themselves; it answers what they would find.
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <list>
#include <mutex>
#include <string>

#include "sim/sandboxutils/sandboxutils_abi.h"
#include "sim/state/mig.h"
#include "sim/state/state.h"

using namespace gpuop::sim;                // NOLINT: the file defines C symbols only
using namespace gpuop::sim::sandboxutils;  // NOLINT

#define SANDBOX_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct File {
  FileInfo info{};
  std::string path;
};

struct Library {
  std::mutex mutex;
  StateFile file;
  bool open = false;
  int references = 0;
  std::string root;       // "" for "/"
  std::list<File> files;  // of the last answer, which belongs to the library
};

// Never destroyed: other threads may still call while the process ends.
Library& library() {
  static Library* lib = new Library;
  return *lib;
}

const State* state_of(Library& lib) {
  if (!lib.open) {
    std::string version;
    std::string path = state_beside_library(reinterpret_cast<const void*>(&library), &version);
    lib.open = !path.empty() && lib.file.open(path) == StateFault::kNone;
  }
  return lib.open ? lib.file.read() : nullptr;
}

struct Found {
  const Gpu* gpu = nullptr;
  const GpuInstance* gi = nullptr;
  const ComputeInstance* ci = nullptr;
};

bool is_board(const State& state, std::uint32_t g, const GpuResource& wanted) {
  const Board& b = state.gpus[g].board;
  char bus[32];
  snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", b.domain, b.bus, b.device);
  switch (wanted.input_type) {
    case kGpuUuid:
      return strcasecmp(b.uuid, wanted.input) == 0;
    case kPciId:
      // Domains have four digits or eight.
      return strcasecmp(bus, wanted.input) == 0 || strcasecmp(bus + 4, wanted.input) == 0;
    case kPciIndex:
      return std::to_string(g) == wanted.input;
    default:
      return false;
  }
}

Found find(const State& state, const GpuResource& wanted) {
  for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
    const Gpu& gpu = state.gpus[g];
    if (is_board(state, g, wanted)) return {&gpu, nullptr, nullptr};
    for (const GpuInstance& gi : gpu.live.gis) {
      for (const ComputeInstance& ci : gi.cis) {
        // Callers that do not know which kind a UUID is of ask for a GPU.
        if (wanted.input_type <= kMigUuid && gi.used && ci.used && strcasecmp(ci.uuid, wanted.input) == 0)
          return {&gpu, &gi, &ci};
      }
    }
  }
  return {};
}

void add(Library& lib, FileSubType sub_type, FileModule module, const std::string& path) {
  FileInfo* before = lib.files.empty() ? nullptr : &lib.files.back().info;
  File& f = lib.files.emplace_back();
  f.path = lib.root + path;
  f.info = FileInfo{nullptr, kDev, sub_type, module, 0, f.path.data()};
  if (before) before->next = &f.info;
}

}  // namespace

SANDBOX_EXPORT int nvSandboxUtilsInit(InitInput* input) {
  if (!input) return kInvalidArgument;
  if (input->version != 1) return kVersionNotSupported;
  if (input->type > kRootPath) return input->type == kRootOfProcess ? kNotSupported : kInvalidArgument;
  Library& lib = library();
  std::lock_guard lock(lib.mutex);
  const State* state = state_of(lib);
  if (!state || !state->driver_loaded) return kNvmlCall;
  lib.root = input->type == kRootPath ? std::string(input->value, strnlen(input->value, sizeof input->value))
                                      : std::string();
  while (lib.root.ends_with('/')) lib.root.pop_back();
  ++lib.references;
  return kSuccess;
}

SANDBOX_EXPORT int nvSandboxUtilsShutdown() {
  Library& lib = library();
  std::lock_guard lock(lib.mutex);
  if (lib.references == 0) return kUninitialized;
  if (--lib.references == 0) lib.files.clear();
  return kSuccess;
}

SANDBOX_EXPORT int nvSandboxUtilsGetDriverVersion(char* version, unsigned length) {
  if (!version) return kInvalidArgument;
  Library& lib = library();
  std::lock_guard lock(lib.mutex);
  if (lib.references == 0) return kUninitialized;
  const State* state = state_of(lib);
  if (!state || !state->driver_loaded) return kNvmlCall;
  if (length <= strlen(state->kernel_driver)) return kInsufficientSize;
  snprintf(version, length, "%s", state->kernel_driver);
  return kSuccess;
}

SANDBOX_EXPORT int nvSandboxUtilsGetGpuResource(GpuResource* request) {
  if (!request) return kInvalidArgument;
  if (request->version != 1) return kVersionNotSupported;
  if (request->input_type > kPciIndex || !memchr(request->input, 0, sizeof request->input))
    return kInvalidArgument;
  Library& lib = library();
  std::lock_guard lock(lib.mutex);
  if (lib.references == 0) return kUninitialized;
  const State* state = state_of(lib);
  if (!state || !state->driver_loaded) return kNvmlCall;
  Found found = find(*state, *request);
  if (!found.gpu || found.gpu->live.lost) return kDeviceNotFound;
  lib.files.clear();
  std::uint32_t minor = found.gpu->board.minor;
  FileModule module = found.ci ? kModuleMig : kModuleGpu;
  add(lib, kDevNvidia, module, "/dev/nvidia" + std::to_string(minor));
  if (found.ci) {
    for (std::uint32_t cap :
         {gi_cap_minor(minor, found.gi->id), ci_cap_minor(minor, found.gi->id, found.ci->id)})
      add(lib, kDevNvidiaCap, module, "/dev/nvidia-caps/nvidia-cap" + std::to_string(cap));
  }
  request->files = &lib.files.front().info;
  return kSuccess;
}

// A link's target, as callers want it of the links beneath /dev/dri.
SANDBOX_EXPORT int nvSandboxUtilsGetFileContent(char* path, char* content, unsigned* size) {
  if (!path || !content || !size) return kInvalidArgument;
  Library& lib = library();
  std::lock_guard lock(lib.mutex);
  if (lib.references == 0) return kUninitialized;
  char target[4096];
  ssize_t n = readlink(path, target, sizeof target);
  if (n < 0) return kFileNotFound;
  auto length = static_cast<unsigned>(n);
  bool fits = length < *size;
  *size = length + 1;
  if (!fits) return kInsufficientSize;
  memcpy(content, target, length);
  content[length] = 0;
  return kSuccess;
}

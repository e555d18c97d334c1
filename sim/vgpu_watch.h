// The kernel's side of a vGPU host: does what is written to the files of vgpu_tree.h, when it is written.
#pragma once

#include <memory>

#include "base/files.h"
#include "base/loop.h"
#include "base/result.h"

namespace gpuop::sim {

// From its creation on, with what was written before: mediated devices and vGPU types are made and unmade,
// and how many more there can be follows them and the boards' MIG instances. Begins and ends with the driver,
// which may be loaded and unloaded meanwhile. What a driver would refuse is undone and logged as a warning.
class VgpuWatch {
 public:
  // kNotFound: the node is no vGPU host. kNoSpace: the inotify limit that the message names.
  static Result<std::unique_ptr<VgpuWatch>> create(Loop& loop, const fs::path& kernel_root);
  ~VgpuWatch();
  struct Impl;

 private:
  explicit VgpuWatch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuop::sim

// Tells when GPUs answer again that could not be read: lost ones, or ones that were not there.
//
// A GPU without a handle sends no NVML event. What is left is its device node, whose coming is an event of
// the folder, and asking now and then: at an interval that is the user's flag, and only while a GPU is
// missing.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "hardware/inventory.h"

namespace gpuop::hardware {

// Whether somebody should wait for a GPU: NVML counts one that cannot be read, or it has none at all.
bool gpus_missing(const Inventory& inventory);

struct ReturnedOptions {
  std::filesystem::path nvml_library;
  std::filesystem::path dev_dir;   // where the nodes nvidia* are, as this process sees them
  std::vector<std::string> known;  // UUIDs that were read
  Duration interval{0};            // 0: by the device nodes only
};

class ReturnedWatch {
 public:
  // `returned` is called once, on the loop, when a GPU answers that is not among the known; the watch may be
  // dropped in it. A folder that cannot be watched is logged: then the interval alone counts.
  ReturnedWatch(Loop& loop, ReturnedOptions options, std::function<void()> returned);
  ~ReturnedWatch();
  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gpuop::hardware

// Several components of the validator, one after the other in one container. A kubelet starts the next init
// container only when it has seen the end of the one before, which it looks for once a second: four checks of
// some hundredths of a second took four seconds so.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/result.h"
#include "validate/progress.h"

namespace gpuop::validate {

// One component, and what its environment has beyond the container's: "NAME=value".
struct Step {
  std::string component;
  std::vector<std::string> env;
  bool operator==(const Step&) const = default;
};

// COMPONENT [NAME=value…] COMPONENT … Errors: an unknown component, or none. Pure.
Result<std::vector<Step>> parse_steps(std::span<const std::string> words);

struct Sequence {
  std::vector<Step> steps;
  std::vector<std::string> validator;  // the validator's command line; "-c COMPONENT" is put behind it
  std::filesystem::path output_dir = "/run/nvidia/validations";  // of the gates
  // What has passed in the pod `pod` (its UID) is written into the file `record`, and is not done again when
  // only the container starts anew while its gate is still open, as init containers are not. Empty: no
  // record.
  std::filesystem::path record;
  // Whose the gates are (gates.h): they are taken before the first step. Empty: they are everybody's.
  std::filesystem::path gate_owner;
  std::string pod;
  // No driver was there when this container was made.
  bool before_driver = false;
  Progress* progress = nullptr;  // is told of each step; null: nobody is
};

// A step's process says by a line on this descriptor that it waits: "waiting WHY" or "failing WHY".
inline constexpr const char* kReportFd = "VALIDATION_REPORT_FD";

// Variables by which a sequence has the cuda step's pod prove what the toolkit step's own container cannot:
// the validator's pod outlives a boot, and its new container may be made before there is a driver that the
// runtime could give it.
inline constexpr const char* kProvenLater = "TOOLKIT_PROVEN_LATER";
inline constexpr const char* kProvesToolkit = "CUDA_PROVES_TOOLKIT";

// Runs them, each as a process of its own with our standard output and error. The first exit code that is not
// 0 ends it and is answered; 0 after the last. kCancelled: the loop was stopped, the process was told to end;
// the gates that we had are gone then, as nothing else may be left to remove them.
Result<int> run_sequence(Loop& loop, const Sequence& sequence);

}  // namespace gpuop::validate

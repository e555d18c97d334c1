// What can happen to a simulated node: the words of `gpuctl sim node NODE …`, as a struct
// (docs/simulator.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/time.h"

namespace gpuop::cluster {

struct NodeEvent {
  enum class Kind {
    kReboot,          // power goes and comes back: new boot id, /run and /dev empty, every process gone
    kKernelUpgrade,   // a reboot into kernel release `text`
    kKubeletRestart,  // the kubelet ends and comes back; containers run on
    kRuntimeRestart,  // the container runtime does; with `flag` its shims and pods' sandboxes die too
    kLose,            // the node is switched off; with `flag` only its network is cut and containers run on
    kReturn,          // what kLose did is undone
    kFillRun,         // /run is full but for `number` bytes
    kFreeRun,         // /run has room again
    kImagePull,       // pulls of images that match `text` take `delay`, and fail with `reason` when given
    kRemoveGpu,       // GPU `number` leaves the bus while the node runs
    kInsertGpu,       // it is back
    kClockJump,       // refused: there is one wall clock on a machine
  };
  Kind kind = Kind::kReboot;
  std::string text, reason;
  bool flag = false;
  std::uint64_t number = 0;
  Duration delay{};
  bool operator==(const NodeEvent&) const = default;
};

// "reboot", "kernel-upgrade 6.8.0-61-generic", "runtime-restart --kill-shims", "lose --network", "fill-run
// --leave 4096", "image-pull --delay 5s --fail 'connection refused' '*/driver:*'", "image-pull --normal",
// "remove-gpu 0". kInvalid suggests the nearest right word; kUnsupported: understood, and why it cannot be.
Result<NodeEvent> parse_node_event(const std::vector<std::string>& words);
// The events, one a line with what each does, for --help.
std::string node_event_help();

Json to_json(const NodeEvent& event);
Result<NodeEvent> node_event_from_json(const Json& json);

}  // namespace gpuop::cluster

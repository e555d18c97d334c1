// The node status exporter: what the validator found, as metrics (operands-driver-validator.md §5).
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "validate/validator.h"

namespace gpuop::validate {

struct NodeStatus {
  std::string node;
  double started = 0;  // Unix seconds
  bool driver_ready = false, toolkit_ready = false, plugin_ready = false, cuda_ready = false;
  std::optional<bool> driver_works;     // nullopt: not checked yet
  double driver_last_success = 0;       // Unix seconds; 0: never
  std::optional<std::int64_t> devices;  // resources of the node; nullopt: the API server does not answer
  double devices_last_seen = 0;
  std::optional<std::int64_t> pci_devices;  // NVIDIA functions; nullopt: PCI cannot be read
};
// Prometheus' text form. Pure.
std::string node_status_text(const NodeStatus& status);

// Serves /metrics on options.metrics_port until the loop is stopped. Gate files and the node are watched; the
// driver is asked every minute, and not while a driver upgrade has it paused.
Result<> serve_node_status(Loop& loop, const ValidatorOptions& options);

}  // namespace gpuop::validate

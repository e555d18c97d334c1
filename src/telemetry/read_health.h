// The parts of a reading that only some families need.
#pragma once

#include <string_view>
#include <vector>

#include "hardware/nvml.h"
#include "telemetry/facts.h"

namespace gpuop::telemetry {

HealthFacts read_health(const hardware::Nvml& nvml, hardware::Nvml::Device device);

// Adds what runs on the GPU and its instances, with each process' pod from kernel_path("/proc/PID/cgroup").
// `since`: µs since the epoch of the sample before; moved on.
void read_processes(const hardware::Nvml& nvml, const GpuFacts& gpu, hardware::Nvml::Device device,
                    std::uint64_t& since, std::vector<ProcessUse>& processes);

// The pod's UID in a cgroup path ("…/kubepods-podUID.slice/…"), with '-' for '_'; empty: none (§5.5).
std::string pod_uid_of(std::string_view cgroup);

}  // namespace gpuop::telemetry

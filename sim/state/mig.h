// How a board behaves when it is partitioned (mig-vgpu-sandbox.md §2): placements, engine budgets, instance
// ids. Answers are NVML's return codes.
#pragma once

#include <cstdint>

#include "sim/state/state.h"

namespace gpuop::sim {

const GiProfile* find_gi_profile(const Board& board, std::uint32_t profile);  // by NVML's enum
const GiProfile* find_gi_profile_id(const Board& board, std::uint32_t id);    // by the hardware's number
// Compute slices of a CI profile enum; 0 for an unknown one.
std::uint32_t ci_slices(std::uint32_t ci_profile);
// Whether a GI of this profile offers the CI profile, and how many at most.
std::uint32_t ci_instances(const GiProfile& gi, std::uint32_t ci_profile);

// `start` kNone: the board chooses. `made` gets the slot in live.gis.
int create_gi(Gpu& gpu, std::uint32_t profile_id, std::uint32_t start, int* made);
int destroy_gi(Gpu& gpu, int slot);
int create_ci(State& state, std::uint32_t gpu, int gi_slot, std::uint32_t ci_profile, std::uint32_t start,
              int* made);
int destroy_ci(Gpu& gpu, int gi_slot, int ci_slot);
// How many more of it could be made now.
std::uint32_t remaining_gis(const Gpu& gpu, std::uint32_t profile_id);
std::uint32_t remaining_cis(const Gpu& gpu, int gi_slot, std::uint32_t ci_profile);

// Minor numbers under /dev/nvidia-caps, as /proc/driver/nvidia-caps/mig-minors lists them.
constexpr std::uint32_t kMigConfigMinor = 1, kMigMonitorMinor = 2;
std::uint32_t gi_cap_minor(std::uint32_t gpu_minor, std::uint32_t gi);
std::uint32_t ci_cap_minor(std::uint32_t gpu_minor, std::uint32_t gi, std::uint32_t ci);

}  // namespace gpuop::sim

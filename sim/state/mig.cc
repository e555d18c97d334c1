#include "sim/state/mig.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

namespace gpuop::sim {

namespace {

constexpr int kOk = 0, kInvalid = 2, kNotFoundCode = 6, kInUseCode = 19, kResources = 23;

bool overlaps(std::uint32_t a, std::uint32_t a_size, std::uint32_t b, std::uint32_t b_size) {
  return a < b + b_size && b < a + a_size;
}

bool is_free(const Live& live, std::uint32_t start, std::uint32_t size) {
  return std::none_of(live.gis, live.gis + kMaxGis, [&](const GpuInstance& gi) {
    return gi.used && overlaps(start, size, gi.start, gi.size);
  });
}

// Summed size of the placements that are possible now and would not be with [start, start + size) taken.
std::uint32_t cost(const Gpu& gpu, std::uint32_t start, std::uint32_t size) {
  std::uint32_t sum = 0;
  for (std::uint32_t p = 0; p < gpu.board.gi_profile_count; ++p) {
    const GiProfile& row = gpu.board.gi_profiles[p];
    for (std::uint32_t i = 0; i < row.start_count; ++i) {
      if (is_free(gpu.live, row.starts[i], row.size) && overlaps(start, size, row.starts[i], row.size))
        sum += row.size;
    }
  }
  return sum;
}

std::uint32_t choose_start(const Gpu& gpu, const GiProfile& row) {
  std::uint32_t best = kNone, best_cost = 0;
  for (std::uint32_t i = 0; i < row.start_count; ++i) {
    if (!is_free(gpu.live, row.starts[i], row.size)) continue;
    std::uint32_t c = cost(gpu, row.starts[i], row.size);
    if (best == kNone || c < best_cost) {
      best = row.starts[i];
      best_cost = c;
    }
  }
  return best;
}

struct Engines {
  std::uint32_t copy = 0, decoders = 0, encoders = 0, jpegs = 0, ofas = 0;
  void add(const GiProfile& p) {
    copy += p.copy_engines;
    decoders += p.decoders;
    encoders += p.encoders;
    jpegs += p.jpegs;
    ofas += p.ofas;
  }
};

bool within_budget(const Gpu& gpu, const GiProfile& wanted) {
  Engines budget;
  for (std::uint32_t p = 0; p < gpu.board.gi_profile_count; ++p) {
    const GiProfile& row = gpu.board.gi_profiles[p];
    budget.copy = std::max(budget.copy, row.copy_engines);
    budget.decoders = std::max(budget.decoders, row.decoders);
    budget.encoders = std::max(budget.encoders, row.encoders);
    budget.jpegs = std::max(budget.jpegs, row.jpegs);
    budget.ofas = std::max(budget.ofas, row.ofas);
  }
  Engines sum;
  sum.add(wanted);
  for (const GpuInstance& gi : gpu.live.gis) {
    if (!gi.used) continue;
    if (const GiProfile* row = find_gi_profile(gpu.board, gi.profile)) sum.add(*row);
  }
  return sum.copy <= budget.copy && sum.decoders <= budget.decoders && sum.encoders <= budget.encoders &&
         sum.jpegs <= budget.jpegs && sum.ofas <= budget.ofas;
}

// The heap index of a placement in the tree of halves of the board (§2.4).
std::uint32_t gi_id(const Board& board, std::uint32_t start, std::uint32_t size) {
  std::uint32_t level_size = board.mig_units, first = 0, count = 1;
  while (level_size > size && level_size % 2 == 0) {
    level_size /= 2;
    first += count;
    count *= 2;
  }
  return first + start / level_size;
}

std::uint64_t scramble(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

const GiProfile* find_gi_profile(const Board& board, std::uint32_t profile) {
  for (std::uint32_t p = 0; p < board.gi_profile_count; ++p) {
    if (board.gi_profiles[p].profile == profile) return &board.gi_profiles[p];
  }
  return nullptr;
}

const GiProfile* find_gi_profile_id(const Board& board, std::uint32_t id) {
  for (std::uint32_t p = 0; p < board.gi_profile_count; ++p) {
    if (board.gi_profiles[p].id == id) return &board.gi_profiles[p];
  }
  return nullptr;
}

std::uint32_t ci_slices(std::uint32_t ci_profile) {
  constexpr std::uint32_t kSlices[] = {1, 2, 3, 4, 7, 8, 6, 1, 7};
  return ci_profile < 9 ? kSlices[ci_profile] : 0;
}

std::uint32_t ci_instances(const GiProfile& gi, std::uint32_t ci_profile) {
  if (ci_profile >= 7) return 0;  // REV1 and NVL kinds are not on these boards
  std::uint32_t slices = ci_slices(ci_profile);
  if (slices == 0 || slices > gi.slices) return 0;
  if (slices < gi.slices && slices > 4) return 0;
  if (slices == 3 && gi.slices == 4) return 0;  // §2.3: one, two or four of them
  return gi.slices / slices;
}

int create_gi(Gpu& gpu, std::uint32_t profile_id, std::uint32_t start, int* made) {
  const GiProfile* row = find_gi_profile_id(gpu.board, profile_id);
  if (!row) return kInvalid;
  std::uint32_t same = 0;
  int slot = -1;
  for (int i = 0; i < kMaxGis; ++i) {
    if (gpu.live.gis[i].used && gpu.live.gis[i].profile == row->profile) ++same;
    if (!gpu.live.gis[i].used && slot < 0) slot = i;
  }
  if (slot < 0 || same >= row->instances || !within_budget(gpu, *row)) return kResources;
  if (start == kNone) {
    start = choose_start(gpu, *row);
    if (start == kNone) return kResources;
  } else {
    if (std::find(row->starts, row->starts + row->start_count, start) == row->starts + row->start_count) {
      return kInvalid;
    }
    if (!is_free(gpu.live, start, row->size)) return kResources;
  }
  GpuInstance& gi = gpu.live.gis[slot];
  gi = GpuInstance{};
  gi.used = 1;
  gi.id = gi_id(gpu.board, start, row->size);
  gi.profile = row->profile;
  gi.profile_id = row->id;
  gi.start = start;
  gi.size = row->size;
  *made = slot;
  return kOk;
}

int destroy_gi(Gpu& gpu, int slot) {
  if (slot < 0 || slot >= kMaxGis || !gpu.live.gis[slot].used) return kNotFoundCode;
  for (const ComputeInstance& ci : gpu.live.gis[slot].cis) {
    if (ci.used) return kInUseCode;
  }
  gpu.live.gis[slot] = GpuInstance{};
  return kOk;
}

int create_ci(State& state, std::uint32_t index, int gi_slot, std::uint32_t ci_profile, std::uint32_t start,
              int* made) {
  Gpu& gpu = state.gpus[index];
  if (gi_slot < 0 || gi_slot >= kMaxGis || !gpu.live.gis[gi_slot].used) return kNotFoundCode;
  GpuInstance& gi = gpu.live.gis[gi_slot];
  const GiProfile* row = find_gi_profile(gpu.board, gi.profile);
  if (!row || ci_instances(*row, ci_profile) == 0) return kInvalid;
  std::uint32_t size = ci_slices(ci_profile);
  int slot = -1;
  for (int i = 0; i < kMaxCis && slot < 0; ++i) {
    if (!gi.cis[i].used) slot = i;
  }
  if (slot < 0) return kResources;
  auto taken = [&](std::uint32_t at) {
    return std::any_of(gi.cis, gi.cis + kMaxCis, [&](const ComputeInstance& c) {
      return c.used && overlaps(at, size, c.start, c.size);
    });
  };
  if (start == kNone) {
    for (std::uint32_t at = 0; at + size <= row->slices && start == kNone; ++at) {
      if (!taken(at)) start = at;
    }
    if (start == kNone) return kResources;
  } else if (start + size > row->slices) {
    return kInvalid;
  } else if (taken(start)) {
    return kResources;
  }
  ComputeInstance& ci = gi.cis[slot];
  ci = ComputeInstance{};
  ci.used = 1;
  ci.id = static_cast<std::uint32_t>(slot);
  ci.profile = ci_profile;
  ci.start = start;
  ci.size = size;
  ci.slices = size;
  std::uint64_t a = scramble(state.seed ^ scramble(index << 20 | ++gpu.live.mig_serial)), b = scramble(a);
  snprintf(ci.uuid, sizeof ci.uuid, "MIG-%08x-%04x-5%03x-%04x-%012llx", static_cast<unsigned>(a >> 32),
           static_cast<unsigned>(a >> 16 & 0xFFFF), static_cast<unsigned>(a & 0xFFF),
           static_cast<unsigned>(b >> 50 | 0x8000), static_cast<unsigned long long>(b & 0xFFFFFFFFFFFFULL));
  *made = slot;
  return kOk;
}

int destroy_ci(Gpu& gpu, int gi_slot, int ci_slot) {
  if (gi_slot < 0 || gi_slot >= kMaxGis || ci_slot < 0 || ci_slot >= kMaxCis) return kNotFoundCode;
  ComputeInstance& ci = gpu.live.gis[gi_slot].cis[ci_slot];
  if (!ci.used) return kNotFoundCode;
  ci = ComputeInstance{};
  return kOk;
}

std::uint32_t remaining_gis(const Gpu& gpu, std::uint32_t profile_id) {
  Gpu copy = gpu;
  std::uint32_t count = 0;
  int made = 0;
  while (create_gi(copy, profile_id, kNone, &made) == kOk) ++count;
  return count;
}

std::uint32_t remaining_cis(const Gpu& gpu, int gi_slot, std::uint32_t ci_profile) {
  const GpuInstance& gi = gpu.live.gis[gi_slot];
  const GiProfile* row = find_gi_profile(gpu.board, gi.profile);
  if (!row || ci_instances(*row, ci_profile) == 0) return 0;
  std::uint32_t size = ci_slices(ci_profile), count = 0, run = 0;
  for (std::uint32_t at = 0; at < row->slices; ++at) {
    bool taken = std::any_of(gi.cis, gi.cis + kMaxCis, [&](const ComputeInstance& c) {
      return c.used && overlaps(at, 1, c.start, c.size);
    });
    run = taken ? 0 : run + 1;
    if (run == size) {
      ++count;
      run = 0;
    }
  }
  return count;
}

std::uint32_t gi_cap_minor(std::uint32_t gpu_minor, std::uint32_t gi) {
  return 3 + gpu_minor * 135 + gi * 9;
}
std::uint32_t ci_cap_minor(std::uint32_t gpu_minor, std::uint32_t gi, std::uint32_t ci) {
  return gi_cap_minor(gpu_minor, gi) + 1 + ci;
}

}  // namespace gpuop::sim

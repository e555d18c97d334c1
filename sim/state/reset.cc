#include "sim/state/reset.h"

#include <algorithm>

#include "sim/state/telemetry.h"

namespace gpuop::sim {

void reset_board(State& state, std::uint32_t gpu) {
  Gpu& g = state.gpus[gpu];
  Live& l = g.live;
  settle_load(g, now_us());
  l.last_xid = 0;
  if (l.recovery_action != 0) push_event(state, gpu, kRecoveryActionEvent, 0);
  l.recovery_action = 0;
  l.ecc_sbe_volatile = l.ecc_dbe_volatile = 0;
  l.remapped_uncorrectable += l.remap_pending;
  l.remap_pending = 0;
  l.nvlink_down_mask = 0;
  l.temperature_offset = 0;
  l.throttle = 0;
  l.fabric_health_mask = 0;
  l.app_sm_clock = l.app_mem_clock = 0;
  l.locked_sm_low = l.locked_sm_high = l.locked_mem_low = l.locked_mem_high = 0;
  if (l.lost == 2) l.lost = 0;
  if (g.board.fabric_supported) {
    g.board.fabric_state = 3;
    g.board.fabric_status = 0;
  }
  l.ecc_current = l.ecc_pending;
  bool partitioned = std::any_of(l.gis, l.gis + kMaxGis, [](const GpuInstance& gi) { return gi.used; });
  bool switched = l.mig_current != l.mig_pending;
  l.mig_current = l.mig_pending;
  for (GpuInstance& gi : l.gis) gi = GpuInstance{};
  if (switched || partitioned) push_event(state, gpu, 0x100, l.mig_current);
}

}  // namespace gpuop::sim

// What a reset does to a board.
#pragma once

#include <cstdint>

#include "sim/state/state.h"

namespace gpuop::sim {

// Pending MIG and ECC modes take effect, instances end, volatile counters start anew, a pending row remap is
// carried out and no recovery is asked for any more. A lost board stays lost.
void reset_board(State& state, std::uint32_t gpu);

}  // namespace gpuop::sim

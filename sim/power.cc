#include "sim/power.h"

#include <algorithm>
#include <cstdio>

#include "sim/faults.h"
#include "sim/modules.h"
#include "sim/node_tree.h"
#include "sim/state/reset.h"
#include "sim/tree_files.h"

namespace gpuop::sim {
namespace {

Result<> open_state(const fs::path& kernel_root, StateFile& file) {
  const fs::path path = hardware_state_path(kernel_root);
  if (file.open(path.string()) == StateFault::kNone) return {};
  return fail(Code::kIo, "open hardware state '" + path.string() + "': missing or damaged");
}

Result<Board> board_of(const fs::path& kernel_root, int gpu) {
  StateFile file;
  TRY(open_state(kernel_root, file));
  const State& state = *file.read();
  if (gpu >= 0 && gpu < static_cast<int>(state.gpu_count)) return state.gpus[gpu].board;
  return fail(Code::kInvalid,
              "GPU " + std::to_string(gpu) + ": the node has " + std::to_string(state.gpu_count) +
                  (state.gpu_count > 0 ? " (0 to " + std::to_string(state.gpu_count - 1) + ")" : ""));
}

// Where the board's function is in the tree, and what refers to it.
struct Slot {
  std::string address;
  fs::path function;             // the folder itself
  fs::path link;                 // its name on the bus
  fs::path group, driver, proc;  // who else names it
  fs::path aside;                // where the folder lies while the board is out
};
Slot slot_of(const fs::path& root, const Board& board) {
  char address[32], bridge[32];
  std::snprintf(address, sizeof address, "%04x:%02x:%02x.0", board.domain, board.bus, board.device);
  std::snprintf(bridge, sizeof bridge, "pci0000:%02x", board.bus & 0xF0);
  Slot slot{address,
            root / "sys/devices" / bridge / address,
            root / "sys/bus/pci/devices" / address,
            {},
            root / "sys/bus/pci/drivers/nvidia" / address,
            root / "proc/driver/nvidia/gpus" / address,
            root / "sim/removed" / address};
  std::error_code none;
  for (const fs::path& folder : {slot.function, slot.aside}) {
    const fs::path group = fs::read_symlink(folder / "iommu_group", none);
    if (!group.empty())
      slot.group = root / "sys/kernel/iommu_groups" / group.filename() / "devices" / address;
  }
  return slot;
}

Result<> move_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  TRY(make_dirs(to.parent_path()));
  fs::rename(from, to, error);
  if (error) return fail(errno_error("move '" + from.string() + "'", error.value()));
  return {};
}

}  // namespace

Result<> power_cycle(const fs::path& kernel_root) {
  if (file_exists(hardware_state_path(kernel_root))) {
    StateFile file;
    TRY(open_state(kernel_root, file));
    const int code = file.update([](State& state) {
      state.boot_us = now_us();
      state.driver_loaded = state.uvm_loaded = 0;
      state.driver_loaded_us = 0;
      state.kernel_driver[0] = '\0';
      for (std::uint32_t g = 0; g < state.gpu_count; ++g) {
        Live& live = state.gpus[g].live;
        live.lost = live.persistence = live.compute_mode = live.load_percent = 0;
        // Since Hopper the mode lives in the driver, not in the board.
        if (state.gpus[g].board.mig_immediate != 0) live.mig_pending = 0;
        reset_board(state, g);
      }
      return 0;
    });
    if (code != 0) return fail(errno_error("write hardware state of '" + kernel_root.string() + "'", code));
  }
  for (const char* part : {"sys", "proc", "sim/removed"}) TRY(drop(kernel_root / part));
  return {};
}

Result<> remove_gpu(const fs::path& kernel_root, const fs::path& dev, int gpu) {
  const Board board = TRY(board_of(kernel_root, gpu));
  const Slot slot = slot_of(kernel_root, board);
  if (!file_exists(slot.function))
    return fail(Code::kConflict, "GPU " + std::to_string(gpu) + ": it is out already");
  if (module_loaded(kernel_root, "nvidia")) TRY(apply_fault(kernel_root, gpu, {.kind = Fault::Kind::kLost}));
  for (const fs::path& name :
       {dev / ("nvidia" + std::to_string(board.minor)), slot.driver, slot.group, slot.proc, slot.link}) {
    if (!name.empty()) TRY(drop(name));
  }
  return move_folder(slot.function, slot.aside);
}

Result<> insert_gpu(const fs::path& kernel_root, const fs::path& dev, int gpu) {
  const Board board = TRY(board_of(kernel_root, gpu));
  const Slot slot = slot_of(kernel_root, board);
  if (!file_exists(slot.aside))
    return fail(Code::kConflict, "GPU " + std::to_string(gpu) + ": it is in its slot already");
  TRY(move_folder(slot.aside, slot.function));
  const fs::path inner = slot.function.lexically_relative(kernel_root / "sys");
  TRY(put_link(fs::path("../../..") / inner, slot.link));
  if (!slot.group.empty()) TRY(put_link(fs::path("../../../..") / inner, slot.group));
  TRY(apply_fault(kernel_root, gpu, {.kind = Fault::Kind::kRecover}));
  if (!module_loaded(kernel_root, "nvidia")) return {};
  StateFile file;
  TRY(open_state(kernel_root, file));
  TRY(bind_gpu_driver(kernel_root, *file.read()));
  return make_device_nodes(kernel_root, dev);
}

}  // namespace gpuop::sim

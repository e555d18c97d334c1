// Faults, load and repair of simulated boards, at run time: every process on the node sees them at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace gpuop::sim {

struct Fault {
  enum class Kind {
    kXid,         // number: the code. An event, and what that code means for the board's recovery action
    kEccSingle,   // number: how many corrected errors
    kEccDouble,   // number: how many uncorrected errors; XID 48 and a pending row remap come with them
    kLost,        // off the bus: XID 79, then every call answers GPU_IS_LOST
    kRecover,     // as after a reset: healthy again; pending MIG and ECC modes take effect
    kLoad,        // number: percent of work that is nobody's
    kHeat,        // number: degrees on top of what the load makes
    kLinkDown,    // number: the NVLink that goes down; XID 74
    kPcieReplay,  // number: how many
    kThrottle,    // number: reasons that hold the clocks back (bits as NVML has them); 0 ends them
    kFabric,      // number: state of the NVLink fabric (0 to 3); with `after` 1 registration failed
    kFabricSick,  // the fabric is complete, and a route in it is not
    kRowRemap,    // number: rows remapped for uncorrectable errors
    kRemapPending,
    kRemapFailed,
    kResetRequired,  // every call answers RESET_REQUIRED until the board is reset
    kLinkErrors,     // number: replays, recoveries and CRC errors on link 0
    kFail,           // symbol answers number (NVML's code), after `after` good calls in each process
    kClearFails,
  };
  Kind kind = Kind::kXid;
  std::uint64_t number = 0;
  std::string symbol;
  std::uint32_t after = 0;
  std::uint32_t gi = 0xFFFFFFFFu, ci = 0xFFFFFFFFu;  // of an XID
};

// Applies a fault to board `gpu` (-1: each) of the node whose kernel tree this is. kInvalid: no such board,
// number out of range; kNotFound: no hardware there.
Result<> apply_fault(const fs::path& kernel_root, int gpu, const Fault& fault);

// "xid 79", "ecc double 3", "lost", "recover", "load 80", "heat 30", "link-down 2", "pcie-replay 5",
// "throttle power|heat|brake|none", "fabric not-started|in-progress|completed|failed|unhealthy",
// "row-remap COUNT|pending|failed", "reset-required", "link-errors 3",
// "fail nvmlDeviceGetMemoryInfo NOT_SUPPORTED 2", "clear-fails" as words. Errors suggest the nearest right
// word.
Result<Fault> parse_fault(const std::vector<std::string>& words);
// NVML's code by number or by name ("3", "NOT_SUPPORTED", "NVML_ERROR_NOT_SUPPORTED").
Result<int> nvml_code(std::string_view text);

// The kernel tree of the node called `node` in the fleet of `state_dir`, or (empty) in any fleet that runs on
// this machine: looked for through the processes that live in it. kNotFound names the nodes that there are,
// kConflict the folders of the fleets that have one of this name.
Result<fs::path> find_node(const std::string& node, const fs::path& state_dir = {});
// The same choice among what was found: state folder and kernel tree of each node of that name.
struct FoundNode {
  fs::path state_dir, kernel_tree;
};
Result<fs::path> choose_node(const std::string& node, const fs::path& state_dir,
                             const std::map<std::string, std::vector<FoundNode>>& running);
// Names of all nodes that run here, sorted.
std::vector<std::string> running_nodes();

// `sim fault --node NAME [--state-dir DIR] [--gpu N|all] FAULT …` without the first two words; also
// `--kernel-root DIR`. Exit code.
int sim_fault_main(int argc, char** argv);

}  // namespace gpuop::sim

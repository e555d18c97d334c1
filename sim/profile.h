// GPU models as text: what sim/profiles/*.yaml says of a board.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "sim/state/state.h"

namespace gpuop::sim {

// Which boards share NVLink memory: a node's own, or those of all nodes of a rack.
enum class Fabric { kNone, kChassis, kRack };

struct GpuProfile {
  std::string model;  // the name that fleet files use
  std::vector<std::string> aliases;
  std::string machine_vendor, machine_product, machine_board;
  std::string serial_prefix;
  std::vector<std::uint32_t> buses;    // PCI bus of board 0, 1, …
  std::vector<std::uint32_t> domains;  // … and their PCI domains; empty: all 0
  Fabric fabric = Fabric::kNone;
  std::vector<VgpuType> vgpu_types;
  Board board;  // without what differs from board to board
};

// Strict: an unknown key, a wrong type, a number out of range or a missing key is
// "read profile 'FILE': line 7: pci.width: …", with the nearest right name where there is one.
Result<GpuProfile> parse_profile(std::string_view text, std::string_view file);

// The profile whose model or alias is `name` (case does not count) among `dir`/*.yaml; kNotFound names the
// near one.
Result<GpuProfile> load_profile(const fs::path& dir, std::string_view name);
// Models of all profiles in `dir`, sorted.
Result<std::vector<std::string>> profile_models(const fs::path& dir);
// Those whose boards can be shared out to virtual machines, with their aliases.
Result<std::vector<std::string>> vgpu_models(const fs::path& dir);

// A rack's NVLink fabric. Boards of racks with the same seed are one cluster, whatever node they are in.
struct Rack {
  std::uint64_t seed = 0;
  std::uint32_t clique = 0;
};
// Board `index` of `count` in a node, with its own UUID, serial, bus and minor, all from model and `seed`.
Result<Board> make_board(const GpuProfile& profile, std::uint64_t seed, int index, int count, int numa_nodes,
                         const Rack& rack = {});

}  // namespace gpuop::sim

// The state of a simulated node's NVIDIA hardware: one file, shared by every process that uses the fake
// driver.
//
// The file is `libnvidia-simstate.so.VERSION` beside the fake libraries (architecture.md §8). It is never
// replaced, only changed in place, so a bind mount of the single file sees every change. Its first page is a
// small ELF object (so tools that look at a driver's libraries find nothing odd); the state begins at
// kStateOffset:
//
//   Header | Slot A (sequence, checksum, State) | Slot B
//
// A writer holds flock(LOCK_EX), fills the slot that is not current, and only then raises the header's
// generation (a futex word) and wakes the waiters. Readers take the slot with the highest sequence whose
// checksum holds: a writer that dies at any instruction leaves the previous state in force.
//
// This folder depends on libc only; it is linked into the fake libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace gpuop::sim {

constexpr std::uint64_t kStateMagic = 0x31305441544d4953ULL;  // "SIMTAT01"
constexpr std::uint32_t kStateLayout = 2;
constexpr std::size_t kStateOffset = 4096;
constexpr int kMaxGpus = 16;
constexpr int kMaxGiProfiles = 16;
constexpr int kMaxGis = 8;
constexpr int kMaxCis = 8;
constexpr int kMaxLinks = 18;
constexpr int kMaxEvents = 128;
constexpr int kMaxForced = 32;
constexpr int kMaxVgpuTypes = 64;
constexpr std::uint32_t kMaxVfs = 32;
constexpr std::uint32_t kNone = 0xFFFFFFFFu;
constexpr std::uint32_t kMigPeerToPeer = 1, kMigGraphics = 2;    // GiProfile::capabilities
constexpr std::uint32_t kAddressingHmm = 1, kAddressingAts = 2;  // Board::addressing_mode

// One row of a board's MIG table (mig-vgpu-sandbox.md §2.3). `profile` is NVML's enum, `id` the hardware's
// number.
struct GiProfile {
  std::uint32_t profile = 0, id = 0, slices = 0, instances = 0;
  std::uint32_t multiprocessors = 0, copy_engines = 0, decoders = 0, encoders = 0, jpegs = 0, ofas = 0;
  std::uint64_t memory_mib = 0;
  std::uint32_t size = 0;  // placement size, in memory units
  std::uint32_t start_count = 0;
  std::uint32_t starts[8] = {};
  std::uint32_t capabilities = 0;  // 1 peer-to-peer, 2 graphics
  char name[32] = {};
};

// A kind of virtual GPU that the board can be shared out as (mig-vgpu-sandbox.md §4).
struct VgpuType {
  std::uint32_t id = 0, instances = 0;  // at most so many on a board
  std::uint32_t gi_profile = kNone;     // NVML's enum of the GPU instance that it lies in; kNone: time-sliced
  std::uint32_t per_gi = 0;             // at most so many in one GPU instance
  std::uint32_t heads = 0, max_x = 0, max_y = 0, frame_limit = 0;
  std::uint64_t memory_mib = 0;
  char name[40] = {};  // "NVIDIA A100-10C"
  char kind[24] = {};  // NVML's class: "Compute", "Quadro", …
};

struct ComputeInstance {
  std::uint32_t used = 0, id = 0, profile = 0, start = 0, size = 0, slices = 0;
  char uuid[48] = {};
};

struct GpuInstance {
  std::uint32_t used = 0, id = 0, profile = 0, profile_id = 0, start = 0, size = 0;
  ComputeInstance cis[kMaxCis];
};

// Constants of a board; from its profile.
struct Board {
  char name[96] = {};
  char uuid[48] = {};
  char serial[32] = {};
  char board_part[32] = {};
  char vbios[32] = {};
  char inforom_image[16] = {}, inforom_oem[16] = {}, inforom_ecc[16] = {}, inforom_power[16] = {};
  std::uint32_t minor = 0;
  std::uint32_t domain = 0, bus = 0, device = 0;
  std::uint32_t pci_id = 0, subsystem_id = 0, pci_class = 0;  // ids are device << 16 | vendor
  std::int32_t numa_node = -1;
  std::uint64_t memory_bytes = 0, reserved_bytes = 0, bar1_bytes = 0;
  std::uint32_t unified_memory = 0;  // 1: memory queries answer NOT_SUPPORTED
  std::uint32_t cc_major = 0, cc_minor = 0, brand = 0, architecture = 0;
  std::uint32_t multiprocessors = 0, cores = 0, copy_engines = 0;
  std::uint32_t sm_clock_idle = 0, sm_clock_max = 0, mem_clock_idle = 0, mem_clock_max = 0;  // MHz
  std::uint32_t video_clock_idle = 0, video_clock_max = 0;
  std::uint32_t power_idle_mw = 0, power_min_mw = 0, power_max_mw = 0, power_default_mw = 0;
  std::uint32_t temp_idle = 0, temp_full = 0, temp_max_op = 0, temp_slowdown = 0, temp_shutdown = 0;  // °C
  std::uint32_t mem_temp_max = 0, has_memory_temp = 0;
  std::uint32_t pcie_gen = 0, pcie_width = 0;
  std::uint32_t fan_count = 0, ecc_supported = 0, retired_pages_supported = 0, row_remap_supported = 0;
  std::uint32_t encoders = 0, decoders = 0;
  std::uint32_t nvlink_count = 0, nvlink_version = 0, nvlink_switched = 0, nvlink_mbps = 0;
  std::uint32_t gpm_supported = 0;
  std::uint32_t mig_capable = 0, mig_immediate = 0, mig_units = 0,
                mig_slices = 0;  // immediate: Hopper and later
  std::uint32_t gi_profile_count = 0;
  GiProfile gi_profiles[kMaxGiProfiles];
  std::uint32_t addressing_mode = 0;   // 0 none, 1 HMM, 2 ATS
  std::int32_t memory_numa_node = -1;  // of coherent GPU memory
  std::uint32_t module_id = 0;         // place on its baseboard, from 1
  std::uint32_t memory_bus_bits = 0, l2_kib = 0, jpegs = 0, ofas = 0, c2c_links = 0;
  std::uint32_t sriov_vfs = 0;  // virtual functions that a vGPU host makes
  std::uint32_t fabric_state = 0, fabric_status = 0, fabric_clique = 0, fabric_supported = 0;
  std::uint8_t fabric_cluster[16] = {};
};

// What changes while a board runs.
struct Live {
  std::uint32_t lost = 0;  // 1: off the bus; 2: unusable until a reset
  std::uint32_t mig_current = 0, mig_pending = 0;
  std::uint32_t compute_mode = 0, persistence = 0;
  std::uint32_t ecc_current = 1, ecc_pending = 1;
  std::uint32_t power_limit_mw = 0;
  std::uint64_t ecc_sbe_volatile = 0, ecc_dbe_volatile = 0, ecc_sbe_aggregate = 0, ecc_dbe_aggregate = 0;
  std::uint32_t remapped_correctable = 0, remapped_uncorrectable = 0, remap_pending = 0, remap_failed = 0;
  std::uint32_t retired_sbe = 0, retired_dbe = 0, retired_pending = 0;
  std::uint32_t pcie_replays = 0, pcie_correctable = 0;
  std::uint32_t nvlink_crc_flit = 0, nvlink_crc_data = 0, nvlink_replay = 0, nvlink_recovery = 0;
  std::uint32_t nvlink_down_mask = 0;  // bit per link
  std::uint64_t last_xid = 0;
  std::uint32_t recovery_action = 0;     // field 230
  std::uint32_t temperature_offset = 0;  // °C on top, for heat faults
  // Reasons that hold the clocks back whatever the load (bits as telemetry.md §2.3), and since when.
  std::uint64_t throttle = 0;
  std::uint32_t fabric_health_mask = 0;
  std::uint32_t locked_sm_low = 0, locked_sm_high = 0, locked_mem_low = 0, locked_mem_high = 0;  // 0: not
  std::uint32_t app_sm_clock = 0, app_mem_clock = 0;  // 0: the board's default
  std::uint32_t accounting = 0;
  // Load that is not a process's (set from the command line), and what it has added up to so far.
  std::uint32_t load_percent = 0;
  std::uint64_t load_since_us = 0;    // wall clock
  std::uint64_t energy_extra_mj = 0;  // above idle, until load_since_us
  std::uint64_t link_extra_kib = 0;
  std::uint64_t power_violation_ns = 0, thermal_violation_ns = 0, loaded_ns = 0;  // until load_since_us
  std::uint64_t brake_violation_ns = 0;
  std::uint32_t mig_serial = 0;  // instances made so far; makes their UUIDs unique
  GpuInstance gis[kMaxGis];
};

struct Gpu {
  Board board;
  Live live;
};

struct Event {
  std::uint64_t sequence = 0;  // from 1, over the node
  std::uint64_t time_us = 0;
  std::uint64_t type = 0, data = 0;
  std::uint32_t gpu = 0, gi = kNone, ci = kNone, pad = 0;
};

// A call that is made to fail: `symbol` answers `code`, after `after` good calls in each process.
struct Forced {
  char symbol[64] = {};
  std::int32_t code = 0;
  std::uint32_t after = 0;
};

struct State {
  std::uint64_t seed = 0;
  std::uint64_t boot_us = 0;           // wall clock at node start
  std::uint64_t driver_loaded_us = 0;  // when nvidia.ko came; counters start here
  std::uint32_t driver_loaded = 0;
  std::uint32_t uvm_loaded = 0;
  char kernel_driver[32] = {};    // version of the loaded module
  std::int32_t cuda_version = 0;  // 12080 = 12.8
  std::uint32_t gpu_count = 0;
  std::uint64_t event_sequence = 0;  // of the newest event
  Event events[kMaxEvents];          // ring, at sequence % kMaxEvents
  std::uint32_t forced_count = 0, pad = 0;
  Forced forced[kMaxForced];
  std::uint32_t vgpu_type_count = 0, vgpu_host = 0;  // host: the driver is the vGPU manager's
  VgpuType vgpu_types[kMaxVgpuTypes];
  Gpu gpus[kMaxGpus];
};

// Why the state cannot be used.
enum class StateFault { kNone, kMissing, kPermission, kCorrupt, kIo };

class StateFile {
 public:
  StateFile() = default;
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;
  ~StateFile();

  // Makes (or overwrites in place) a state file holding `initial`.
  static StateFault create(const std::string& path, const State& initial);
  // Opens for writing where the file system allows it, else for reading. A process must not close a StateFile
  // while it holds a context slot (contexts.h): POSIX locks end with the first close of the file.
  StateFault open(const std::string& path);
  bool writable() const { return writable_; }
  int fd() const { return fd_; }

  // The newest whole state, valid until the next read() or update() of this object. nullptr when no slot is
  // whole.
  const State* read();
  // Changes the state under the writers' lock. Answers 0, or errno (EROFS/EACCES: read-only here, EIO: no
  // whole slot). `change` may refuse by answering non-zero: nothing is written and that number is handed
  // through.
  int update(const std::function<int(State&)>& change);

  // The futex word's value. Raised by each update.
  std::uint32_t generation() const;
  // Returns when the generation is no longer `seen`, a signal came, or `timeout_ms` passed (negative: no
  // limit).
  void wait(std::uint32_t seen, int timeout_ms) const;

 private:
  struct Mapped;
  int newest(std::uint64_t* sequence) const;  // index of the newest whole slot, -1 for none; fills cache_
  int fd_ = -1;
  bool writable_ = false;
  Mapped* map_ = nullptr;
  std::uint64_t cached_sequence_ = 0;
  State* cache_ = nullptr;
};

// Bytes of a state file.
std::size_t state_file_size();
// For the crash tests: where the slots lie.
std::size_t state_slot_offset(int slot);
std::uint64_t state_checksum(const State& state);

// Wall clock in microseconds.
std::uint64_t now_us();

// Puts an event in the ring.
// NVML's event type for a change of what should be done about a board (field 230).
constexpr std::uint64_t kRecoveryActionEvent = 0x8000;
void push_event(State& state, std::uint32_t gpu, std::uint64_t type, std::uint64_t data,
                std::uint32_t gi = kNone, std::uint32_t ci = kNone);

// The state file that belongs to the library which contains `address` (dladdr): beside it, by the library's
// own version, else the only libnvidia-simstate.so.* there. "" when there is none. `version` gets the
// library's version ("" when its file name has none; then that of the state file).
std::string state_beside_library(const void* address, std::string* version);

// A minimal x86-64 or AArch64 ELF shared object with the given SONAME ("" for none); at most kStateOffset
// bytes.
std::string make_elf_object(const std::string& soname);

}  // namespace gpuop::sim

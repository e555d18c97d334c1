// A state file with any bytes in it, checksums made right or not: read, or refused; never trusted beyond its
// arrays.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "sim/state/mig.h"
#include "sim/state/state.h"
#include "sim/state/telemetry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpuop::sim;  // NOLINT
  static int fd = memfd_create("state", MFD_CLOEXEC);
  static std::string path = "/proc/self/fd/" + std::to_string(fd);
  // The first byte chooses: bytes over a whole file, or bytes as a state that is then written properly.
  if (size < 9) return 0;
  auto state = std::make_unique<State>();
  if (data[0] & 1) {
    std::uint64_t at = 0;
    std::memcpy(&at, data + 1, 8);
    at %= sizeof(State);
    std::memcpy(reinterpret_cast<char*>(state.get()) + at, data + 9, std::min(size - 9, sizeof(State) - at));
  }
  StateFile::create(path, *state);
  if (!(data[0] & 1)) {
    std::uint64_t at = 0;
    std::memcpy(&at, data + 1, 8);
    at %= state_file_size();
    (void)!pwrite(fd, data + 9, std::min(size - 9, state_file_size() - at), static_cast<off_t>(at));
  }
  StateFile file;
  if (file.open(path) != StateFault::kNone) return 0;
  const State* s = file.read();
  if (!s || s->gpu_count > kMaxGpus) __builtin_trap();
  for (std::uint32_t g = 0; g < s->gpu_count; ++g) {
    sense(*s, g, {}, 1'000'000);
    for (std::uint32_t p = 0; p < s->gpus[g].board.gi_profile_count; ++p) {
      remaining_gis(s->gpus[g], s->gpus[g].board.gi_profiles[p].id);
    }
  }
  return 0;
}

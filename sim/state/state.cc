#include "sim/state/state.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace gpuop::sim {

namespace {

struct Slot {
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> checksum;
  State state;
};

StateFault fault_of(int err) {
  if (err == ENOENT || err == ENOTDIR) return StateFault::kMissing;
  if (err == EACCES || err == EPERM || err == EROFS) return StateFault::kPermission;
  return StateFault::kIo;
}

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h ^= v;
  h *= 0x9E3779B97F4A7C15ULL;
  return h ^ (h >> 29);
}

std::uint64_t sum_of(const State& state, std::uint64_t sequence) {
  return mix(state_checksum(state), sequence);
}

bool write_all(int fd, const void* data, std::size_t size, off_t offset) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t n = pwrite(fd, at, size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    offset += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

struct StateFile::Mapped {
  std::uint64_t magic;
  std::uint32_t layout;
  std::uint32_t state_size;
  std::atomic<std::uint32_t> generation;
  std::uint32_t pad;
  Slot slots[2];
};

std::uint64_t state_checksum(const State& state) {
  static_assert(sizeof(State) % 8 == 0);
  const auto* words = reinterpret_cast<const unsigned char*>(&state);
  std::uint64_t h = kStateMagic;
  for (std::size_t i = 0; i < sizeof(State); i += 8) {
    std::uint64_t v;
    memcpy(&v, words + i, 8);
    h = mix(h, v);
  }
  return h;
}

std::uint64_t now_us() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000u + static_cast<std::uint64_t>(t.tv_nsec) / 1000u;
}

StateFile::~StateFile() {
  if (map_) munmap(static_cast<void*>(map_), sizeof(Mapped));
  if (fd_ >= 0) close(fd_);
  delete cache_;
}

std::size_t state_file_size() {
  return kStateOffset + sizeof(std::uint64_t) * 3 + 2 * sizeof(Slot);
}
std::size_t state_slot_offset(int slot) {
  return kStateOffset + sizeof(std::uint64_t) * 3 + static_cast<std::size_t>(slot) * sizeof(Slot);
}

StateFault StateFile::create(const std::string& path, const State& initial) {
  static_assert(sizeof(Mapped) == sizeof(std::uint64_t) * 3 + 2 * sizeof(Slot));
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return fault_of(errno);
  fchmod(fd, 0644);
  bool ok = ftruncate(fd, static_cast<off_t>(state_file_size())) == 0;
  std::string page = make_elf_object("");
  page.resize(kStateOffset, '\0');
  ok = ok && write_all(fd, page.data(), page.size(), 0);
  auto* mapped =
      ok ? mmap(nullptr, sizeof(Mapped), PROT_READ | PROT_WRITE, MAP_SHARED, fd, kStateOffset) : MAP_FAILED;
  if (mapped != MAP_FAILED) {
    auto* m = static_cast<Mapped*>(mapped);
    m->magic = 0;  // not usable until it is whole
    m->layout = kStateLayout;
    m->state_size = sizeof(State);
    m->slots[1].sequence = 0;
    m->slots[1].checksum = 0;
    memcpy(static_cast<void*>(&m->slots[0].state), &initial, sizeof(State));
    m->slots[0].sequence = 1;
    m->slots[0].checksum = sum_of(initial, 1);
    m->magic = kStateMagic;
    m->generation.fetch_add(1);
    munmap(mapped, sizeof(Mapped));
  } else {
    ok = false;
  }
  close(fd);
  return ok ? StateFault::kNone : StateFault::kIo;
}

StateFault StateFile::open(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  bool writable = fd >= 0;
  if (fd < 0 && (errno == EROFS || errno == EACCES || errno == EPERM)) {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (fd < 0) return fault_of(errno);
  struct stat st{};
  if (fstat(fd, &st) != 0 || static_cast<std::size_t>(st.st_size) < state_file_size()) {
    close(fd);
    return StateFault::kCorrupt;
  }
  int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* mapped = mmap(nullptr, sizeof(Mapped), protection, MAP_SHARED, fd, kStateOffset);
  if (mapped == MAP_FAILED) {
    int err = errno;
    close(fd);
    return fault_of(err);
  }
  auto* m = static_cast<Mapped*>(mapped);
  if (m->magic != kStateMagic || m->layout != kStateLayout || m->state_size != sizeof(State)) {
    munmap(mapped, sizeof(Mapped));
    close(fd);
    return StateFault::kCorrupt;
  }
  fd_ = fd;
  writable_ = writable;
  map_ = m;
  cache_ = new State;
  cached_sequence_ = 0;
  return read() ? StateFault::kNone : StateFault::kCorrupt;
}

int StateFile::newest(std::uint64_t* sequence) const {
  // A slot may be rewritten while it is copied; the checksum tells, and the other slot is then newer.
  for (int attempt = 0; attempt < 64; ++attempt) {
    std::uint64_t s0 = map_->slots[0].sequence.load(std::memory_order_acquire);
    std::uint64_t s1 = map_->slots[1].sequence.load(std::memory_order_acquire);
    for (int pick : {s1 > s0 ? 1 : 0, s1 > s0 ? 0 : 1}) {
      std::uint64_t want = pick == 0 ? s0 : s1;
      if (want == 0) continue;
      std::uint64_t sum = map_->slots[pick].checksum.load(std::memory_order_acquire);
      memcpy(static_cast<void*>(cache_), &map_->slots[pick].state, sizeof(State));
      if (sum_of(*cache_, want) == sum) {
        *sequence = want;
        return pick;
      }
    }
  }
  return -1;
}

namespace {
// Counts beyond the arrays would lead readers outside them; a whole slot with such a count is not ours.
bool sane(const State& s) {
  if (s.gpu_count > kMaxGpus || s.forced_count > kMaxForced) return false;
  for (std::uint32_t g = 0; g < s.gpu_count; ++g) {
    const Board& b = s.gpus[g].board;
    if (b.gi_profile_count > kMaxGiProfiles || b.nvlink_count > kMaxLinks) return false;
    for (std::uint32_t p = 0; p < b.gi_profile_count; ++p) {
      if (b.gi_profiles[p].start_count > 8) return false;
    }
    if (memchr(b.name, 0, sizeof b.name) == nullptr || memchr(b.uuid, 0, sizeof b.uuid) == nullptr ||
        memchr(b.serial, 0, sizeof b.serial) == nullptr) {
      return false;
    }
  }
  return true;
}
}  // namespace

const State* StateFile::read() {
  if (!map_) return nullptr;
  std::uint64_t top = std::max(map_->slots[0].sequence.load(std::memory_order_acquire),
                               map_->slots[1].sequence.load(std::memory_order_acquire));
  if (cached_sequence_ != 0 && top == cached_sequence_) return cache_;
  std::uint64_t sequence = 0;
  if (newest(&sequence) < 0 || !sane(*cache_)) {
    cached_sequence_ = 0;
    return nullptr;
  }
  cached_sequence_ = sequence;
  return cache_;
}

int StateFile::update(const std::function<int(State&)>& change) {
  if (!map_) return EBADF;
  if (!writable_) return EROFS;
  while (flock(fd_, LOCK_EX) != 0) {
    if (errno != EINTR) return errno;
  }
  std::uint64_t sequence = 0;
  int current = newest(&sequence);
  int result = 0;
  if (current < 0 || !sane(*cache_)) {
    result = EIO;
  } else {
    result = change(*cache_);
  }
  if (result == 0) {
    Slot& slot = map_->slots[1 - current];
    // Sequence 0 first: a reader that meets the slot half written skips it even if the sum should collide.
    slot.sequence.store(0, std::memory_order_release);
    memcpy(static_cast<void*>(&slot.state), cache_, sizeof(State));
    slot.checksum.store(sum_of(*cache_, sequence + 1), std::memory_order_release);
    slot.sequence.store(sequence + 1, std::memory_order_release);
    cached_sequence_ = sequence + 1;
    map_->generation.fetch_add(1, std::memory_order_acq_rel);
    syscall(SYS_futex, &map_->generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  } else {
    cached_sequence_ = 0;
  }
  flock(fd_, LOCK_UN);
  return result;
}

std::uint32_t StateFile::generation() const {
  return map_ ? map_->generation.load(std::memory_order_acquire) : 0;
}

void StateFile::wait(std::uint32_t seen, int timeout_ms) const {
  timespec limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000000L};
  syscall(SYS_futex, &map_->generation, FUTEX_WAIT, seen, timeout_ms < 0 ? nullptr : &limit, nullptr, 0);
}

void push_event(State& state, std::uint32_t gpu, std::uint64_t type, std::uint64_t data, std::uint32_t gi,
                std::uint32_t ci) {
  Event& e = state.events[++state.event_sequence % kMaxEvents];
  e = Event{state.event_sequence, now_us(), type, data, gpu, gi, ci, 0};
}

std::string state_beside_library(const void* address, std::string* version) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  char real[PATH_MAX];
  if (realpath(info.dli_fname, real) == nullptr) return "";
  std::string path = real;
  std::size_t slash = path.rfind('/');
  std::string dir = path.substr(0, slash), name = path.substr(slash + 1);
  std::size_t so = name.find(".so.");
  std::string tail = so == std::string::npos ? "" : name.substr(so + 4);
  const std::string prefix = "libnvidia-simstate.so.";
  if (tail.find('.') != std::string::npos) {
    *version = tail;
    std::string exact = dir + "/" + prefix + tail;
    return access(exact.c_str(), F_OK) == 0 ? exact : "";
  }
  std::string found;
  if (DIR* d = opendir(dir.c_str())) {
    while (dirent* e = readdir(d)) {
      std::string entry = e->d_name;
      if (entry.starts_with(prefix) && entry > found) found = entry;
    }
    closedir(d);
  }
  if (found.empty()) return "";
  *version = found.substr(prefix.size());
  return dir + "/" + found;
}

}  // namespace gpuop::sim

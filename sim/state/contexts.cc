#include "sim/state/contexts.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace gpuop::sim {

namespace {

// Far behind the file's content; 2^40 bytes of offsets a slot, 256 slots.
constexpr off_t kBase = off_t{1} << 50;
constexpr off_t kSlot = off_t{1} << 40;

// memory (MiB) 20 bits | gi 4 | ci 4 | gpu 5 | busy 1 | 1
off_t encode(const Context& c) {
  std::uint64_t memory = c.memory_mib < 0xFFFFF ? c.memory_mib : 0xFFFFF;
  std::uint64_t v = memory;
  v = v << 4 | (c.gi & 15);
  v = v << 4 | (c.ci & 15);
  v = v << 5 | (c.gpu & 31);
  v = v << 1 | (c.busy ? 1 : 0);
  return static_cast<off_t>(v << 1 | 1);
}

Context decode(off_t length) {
  auto v = static_cast<std::uint64_t>(length) >> 1;
  Context c;
  c.busy = v & 1;
  c.gpu = (v >> 1) & 31;
  c.ci = (v >> 6) & 15;
  c.gi = (v >> 10) & 15;
  c.memory_mib = (v >> 14) & 0xFFFFF;
  return c;
}

bool set_lock(int fd, short type, off_t start, off_t length) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  while (fcntl(fd, F_SETLK, &lock) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

bool held_by_another(int fd, off_t start, off_t length, struct flock* found) {
  *found = {};
  found->l_type = F_WRLCK;
  found->l_whence = SEEK_SET;
  found->l_start = start;
  found->l_len = length;
  return fcntl(fd, F_GETLK, found) == 0 && found->l_type != F_UNLCK;
}

void collect(int fd, off_t start, off_t end, std::vector<Context>& out) {
  struct flock found;
  if (start >= end || !held_by_another(fd, start, end - start, &found)) return;
  collect(fd, start, found.l_start - found.l_start % kSlot, out);
  Context c = decode(found.l_len);
  c.pid = found.l_pid > 0 ? found.l_pid : 0;
  out.push_back(c);
  collect(fd, found.l_start - found.l_start % kSlot + kSlot, end, out);
}

bool own_slots[kContextSlots];  // a process does not conflict with its own locks

// Behind all slots.
constexpr off_t kClients = kBase + 2 * kContextSlots * kSlot;
constexpr off_t kClientCount = 4096;
off_t own_client = 0;  // 0: none
pid_t own_client_pid = 0;

// Serialised by a lock of the whole file, which is no POSIX one.
template <class Work>
bool alone(int fd, Work work) {
  while (flock(fd, LOCK_EX) != 0) {
    if (errno != EINTR) return false;
  }
  const bool done = work();
  flock(fd, LOCK_UN);
  return done;
}

}  // namespace

int claim_context(int fd, const Context& context) {
  while (flock(fd, LOCK_EX) != 0) {
    if (errno != EINTR) return -1;
  }
  int slot = -1;
  for (int i = 0; i < kContextSlots && slot < 0; ++i) {
    struct flock found;
    if (!own_slots[i] && !held_by_another(fd, kBase + i * kSlot, kSlot, &found)) slot = i;
  }
  if (slot < 0) errno = EAGAIN;
  if (slot >= 0 && !set_lock(fd, F_RDLCK, kBase + slot * kSlot, encode(context))) slot = -1;
  if (slot >= 0) own_slots[slot] = true;
  flock(fd, LOCK_UN);
  return slot;
}

bool publish_context(int fd, int slot, const Context& context) {
  off_t start = kBase + slot * kSlot, length = encode(context);
  // Grow first, then cut: the slot is never without a lock.
  return set_lock(fd, F_RDLCK, start, length) && set_lock(fd, F_UNLCK, start + length, kSlot - length);
}

void release_context(int fd, int slot) {
  set_lock(fd, F_UNLCK, kBase + slot * kSlot, kSlot);
  own_slots[slot] = false;
}

bool claim_client(int fd) {
  // A child does not inherit its parent's locks.
  if (own_client != 0 && own_client_pid == getpid()) return true;
  return alone(fd, [fd] {
    struct flock found;
    for (off_t at = kClients; at < kClients + kClientCount; ++at) {
      if (held_by_another(fd, at, 1, &found)) continue;
      if (!set_lock(fd, F_RDLCK, at, 1)) return false;
      own_client = at;
      own_client_pid = getpid();
      return true;
    }
    return false;
  });
}

void release_client(int fd) {
  if (own_client != 0 && own_client_pid == getpid()) set_lock(fd, F_UNLCK, own_client, 1);
  own_client = 0;
}

std::vector<pid_t> list_clients(int fd) {
  std::vector<pid_t> out;
  struct flock found;
  for (off_t at = kClients; at < kClients + kClientCount;) {
    if (!held_by_another(fd, at, kClients + kClientCount - at, &found)) break;
    // The kernel names any of those that overlap: the ones before it come first.
    off_t first = found.l_start;
    struct flock earlier;
    while (first > at && held_by_another(fd, at, first - at, &earlier)) {
      found = earlier;
      first = earlier.l_start;
    }
    out.push_back(found.l_pid > 0 ? found.l_pid : 0);
    at = first + 1;
  }
  return out;
}

std::vector<Context> list_contexts(int fd) {
  std::vector<Context> out;
  collect(fd, kBase, kBase + kContextSlots * kSlot, out);
  return out;
}

}  // namespace gpuop::sim

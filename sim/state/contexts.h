// Which processes use a GPU right now.
//
// A process that holds a CUDA context holds a shared POSIX lock on a range of the state file. The kernel
// drops it when the process dies, translates the holder's pid into the asker's PID namespace, and grants it
// on read-only mounts too: exactly what a driver knows of its clients. Slot, GPU, MIG instance, memory and
// busyness are encoded in the range, so the file's content is not touched.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace gpuop::sim {

constexpr int kContextSlots = 256;

struct Context {
  std::uint32_t gpu = 0;  // index in State::gpus
  std::uint32_t gi = 15;  // 15: none
  std::uint32_t ci = 15;
  bool busy = false;  // a kernel is running
  std::uint64_t memory_mib = 0;
  pid_t pid = 0;  // in the asker's PID namespace; 0 when it cannot be seen from there
};

// Claims a free slot for this process and publishes `context` there; -1 with errno when none can be had.
int claim_context(int fd, const Context& context);
// Publishes a change in a slot that this process holds.
bool publish_context(int fd, int slot, const Context& context);
void release_context(int fd, int slot);
// All contexts of all other processes, by slot. (A process does not see its own locks.)
std::vector<Context> list_contexts(int fd);

// Processes that have the driver open: each holds a lock on a byte of its own, from the first call of its
// libraries to the last. The kernel counts them as users of the module, whether they compute or only look.
bool claim_client(int fd);
void release_client(int fd);
// Process ids of all others, 0 for those that cannot be seen from here.
std::vector<pid_t> list_clients(int fd);

}  // namespace gpuop::sim

// The hardware state file: whole after any crash, seen by every process at once.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>

#include "driver_root.h"
#include "sim/state/contexts.h"
#include "sim/state/telemetry.h"

namespace gpuop::sim {
namespace {

class StateDir {
 public:
  StateDir() {
    auto state = std::make_unique<State>();
    state->gpu_count = 2;
    state->gpus[0].board.memory_bytes = 1 << 30;
    EXPECT_EQ(StateFile::create(path(), *state), StateFault::kNone);
  }
  std::string path() const { return (dir_.path() / "state").string(); }

 private:
  TempDir dir_{fast_prefix()};
};

// Every word of the arrays that a write touches carries the same number, so a torn state would show.
int stamp(State& s, std::uint64_t value) {
  s.seed = value;
  for (auto& e : s.events) e.time_us = value;
  for (auto& g : s.gpus) g.live.last_xid = value;
  return 0;
}

bool whole(const State& s) {
  for (const auto& e : s.events) {
    if (e.time_us != s.seed) return false;
  }
  for (const auto& g : s.gpus) {
    if (g.live.last_xid != s.seed) return false;
  }
  return true;
}

TEST(sim_tree, state_is_whole_whenever_its_writer_is_killed) {
  StateDir dir;
  std::uint64_t last = 0;
  for (int round = 0; round < 60; ++round) {
    int out[2];
    ASSERT_EQ(::pipe(out), 0);
    pid_t child = ::fork();
    if (child == 0) {
      StateFile file;
      if (file.open(dir.path()) != StateFault::kNone) ::_exit(1);
      for (std::uint64_t i = file.read()->seed + 1;; ++i) {
        if (file.update([&](State& s) { return stamp(s, i); }) != 0) ::_exit(1);
        if (::write(out[1], "x", 1) != 1) ::_exit(1);
      }
    }
    ::close(out[1]);
    // Killed somewhere in the writing that follows some whole writes.
    std::string seen(static_cast<std::size_t>(1 + round % 7), '\0');
    ASSERT_GT(::read(out[0], seen.data(), seen.size()), 0);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(out[0]);
    StateFile file;
    ASSERT_EQ(file.open(dir.path()), StateFault::kNone) << round;
    ASSERT_TRUE(whole(*file.read())) << round;
    ASSERT_GE(file.read()->seed, last);
    last = file.read()->seed;
    ASSERT_EQ(file.update([&](State& s) { return stamp(s, last); }), 0);  // the lock went with its holder
  }
  EXPECT_GE(last, 60u);
}

TEST(sim_tree, state_with_a_torn_slot_answers_the_other_one) {
  StateDir dir;
  {
    StateFile file;
    ASSERT_EQ(file.open(dir.path()), StateFault::kNone);
    ASSERT_EQ(file.update([](State& s) { return stamp(s, 7); }), 0);
    ASSERT_EQ(file.update([](State& s) { return stamp(s, 8); }), 0);
  }
  auto tear = [&](int slot) {
    Fd fd(::open(dir.path().c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), "torn", 4, static_cast<off_t>(state_slot_offset(slot) + 1000)), 4);
  };
  tear(0);  // sequences 1 and 3 lie in slot 0
  {
    StateFile file;
    ASSERT_EQ(file.open(dir.path()), StateFault::kNone);
    EXPECT_EQ(file.read()->seed, 7u);
    ASSERT_EQ(file.update([](State& s) { return stamp(s, 9); }), 0);
    EXPECT_EQ(file.read()->seed, 9u);
  }
  tear(0);
  tear(1);
  StateFile file;
  EXPECT_EQ(file.open(dir.path()), StateFault::kCorrupt);
}

TEST(sim_tree, state_of_other_content_is_refused) {
  TempDir dir(fast_prefix());
  StateFile file;
  EXPECT_EQ(file.open((dir.path() / "none").string()), StateFault::kMissing);
  ASSERT_TRUE(write_file_atomic(dir.path() / "short", "hello"));
  EXPECT_EQ(StateFile().open((dir.path() / "short").string()), StateFault::kCorrupt);
  ASSERT_TRUE(write_file_atomic(dir.path() / "zero", std::string(state_file_size(), '\0')));
  EXPECT_EQ(StateFile().open((dir.path() / "zero").string()), StateFault::kCorrupt);
}

TEST(sim_tree, state_wait_ends_with_a_change_of_another_process) {
  StateDir dir;
  StateFile file;
  ASSERT_EQ(file.open(dir.path()), StateFault::kNone);
  std::uint32_t seen = file.generation();
  pid_t child = ::fork();
  if (child == 0) {
    StateFile mine;
    ::_exit(mine.open(dir.path()) == StateFault::kNone &&
                    mine.update([](State& s) { return stamp(s, 5); }) == 0
                ? 0
                : 1);
  }
  while (file.generation() == seen) file.wait(seen, 10000);
  EXPECT_EQ(file.read()->seed, 5u);
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(sim_tree, state_is_readable_where_it_cannot_be_written) {
  if (::geteuid() != 0 || ::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr) != 0) {
    GTEST_SKIP() << "needs root";
  }
  StateDir dir;
  std::string copy = dir.path() + ".bound";
  ASSERT_TRUE(write_file_atomic(copy, ""));
  ASSERT_EQ(::mount(dir.path().c_str(), copy.c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_EQ(::mount(nullptr, copy.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr), 0);
  {
    StateFile bound, file;
    ASSERT_EQ(bound.open(copy), StateFault::kNone);
    EXPECT_FALSE(bound.writable());
    EXPECT_EQ(bound.update([](State&) { return 0; }), EROFS);
    ASSERT_EQ(file.open(dir.path()), StateFault::kNone);
    ASSERT_EQ(file.update([](State& s) { return stamp(s, 3); }), 0);
    EXPECT_EQ(bound.read()->seed, 3u);
    // A context is published through the read-only file too.
    pid_t child = ::fork();
    if (child == 0) {
      StateFile inside;
      bool ok = inside.open(copy) == StateFault::kNone &&
                claim_context(inside.fd(), {.gpu = 1, .memory_mib = 77}) >= 0;
      ::kill(::getpid(), ok ? SIGSTOP : SIGKILL);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, WUNTRACED);
    ASSERT_TRUE(WIFSTOPPED(status));
    auto all = list_contexts(file.fd());
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].pid, child);
    EXPECT_EQ(all[0].gpu, 1u);
    EXPECT_EQ(all[0].memory_mib, 77u);
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(list_contexts(file.fd()).empty());
  }
  ::umount2(copy.c_str(), MNT_DETACH);
}

TEST(sim_tree, contexts_keep_their_slots_apart) {
  StateDir dir;
  StateFile file;
  ASSERT_EQ(file.open(dir.path()), StateFault::kNone);
  int a = claim_context(file.fd(), {.gpu = 3, .gi = 2, .ci = 0, .busy = true, .memory_mib = 40000});
  int b = claim_context(file.fd(), {.gpu = 15, .memory_mib = 1});
  EXPECT_NE(a, b);
  EXPECT_TRUE(publish_context(file.fd(), a, {.gpu = 3, .gi = 2, .ci = 0, .busy = false, .memory_mib = 10}));
  pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    StateFile mine;
    if (mine.open(dir.path()) != StateFault::kNone) ::_exit(1);
    auto all = list_contexts(mine.fd());
    bool ok = all.size() == 2 && all[0].pid == parent && all[1].pid == parent && all[0].gpu == 3 &&
              all[0].gi == 2 && all[0].ci == 0 && !all[0].busy && all[0].memory_mib == 10 &&
              all[1].gpu == 15 && all[1].gi == 15;
    ::_exit(ok ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  release_context(file.fd(), a);
  EXPECT_EQ(claim_context(file.fd(), {.gpu = 0}), a);
}

TEST(sim_tree, telemetry_is_a_function_of_time_and_load) {
  DriverRoot root("A100", 2);
  StateFile file;
  ASSERT_EQ(file.open((root.kernel() / "sim/state").string()), StateFault::kNone);
  auto state = std::make_unique<State>(*file.read());
  std::uint64_t t = state->driver_loaded_us + 5'000'000;
  Sensors one = sense(*state, 0, {}, t), two = sense(*state, 0, {}, t);
  EXPECT_EQ(one.power_mw, two.power_mw);
  EXPECT_EQ(one.energy_mj, two.energy_mj);
  EXPECT_EQ(one.gpu_util, 0u);
  EXPECT_NE(sense(*state, 0, {}, t + 400'000).power_mw, one.power_mw);
  // Energy never falls, through changes of load too, and grows faster with it.
  std::uint64_t last = one.energy_mj, idle = sense(*state, 0, {}, t + 10'000'000).energy_mj - one.energy_mj;
  for (std::uint32_t load : {30u, 100u, 0u, 60u}) {
    settle_load(state->gpus[0], t);
    state->gpus[0].live.load_percent = load;
    for (int step = 0; step < 10; ++step) {
      std::uint64_t now = sense(*state, 0, {}, t).energy_mj;
      EXPECT_GE(now, last);
      last = now;
      t += 1'000'000;
    }
  }
  std::uint64_t from = sense(*state, 0, {}, t).energy_mj;
  EXPECT_GT(sense(*state, 0, {}, t + 10'000'000).energy_mj - from, idle * 2);
  // A context is memory; a busy one is load.
  Sensors held = sense(*state, 1, {{.gpu = 1, .memory_mib = 512}}, t);
  EXPECT_EQ(held.used_bytes, 512ull << 20);
  EXPECT_EQ(held.gpu_util, 0u);
  EXPECT_GT(sense(*state, 1, {{.gpu = 1, .busy = true, .memory_mib = 512}}, t).gpu_util, 70u);
}

}  // namespace
}  // namespace gpuop::sim

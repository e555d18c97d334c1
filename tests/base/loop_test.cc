#include "base/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "base/files.h"
#include "base/inotify.h"
#include "base/process.h"

namespace gpuop {
namespace {

TEST(base, virtual_loop_jumps_and_keeps_order) {
  auto loop = Loop::make_virtual(*parse_time("2025-01-01T00:00:00Z"));
  std::string log;
  auto a = loop->after(10s, [&] { log += "a"; });
  auto b = loop->after(5s, [&] {
    log += "b";
    loop->post([&] { log += "p"; });
  });
  auto c = loop->after(10s, [&] { log += "c"; });
  auto dropped = loop->after(7s, [&] { log += "x"; });
  dropped.reset();
  loop->run();
  EXPECT_EQ(log, "bpac");
  EXPECT_EQ(format_time(loop->now()), "2025-01-01T00:00:10Z");
}

TEST(base, virtual_loop_run_for_stops_at_the_deadline) {
  auto loop = Loop::make_virtual({});
  int fired = 0;
  auto late = loop->after(1h, [&] { ++fired; });
  loop->run_for(59min);
  EXPECT_EQ(fired, 0);
  EXPECT_EQ(loop->elapsed(), 59min);
  EXPECT_TRUE(loop->run_until([&] { return fired == 1; }, 2min));
  EXPECT_EQ(loop->elapsed(), 1h);
}

TEST(base, a_timer_may_drop_itself_and_outlive_the_loop) {
  Handle survivor;
  {
    auto loop = Loop::make_virtual({});
    Handle self;
    self = loop->after(1s, [&] { self.reset(); });
    loop->run();
    survivor = loop->after(1s, [] {});
  }
  survivor.reset();
}

TEST(base, real_loop_timers_posts_and_descriptors) {
  Loop loop;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  std::string got;
  Handle watch = loop.on_readable(reader.get(), [&] {
    char c = 0;
    while (::read(reader.get(), &c, 1) == 1) got += c;
  });
  Handle timer = loop.after(5ms, [&] { ASSERT_EQ(::write(writer.get(), "hi", 2), 2); });
  EXPECT_TRUE(loop.run_until([&] { return got == "hi"; }, 5s));
  watch.reset();
  std::thread other([&] { loop.post([&] { got += "!"; }); });
  EXPECT_TRUE(loop.run_until([&] { return got == "hi!"; }, 5s));
  other.join();
}

TEST(base, a_shorter_timer_set_later_fires_first) {
  Loop loop;
  std::string log;
  auto slow = loop.after(50ms, [&] { log += "s"; });
  auto fast = loop.after(1ms, [&] { log += "f"; });
  EXPECT_TRUE(loop.run_until([&] { return log.size() == 2; }, 5s));
  EXPECT_EQ(log, "fs");
}

TEST(base, signals_arrive_on_the_loop) {
  Loop loop;
  int seen = 0;
  Handle signals = on_signals(loop, {SIGUSR1}, [&](int signal) { seen = signal; });
  ::kill(::getpid(), SIGUSR1);
  EXPECT_TRUE(loop.run_until([&] { return seen == SIGUSR1; }, 5s));
}

TEST(base, wait_for_file_sees_late_and_nested_folders) {
  Loop loop;
  TempDir dir;
  const fs::path file = dir.path() / "a/b/ready";
  auto first = loop.after(2ms, [&] { ASSERT_TRUE(make_dirs(file.parent_path())); });
  auto second = loop.after(10ms, [&] { ASSERT_TRUE(write_file_atomic(file, "x")); });
  const auto found = wait_for_file(loop, file, 5s);
  EXPECT_TRUE(found) << found.error().text();
  const auto late = wait_for_file(loop, dir.path() / "never", 10ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kTimeout);
}

TEST(base, dir_watch_survives_a_replaced_folder) {
  Loop loop;
  TempDir dir;
  const fs::path sub = dir.path() / "v";
  ASSERT_TRUE(make_dirs(sub));
  int calls = 0;
  auto watch = DirWatch::create(loop, sub, [&] { ++calls; });
  ASSERT_TRUE(watch);
  ASSERT_TRUE(loop.run_until([&] { return calls == 1; }, 5s));
  fs::remove_all(sub);
  ASSERT_TRUE(loop.run_until([&] { return calls >= 2; }, 5s));
  ASSERT_TRUE(make_dirs(sub));
  const int before = calls;
  ASSERT_TRUE(loop.run_until([&] { return calls > before; }, 5s));
  // Drain what the re-creation caused, then a change inside must be seen.
  loop.run_for(20ms);
  const int quiet = calls;
  ASSERT_TRUE(write_file_atomic(sub / "f", "x"));
  EXPECT_TRUE(loop.run_until([&] { return calls > quiet; }, 5s));
}

TEST(base, run_command_gives_output_code_and_missing_program) {
  Command command{{"/bin/sh", "-c", "cat; echo err >&2; exit 3"}};
  command.input = std::string(200'000, 'x');
  const auto result = run_command(command, 5s);
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->code, 3);
  EXPECT_EQ(result->out.size(), 200'000u);
  EXPECT_EQ(result->err, "err\n");
  const auto missing = run_command({{"/no/such/program"}}, 5s);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_EQ(missing.error().text(), "run '/no/such/program': No such file or directory");
}

TEST(base, run_command_kills_at_the_limit_and_reports_signals) {
  const auto late = run_command({{"/bin/sleep", "60"}}, 20ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kTimeout);
  const auto killed = run_command({{"/bin/sh", "-c", "kill -9 $$"}}, 5s);
  ASSERT_TRUE(killed);
  EXPECT_EQ(killed->signal, SIGKILL);
  EXPECT_EQ(killed->code, 137);
}

TEST(base, child_exit_is_reported_and_environment_is_what_was_given) {
  Loop loop;
  int code = -1;
  std::unique_ptr<Child> child;
  auto spawned =
      Child::spawn(loop, {{"/bin/sh", "-c", "test \"$A\" = b && test -z \"$HOME\" && exit 7"}, {"A=b"}}, {},
                   [&](ExitState state) {
                     code = state.code;
                     child.reset();
                   });
  ASSERT_TRUE(spawned);
  child = std::move(*spawned);
  EXPECT_TRUE(loop.run_until([&] { return code == 7; }, 5s));
}

}  // namespace
}  // namespace gpuop

#include "base/thread_link.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpuop {
namespace {

TEST(base, thread_link_work_of_a_thread_runs_on_the_loop) {
  Loop loop;
  const auto link = std::make_shared<ThreadLink>(loop);
  const auto here = std::this_thread::get_id();
  bool same = false;
  std::thread thread([&] {
    link->post([&] {
      same = std::this_thread::get_id() == here;
      loop.stop();
    });
  });
  loop.run();
  thread.join();
  EXPECT_TRUE(same);
}

TEST(base, thread_link_nothing_runs_after_stop) {
  Loop loop;
  const auto link = std::make_shared<ThreadLink>(loop);
  bool ran = false;
  link->post([&] { ran = true; });
  link->stop();
  link->post([&] { ran = true; });
  loop.post([&] { loop.stop(); });
  loop.run();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(link->is_stopped());
}

TEST(base, thread_link_stop_ends_a_pause) {
  Loop loop;
  const auto link = std::make_shared<ThreadLink>(loop);
  std::thread thread([&] {
    link->pause(std::chrono::hours(1));
    link->finish();
  });
  EXPECT_TRUE(link->stop_and_wait(std::chrono::seconds(20)));
  thread.join();
  EXPECT_FALSE(std::make_shared<ThreadLink>(loop)->stop_and_wait(Duration(0)));
}

}  // namespace
}  // namespace gpuop

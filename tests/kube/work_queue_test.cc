#include "kube/work_queue.h"

#include <gtest/gtest.h>

#include "fake_server.h"

namespace gpuop::kube {
namespace {

struct QueueTest {
  std::unique_ptr<Loop> loop = Loop::make_virtual(test::kStart);
  std::vector<std::pair<std::string, Duration>> runs;
  std::vector<std::function<void(bool)>> open;
  std::unique_ptr<WorkQueue> queue;

  explicit QueueTest(QueueOptions options = {}) {
    queue = std::make_unique<WorkQueue>(
        *loop,
        [this](const std::string& key, auto finished) {
          runs.emplace_back(key, loop->elapsed());
          open.push_back(std::move(finished));
        },
        options);
  }
  void settle() { loop->run_for(Duration::zero()); }
};

TEST(kube, case47_queue_runs_a_key_once_more) {
  QueueTest t;
  t.queue->add("k");
  EXPECT_TRUE(t.runs.empty());  // never inside add()
  t.settle();
  ASSERT_EQ(t.runs.size(), 1u);
  for (int i = 0; i < 5; ++i) t.queue->add("k");
  t.settle();
  EXPECT_EQ(t.runs.size(), 1u);
  t.open[0](true);
  t.open[0](true);  // a second call does nothing
  t.settle();
  ASSERT_EQ(t.runs.size(), 2u);
  t.open[1](true);
  t.loop->run_for(1h);
  EXPECT_EQ(t.runs.size(), 2u);
}

TEST(kube, case47_queue_failures_back_off) {
  QueueTest t;
  t.queue->add("k");
  std::vector<Duration> gaps;
  Duration failed_at{0};
  for (int i = 0; i < 5; ++i) {
    t.loop->run_until([&] { return static_cast<int>(t.runs.size()) > i; }, 1h);
    if (i > 0) gaps.push_back(t.runs.back().second - failed_at);
    failed_at = t.loop->elapsed();
    t.open.back()(false);
  }
  EXPECT_EQ(gaps, (std::vector<Duration>{5ms, 10ms, 20ms, 40ms}));
  EXPECT_EQ(t.queue->failures("k"), 5);
  t.queue->forget("k");
  EXPECT_EQ(t.queue->failures("k"), 0);
  t.loop->run_until([&] { return t.runs.size() > 5; }, 1h);
  failed_at = t.loop->elapsed();
  t.open.back()(false);
  t.loop->run_until([&] { return t.runs.size() > 6; }, 1h);
  EXPECT_EQ(t.runs.back().second - failed_at, 5ms);
  t.open.back()(true);
  EXPECT_EQ(t.queue->failures("k"), 0);
}

TEST(kube, queue_is_in_order_and_bounded) {
  QueueTest t({.workers = 2});
  for (const char* key : {"a", "b", "c", "a"}) t.queue->add(key);
  t.settle();
  ASSERT_EQ(t.runs.size(), 2u);
  EXPECT_EQ(t.queue->waiting(), 1u);
  t.open[1](true);
  t.settle();
  ASSERT_EQ(t.runs.size(), 3u);
  EXPECT_EQ(t.runs[0].first + t.runs[1].first + t.runs[2].first, "abc");
}

TEST(kube, queue_delays_keep_the_earliest) {
  QueueTest t;
  t.queue->add_after("k", 10s);
  t.queue->add_after("k", 3s);
  t.queue->add_after("k", 20s);
  t.loop->run_for(1min);
  ASSERT_EQ(t.runs.size(), 1u);
  EXPECT_EQ(t.runs[0].second, 3s);
  // Gone with its queue.
  t.queue->add_after("z", 1s);
  t.queue.reset();
  t.loop->run_for(1min);
  EXPECT_EQ(t.runs.size(), 1u);
}

TEST(kube, queue_retries_of_many_keys_are_spread) {
  QueueTest t({.workers = 1000, .rate = 10, .burst = 100});
  for (int i = 0; i < 150; ++i) t.queue->add("k" + std::to_string(i));
  t.settle();
  ASSERT_EQ(t.open.size(), 150u);
  for (const auto& finished : std::exchange(t.open, {})) finished(false);
  t.loop->run_for(1s);
  EXPECT_GE(t.runs.size(), 250u);
  EXPECT_LE(t.runs.size(), 262u);
  t.loop->run_for(10s);
  EXPECT_EQ(t.runs.size(), 300u);
}

}  // namespace
}  // namespace gpuop::kube

// Objects of large collections in their small form.
#include "kube/compact.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace gpuop::kube {
namespace {

Json random_value(std::minstd_rand& random, int depth) {
  switch (random() % (depth > 0 ? 9 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<std::int64_t>(random()) - 1000000000;
    case 3:
      return std::numeric_limits<std::uint64_t>::max() - random() % 3;
    case 4:
      return static_cast<double>(random()) / 7;
    case 5:
      return Json(std::string(random() % 300, 'x'));
    case 6:
      return Json("text-" + std::to_string(random() % 4));
    case 7: {
      JsonArray out;
      for (std::size_t i = random() % 5; i > 0; --i) out.push_back(random_value(random, depth - 1));
      return out;
    }
    default: {
      JsonObject out;
      for (std::size_t i = random() % 5; i > 0; --i)
        out["key" + std::to_string(random() % 9)] = random_value(random, depth - 1);
      return out;
    }
  }
}

TEST(kube, compact_values_come_back_as_they_were_and_leave_nothing_behind) {
  PartsTable table;
  std::minstd_rand random(7);
  std::vector<std::pair<Json, Compact>> all;
  for (int round = 0; round < 20000; ++round) {
    if (all.size() > 40) {
      std::swap(all[random() % all.size()], all.back());
      all.pop_back();
    }
    // Often one that is there already, so that its parts are shared.
    Json value =
        !all.empty() && random() % 3 == 0 ? all[random() % all.size()].first : random_value(random, 5);
    Compact small(value, table);
    ASSERT_EQ(small.value(), value);
    all.emplace_back(std::move(value), std::move(small));
  }
  for (const auto& [value, small] : all) ASSERT_EQ(small.value(), value) << to_text(value);
  all.clear();
  EXPECT_EQ(table.size(), 0u);
}

TEST(kube, compact_keys_and_values_are_never_mistaken_for_each_other) {
  PartsTable table;
  const std::string odd =
      "\x06"
      "aaaaaa";
  const Json value = JsonObject{{odd, "aaaaaa"}, {"aaaaaa", odd}, {"", JsonObject{{"aaaaaa", "aaaaaa"}}}};
  std::vector<Compact> all;
  for (int i = 0; i < 4; ++i) all.emplace_back(value, table);
  for (const auto& each : all) EXPECT_EQ(each.value(), value);
  all.clear();
  EXPECT_EQ(table.size(), 0u);
}

TEST(kube, compact_what_many_objects_say_alike_is_kept_once) {
  PartsTable table;
  std::vector<Compact> all;
  for (int i = 0; i < 100; ++i) {
    const std::string n = std::to_string(i);
    all.emplace_back(
        JsonObject{{"metadata", JsonObject{{"name", "pod-" + n}, {"labels", JsonObject{{"app", "plugin"}}}}},
                   {"status", JsonObject{{"phase", "Running"}, {"message", "the same words"}}}},
        table);
  }
  // Keys, the labels, the status and its texts; not a name.
  EXPECT_LE(table.size(), 14u);
}

}  // namespace
}  // namespace gpuop::kube

#include "base/json_arena.h"

#include <gtest/gtest.h>

namespace gpuop {
namespace {

// Long enough for several blocks.
std::string long_text() {
  std::string out = R"({"a":{"b":["x",1,null,{"c":"a text that is too long to be kept in place"}]},"list":[)";
  for (int i = 0; i < 2000; ++i)
    out += (i == 0 ? "" : ",") + std::string(R"({"k":)") + std::to_string(i) + "}";
  return out + "]}";
}

TEST(base, json_arena_reads_what_parse_json_reads) {
  const std::string text = long_text();
  EXPECT_EQ(*parse_json_packed(text), *parse_json(text));
  EXPECT_EQ(to_text(*parse_json_packed(text)), text);
  for (const char* wrong : {"", "{", "[1,]", "{} x", "1e999"}) {
    const auto packed = parse_json_packed(wrong), plain = parse_json(wrong);
    ASSERT_FALSE(packed) << wrong;
    EXPECT_EQ(packed.error().text(), plain.error().text());
  }
  EXPECT_FALSE(parse_json_packed("[[[1]]]", 2));
}

TEST(base, json_arena_parts_outlive_the_whole_and_change) {
  std::optional<Json> part;
  {
    const auto whole = parse_json_packed(long_text());
    ASSERT_TRUE(whole);
    part = *find(*whole, {"a", "b"});
  }
  EXPECT_EQ(to_text(*part), R"(["x",1,null,{"c":"a text that is too long to be kept in place"}])");
  // A copy that changes over and over takes from the heap, and gives back.
  for (int i = 0; i < 1000; ++i) {
    Json copy = *part;
    set(copy.get_array()[3], {"c"}, std::string(100 + static_cast<std::size_t>(i), 'y'));
    copy.get_array().emplace_back(std::to_string(i));
    part = copy;
    part->get_array().pop_back();
  }
  EXPECT_EQ(part->get_array().size(), 4u);
  EXPECT_EQ(get_string(part->get_array()[3], {"c"}).size(), 1099u);
  Json moved = std::move(*part);
  part.reset();
  EXPECT_EQ(moved.get_array()[0], "x");
}

TEST(base, json_arena_takes_more_until_it_is_sealed) {
  JsonArena arena(0);
  auto value = parse_json_into(arena.storage(), R"({"a":"b"})");
  ASSERT_TRUE(value);
  JsonObject beside(arena.storage());
  for (int i = 0; i < 100; ++i) beside[std::to_string(i)] = *value;
  arena.seal();
  beside["last"] = std::string(5000, 'z');
  set(*value, {"a"}, std::string(5000, 'z'));
  EXPECT_EQ(beside.size(), 101u);
  EXPECT_EQ(get_string(*value, {"a"}), beside["last"].get_string());
  EXPECT_EQ(beside["99"], *parse_json(R"({"a":"b"})"));
}

}  // namespace
}  // namespace gpuop

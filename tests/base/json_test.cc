#include "base/json.h"

#include <gtest/gtest.h>

namespace gpuop {
namespace {

TEST(base, json_parse_reports_line_and_column) {
  const auto bad = parse_json("{\n  \"a\": tru\n}");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), Code::kInvalid);
  EXPECT_TRUE(bad.error().text().starts_with("JSON line 2, column")) << bad.error().text();
}

TEST(base, json_parse_refuses_trailing_text_and_deep_nesting) {
  EXPECT_FALSE(parse_json("{} x"));
  EXPECT_TRUE(parse_json(" {} \n"));
  EXPECT_FALSE(parse_json(""));
  EXPECT_FALSE(parse_json(std::string(100, '[') + std::string(100, ']')));
  EXPECT_TRUE(parse_json(std::string(60, '[') + std::string(60, ']')));
}

TEST(base, json_readers_answer_the_fallback_for_wrong_shapes) {
  const Json value = *parse_json(R"({"a":{"b":"x","n":7,"f":2.0,"t":true,"l":[1]},"z":null})");
  EXPECT_EQ(get_string(value, {"a", "b"}), "x");
  EXPECT_EQ(get_string(value, {"a", "n"}, "fallback"), "fallback");
  EXPECT_EQ(get_string(value, {"a", "b", "c"}, "fallback"), "fallback");
  EXPECT_EQ(get_int(value, {"a", "n"}), 7);
  EXPECT_EQ(get_int(value, {"a", "f"}), 2);
  EXPECT_TRUE(get_bool(value, {"a", "t"}));
  EXPECT_EQ(find_bool(value, {"z"}), std::nullopt);
  EXPECT_EQ(get_array(value, {"a", "l"}).size(), 1u);
  EXPECT_TRUE(get_array(value, {"a"}).empty());
  EXPECT_TRUE(get_object(value, {"nothing", "here"}).empty());
}

TEST(base, json_plain_text) {
  EXPECT_EQ(plain_text("a b"), "a b");
  EXPECT_EQ(plain_text(nullptr), "");
  EXPECT_EQ(plain_text(3), "3");
  EXPECT_EQ(plain_text(*parse_json(R"({"a":[true]})")), R"({"a":[true]})");
}

TEST(base, json_set_and_remove_keep_order) {
  Json value = *parse_json(R"({"a":1,"b":2,"c":3})");
  EXPECT_TRUE(remove(value, {"a"}));
  EXPECT_FALSE(remove(value, {"a"}));
  EXPECT_FALSE(remove(value, {"b", "x"}));
  set(value, {"d", "e"}, 5);
  EXPECT_EQ(to_text(value), R"({"b":2,"c":3,"d":{"e":5}})");
}

TEST(base, json_canonical_text_sorts_keys_at_every_level) {
  EXPECT_EQ(to_canonical_text(*parse_json(R"({"b":{"z":1,"a":[{"y":1,"x":2}]},"a":0})")),
            R"({"a":0,"b":{"a":[{"x":2,"y":1}],"z":1}})");
}

TEST(base, json_pretty_text_reads_back) {
  const Json value = *parse_json(R"({"a":[],"b":{},"c":[1,{"d":"x\ny"}]})");
  const std::string text = to_pretty_text(value);
  EXPECT_TRUE(text.ends_with("}\n"));
  EXPECT_EQ(*parse_json(text), value);
}

TEST(base, json_numbers_are_finite) {
  for (const char* text : {"0e1234", "[1e400]", R"({"a":-1e999})"}) EXPECT_FALSE(parse_json(text)) << text;
  EXPECT_FALSE(parse_json("[" + std::string(400, '9') + "]"));
  EXPECT_FALSE(parse_json("-" + std::string(400, '9') + ".5"));
  EXPECT_TRUE(parse_json("0." + std::string(400, '9')));
  EXPECT_TRUE(parse_json("\"" + std::string(400, '9') + "\""));
  EXPECT_TRUE(parse_json(R"([1e3, 1.5E-2, "1e999", 12e4])"));
}

}  // namespace
}  // namespace gpuop

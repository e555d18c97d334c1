#include "base/yaml.h"
#include "base/yaml_api.h"

#include <gtest/gtest.h>

namespace gpuop {
namespace {

TEST(base, yaml_plain_scalars_follow_kubernetes_reader) {
  const auto document = parse_yaml_one(
      "a: 1\nb: yes\nc: \"yes\"\nd: 570.10\ne: ~\nf: 0x10\ng: 2025-01-01\nh: 1e3\ni: 'null'\nj: 1.2.3\nk: "
      "010\n",
      "f.yaml");
  ASSERT_TRUE(document) << document.error().text();
  EXPECT_EQ(
      to_text(document->value),
      R"({"a":1,"b":true,"c":"yes","d":5.701E2,"e":null,"f":16,"g":"2025-01-01","h":1E3,"i":"null","j":"1.2.3","k":8})");
}

TEST(base, yaml_keeps_lines_and_names_duplicate_keys) {
  const auto document =
      parse_yaml_one("spec:\n  driver:\n    env:\n    - name: a\n    - name: b\n  driver: {}\n", "f.yaml");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->line_of("spec.driver.env[1].name"), 5);
  EXPECT_EQ(document->line_of("spec.nothing.here"), 1);
  EXPECT_EQ(document->duplicate_keys, std::vector<std::string>{"spec.driver"});
}

TEST(base, yaml_errors_name_file_line_and_column) {
  const auto bad = parse_yaml("a:\n  - b\n c: d\n", "fleet.yaml");
  ASSERT_FALSE(bad);
  EXPECT_TRUE(bad.error().text().starts_with("read 'fleet.yaml': line 3")) << bad.error().text();
  EXPECT_FALSE(parse_yaml_one("", "f"));
  EXPECT_FALSE(parse_yaml_one("a: 1\n---\nb: 2\n", "f"));
  EXPECT_EQ(parse_yaml("---\n---\na: 1\n---\n", "f")->size(), 1u);
}

TEST(base, yaml_merge_keys_and_aliases) {
  const auto document = parse_yaml_one("x: &x {a: 1, b: 2}\nz:\n  <<: *x\n  b: 3\n", "f");
  ASSERT_TRUE(document) << document.error().text();
  EXPECT_EQ(to_text(*find(document->value, {"z"})), R"({"b":3,"a":1})");
}

TEST(base, yaml_of_an_api_body_is_read_to_the_letter) {
  const std::string text = "on: 1\ny: y\n010: 1_000\n1.50: a\n'no': !!binary aGk=\n";
  const auto strict = parse_api_yaml(text, "f");
  ASSERT_TRUE(strict) << strict.error().text();
  EXPECT_EQ(to_text(strict->front().value), R"({"true":true,"8":1000,"1.5":"a","no":"hi"})");
  EXPECT_EQ(strict->front().duplicate_keys, std::vector<std::string>{"true"});
  const auto plain = parse_yaml_one(text, "f");
  ASSERT_TRUE(plain) << plain.error().text();
  EXPECT_EQ(to_text(*find(plain->value, {"y"})), R"("y")");
  EXPECT_TRUE(has(plain->value, {"on"}));
}

TEST(base, yaml_alias_bombs_are_refused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += (j ? ", *a" : "*a") + std::to_string(i - 1);
    text += "]\n";
  }
  EXPECT_FALSE(parse_yaml(text, "bomb.yaml"));
}

// Counted while it is read: nothing is made of it before. A key that the library would refuse later on tells.
TEST(base, yaml_of_too_many_nodes_is_refused_where_they_are_too_many) {
  std::string text = "nodes:\n";
  for (int i = 0; i < 250'000; ++i) text += "- {a: b}\n";
  for (const char* end : {"", "a: 'open\n"}) {
    const auto refused = parse_yaml(text + end, "f.yaml");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().text(),
              "read 'f.yaml': line 133334, column 4: more than 400000 keys and values");
  }
}

TEST(base, yaml_stray_punctuation_is_an_error) {
  for (const char* text : {",a: 1\n", "]", "[1]]", "a: 1\n---\n, b", "}"})
    EXPECT_FALSE(parse_yaml(text, "f")) << text;
  EXPECT_TRUE(parse_yaml("---\n---\na: 1\n...\n---\n", "f"));
}

TEST(base, yaml_written_text_reads_back_equal) {
  const Json value = *parse_json(
      R"({"a":"yes","b":"0755","c":"x: y","d":"line\nline two\n","e":[{"k":[1,"- a"]},[],{}],"f":"","g":null,"h":"2025-01-01",
          "i":" lead","j":"#no","k":true,"l":1.5,"m":"a\tb","n":"no newline\nat end","o":"* x","p":"trail:"})");
  const std::string text = to_yaml(value);
  const auto back = parse_yaml_one(text, "out.yaml");
  ASSERT_TRUE(back) << back.error().text() << "\n" << text;
  EXPECT_EQ(back->value, value) << text;
}

TEST(base, yaml_that_the_library_would_read_forever_is_an_error) {
  for (const char* text : {",l", "]", "a: b\n---\n, c", "}"}) {
    EXPECT_FALSE(parse_yaml(text, "f.yaml")) << text;
  }
  EXPECT_EQ(parse_yaml("---\n---\na: 1\n---\n---\nb: 2\n...\n", "f.yaml")->size(), 2u);
}

TEST(base, yaml_says_where_a_byte_is_that_cannot_be) {
  const auto why = [](std::string_view text) {
    const auto read = parse_yaml(text, "f.yaml");
    return read ? std::string("taken") : read.error().text();
  };
  EXPECT_EQ(why("a: b\nc: \"\xff\"\n"), "read 'f.yaml': line 2, column 5: the byte 0xff is not UTF-8");
  EXPECT_EQ(why("a: \xc3\xa4\xed\xa0\x80\n"), "read 'f.yaml': line 1, column 5: the byte 0xed is not UTF-8");
  EXPECT_EQ(why("a: \xf0\x9f"), "read 'f.yaml': line 1, column 4: the byte 0xf0 is not UTF-8");
  EXPECT_EQ(
      why(std::string_view("a: b\0", 5)),
      "read 'f.yaml': line 1, column 5: the byte 0x00 is a control character, which YAML does not allow");
  EXPECT_EQ(why("\xef\xbb\xbf"
                "a: \xf0\x9f\x98\x80\r\n"),
            "taken");
  EXPECT_EQ(why(std::string_view("\xff\xfe"
                                 "a\0:\0 \0b\0",
                                 10)),
            "taken");
}

TEST(base, yaml_takes_and_writes_characters_only) {
  // UTF-32 beyond the last character, as a value and as a key; and half of a pair.
  const std::string key = {"\0\0\xfe\xffnx\x1b\x1b\0\0\0:\0\0\0 \0\0\0b", 20};
  for (const std::string& text : {key.substr(0, 8), key}) {
    const auto read = parse_yaml(text, "v.yaml");
    ASSERT_FALSE(read) << text.size();
    EXPECT_EQ(read.error().text(), "read 'v.yaml': line 1: no character of Unicode");
  }
  EXPECT_FALSE(parse_yaml("a: \"\\ud800\"", "v.yaml"));
  // What stands in a text by an escape is written by one.
  for (const char* text : {"\x7f", "a\x7f\n", "a\n\x7f", "\x1b[0m", "\xef\xbb\xbf["}) {
    const Json value = JsonObject{{"k", text}, {text, JsonArray{Json(text)}}};
    const auto again = parse_yaml(to_yaml(value), "again.yaml");
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(again->front().value, value) << to_yaml(value);
    const auto alone = parse_yaml(to_yaml(Json(text)), "alone.yaml");
    ASSERT_TRUE(alone) << alone.error().text();
    EXPECT_EQ(alone->front().value, Json(text));
  }
}

TEST(base, yaml_says_more_of_what_is_wrong_than_its_library) {
  const auto why = [](const std::string& text) { return parse_yaml(text, "f.yaml").error().text(); };
  EXPECT_TRUE(why("a:\n\tb: c\n").ends_with("(the line is indented by a tab, which YAML does not allow)"));
  EXPECT_EQ(why("a: " + std::string(5000, '[')), "read 'f.yaml': line 1: nested too deep");
  std::string deep = "a: ";
  for (int i = 0; i < 70; ++i) deep += "[";
  for (int i = 0; i < 70; ++i) deep += "]";
  EXPECT_EQ(why("x: 1\n" + deep), "read 'f.yaml': line 2: nested deeper than 64 levels");
}

}  // namespace
}  // namespace gpuop

#include "base/text.h"

#include <gtest/gtest.h>

#include "base/http.h"
#include "base/quote.h"
#include "base/time.h"
#include "base/wildcard.h"

namespace gpuop {
namespace {

TEST(base, text_in_quotes) {
  EXPECT_EQ(in_quotes("a \"b\" \\ \n\t\r \x01\x7f \xc3\xa4", "\\x"),
            "\"a \\\"b\\\" \\\\ \\n\\t\\r \\x01\\x7f \xc3\xa4\"");
  EXPECT_EQ(in_quotes("\x1f", "\\u00"), "\"\\u001f\"");
}

TEST(base, text_split_join_trim) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
  EXPECT_EQ(split_fields("  a\tb \n"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, ", "), "a, b");
  EXPECT_EQ(trim(" \t x y\n"), "x y");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(replace_all("aXbX", "X", "XX"), "aXXbXX");
}

TEST(base, text_first_few) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  EXPECT_EQ(first_few(names), "a, b, c and 2 more");
  EXPECT_EQ(first_few(names, 4, " "), "a b c d and 1 more");
  EXPECT_EQ(first_few(names, 5), "a, b, c, d, e");
  EXPECT_EQ(first_few({}), "");
}

TEST(base, text_numbers_take_the_whole_text) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("12x"), std::nullopt);
  EXPECT_EQ(parse_int(""), std::nullopt);
  EXPECT_EQ(parse_int("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_hex("0x10de"), 0x10deu);
  EXPECT_EQ(parse_hex("0x"), std::nullopt);
}

TEST(base, text_nearest_finds_misspellings_and_nothing_else) {
  const std::vector<std::string> names{"none", "single", "mixed"};
  EXPECT_EQ(nearest("mixd", names), "mixed");
  EXPECT_EQ(nearest("Signle", names), "single");
  EXPECT_EQ(nearest("both", names), std::nullopt);
  EXPECT_EQ(did_you_mean("mixde", names), " (did you mean 'mixed'?)");
  EXPECT_EQ(did_you_mean("x", names), "");
}

TEST(base, text_hashes_match_published_values) {
  EXPECT_EQ(fnv1a32(""), 0x811c9dc5u);
  EXPECT_EQ(fnv1a32("foobar"), 0xbf9cf968u);
  EXPECT_EQ(fnv1a64("foobar"), 0x85944171f73967e8ull);
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(base, text_base64_round_trip_and_refusal) {
  for (const std::string text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"}) {
    EXPECT_EQ(base64_decode(base64_encode(text)), text);
  }
  EXPECT_EQ(base64_encode("foob"), "Zm9vYg==");
  EXPECT_EQ(base64_decode("Zm9v\nYg=="), "foob");
  EXPECT_EQ(base64_decode("Zm9vY"), std::nullopt);
  EXPECT_EQ(base64_decode("Zm9v!A=="), std::nullopt);
  EXPECT_EQ(base64_decode("Zg==Zg=="), std::nullopt);
}

TEST(base, text_url_coding) {
  EXPECT_EQ(url_encode("a b/c=ü"), "a%20b%2Fc%3D%C3%BC");
  EXPECT_EQ(url_decode("a+b%2Fc%3d%zz%4"), "a b/c=%zz%4");
  const auto pairs = parse_query("labelSelector=a%3Db&watch&limit=5");
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].second, "a=b");
  EXPECT_EQ(pairs[1], (std::pair<std::string, std::string>("watch", "")));
  EXPECT_EQ(build_query(pairs), "labelSelector=a%3Db&watch=&limit=5");
}

TEST(base, text_uuid_is_version_four_and_unique) {
  const std::string a = random_uuid();
  ASSERT_EQ(a.size(), 36u);
  EXPECT_EQ(a[14], '4');
  EXPECT_NE(std::string_view("89ab").find(a[19]), std::string_view::npos);
  EXPECT_NE(a, random_uuid());
}

TEST(base, header_names_compare_without_case) {
  HttpRequest request;
  request.headers["Content-Type"] = "x";
  EXPECT_EQ(request.header("content-type"), "x");
  EXPECT_EQ(request.header("content-typ"), "");
}

TEST(base, time_formats_and_reads_rfc3339) {
  const Time t = *parse_time("2025-01-02T03:04:05.000006Z");
  EXPECT_EQ(format_micro_time(t), "2025-01-02T03:04:05.000006Z");
  EXPECT_EQ(format_time(t), "2025-01-02T03:04:05Z");
  EXPECT_EQ(*parse_time("2025-01-02T05:04:05+02:00"), *parse_time("2025-01-02T03:04:05Z"));
  EXPECT_EQ(format_time(*parse_time("1969-12-31T23:59:59Z")), "1969-12-31T23:59:59Z");
  for (const char* bad :
       {"", "2025-01-02", "2025-13-02T03:04:05Z", "2025-02-30T03:04:05Z", "2025-01-02T03:04:05",
        "2025-01-02T24:04:05Z", "9999-01-01T00:00:00Z", "2025-01-02T03:04:05.Z"}) {
    EXPECT_FALSE(parse_time(bad)) << bad;
  }
}

TEST(base, a_star_in_a_pattern_stands_for_any_run_of_characters) {
  for (const auto& [pattern, text] : {std::pair{"", ""},
                                      {"*", ""},
                                      {"*", "any"},
                                      {"a*c", "abbc"},
                                      {"a*b*c", "a-b-b-c"},
                                      {"*-ctr", "nvidia-ctr-ctr"},
                                      {"**x", "x"}})
    EXPECT_TRUE(matches_pattern(pattern, text)) << pattern << " " << text;
  for (const auto& [pattern, text] :
       {std::pair{"", "a"}, {"a", ""}, {"a*c", "abcd"}, {"*a", "ab"}, {"a?", "ab"}, {"a*b*c", "acb"}})
    EXPECT_FALSE(matches_pattern(pattern, text)) << pattern << " " << text;
}

TEST(base, time_durations) {
  EXPECT_EQ(*parse_go_duration("1h30m"), 90min);
  EXPECT_EQ(*parse_go_duration("1.5s"), 1500ms);
  EXPECT_EQ(*parse_go_duration("-250ms"), -250ms);
  EXPECT_EQ(*parse_go_duration("0"), 0s);
  for (const char* bad : {"", "5", "s", "1x", "1h-2m", "99999999999h"})
    EXPECT_FALSE(parse_go_duration(bad)) << bad;
  EXPECT_EQ(format_go_duration(90min), "1h30m0s");
  EXPECT_EQ(format_go_duration(250ms), "250ms");
  EXPECT_EQ(format_go_duration(0s), "0s");
  EXPECT_EQ(format_go_duration(61s + 500ms), "1m1.5s");
}

TEST(base, time_ages_read_as_kubectl_prints_them) {
  EXPECT_EQ(human_age(119s), "119s");
  EXPECT_EQ(human_age(200s), "3m20s");
  EXPECT_EQ(human_age(180s), "3m");
  EXPECT_EQ(human_age(100min), "100m");
  EXPECT_EQ(human_age(200min), "3h20m");
  EXPECT_EQ(human_age(12h), "12h");
  EXPECT_EQ(human_age(50h), "2d2h");
  EXPECT_EQ(human_age(24h * 12), "12d");
}

}  // namespace
}  // namespace gpuop

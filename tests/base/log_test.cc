#include "base/log.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/log_zap.h"

namespace gpuop {
namespace {

TEST(log, zap_times) {
  const Time when = *parse_time("2026-01-02T03:04:05Z") + std::chrono::microseconds(60789);
  const auto text = [when](const char* name) {
    return log::zap_time(when, log::parse_zap_time(name).value());
  };
  EXPECT_EQ(text("epoch"), "1767323045.060789");
  EXPECT_EQ(text("millis"), "1767323045060.789");
  EXPECT_EQ(text("nano"), "1767323045060789000");
  EXPECT_EQ(text("iso8601"), R"("2026-01-02T03:04:05.060Z")");
  EXPECT_EQ(text("rfc3339"), R"("2026-01-02T03:04:05Z")");
  EXPECT_EQ(text("rfc3339nano"), R"("2026-01-02T03:04:05.060789Z")");
  EXPECT_EQ(log::zap_time(Time{} + std::chrono::microseconds(7), log::ZapTime::kEpoch), "0.000007");
  const auto bad = log::parse_zap_time("rfc3339nanos");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().text().find("did you mean 'rfc3339nano'?"), std::string::npos) << bad.error().text();
}

TEST(log, zap_lines_have_upstreams_keys) {
  log::setup("gpu-operator", log::Level::kInfo, log::Format::kJson);
  log::use_zap_keys(log::ZapTime::kEpoch);
  testing::internal::CaptureStderr();
  log::warn("it \"works\"", {{"logger", "setup"}, {"node", "n1"}});
  log::info("plain");
  const std::string lines = testing::internal::GetCapturedStderr();
  log::setup("");
  const auto first = parse_json(lines.substr(0, lines.find('\n')));
  ASSERT_TRUE(first) << lines;
  EXPECT_EQ(get_string(*first, {"level"}), "warn");
  EXPECT_EQ(get_string(*first, {"logger"}), "setup");
  EXPECT_EQ(get_string(*first, {"msg"}), "it \"works\"");
  EXPECT_EQ(get_string(*first, {"node"}), "n1");
  EXPECT_TRUE(find(*first, {"ts"})->is_number()) << lines;
  EXPECT_NE(lines.find(R"("logger":"gpu-operator")"), std::string::npos) << lines;
}

}  // namespace
}  // namespace gpuop

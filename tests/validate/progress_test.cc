// What is told of a step that takes long, and that nothing is of the others.
#include "validate/progress.h"

#include <gtest/gtest.h>

#include "base/http_server.h"
#include "hardware/validation_note.h"
#include "kube/transport.h"
#include "validate/sequence.h"

namespace gpuop::validate {
namespace {

class validate_progress : public ::testing::Test {
 protected:
  std::unique_ptr<Progress> make(bool told = false) {
    ProgressOptions options;
    options.ns = "ns";
    options.pod = "p";
    options.told = told;
    return std::make_unique<Progress>(*loop, options, [this]() -> Result<kube::Client*> { return &client; });
  }
  void answer(const HttpRequest& request, const std::shared_ptr<HttpResponder>& out) {
    EXPECT_EQ(request.method + " " + request.path, "PATCH /api/v1/namespaces/ns/pods/p");
    const auto body = parse_json(request.body);
    ASSERT_TRUE(body);
    const Json* value = find(*body, {"metadata", "annotations", hardware::kValidationAnnotation});
    ASSERT_TRUE(value);
    written.push_back(value->is_null() ? "-" : std::string(as_text(*value)));
    if (refusals-- > 0) return out->send(HttpResponse::text(500, "{}", "application/json"));
    out->send(HttpResponse::text(200, R"({"metadata":{"name":"p"}})", "application/json"));
  }

  std::unique_ptr<Loop> loop = Loop::make_virtual(*parse_time("2026-01-01T00:00:00Z"));
  std::shared_ptr<kube::Transport> transport = kube::make_memory_transport(
      *loop, [this](HttpRequest request, std::shared_ptr<HttpResponder> out) { answer(request, out); });
  kube::Client client{*loop, transport};
  std::vector<std::string> written;
  int refusals = 0;
};

TEST_F(validate_progress, quick_steps_are_not_told) {
  const auto progress = make();
  for (const char* step : {"driver", "toolkit", "cuda", "plugin"}) {
    progress->step(step);
    loop->run_for(1900ms);
  }
  progress->passed();
  EXPECT_TRUE(progress->idle());
  loop->run_for(1min);
  EXPECT_TRUE(written.empty());
}

TEST_F(validate_progress, a_step_that_takes_long_is_told_and_taken_back) {
  const auto progress = make();
  progress->step("driver");
  progress->waits(false, "no driver yet");
  loop->run_for(5s);
  progress->waits(true, "code 9");
  loop->run_for(5s);
  // The next is told at once: what is written is not true any more.
  progress->step("toolkit");
  loop->run_for(500ms);
  progress->passed();
  loop->run_for(5s);
  EXPECT_TRUE(progress->idle());
  EXPECT_EQ(written, (std::vector<std::string>{R"({"message":"no driver yet","step":"driver"})",
                                               R"({"failing":true,"message":"code 9","step":"driver"})",
                                               R"({"step":"toolkit"})", "-"}));
}

TEST_F(validate_progress, what_an_earlier_container_told_is_set_right_at_once) {
  auto progress = make(true);
  progress->step("driver");
  loop->run_for(100ms);
  EXPECT_EQ(written, std::vector<std::string>{R"({"step":"driver"})"});
  progress = make(true);
  progress->passed();
  loop->run_for(100ms);
  EXPECT_EQ(written.back(), "-");
}

TEST_F(validate_progress, a_write_that_failed_comes_again) {
  const auto progress = make();
  refusals = 10;  // the client tries again by itself too
  progress->step("driver");
  loop->run_for(5min);
  EXPECT_GT(written.size(), 10u);
  EXPECT_TRUE(progress->idle());
}

TEST_F(validate_progress, many_reasons_are_few_writes) {
  const auto progress = make();
  progress->step("driver");
  for (int i = 0; i < 1000; ++i) {
    progress->waits(false, "try " + std::to_string(i));
    loop->run_for(10ms);
  }
  EXPECT_LE(written.size(), 10u);
}

}  // namespace
}  // namespace gpuop::validate

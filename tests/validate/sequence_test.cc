#include "validate/sequence.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/http_server.h"
#include "base/text.h"
#include "kube/transport.h"

namespace gpuop::validate {
namespace {

TEST(validate, steps_are_components_with_their_own_variables) {
  const auto parse = [](std::vector<std::string> words) { return parse_steps(words); };
  EXPECT_EQ(*parse({"driver", "WITH_WAIT=true", "A=b=c", "cuda"}),
            (std::vector<Step>{{"driver", {"WITH_WAIT=true", "A=b=c"}}, {"cuda", {}}}));
  const auto wrong = parse({"driver", "toolkti"});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(
      wrong.error().text(),
      "read the validations: 'toolkti': not a component, nor NAME=value of one (did you mean 'toolkit'?)");
  EXPECT_FALSE(parse({"WITH_WAIT=true", "driver"}));
  EXPECT_FALSE(parse({"metrics"})) << "it never ends";
  EXPECT_FALSE(parse({}));
}

// A validator that writes down how it was called, opens the gate, and fails where a file says so.
class Validations : public ::testing::Test {
 protected:
  Validations() {
    const fs::path script = dir.path() / "validator";
    const std::string at = dir.path().string();
    EXPECT_TRUE(write_file_atomic(script,
                                  "#!/bin/sh\necho $2 ${MORE-none} >>" + at + "/calls\n[ ! -e " + at +
                                      "/fail-$2 ] || exit 3\ntouch " + at + "/gates/$2-ready\n",
                                  0755));
    EXPECT_TRUE(make_dirs(dir.path() / "gates"));
    sequence.steps = {{"driver", {"MORE=1"}}, {"toolkit", {}}, {"cuda", {"MORE=2"}}};
    sequence.validator = {script.string()};
    sequence.output_dir = dir.path() / "gates";
    sequence.record = dir.path() / "record";
    sequence.pod = "uid-1";
  }
  // The exit code, and what was called since the last time.
  std::pair<int, std::string> run() {
    const auto code = run_sequence(loop, sequence);
    const auto calls = read_file(dir.path() / "calls");
    EXPECT_TRUE(remove_file(dir.path() / "calls"));
    return {code ? *code : -1, calls ? *calls : ""};
  }
  void fails(const std::string& step) { EXPECT_TRUE(write_file_atomic(dir.path() / ("fail-" + step), "")); }

  TempDir dir;
  Loop loop;
  Sequence sequence;
};

TEST_F(Validations, run_in_order_each_with_its_own_variables) {
  EXPECT_EQ(run(), std::pair(0, std::string("driver 1\ntoolkit none\ncuda 2\n")));
}

TEST_F(Validations, end_with_the_first_that_fails_and_go_on_there_in_the_same_pod) {
  fails("toolkit");
  EXPECT_EQ(run(), std::pair(3, std::string("driver 1\ntoolkit none\n")));
  EXPECT_EQ(run(), std::pair(3, std::string("toolkit none\n"))) << "as init containers do";
  EXPECT_TRUE(remove_file(dir.path() / "fail-toolkit"));
  EXPECT_EQ(run(), std::pair(0, std::string("toolkit none\ncuda 2\n")));
  EXPECT_EQ(run(), std::pair(0, std::string()));
}

// A pod that outlived a boot: its new container was made before there was a driver.
TEST_F(Validations, of_a_container_that_is_older_than_the_driver_have_a_pod_prove_the_toolkit) {
  const fs::path script = dir.path() / "bare";
  const std::string at = dir.path().string();
  const std::string text =
      "#!/bin/sh\nlater=${TOOLKIT_PROVEN_LATER:-no} proves=${CUDA_PROVES_TOOLKIT:-no}\n"
      "echo $2 $later $proves >>" +
      at +
      "/calls\n"
      "[ $2 = toolkit ] && [ ! -e " +
      at +
      "/injected ] && { [ $later = true ]; exit; }\n"
      "touch " +
      at +
      "/gates/$2-ready\n"
      "[ $2 != cuda ] || [ -e " +
      at + "/injected ] || { [ $proves = true ] && touch " + at + "/gates/toolkit-ready; }\n";
  ASSERT_TRUE(write_file_atomic(script, text, 0755));
  sequence.validator = {script.string()};
  sequence.steps.push_back({"plugin", {}});
  sequence.before_driver = true;
  EXPECT_EQ(run(), std::pair(0, std::string("driver no no\ntoolkit true no\ncuda no true\nplugin no no\n")));
  EXPECT_EQ(run(), std::pair(0, std::string())) << "the toolkit has passed too";
  // It got the driver all the same.
  sequence.pod = "uid-2";
  EXPECT_TRUE(write_file_atomic(dir.path() / "injected", ""));
  EXPECT_EQ(run(), std::pair(0, std::string("driver no no\ntoolkit true no\ncuda no no\nplugin no no\n")));
  EXPECT_TRUE(remove_file(dir.path() / "injected"));
  // Nothing would prove it.
  sequence.pod = "uid-3";
  EXPECT_TRUE(remove_file(dir.path() / "gates/toolkit-ready"));
  sequence.steps[2].env.push_back("WITH_WORKLOAD=false");
  EXPECT_EQ(run(), std::pair(1, std::string("driver no no\ntoolkit no no\n")));
  sequence.steps[2].env.clear();
  sequence.before_driver = false;
  EXPECT_EQ(run(), std::pair(1, std::string("toolkit no no\n")));
}

// The step's process says on a descriptor of its own why it waits.
TEST_F(Validations, hand_on_why_a_step_waits) {
  const fs::path script = dir.path() / "waiting";
  ASSERT_TRUE(
      write_file_atomic(script,
                        "#!/bin/sh\nif [ $2 = driver ]; then echo failing code 9 >&$VALIDATION_REPORT_FD; "
                        "read x <" +
                            (dir.path() / "told").string() + "; fi\n",
                        0755));
  ASSERT_EQ(::mkfifo((dir.path() / "told").c_str(), 0600), 0);
  std::vector<std::string> patches;
  ProgressOptions options;
  options.ns = "ns";
  options.pod = "p";
  options.patience = 1ms;
  options.gap = 1ms;
  const auto transport = kube::make_memory_transport(
      loop, [&](const HttpRequest& request, const std::shared_ptr<HttpResponder>& out) {
        patches.push_back(request.body);
        out->send(HttpResponse::text(200, "{}", "application/json"));
        // It has been told: now the step may pass.
        if (request.body.find("code 9") != std::string::npos) {
          const Fd fifo(::open((dir.path() / "told").c_str(), O_WRONLY | O_CLOEXEC));
          EXPECT_EQ(::write(fifo.get(), "\n", 1), 1);
        }
      });
  kube::Client client(loop, transport);
  Progress progress(loop, options, [&]() -> Result<kube::Client*> { return &client; });
  sequence.validator = {script.string()};
  sequence.progress = &progress;
  const auto code = run_sequence(loop, sequence);
  ASSERT_TRUE(code) << code.error().text();
  EXPECT_EQ(*code, 0);
  ASSERT_FALSE(patches.empty());
  EXPECT_NE(patches.back().find("null"), std::string::npos) << "it is taken back at the end";
}

TEST_F(Validations, start_anew_in_another_pod_and_where_a_gate_is_gone) {
  EXPECT_EQ(run().first, 0);
  EXPECT_TRUE(remove_file(dir.path() / "gates/toolkit-ready"));
  EXPECT_EQ(run().second, "toolkit none\n");
  sequence.pod = "uid-2";
  EXPECT_EQ(run().second, "driver 1\ntoolkit none\ncuda 2\n");
}

}  // namespace
}  // namespace gpuop::validate

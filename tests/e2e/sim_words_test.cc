// What the commands for fleets that run say where there is none.
#include "base/text.h"
#include "kept_demo.h"

namespace gpuop {
namespace {

TEST(sim_words, a_fleet_elsewhere_is_named_by_its_folder) {
  const TempDir empty;
  const std::vector<std::vector<std::string>> commands{
      {kGpuctl, "sim", "exec", "pod", "--state-dir", empty.path(), "--", "true"},
      {kGpuctl, "sim", "node", "gpu", "reboot", "--state-dir", empty.path()},
      {kGpuctl, "demo", "--stop", "--state-dir", empty.path()}};
  for (const auto& command : commands) {
    const ExitState ended = run(command, 10s);
    EXPECT_EQ(ended.code, 1) << ended.err;
    EXPECT_NE(ended.err.find("name its folder with --state-dir)"), std::string::npos) << ended.err;
  }
}

TEST(sim_words, help_shows_the_option_of_each_command_for_a_fleet_that_runs) {
  const ExitState help = run({kGpuctl, "sim", "--help"}, 10s);
  ASSERT_EQ(help.code, 0);
  for (const char* command : {"sim fault ", "sim node ", "sim exec "}) {
    const auto at = help.out.find(command);
    ASSERT_NE(at, std::string::npos) << help.out;
    EXPECT_NE(help.out.substr(at, help.out.find('\n', at) - at).find("[--state-dir DIR]"), std::string::npos)
        << help.out;
  }
}

}  // namespace
}  // namespace gpuop

// nvidia-smi as people and operators call it: transcripts in cases/smi, run against a simulated node.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <sstream>

#include "base/text.h"
#include "driver_root.h"

namespace gpuop::sim {
namespace {

std::string run(const DriverRoot& root, const std::string& words) {
  std::string command = "LD_LIBRARY_PATH=" + root.library("").string() +
                        " GPUOP_SIM_DEV=" + root.dev().string() +
                        " GPUOP_KERNEL_ROOT=" + root.kernel().string() + " " +
                        (root.root() / "usr/bin/nvidia-smi").string() + " " + words + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  int status = pclose(pipe);
  if (int code = WEXITSTATUS(status)) out += "[exit " + std::to_string(code) + "]\n";
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    while (line.ends_with(' ')) line.pop_back();
    out.push_back(line);
  }
  while (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

// "…" in an expected line stands for any text.
bool matches(std::string_view want, std::string_view got) {
  std::size_t gap = want.find("…");
  if (gap == std::string_view::npos) return want == got;
  if (!got.starts_with(want.substr(0, gap))) return false;
  std::string_view rest = want.substr(gap + std::string_view("…").size());
  for (std::size_t at = gap; at <= got.size(); ++at) {
    if (matches(rest, got.substr(at))) return true;
  }
  return false;
}

struct Step {
  std::string words;
  std::vector<std::string> expected;
};

// "node: MODEL COUNT", then "$ WORDS" and what is printed, again and again.
std::vector<Step> steps_of(const std::string& text, std::string* model, int* count) {
  std::vector<Step> steps;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("#")) continue;
    if (line.starts_with("node: ")) {
      std::istringstream words(line.substr(6));
      words >> *model >> *count;
    } else if (line.starts_with("$ ")) {
      steps.push_back({line.substr(2), {}});
    } else if (!steps.empty()) {
      steps.back().expected.push_back(line);
    }
  }
  for (Step& s : steps) {
    while (!s.expected.empty() && s.expected.back().empty()) s.expected.pop_back();
  }
  return steps;
}

class Transcript : public testing::TestWithParam<std::string> {};

TEST_P(Transcript, is_what_nvidia_smi_prints) {
  std::string model;
  int count = 0;
  auto steps = steps_of(*read_file(fs::path(TEST_DATA) / "cases/smi" / GetParam()), &model, &count);
  ASSERT_FALSE(steps.empty());
  DriverRoot root(model, count);
  for (const Step& step : steps) {
    auto got = lines_of(run(root, step.words));
    bool same = got.size() == step.expected.size();
    for (std::size_t i = 0; same && i < got.size(); ++i) same = matches(step.expected[i], got[i]);
    EXPECT_TRUE(same) << GetParam() << ": $ " << step.words << "\n" << join(got, "\n");
  }
}

std::vector<std::string> transcripts() {
  auto names = list_dir(fs::path(TEST_DATA) / "cases/smi");
  return names ? *names : std::vector<std::string>();
}

INSTANTIATE_TEST_SUITE_P(sim_tree_smi, Transcript, testing::ValuesIn(transcripts()), [](const auto& info) {
  return replace_all(info.param.substr(0, info.param.find('.')), "-", "_");
});

}  // namespace
}  // namespace gpuop::sim

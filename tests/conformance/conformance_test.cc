// Every scenario against the embedded control plane, beside what the real one answered; or, with
// --kubeconfig FILE, against the control plane that it names:
//   conformance_test --kubeconfig FILE [--record]     the real one: its recordings still hold, or are made
//   conformance_test --tables                         writes the tables of docs/simulator.md
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <iostream>

#include "base/text.h"
#include "compare.h"
#include "runner.h"
#include "scenario.h"
#include "target.h"

namespace gpuop::conformance {
namespace {

const fs::path kFolder = TEST_DATA;
const fs::path kPage = fs::path(SOURCE_ROOT) / "docs/simulator.md";

struct Options {
  std::string kubeconfig;  // text; empty: the embedded one
  bool record = false;
} options;

const std::vector<Kept>& kept() {
  static const std::vector<Kept> list = [] {
    fs::path file = kFolder / "differences.txt";
    auto text = read_file(file);
    Result<std::vector<Kept>> parsed = text ? parse_kept(*text, file) : fail(text.error());
    if (!parsed) {
      std::cerr << parsed.error().text() << "\n";
      std::exit(2);
    }
    return *parsed;
  }();
  return list;
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> list = [] {
    Result<std::vector<Scenario>> loaded = load_scenarios(kFolder / "scenarios");
    if (!loaded) {
      std::cerr << loaded.error().text() << "\n";
      std::exit(2);
    }
    return *loaded;
  }();
  return list;
}

Result<Json> recorded(const Scenario& scenario) {
  std::string text = TRY(read_file(scenario.recording()));
  return parse_json(text);
}

bool uses_programs(const Scenario& scenario) {
  for (const Step& step : scenario.steps)
    if (step.kind == Step::Kind::kProgram) return true;
  return false;
}

std::string list_of(const std::vector<Difference>& found) {
  std::string text;
  for (const Difference& one : found)
    text += "  at: " + one.at + "\n    real: " + one.real + "\n    ours: " + one.ours + "\n";
  return text;
}

class ScenarioTest : public testing::Test {
 public:
  explicit ScenarioTest(const Scenario& scenario) : scenario_(scenario) {}

  void TestBody() override {
    if (uses_programs(scenario_) && !file_exists(kubectl_path())) {
      if (env_or("CI") == "true") FAIL() << "kubectl is not there: tests/tools/fetch-kubectl";
      GTEST_SKIP() << "kubectl is not there: tests/tools/fetch-kubectl";
    }
    Loop loop;
    std::unique_ptr<Embedded> embedded;
    std::string kubeconfig = options.kubeconfig;
    if (kubeconfig.empty()) {
      Result<std::unique_ptr<Embedded>> started = Embedded::start(loop);
      ASSERT_TRUE(started) << started.error().text();
      embedded = std::move(*started);
      kubeconfig = embedded->kubeconfig();
    }
    Result<Json> seen = Runner(loop, kubeconfig).run(scenario_);
    if (!options.kubeconfig.empty() && !options.record && !as_recorded(seen)) {
      // The moments at which the real one's parts see a write are nobody's promise: only what differs twice
      // is a difference, and the first time is told.
      std::cout << "again: " << scenario_.id() << " " << (seen ? "differed" : seen.error().text()) << "\n";
      seen = Runner(loop, kubeconfig).run(scenario_);
    }
    ASSERT_TRUE(seen) << scenario_.file.string() << ": " << seen.error().text();
    if (options.record) {
      Result<Json> sorted = parse_json(to_canonical_text(*seen), 100);
      ASSERT_TRUE(sorted && write_file_atomic(scenario_.recording(), to_pretty_text(*sorted)));
      return;
    }
    judge(*seen);
  }

 private:
  bool as_recorded(const Result<Json>& seen) const {
    Result<Json> real = recorded(scenario_);
    if (!seen || !real) return false;
    std::vector<Difference> found = compare(scenario_.id(), *real, *seen);
    if (!found.empty()) std::cout << list_of(found);
    return found.empty();
  }
  void judge(const Json& seen) {
    Result<Json> real = recorded(scenario_);
    ASSERT_TRUE(real) << "no recording of the real API server (see tests/conformance/README.md): "
                      << real.error().text();
    std::vector<Difference> found = compare(scenario_.id(), *real, seen);
    if (!options.kubeconfig.empty()) {
      EXPECT_TRUE(found.empty()) << "the recording is no longer what the real one answers:\n"
                                 << list_of(found);
      return;
    }
    std::vector<Difference> unknown;
    for (const Difference& one : found)
      if (std::none_of(kept().begin(), kept().end(), [&](const Kept& k) { return k.covers(one); }))
        unknown.push_back(one);
    EXPECT_TRUE(unknown.empty()) << scenario_.file.string() << "\n" << list_of(unknown);
    expect_listed_ones_exist(found);
  }

  void expect_listed_ones_exist(const std::vector<Difference>& found) {
    for (const Kept& one : kept()) {
      if (one.scenario != scenario_.id()) continue;
      for (const std::string& at : one.at) {
        Kept single = one;
        single.at = {at};
        bool exists =
            std::any_of(found.begin(), found.end(), [&](const Difference& d) { return single.covers(d); });
        EXPECT_TRUE(exists) << "differences.txt:" << one.line
                            << " lists a difference that is none any more: '" << at << "' of "
                            << scenario_.id();
      }
    }
  }

  const Scenario& scenario_;
};

constexpr std::string_view kBegin = "<!-- conformance: begin -->\n";
constexpr std::string_view kEnd = "<!-- conformance: end -->\n";

std::string tables() {
  std::vector<std::string> ids;
  for (const Scenario& one : scenarios()) ids.push_back(one.id());
  return conformance_tables(ids, kept());
}

Result<std::string> page_with_tables() {
  std::string page = TRY(read_file(kPage));
  std::size_t begin = page.find(kBegin);
  std::size_t end = page.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    return fail(Code::kInvalid, "read '" + kPage.string() + "': no conformance marks");
  begin += kBegin.size();
  return page.substr(0, begin) + tables() + page.substr(end);
}

TEST(conformance, the_page_says_what_the_list_says) {
  Result<std::string> page = page_with_tables();
  ASSERT_TRUE(page) << page.error().text();
  EXPECT_TRUE(*page == *read_file(kPage)) << "docs/simulator.md is behind: conformance_test --tables";
}

TEST(conformance, every_kept_difference_is_of_a_scenario) {
  for (const Kept& one : kept()) {
    bool any = std::any_of(scenarios().begin(), scenarios().end(),
                           [&](const Scenario& s) { return glob_matches(one.scenario, s.id()); });
    EXPECT_TRUE(any) << "differences.txt:" << one.line << ": no scenario '" << one.scenario << "'";
  }
}

TEST(conformance, comparing_names_each_place) {
  Json real = *parse_json(R"([{"status":200,"body":{"a":1,"b":[1,2]}}])");
  Json ours = *parse_json(R"([{"status":201,"body":{"a":1,"b":[1,3],"c":null}}])");
  std::vector<Difference> found = compare("x/y", real, ours);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].at, "1 body.b[1]");
  EXPECT_EQ(found[1].at, "1 body.c");
  EXPECT_EQ(found[2].at, "1 status");
  Kept one{.scenario = "x/*", .at = {"1 body.*"}};
  EXPECT_TRUE(one.covers(found[0]));
  EXPECT_FALSE(one.covers(found[2]));
}

int set_up(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--record") == 0) {
      options.record = true;
    } else if (std::strcmp(argv[i], "--kubeconfig") == 0 && i + 1 < argc) {
      Result<std::string> text = read_file(argv[++i]);
      if (!text) {
        std::cerr << text.error().text() << "\n";
        return 2;
      }
      options.kubeconfig = *text;
    } else if (std::strcmp(argv[i], "--tables") == 0) {
      Result<std::string> page = page_with_tables();
      if (!page || !write_file_atomic(kPage, *page)) return 2;
      std::cout << tables();
      std::exit(0);
    } else {
      std::cerr << "no option '" << argv[i] << "'; there are --kubeconfig FILE, --record, --tables\n";
      return 2;
    }
  }
  if (options.record && options.kubeconfig.empty()) {
    std::cerr << "--record wants --kubeconfig of a real control plane\n";
    return 2;
  }
  for (const Scenario& scenario : scenarios())
    testing::RegisterTest("conformance", (scenario.area + "_" + scenario.name).c_str(), nullptr, nullptr,
                          scenario.file.c_str(), 1,
                          [&scenario]() -> testing::Test* { return new ScenarioTest(scenario); });
  return 0;
}

}  // namespace
}  // namespace gpuop::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (int code = gpuop::conformance::set_up(argc, argv); code != 0) return code;
  return RUN_ALL_TESTS();
}

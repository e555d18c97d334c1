#include "validate/gates.h"

#include <gtest/gtest.h>
#include <sys/file.h>

#include <thread>

#include "base/files.h"
#include "validate/sequence.h"
#include "validate/validator.h"

namespace gpuop::validate {
namespace {

TEST(gate_owner, survives_its_text) {
  for (const GateOwner& owner :
       {GateOwner{}, GateOwner{"a", {}}, GateOwner{"", {"a"}}, GateOwner{"b", {"x", "a"}}})
    EXPECT_EQ(parse_gate_owner(format_gate_owner(owner)), owner);
}

TEST(gate_owner, who_starts_takes_them_and_what_another_left_goes) {
  EXPECT_EQ(claim_gates({}, "a"), (GateDecision{{"a", {}}, true, true})) << "left by nobody that is known";
  EXPECT_EQ(claim_gates({"a", {}}, "a"), (GateDecision{{"a", {}}, false, true})) << "a new container";
  EXPECT_EQ(claim_gates({"a", {}}, "b"), (GateDecision{{"b", {"a"}}, true, true}));
}

TEST(gate_owner, who_lost_them_gets_them_back_only_from_nobody) {
  EXPECT_EQ(claim_gates({"b", {"a"}}, "a"), (GateDecision{{"b", {"a"}}, false, false}));
  EXPECT_EQ(claim_gates({"", {"a", "b"}}, "a"), (GateDecision{{"a", {"b"}}, true, true}));
}

TEST(gate_owner, who_ends_removes_its_own) {
  EXPECT_EQ(release_gates({"a", {}}, "a"), (GateDecision{{"", {"a"}}, true, false}));
  EXPECT_EQ(release_gates({"b", {"a"}}, "a"), (GateDecision{{"b", {"a"}}, false, false}));
  EXPECT_EQ(release_gates({"b", {}}, "a"), (GateDecision{{"b", {"a"}}, false, false}))
      << "a container that is still on its way takes nothing after that";
  EXPECT_EQ(release_gates({}, "a"), (GateDecision{{"", {"a"}}, true, false})) << "somebody removed the file";
}

TEST(gate_owner, only_who_has_them_changes_them) {
  EXPECT_TRUE(holds_gates({"a", {}}, "a"));
  EXPECT_FALSE(holds_gates({"b", {"a"}}, "a"));
  EXPECT_TRUE(holds_gates({}, "a")) << "somebody emptied the folder";
  EXPECT_FALSE(holds_gates({"", {"a"}}, "a")) << "it was told to end";
}

TEST(gate_owner, few_are_remembered) {
  GateOwner owner;
  for (int i = 0; i < 100; ++i) owner = claim_gates(owner, std::to_string(i)).owner;
  EXPECT_EQ(owner.pod, "99");
  EXPECT_LT(owner.former.size(), 20u);
  EXPECT_EQ(owner.former.back(), "98");
}

class gates_on_disk : public ::testing::Test {
 protected:
  Gates of(const std::string& pod) { return {dir.path(), dir.path() / ".gate-owner", pod}; }
  Result<> open(const std::string& pod, const std::string& gate) {
    return of(pod).change([&]() -> Result<> {
      TRY(write_file_atomic(dir.path() / gate, ""));
      return {};
    });
  }
  std::vector<std::string> there() {
    std::vector<std::string> names = *list_dir(dir.path());
    std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
    return names;
  }
  using Names = std::vector<std::string>;

  TempDir dir;
  Loop loop;
};

TEST_F(gates_on_disk, a_validator_that_ends_leaves_what_the_next_wrote) {
  ASSERT_TRUE(of("a").take(loop));
  ASSERT_TRUE(open("a", "driver-ready"));
  ASSERT_TRUE(open("a", "toolkit-ready"));
  ASSERT_TRUE(write_file_atomic(dir.path() / "vfio-pci-ready", "")) << "of a sandbox validator";
  ASSERT_TRUE(of("b").take(loop));
  EXPECT_EQ(there(), Names{"vfio-pci-ready"});
  ASSERT_TRUE(open("b", "driver-ready"));
  const auto late = open("a", "toolkit-ready");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kConflict);
  ASSERT_TRUE(of("a").release());
  EXPECT_EQ(there(), (Names{"driver-ready", "vfio-pci-ready"}));
  ASSERT_TRUE(of("b").release());
  EXPECT_EQ(there(), Names{"vfio-pci-ready"});
  EXPECT_FALSE(open("b", "cuda-ready")) << "a step that was on its way";
}

// Gates first, owner then: a crash in between removes them again.
TEST_F(gates_on_disk, a_crash_while_they_are_taken_leaves_none_that_counts) {
  ASSERT_TRUE(of("a").take(loop));
  ASSERT_TRUE(open("a", "driver-ready"));
  // Its owner file cannot be written.
  const Gates broken(dir.path(), dir.path() / "missing/.gate-owner", "b");
  EXPECT_FALSE(broken.take(loop));
  EXPECT_EQ(there(), Names{});
  EXPECT_TRUE(open("a", "driver-ready")) << "still its own";
  ASSERT_TRUE(of("b").take(loop));
  EXPECT_EQ(there(), Names{});
}

TEST_F(gates_on_disk, who_lost_them_waits_for_the_end_of_the_other) {
  ASSERT_TRUE(of("a").take(loop));
  ASSERT_TRUE(of("b").take(loop));
  ASSERT_TRUE(open("b", "driver-ready"));
  const Handle ends = loop.after(Duration::zero(), [&] { EXPECT_TRUE(of("b").release()); });
  ASSERT_TRUE(of("a").take(loop));
  EXPECT_EQ(there(), Names{});
  EXPECT_TRUE(open("a", "driver-ready"));
}

TEST_F(gates_on_disk, a_folder_that_is_gone_has_no_gates) {
  const Gates gates(dir.path() / "gone", dir.path() / "gone/.gate-owner", "a");
  EXPECT_TRUE(gates.release());
}

// While somebody is at it, another waits.
TEST_F(gates_on_disk, are_changed_by_one_at_a_time) {
  ASSERT_TRUE(of("a").take(loop));
  std::thread other;
  bool taken = false;
  ASSERT_TRUE(of("a").change([&]() -> Result<> {
    other = std::thread([&] {
      Loop own;
      EXPECT_TRUE(of("b").take(own));
      taken = true;
    });
    EXPECT_FALSE(taken);
    TRY(write_file_atomic(dir.path() / "driver-ready", ""));
    return {};
  }));
  other.join();
  EXPECT_TRUE(taken);
  EXPECT_EQ(there(), Names{});
}

TEST_F(gates_on_disk, a_component_of_a_validator_that_lost_them_touches_none) {
  ASSERT_TRUE(of("a").take(loop));
  ASSERT_TRUE(of("b").take(loop));
  ASSERT_TRUE(open("b", "mofed-ready"));
  ValidatorOptions options;
  options.component = "mofed";
  options.output_dir = dir.path();
  options.gate_owner = dir.path() / ".gate-owner";
  options.pod = "a";
  const auto ended = run(loop, options);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code(), Code::kConflict) << ended.error().text();
  EXPECT_EQ(there(), Names{"mofed-ready"});
}

TEST_F(gates_on_disk, a_sequence_takes_them_and_names_the_file_to_its_steps) {
  ASSERT_TRUE(of("a").take(loop));
  ASSERT_TRUE(open("a", "cuda-ready"));
  const fs::path script = dir.path() / ".validator";
  ASSERT_TRUE(write_file_atomic(script,
                                "#!/bin/sh\n[ ! -e " + (dir.path() / "cuda-ready").string() +
                                    " ] || exit 7\nread owner <$" + kGateOwnerFile +
                                    "\n[ \"$owner\" = b ] || exit 8\n",
                                0755));
  Sequence sequence;
  sequence.steps = {{"driver", {}}};
  sequence.validator = {script.string()};
  sequence.output_dir = dir.path();
  sequence.gate_owner = dir.path() / ".gate-owner";
  sequence.pod = "b";
  const auto code = run_sequence(loop, sequence);
  ASSERT_TRUE(code) << code.error().text();
  EXPECT_EQ(*code, 0);
}

}  // namespace
}  // namespace gpuop::validate

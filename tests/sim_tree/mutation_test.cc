// Parsers under thousands of small damages, the same ones each time; the fuzzers look deeper.
#include <gtest/gtest.h>

#include <random>

#include "driver_root.h"
#include "kernels.h"
#include "sim/cuda/ptx.h"
#include "sim/profile.h"

namespace gpuop::sim {
namespace {

std::string damage(std::string text, std::mt19937_64& random) {
  auto pick = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  for (std::size_t n = 1 + pick(2); n > 0 && !text.empty(); --n) {
    std::size_t at = pick(text.size()), length = std::min<std::size_t>(1 + pick(3), text.size() - at);
    switch (pick(4)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, text.substr(pick(text.size()), length));
        break;
      case 2:
        text[at] = static_cast<char>(random());
        break;
      default:
        text[at] = "0123456789.,;[]{}%@-+<>:"[pick(24)];
        break;
    }
  }
  return text;
}

class Page : public ptx::Memory {
 public:
  unsigned char* at(std::uint64_t address, std::uint64_t size) override {
    if (address < 4096 || address - 4096 > sizeof bytes_ || size > sizeof bytes_ - (address - 4096))
      return nullptr;
    return bytes_ + (address - 4096);
  }

 private:
  alignas(16) unsigned char bytes_[4096] = {};
};

TEST(sim_tree, ptx_survives_damage) {
  std::mt19937_64 random(1);
  const std::string seeds[] = {
      vector_add(),
      kernel_of(
          ".shared .align 4 .b32 s[4];\n.local .b8 l[16];\nmov.u32 %r1, s;\nst.shared.v2.u32 [s], {%r1, "
          "%r2};\n"
          "atom.global.cas.b32 %r3, [%rd0], 1, 2;\ncvt.rzi.s32.f32 %r4, %f1;\nbfe.s32 %r5, %r4, 3, 40;\nL:\n"
          "setp.lt.and.f64 %p1, %fd1, 0d4000000000000000, %p2;\n@!%p1 bra L;\nmad.wide.u32 %rd1, %r1, %r2, "
          "%rd0;")};
  int parsed = 0, refused = 0;
  for (int i = 0; i < 4000; ++i) {
    ptx::Module module;
    std::string log;
    if (!ptx::parse(damage(seeds[i % 2], random), &module, &log)) {
      ASSERT_FALSE(log.empty());
      ++refused;
      continue;
    }
    ++parsed;
    Page page;
    for (auto& v : module.variables) v.address = 4096;
    ptx::bind_variables(module);
    for (const auto& k : module.kernels) {
      ptx::run(k, {1, 1, 1}, {2, 1, 1}, std::string(k.parameter_bytes, '\x10'), 0, page, 2000);
    }
  }
  EXPECT_GT(parsed, 100);
  EXPECT_GT(refused, 1000);
}

TEST(sim_tree, profiles_survive_damage) {
  std::mt19937_64 random(2);
  std::string seed = *read_file(built_sim() / "profiles/h200.yaml");
  for (int i = 0; i < 300; ++i) {
    auto profile = parse_profile(damage(seed, random), "damaged.yaml");
    ASSERT_TRUE(profile || !profile.error().text().empty());
  }
}

}  // namespace
}  // namespace gpuop::sim

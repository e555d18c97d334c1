// The PTX interpreter by itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels.h"
#include "sim/cuda/ptx.h"

namespace gpuop::sim {
namespace {

using namespace ptx;  // NOLINT

class Buffer : public Memory {
 public:
  static constexpr std::uint64_t kBase = 0x10000;
  explicit Buffer(std::size_t size) : bytes_(size, 0) {}
  unsigned char* at(std::uint64_t address, std::uint64_t size) override {
    if (address < kBase || address - kBase + size > bytes_.size()) return nullptr;
    return bytes_.data() + (address - kBase);
  }
  template <class T>
  T get(std::size_t index) const {
    T v;
    std::memcpy(&v, bytes_.data() + index * sizeof(T), sizeof(T));
    return v;
  }
  template <class T>
  void set(std::size_t index, T v) {
    std::memcpy(bytes_.data() + index * sizeof(T), &v, sizeof(T));
  }

 private:
  std::vector<unsigned char> bytes_;
};

Outcome launch(const std::string& text, Buffer& buffer, Dim grid = {}, Dim block = {},
               std::uint64_t limit = 1 << 20) {
  Module m;
  std::string log;
  if (!parse(text, &m, &log)) {
    ADD_FAILURE() << log;
    return Outcome::kTrap;
  }
  std::string parameters(8, '\0');
  std::uint64_t out = Buffer::kBase;
  std::memcpy(parameters.data(), &out, 8);
  return run(m.kernels.at(0), grid, block, parameters, 0, buffer, limit);
}

std::string error_of(const std::string& text) {
  Module m;
  std::string log;
  EXPECT_FALSE(parse(text, &m, &log)) << text;
  return log;
}

TEST(sim_tree, ptx_vector_add) {
  Module m;
  std::string log;
  ASSERT_TRUE(parse(vector_add("0f3F800000"), &m, &log)) << log;
  EXPECT_EQ(m.target, 52);
  EXPECT_EQ(m.kernels[0].parameter_bytes, 28u);
  constexpr int kN = 1000;
  Buffer buffer(3 * kN * 4);
  for (int i = 0; i < kN; ++i) {
    buffer.set<float>(i, static_cast<float>(i));
    buffer.set<float>(kN + i, 0.5f);
  }
  std::string parameters(28, '\0');
  std::uint64_t pointers[3] = {Buffer::kBase, Buffer::kBase + kN * 4, Buffer::kBase + 2 * kN * 4};
  std::memcpy(parameters.data(), pointers, 24);
  std::memcpy(parameters.data() + 24, &kN, 4);
  ASSERT_EQ(run(m.kernels[0], {4, 1, 1}, {256, 1, 1}, parameters, 0, buffer, 1 << 20), Outcome::kDone);
  for (int i = 0; i < kN; ++i) ASSERT_EQ(buffer.get<float>(2 * kN + i), static_cast<float>(i) + 1.5f) << i;
}

TEST(sim_tree, ptx_integers) {
  Buffer b(256);
  ASSERT_EQ(launch(kernel_of("mov.u32 %r1, 7;\nmov.s32 %r2, -20;\n"
                             "div.s32 %r3, %r2, %r1;\nst.global.s32 [%rd0], %r3;\n"
                             "rem.s32 %r3, %r2, %r1;\nst.global.s32 [%rd0+4], %r3;\n"
                             "mul.hi.u32 %r3, %r2, %r1;\nst.global.u32 [%rd0+8], %r3;\n"
                             "mul.wide.s32 %rd1, %r2, %r1;\nst.global.s64 [%rd0+16], %rd1;\n"
                             "mad.wide.u32 %rd1, %r1, 3, %rd1;\nst.global.s64 [%rd0+24], %rd1;\n"
                             "shr.s32 %r3, %r2, 2;\nst.global.s32 [%rd0+32], %r3;\n"
                             "shr.u32 %r3, %r2, 28;\nst.global.u32 [%rd0+36], %r3;\n"
                             "bfe.u32 %r3, 0xABCD, 4, 8;\nst.global.u32 [%rd0+40], %r3;\n"
                             "popc.b32 %r3, 0xFF00FF;\nst.global.u32 [%rd0+44], %r3;\n"
                             "clz.b32 %r3, 1;\nst.global.u32 [%rd0+48], %r3;\n"
                             "min.u32 %r3, %r2, %r1;\nst.global.u32 [%rd0+52], %r3;\n"
                             "min.s32 %r3, %r2, %r1;\nst.global.u32 [%rd0+56], %r3;"),
                   b),
            Outcome::kDone);
  EXPECT_EQ(b.get<int>(0), -2);
  EXPECT_EQ(b.get<int>(1), -6);
  EXPECT_EQ(b.get<unsigned>(2), static_cast<unsigned>((4294967276ull * 7) >> 32));
  EXPECT_EQ(b.get<long long>(2), -140);
  EXPECT_EQ(b.get<long long>(3), -119);
  EXPECT_EQ(b.get<int>(8), -5);
  EXPECT_EQ(b.get<unsigned>(9), 15u);
  EXPECT_EQ(b.get<unsigned>(10), 0xBCu);
  EXPECT_EQ(b.get<unsigned>(11), 16u);
  EXPECT_EQ(b.get<unsigned>(12), 31u);
  EXPECT_EQ(b.get<unsigned>(13), 7u);
  EXPECT_EQ(b.get<int>(14), -20);
}

TEST(sim_tree, ptx_reals_and_conversions) {
  Buffer b(256);
  ASSERT_EQ(launch(kernel_of("mov.f32 %f1, 0f40490FDB;\nmov.f64 %fd1, 2.5;\n"
                             "fma.rn.f32 %f2, %f1, 2.0, 0f3F800000;\nst.global.f32 [%rd0], %f2;\n"
                             "cvt.rzi.s32.f32 %r1, %f1;\nst.global.s32 [%rd0+4], %r1;\n"
                             "cvt.rn.f32.s32 %f2, -7;\nst.global.f32 [%rd0+8], %f2;\n"
                             "cvt.rni.s32.f64 %r1, %fd1;\nst.global.s32 [%rd0+12], %r1;\n"
                             "sqrt.rn.f64 %fd2, %fd1;\nst.global.f64 [%rd0+16], %fd2;\n"
                             "cvt.sat.u8.s32 %r1, 300;\nst.global.u32 [%rd0+24], %r1;\n"
                             "cvt.rzi.u32.f32 %r1, -1.0;\nst.global.u32 [%rd0+28], %r1;\n"
                             "div.rz.f32 %f2, 1.0, 3.0;\nst.global.f32 [%rd0+32], %f2;\n"
                             "div.rp.f32 %f2, 1.0, 3.0;\nst.global.f32 [%rd0+36], %f2;\n"
                             "cvt.s64.s32 %rd1, -1;\nst.global.u64 [%rd0+40], %rd1;"),
                   b),
            Outcome::kDone);
  EXPECT_FLOAT_EQ(b.get<float>(0), 2 * 3.14159274f + 1);
  EXPECT_EQ(b.get<int>(1), 3);
  EXPECT_EQ(b.get<float>(2), -7.0f);
  EXPECT_EQ(b.get<int>(3), 2);
  EXPECT_EQ(b.get<double>(2), std::sqrt(2.5));
  EXPECT_EQ(b.get<unsigned>(6), 255u);
  EXPECT_EQ(b.get<unsigned>(7), 0u);
  EXPECT_LT(b.get<float>(8), b.get<float>(9));
  EXPECT_EQ(b.get<unsigned long long>(5), ~0ull);
}

TEST(sim_tree, ptx_loops_predicates_shared_memory_barriers_and_atomics) {
  // Each of 64 threads adds its number to a shared sum, after a barrier thread 0 stores it; and a loop of its
  // own.
  Buffer b(64);
  std::string text = kernel_of(
      ".shared .align 4 .b32 sum[2];\n"
      "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [sum], 0;\nbar.sync 0;\n"
      "mov.u32 %r2, sum;\natom.shared.add.u32 %r3, [%r2], %r1;\nred.global.add.u32 [%rd0+8], 1;\nbar.sync "
      "0;\n"
      "@!%p1 bra DONE;\n"
      "ld.shared.u32 %r4, [sum];\nst.global.u32 [%rd0], %r4;\n"
      "mov.u32 %r5, 0;\nmov.u32 %r6, 0;\n"
      "LOOP:\nadd.u32 %r6, %r6, %r5;\nadd.u32 %r5, %r5, 1;\nsetp.lt.u32 %p2, %r5, 101;\n@%p2 bra LOOP;\n"
      "selp.u32 %r7, %r6, 0, %p1;\nst.global.u32 [%rd0+4], %r7;\nDONE:");
  ASSERT_EQ(launch(text, b, {1, 1, 1}, {64, 1, 1}), Outcome::kDone);
  EXPECT_EQ(b.get<unsigned>(0), 2016u);
  EXPECT_EQ(b.get<unsigned>(1), 5050u);
  EXPECT_EQ(b.get<unsigned>(2), 64u);
}

TEST(sim_tree, ptx_bits_and_carries) {
  Buffer b(256);
  ASSERT_EQ(
      launch(kernel_of("mov.u32 %r1, 0xF0F0F0F0;\nmov.u32 %r2, 0xFF00FF00;\n"
                       "lop3.b32 %r3, %r1, %r2, 0xFFFF0000, 0x96;\nst.global.u32 [%rd0], %r3;\n"
                       "prmt.b32 %r3, 0x44332211, 0x88776655, 0x7531;\nst.global.u32 [%rd0+4], %r3;\n"
                       "shf.l.wrap.b32 %r3, 0x80000001, 2, 36;\nst.global.u32 [%rd0+8], %r3;\n"
                       "shf.r.clamp.b32 %r3, 1, 2, 40;\nst.global.u32 [%rd0+12], %r3;\n"
                       "mul24.lo.u32 %r3, 0xFF000003, 5;\nst.global.u32 [%rd0+16], %r3;\n"
                       "sad.s32 %r3, -4, 6, 1;\nst.global.u32 [%rd0+20], %r3;\n"
                       "mov.b64 %rd1, {%r1, %r2};\nst.global.u64 [%rd0+24], %rd1;\n"
                       "mov.b64 {%r4, %r5}, %rd1;\nst.global.u32 [%rd0+32], %r5;\n"
                       "add.cc.u32 %r3, 0xFFFFFFFF, 2;\naddc.u32 %r4, 5, 6;\nst.global.u32 [%rd0+36], %r4;\n"
                       "sub.cc.u32 %r3, 1, 2;\nsubc.u32 %r4, 9, 1;\nst.global.u32 [%rd0+40], %r4;\n"
                       "setp.lt.u32 %p1|%p2, 1, 2;\nselp.u32 %r3, 7, 8, %p2;\nst.global.u32 [%rd0+44], %r3;\n"
                       "mov.f32 %f1, 0f7F800000;\ntestp.infinite.f32 %p1, %f1;\nselp.u32 %r3, 1, 0, %p1;\n"
                       "st.global.u32 [%rd0+48], %r3;\n"
                       "copysign.f32 %f2, -1.0, 3.0;\nst.global.f32 [%rd0+52], %f2;\n"
                       "isspacep.global %p1, %rd0;\nselp.u32 %r3, 1, 0, %p1;\nst.global.u32 [%rd0+56], %r3;"),
             b),
      Outcome::kDone);
  EXPECT_EQ(b.get<unsigned>(0), 0xF0F0F0F0u ^ 0xFF00FF00u ^ 0xFFFF0000u);
  EXPECT_EQ(b.get<unsigned>(1), 0x88664422u);
  EXPECT_EQ(b.get<unsigned>(2), 0x00000028u);  // {2, 0x80000001} by 4
  EXPECT_EQ(b.get<unsigned>(3), 2u);           // by no more than 32
  EXPECT_EQ(b.get<unsigned>(4), 15u);
  EXPECT_EQ(b.get<unsigned>(5), 11u);
  EXPECT_EQ(b.get<unsigned long long>(3), 0xFF00FF00F0F0F0F0ull);
  EXPECT_EQ(b.get<unsigned>(8), 0xFF00FF00u);
  EXPECT_EQ(b.get<unsigned>(9), 12u);
  EXPECT_EQ(b.get<unsigned>(10), 7u);
  EXPECT_EQ(b.get<unsigned>(11), 8u);
  EXPECT_EQ(b.get<unsigned>(12), 1u);
  EXPECT_EQ(b.get<float>(13), -3.0f);
  EXPECT_EQ(b.get<unsigned>(14), 1u);
}

TEST(sim_tree, ptx_warps_reduce_vote_and_shuffle) {
  // 40 threads: a whole warp and one of eight. A sum by butterflies in the first, then votes and a broadcast.
  Buffer b(64 * 4 * 4);
  std::string text = kernel_of(
      "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd1, %r1, 4;\nadd.u64 %rd2, %rd0, %rd1;\n"
      "setp.ge.u32 %p1, %r1, 32;\n@%p1 bra SMALL;\n"
      "mov.u32 %r2, %r1;\nmov.u32 %r3, 16;\n"
      "LOOP:\nshfl.sync.bfly.b32 %r4, %r2, %r3, 31, -1;\nadd.u32 %r2, %r2, %r4;\nshr.u32 %r3, %r3, 1;\n"
      "setp.ne.u32 %p2, %r3, 0;\n@%p2 bra LOOP;\nst.global.u32 [%rd2], %r2;\n"
      "setp.lt.u32 %p3, %r1, 5;\nvote.sync.ballot.b32 %r5, %p3, -1;\nst.global.u32 [%rd2+256], %r5;\n"
      "redux.sync.max.u32 %r6, %r1, -1;\nst.global.u32 [%rd2+512], %r6;\n"
      "shfl.sync.down.b32 %r7|%p4, %r1, 1, 31, -1;\nselp.u32 %r7, %r7, 99, %p4;\nst.global.u32 [%rd2+768], "
      "%r7;\n"
      "bra DONE;\n"
      "SMALL:\nshfl.sync.idx.b32 %r4, %r1, 3, 31, 255;\nst.global.u32 [%rd2], %r4;\n"
      "DONE:\nbar.warp.sync -1;");
  ASSERT_EQ(launch(text, b, {1, 1, 1}, {40, 1, 1}), Outcome::kDone);
  for (unsigned i = 0; i < 32; ++i) {
    EXPECT_EQ(b.get<unsigned>(i), 496u) << i;
    EXPECT_EQ(b.get<unsigned>(64 + i), 0x1Fu) << i;
    EXPECT_EQ(b.get<unsigned>(128 + i), 31u) << i;
    EXPECT_EQ(b.get<unsigned>(192 + i), i == 31 ? 99u : i + 1) << i;
  }
  for (unsigned i = 32; i < 40; ++i) EXPECT_EQ(b.get<unsigned>(i), 35u) << i;
}

TEST(sim_tree, ptx_a_warp_that_waits_for_itself_hangs) {
  Buffer b(64);
  std::string text = kernel_of(
      "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra WAIT;\n"
      "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\nWAIT:\nbar.sync 0;");
  EXPECT_EQ(launch(text, b, {1, 1, 1}, {32, 1, 1}), Outcome::kTimeout);
}

TEST(sim_tree, ptx_refuses_what_it_does_not_know) {
  for (const char* line : {"wmma.load.a.sync.aligned.m16n16k16.global.f16 %r1, [%rd0];",
                           "tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd0, {%r1}];", "add.f16 %r1, %r2, %r3;",
                           "shfl.sync.b32 %r1, %r2, 1, 31, -1;", "vote.sync.ballot.pred %p1, %p2, -1;",
                           "mov.b32 {%r1, %r2, %r3}, %r4;", "lop3.b64 %rd1, %rd1, %rd1, %rd1, 1;",
                           "add.u32 %r1|%p1, %r2, %r3;", "call.uni helper;"}) {
    EXPECT_NE(error_of(kernel_of(line)).find("ptxas"), std::string::npos) << line;
  }
}

TEST(sim_tree, ptx_faults) {
  Buffer b(64);
  EXPECT_EQ(launch(kernel_of("st.global.u32 [%rd0+64], 1;"), b), Outcome::kIllegalAddress);
  EXPECT_EQ(launch(kernel_of("st.global.u32 [%rd0+61], 1;"), b), Outcome::kIllegalAddress);
  EXPECT_EQ(launch(kernel_of("st.global.u32 [%rd0+2], 1;"), b), Outcome::kMisaligned);
  EXPECT_EQ(launch(kernel_of("trap;"), b), Outcome::kTrap);
  EXPECT_EQ(launch(kernel_of("L:\nbra L;"), b), Outcome::kTimeout);
  EXPECT_EQ(launch(kernel_of(".shared .b32 s[4];\nld.shared.u32 %r1, [s+16];"), b), Outcome::kIllegalAddress);
}

TEST(sim_tree, ptx_errors_name_the_line) {
  EXPECT_NE(error_of(kernel_of("frobnicate.u32 %r1, %r2;"))
                .find("line 13; error   : Not a name of any known "
                      "instruction: 'frobnicate'"),
            std::string::npos);
  EXPECT_NE(error_of(kernel_of("add.u32 %r1, %r2;")).find("Arguments mismatch"), std::string::npos);
  EXPECT_NE(error_of(kernel_of("add.u32 %r1, %r2, %q9;")).find("Unknown symbol '%q9'"), std::string::npos);
  EXPECT_NE(error_of(kernel_of("bra NOWHERE;")).find("Unknown label 'NOWHERE'"), std::string::npos);
  EXPECT_NE(error_of(kernel_of("add.wobbly.u32 %r1, %r2, %r3;")).find("Illegal modifier '.wobbly'"),
            std::string::npos);
  EXPECT_NE(error_of(kernel_of("mul.u32 %r1, %r2, %r3;")).find("One of .lo"), std::string::npos);
  EXPECT_NE(error_of(kernel_of("add.f32 %r1, %rd2, %f3;")).find("mismatch"), std::string::npos);
  EXPECT_NE(error_of("int main() {}").find("Missing .version"), std::string::npos);
  EXPECT_NE(error_of("").find("Missing .version"), std::string::npos);
}

}  // namespace
}  // namespace gpuop::sim

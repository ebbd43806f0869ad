// The machine on small programs: lanes that part and meet, calls, memory of each kind, and each error that it knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/ptx/machine.h"

namespace nanscope::ptx {
namespace {

using testing::HasSubstr;

constexpr const char* kHead = ".version 9.0\n.target sm_90\n.address_size 64\n";

/// A kernel of one pointer, %rd1 by the time that `body` begins; %r1 is the thread, %r2 the block.
std::string kernel(const std::string& body, const std::string& functions = "") {
  return kHead + functions +
         ".visible .entry test(\n .param .u64 test_param_0\n)\n{\n"
         " .reg .pred %p<9>;\n .reg .b16 %rs<9>;\n .reg .f32 %f<9>;\n .reg .b32 %r<19>;\n .reg .b64 %rd<19>;\n"
         " .local .align 16 .b8 depot[64];\n"
         " ld.param.u64 %rd1, [test_param_0];\n mov.u32 %r1, %tid.x;\n mov.u32 %r2, %ctaid.x;\n"
         " mul.wide.u32 %rd2, %r1, 4;\n add.s64 %rd3, %rd1, %rd2;\n" +
         body + "\n ret;\n}\n";
}

struct Ran {
  Status status;
  std::vector<std::uint32_t> words;
};

/// `words` of memory, of which the first `written` hold their index; the others nobody wrote.
Ran run(const std::string& text, std::size_t words, std::size_t written, Machine::Launch launch = {}) {
  const auto program = read_program(text);
  if (!program) return {tl::unexpected(program.error()), {}};
  Machine machine(*program);
  std::byte* memory = machine.memory().allocate(words * 4, Memory::State::unwritten);
  for (std::uint32_t i = 0; i < written; ++i) std::memcpy(memory + i * 4, &i, 4);
  machine.memory().mark(memory, written * 4, Memory::State::written);
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  const std::array arguments{std::as_bytes(std::span(&address, 1))};
  Ran ran{machine.launch(*program->entry("test"), launch, arguments), std::vector<std::uint32_t>(words)};
  std::memcpy(ran.words.data(), memory, words * 4);
  return ran;
}

std::string problem(const std::string& body, std::size_t words, std::size_t written, Machine::Launch launch = {}) {
  const Ran ran = run(kernel(body), words, written, launch);
  return ran.status ? "" : ran.status.error().message;
}

TEST(PtxMachine, EachLaneHasItsThread) {
  const Ran ran = run(kernel("st.global.u32 [%rd3], %r1;"), 64, 0, {1, 64});
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(ran.words[i], i);
}

/// Lane i adds 1 + 2 + ... + i; all meet behind the loop, or the shuffle would miss lanes.
TEST(PtxMachine, LanesPartAndMeetAgain) {
  const Ran ran = run(kernel(R"(
 mov.u32 %r3, 0;
 mov.u32 %r4, 0;
$loop:
 setp.ge.u32 %p1, %r4, %r1;
 @%p1 bra $end;
 add.s32 %r4, %r4, 1;
 add.s32 %r3, %r3, %r4;
 bra.uni $loop;
$end:
 shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1;
 st.global.u32 [%rd3], %r5;)"),
                      32, 0);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(ran.words[i], (i ^ 1U) * ((i ^ 1U) + 1) / 2);
}

TEST(PtxMachine, APredicateGuards) {
  const Ran ran = run(kernel(R"(
 setp.lt.u32 %p1, %r1, 16;
 mov.u32 %r3, 7;
 @%p1 mov.u32 %r3, 8;
 @!%p1 add.s32 %r3, %r3, %r1;
 st.global.u32 [%rd3], %r3;)"),
                      32, 0);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  EXPECT_EQ(ran.words[3], 8U);
  EXPECT_EQ(ran.words[20], 27U);
}

TEST(PtxMachine, CallsTakeAndGiveParameters) {
  const std::string twice = R"(
.func (.param .b32 out) twice(.param .b32 in)
{
 .reg .pred %p<2>;
 .reg .b32 %r<4>;
 ld.param.b32 %r1, [in];
 setp.eq.s32 %p1, %r1, 5;
 @%p1 bra $five;
 add.s32 %r2, %r1, %r1;
 st.param.b32 [out], %r2;
 ret;
$five:
 st.param.b32 [out], 55;
 ret;
}
)";
  const Ran ran = run(kernel(R"(
 {
 .param .b32 param0;
 st.param.b32 [param0], %r1;
 .param .b32 retval0;
 call.uni (retval0), twice, (param0);
 ld.param.b32 %r3, [retval0];
 }
 st.global.u32 [%rd3], %r3;)",
                             twice),
                      32, 0);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  EXPECT_EQ(ran.words[5], 55U);
  EXPECT_EQ(ran.words[31], 62U);
}

TEST(PtxMachine, LoadsExtendAndStoresCutOff) {
  const Ran ran = run(kernel(R"(
 mov.u32 %r3, 0x1234ff80;
 st.global.u32 [%rd3], %r3;
 ld.global.u8 %r4, [%rd3];
 ld.global.s8 %r5, [%rd3];
 ld.global.u16 %rs1, [%rd3];
 ld.global.s16 %r7, [%rd3];
 cvt.u32.u16 %r6, %rs1;
 add.s32 %r8, %r4, %r5;
 add.s32 %r8, %r8, %r6;
 add.s32 %r8, %r8, %r7;
 st.global.u8 [%rd3+3], %r4;
 st.global.u32 [%rd3+128], %r8;)"),
                      64, 0);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  EXPECT_EQ(ran.words[0], 0x8034ff80U);
  EXPECT_EQ(ran.words[32], 0x80U + 0xffffff80U + 0xff80U + 0xffffff80U);
}

TEST(PtxMachine, VectorsAndLocalMemory) {
  const Ran ran = run(kernel(R"(
 mov.u64 %rd4, depot;
 cvta.local.u64 %rd5, %rd4;
 ld.global.v2.u32 {%r3, %r4}, [%rd1+8];
 st.local.v4.u32 [%rd4+16], {%r3, %r4, %r1, %r1};
 ld.u32 %r5, [%rd5+20];
 ld.local.u32 %r6, [%rd4+24];
 add.s32 %r7, %r5, %r6;
 st.global.u32 [%rd3+64], %r7;)"),
                      48, 16);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  EXPECT_EQ(ran.words[16], 3U);
  EXPECT_EQ(ran.words[47], 34U);
}

TEST(PtxMachine, ReportsALoadOutsideOfMemory) {
  EXPECT_THAT(problem("ld.global.u32 %r3, [%rd3+4];", 32, 32), HasSubstr("a load outside of any memory"));
}

TEST(PtxMachine, ReportsAStoreOutsideOfMemory) {
  EXPECT_THAT(problem("st.global.u32 [%rd3+-4], %r1;", 32, 32), HasSubstr("a store outside of any memory"));
}

TEST(PtxMachine, ReportsALoadOfWhatNobodyWrote) {
  EXPECT_THAT(problem("ld.global.u32 %r3, [%rd3];", 32, 31), HasSubstr("a load of memory that nobody wrote"));
}

TEST(PtxMachine, ReportsAnAddressThatIsNotAligned) {
  EXPECT_THAT(problem("ld.global.u32 %r3, [%rd1+2];", 32, 32), HasSubstr("not a multiple"));
  EXPECT_THAT(problem("ld.global.v2.u32 {%r3, %r4}, [%rd1+4];", 32, 32), HasSubstr("not a multiple"));
}

TEST(PtxMachine, ReportsAnAddressOfAnotherSpace) {
  EXPECT_THAT(problem("mov.u64 %rd4, depot;\n ld.global.u32 %r3, [%rd4];", 32, 32), HasSubstr("another state space"));
}

TEST(PtxMachine, ReportsTwoWarpsThatWriteOneWord) {
  EXPECT_EQ(problem("st.global.u32 [%rd1], %r1;", 1, 0, {1, 32}), "") << "one warp may";
  EXPECT_THAT(problem("st.global.u32 [%rd1], %r1;", 1, 0, {1, 64}), HasSubstr("another warp of the launch writes"));
  EXPECT_THAT(problem("st.global.u32 [%rd3], %r1;", 32, 0, {2, 32}), HasSubstr("another warp of the launch writes"));
}

TEST(PtxMachine, ReportsAWarpThatReadsWhatAnotherWrites) {
  const char* neighbour = "st.global.u32 [%rd3], %r1;\n ld.global.u32 %r3, [%rd1];";
  EXPECT_EQ(problem(neighbour, 64, 64, {1, 32}), "");
  EXPECT_THAT(problem(neighbour, 64, 64, {1, 64}), HasSubstr("a load of what another warp"));
  const char* before = "ld.global.u32 %r3, [%rd1+128];\n st.global.u32 [%rd3], %r1;";
  EXPECT_THAT(problem(before, 64, 64, {1, 64}), HasSubstr("a store to what another warp of the launch reads"));
}

TEST(PtxMachine, ReportsALaneThatLeftBeforeAShuffle) {
  EXPECT_THAT(problem("setp.eq.s32 %p1, %r1, 3;\n @%p1 ret;\n shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;", 1, 1),
              HasSubstr("a lane is missing"));
}

TEST(PtxMachine, ReportsLanesThatWaitForEachOther) {
  EXPECT_THAT(problem(R"(
 setp.lt.u32 %p1, %r1, 16;
 @%p1 bra $other;
 shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;
 bra.uni $end;
$other:
 shfl.sync.bfly.b32 %r6, %r1, 1, 31, -1;
$end:)",
                      1, 1),
              HasSubstr("a lane is missing: it waits elsewhere"));
}

TEST(PtxMachine, ReportsALaneThatIsNotAmongItsMembers) {
  EXPECT_THAT(problem("shfl.sync.bfly.b32 %r5, %r1, 1, 31, 0xffff;", 1, 1), HasSubstr("not among the members"));
}

TEST(PtxMachine, SaysWhere) {
  const std::string text = problem("ld.global.u32 %r3, [%rd3];", 32, 0, {2, 64});
  EXPECT_THAT(text, HasSubstr("test, line 19 (ld.global.u32), block 0 warp 0: "));
}

TEST(PtxProgram, StopsAtWhatItDoesNotKnow) {
  for (const auto& [body, what] :
       {std::pair("bar.sync 0;", "instruction 'bar.sync' is not known"),
        std::pair("atom.global.add.u32 %r3, [%rd1], 1;", "'atom.global.add.u32' is not known"),
        std::pair("add.ftz.f32 %f1, %f2, %f3;", "'add.ftz.f32' is not known"),
        std::pair("add.s64 %rd1, %rd2, %r1;", "register %r1 is not as wide as the instruction"),
        std::pair("add.s32 %r1, %r2, %r99;", "'%r99' is not known"), std::pair("bra $nowhere;", "label"),
        std::pair("mov.u32 5, %r1;", "'5' cannot be written")}) {
    EXPECT_THAT(problem(body, 1, 1), HasSubstr(what));
  }
}

}  // namespace
}  // namespace nanscope::ptx

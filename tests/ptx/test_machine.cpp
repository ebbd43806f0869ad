// The machine on small programs: lanes that part and meet, calls, memory of each kind, and each error that it knows.
#include <fmt/format.h>
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

/// A function that a function calls, in the second warp of the second block.
TEST(PtxMachine, CalledFunctionsKnowTheirThread) {
  const std::string functions = R"(
.func (.param .b32 out) place()
{
 .reg .b32 %r<9>;
 mov.u32 %r1, %tid.x;
 mov.u32 %r2, %ctaid.x;
 mov.u32 %r3, %ntid.x;
 mov.u32 %r4, %nctaid.x;
 mad.lo.s32 %r5, %r2, %r3, %r1;
 mad.lo.s32 %r6, %r4, 1000, %r5;
 st.param.b32 [out], %r6;
 ret;
}
.func (.param .b32 out) caller()
{
 .reg .b32 %r<4>;
 {
 .param .b32 retval0;
 call.uni (retval0), place;
 ld.param.b32 %r3, [retval0];
 }
 st.param.b32 [out], %r3;
 ret;
}
)";
  const Ran ran = run(kernel(R"(
 {
 .param .b32 retval0;
 call.uni (retval0), caller;
 ld.param.b32 %r3, [retval0];
 }
 shl.b32 %r4, %r2, 6;
 add.s32 %r4, %r4, %r1;
 mul.wide.u32 %rd4, %r4, 4;
 add.s64 %rd5, %rd1, %rd4;
 st.global.u32 [%rd5], %r3;)",
                             functions),
                      128, 0, {2, 64});
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(ran.words[i], 2000 + i) << i;
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

/// A matrix product has no mask: it is of all lanes.
TEST(PtxMachine, ReportsALaneThatIsMissingAtAMatrixProduct) {
  const std::string product =
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r3, %r3, %r3, %r3}, {%r3, %r3}, "
      "{%f1, %f2, %f3, %f4};";
  EXPECT_EQ(problem("mov.u32 %r3, 0;\n" + product, 1, 1), "");
  EXPECT_THAT(problem("setp.eq.s32 %p1, %r1, 3;\n @%p1 ret;\n" + product, 1, 1), HasSubstr("a lane is missing"));
  EXPECT_THAT(problem("setp.eq.s32 %p1, %r1, 3;\n @%p1 " + product, 1, 1), HasSubstr("its predicate is false"));
}

TEST(PtxMachine, ReportsALaneThatIsNotAmongItsMembers) {
  EXPECT_THAT(problem("shfl.sync.bfly.b32 %r5, %r1, 1, 31, 0xffff;", 1, 1), HasSubstr("not among the members"));
}

/// Each warp of two hands its words to the other, four at a time; 64 threads take 1 KiB of shared memory.
constexpr const char* kHandOver = R"(
 .shared .align 16 .b8 tile[1024];
 mov.u32 %r3, tile;
 shl.b32 %r4, %r1, 4;
 add.s32 %r5, %r3, %r4;
 add.s32 %r6, %r1, 100;
 st.shared.v4.u32 [%r5], {%r1, %r6, %r1, %r1};
 BARRIER
 xor.b32 %r7, %r4, 528;
 add.s32 %r8, %r3, %r7;
 ld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [%r8];
 add.s32 %r13, %r9, %r10;
 ld.shared.u32 %r14, [tile+1008];
 add.s32 %r13, %r13, %r14;
 cvt.u64.u32 %rd4, %r8;
 cvta.shared.u64 %rd5, %rd4;
 ld.u32 %r15, [%rd5+4];
 sub.s32 %r13, %r13, %r15;
 st.global.u32 [%rd3], %r13;)";

std::string hand_over(const std::string& barrier) {
  std::string body = kHandOver;
  return body.replace(body.find("BARRIER"), 7, barrier);
}

TEST(PtxMachine, WarpsOfABlockMeetAtABarrier) {
  const Ran ran = run(kernel(hand_over("bar.sync 0;")), 128, 0, {1, 64});
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  // What thread i ^ 33 left: its number and 100 more, of which the 100 more are taken off again, and 63 of the last.
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(ran.words[i], (i ^ 33U) + 63) << i;
}

/// A loop keeps what a warp has in registers and in local memory from barrier to barrier.
TEST(PtxMachine, AWarpKeepsWhatIsItsOwnAtBarriers) {
  const Ran ran = run(kernel(R"(
 .shared .align 4 .b8 sum[4];
 mov.u64 %rd4, depot;
 st.local.u32 [%rd4+8], %r1;
 mov.u32 %r3, 0;
 mov.u32 %r4, 0;
$loop:
 setp.ne.u32 %p1, %r1, %r4;
 @!%p1 st.shared.u32 [sum], %r1;
 bar.sync 0;
 ld.shared.u32 %r5, [sum];
 add.s32 %r3, %r3, %r5;
 bar.sync 0;
 add.s32 %r4, %r4, 32;
 setp.lt.u32 %p1, %r4, 128;
 @%p1 bra $loop;
 ld.local.u32 %r6, [%rd4+8];
 mul.lo.s32 %r7, %r6, 1000;
 add.s32 %r7, %r7, %r3;
 st.global.u32 [%rd3], %r7;)"),
                      128, 0, {1, 128});
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(ran.words[i], 1000 * i + 32 + 64 + 96) << i;
}

TEST(PtxMachine, EachBlockHasSharedMemoryOfItsOwn) {
  const char* body = R"(
 .shared .align 4 .b8 word[4];
 setp.eq.u32 %p1, %r2, 0;
 @%p1 st.shared.u32 [word], %r2;
 bar.sync 0;
 ld.shared.u32 %r3, [word];)";
  EXPECT_EQ(problem(body, 1, 1, {1, 32}), "");
  EXPECT_THAT(problem(body, 1, 1, {2, 32}),
              HasSubstr("block 1 warp 0: in shared memory, a load of memory that nobody"));
}

TEST(PtxMachine, ReportsWarpsThatMeetInSharedMemoryWithoutABarrier) {
  // The first warp has read what the second one overwrites.
  EXPECT_THAT(problem(hand_over("bar.sync 0;\n st.shared.u32 [%r5], %r1;"), 128, 0, {1, 64}),
              HasSubstr("block 0 warp 1: in shared memory, a store to what another warp of the launch reads"));
  const char* both = ".shared .align 4 .b8 word[4];\n bar.sync 0;\n st.shared.u32 [word], %r1;";
  EXPECT_EQ(problem(both, 1, 1, {1, 32}), "");
  EXPECT_THAT(problem(both, 1, 1, {1, 64}), HasSubstr("in shared memory, a store to what another warp"));
  const char* after = R"(
 .shared .align 4 .b8 word[4];
 setp.eq.u32 %p1, %r1, 0;
 @%p1 st.shared.u32 [word], %r1;
 bar.sync 0;
 ld.shared.u32 %r3, [word];
 setp.eq.u32 %p2, %r1, 32;
 BARRIER
 @%p2 st.shared.u32 [word], %r1;)";
  std::string body = after;
  EXPECT_EQ(problem(body.replace(body.find("BARRIER"), 7, "bar.sync 0;"), 1, 1, {1, 64}), "");
  body = after;
  EXPECT_THAT(problem(body.replace(body.find("BARRIER"), 7, ""), 1, 1, {1, 64}),
              HasSubstr("in shared memory, a store to what another warp of the launch reads"));
}

TEST(PtxMachine, ReportsSharedMemoryThatIsNotThere) {
  EXPECT_THAT(problem(".shared .align 4 .b8 word[4];\n bar.sync 0;\n st.shared.u32 [word+4], %r1;", 1, 1),
              HasSubstr("in shared memory, a store outside"));
  EXPECT_THAT(
      problem(".shared .align 16 .b8 tile[32];\n bar.sync 0;\n st.shared.v4.u32 [tile+8], {%r1, %r1, %r1, %r1};", 1, 1),
      HasSubstr("not a multiple"));
  EXPECT_THAT(
      problem(".shared .align 4 .b8 word[4];\n mov.u64 %rd4, word;\n bar.sync 0;\n ld.global.u32 %r3, [%rd4];", 1, 1),
      HasSubstr("another state space"));
}

/// Lane i copies words 4i to 4i + 3, then the 128 words behind all of these as a group of its own; what `last` does
/// follows. %r5 and %r6 are the lane's addresses in shared memory, words of the first group are stored to word i.
std::string copies(const std::string& between, const std::string& last = "") {
  return R"(
 .shared .align 16 .b8 tile[1024];
 mov.u64 %rd4, tile;
 cvt.u32.u64 %r4, %rd4;
 shl.b32 %r3, %r1, 4;
 add.s32 %r5, %r4, %r3;
 mul.wide.u32 %rd5, %r1, 16;
 add.s64 %rd6, %rd1, %rd5;
 cp.async.cg.shared.global [%r5+0], [%rd6+0], 16;
 cp.async.commit_group;
 cp.async.cg.shared.global [%r5+512], [%rd6+512], 16;
 cp.async.commit_group;)" +
         between + R"(
 bar.warp.sync -1;
 xor.b32 %r6, %r5, 16;
 ld.shared.u32 %r7, [%r6+4];
 st.global.u32 [%rd3], %r7;)" +
         last;
}

TEST(PtxMachine, CopiesAreThereOnceTheyAreWaitedFor) {
  // Of the last two groups one may be on its way.
  const Ran ran = run(kernel(copies(" cp.async.wait_group 1;")), 256, 256);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(ran.words[i], 4 * (i ^ 1U) + 1) << i;
  const Ran second = run(kernel(copies(" cp.async.wait_group 0;",
                                       " ld.shared.u32 %r8, [%r6+520];\n"
                                       " st.global.u32 [%rd3], %r8;")),
                         256, 256);
  ASSERT_TRUE(second.status) << second.status.error().message;
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(second.words[i], 128 + 4 * (i ^ 1U) + 2) << i;
  // A group without copies is one.
  EXPECT_EQ(problem(copies(" cp.async.commit_group;\n cp.async.wait_group 2;"), 256, 256), "");
}

TEST(PtxMachine, ReportsWhatACopyHasNotBroughtYet) {
  EXPECT_THAT(problem(copies(""), 256, 256), HasSubstr("in shared memory, a load of memory that nobody"));
  EXPECT_THAT(problem(copies(" cp.async.wait_group 2;"), 256, 256),
              HasSubstr("in shared memory, a load of memory that nobody"));
  EXPECT_THAT(problem(copies(" cp.async.wait_group 1;", " ld.shared.u32 %r8, [%r6+520];"), 256, 256),
              HasSubstr("in shared memory, a load of memory that nobody"));
  // What was there is lost from the copy on, not from the wait on.
  const char* again = " cp.async.wait_group 0;\n cp.async.cg.shared.global [%r5+0], [%rd6+0], 16;\n";
  EXPECT_THAT(problem(copies(again), 256, 256), HasSubstr("in shared memory, a load of memory that nobody"));
}

TEST(PtxMachine, ReportsCopiesFromAndToOtherPlaces) {
  const auto one = [](const char* to, const char* from) {
    return fmt::format(" cp.async.wait_group 0;\n cp.async.cg.shared.global [{}], [{}], 16;\n", to, from);
  };
  EXPECT_THAT(problem(copies(one("%r5+0", "%rd6+4")), 256, 256), HasSubstr("not a multiple of 16"));
  EXPECT_THAT(problem(copies(one("%r5+8", "%rd6+0")), 256, 256), HasSubstr("not a multiple of 16"));
  EXPECT_THAT(problem(copies(one("%r5+1024", "%rd6+0")), 256, 256), HasSubstr("in shared memory, a store outside"));
  EXPECT_THAT(problem(copies(one("%r5+0", "%rd6+1024")), 256, 256), HasSubstr("a load outside"));
  EXPECT_THAT(problem(copies(""), 256, 128), HasSubstr("a load of memory that nobody"));
}

/// Squares are added to a number of 64 bits by halves: the carry goes from one instruction to the next, lane by lane.
TEST(PtxMachine, CarriesGoOnToTheUpperHalf) {
  const Ran ran = run(kernel(R"(
 mov.u32 %r3, 0xfffffff0;
 mov.u32 %r4, 7;
 add.s32 %r5, %r1, 65534;
 mad.lo.cc.u32 %r3, %r5, %r5, %r3;
 madc.hi.u32 %r4, %r5, %r5, %r4;
 st.global.u32 [%rd3], %r3;
 st.global.u32 [%rd3+128], %r4;)"),
                      64, 0);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  for (std::uint64_t i = 0; i < 32; ++i) {
    const std::uint64_t sum = 0x7fffffff0U + (i + 65534) * (i + 65534);
    EXPECT_EQ(ran.words[i], static_cast<std::uint32_t>(sum)) << i;
    EXPECT_EQ(ran.words[32 + i], sum >> 32) << i;
  }
}

TEST(PtxMachine, ReportsWhoIsMissingAtABarrier) {
  EXPECT_THAT(problem("setp.eq.u32 %p1, %r1, 3;\n @%p1 ret;\n bar.sync 0;", 1, 1),
              HasSubstr("a lane is missing: it has left"));
  EXPECT_THAT(problem("setp.lt.u32 %p1, %r1, 32;\n @%p1 ret;\n bar.sync 0;", 1, 1, {1, 64}),
              HasSubstr("block 0: 1 of 2 warps wait at a barrier, the others have left"));
  EXPECT_THAT(problem("setp.lt.u32 %p1, %r1, 16;\n @%p1 bar.sync 0;", 1, 1), HasSubstr("a lane is missing"));
}

TEST(PtxMachine, SaysWhere) {
  const std::string text = problem("ld.global.u32 %r3, [%rd3];", 32, 0, {2, 64});
  EXPECT_THAT(text, HasSubstr("test, line 19 (ld.global.u32), block 0 warp 0: "));
}

TEST(PtxProgram, StopsAtWhatItDoesNotKnow) {
  for (const auto& [body, what] :
       {std::pair("bar.arrive 0, 64;", "instruction 'bar.arrive' is not known"),
        std::pair("bar.sync 1;", "barrier 1 is not known"),
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

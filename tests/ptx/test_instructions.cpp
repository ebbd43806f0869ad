// Each instruction against values worked out by hand from the PTX ISA, and that no kernel uses one that is not here.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/ptx/lanes.h"

namespace nanscope::ptx {
namespace {

using Bits = std::uint64_t;

Bits f(float x) { return std::bit_cast<std::uint32_t>(x); }
Bits d(double x) { return std::bit_cast<std::uint64_t>(x); }
constexpr Bits kNan = 0x7fffffff;       ///< the one that f32 arithmetic makes
constexpr Bits kOtherNan = 0xffc12345;  ///< one that may come in
constexpr Bits kDoubleNan = 0x7ff8000000000000;
constexpr Bits kInf = 0x7f800000;
constexpr Bits kMinusZero = 0x80000000;

std::uint8_t width_of_type(std::string_view type) {
  if (type.ends_with("64")) return 8;
  return type.ends_with("32") ? 4 : 2;
}

/// The registers of one instruction: each operand a register of its own.
class Bench {
 public:
  explicit Bench(std::string_view name) : form_(instruction_form(name)) {
    if (form_ == nullptr) return;
    const std::size_t last = name.rfind('.');
    const std::size_t before = name.rfind('.', last - 1);
    for (std::size_t i = 0; i < form_->operands.size(); ++i) {
      std::uint8_t width = form_->operands[i].width;
      if (width == kAnyWidth) {
        width = width_of_type(i == 0 ? name.substr(before + 1, last - before - 1) : name.substr(last + 1));
      }
      of_.operands[i] = {static_cast<std::uint32_t>(i * 256), width, true};
    }
    lanes_.registers = registers_.data();
    lanes_.problem = &problem_;
  }

  bool known() const { return form_ != nullptr; }
  const InstructionForm& form() const { return *form_; }
  Instruction& instruction() { return of_; }
  const std::string& problem() const { return problem_; }
  void set(std::size_t operand, int lane, Bits value) {
    if (of_.operands[operand].width > 0) return write_lane(lanes_, of_.operands[operand], lane, value);
    std::uint32_t& all = lanes_.predicate(of_.operands[operand]);
    all = (all & ~(1U << lane)) | (value != 0 ? 1U << lane : 0U);
  }
  Bits get(std::size_t operand, int lane) const {
    if (of_.operands[operand].width > 0) return read_lane(lanes_, of_.operands[operand], lane);
    return lanes_.predicate(of_.operands[operand]) >> lane & 1U;
  }
  void run(std::uint32_t active) {
    lanes_.active = active;
    form_->run(lanes_, of_);
  }

 private:
  const InstructionForm* form_;
  Instruction of_;
  alignas(64) std::array<std::byte, 256 * 7> registers_{};
  Lanes lanes_;
  std::string problem_;
};

struct Row {
  const char* name;
  std::vector<Bits> in;
  Bits out;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"add.s16", {0x7fff, 1}, 0x8000},
      {"add.s32", {0xffffffff, 2}, 1},
      {"add.s64", {~Bits{0}, 3}, 2},
      {"add.u64", {Bits{1} << 63, Bits{1} << 63}, 0},
      {"sub.s32", {1, 2}, 0xffffffff},
      {"sub.s64", {1, 2}, ~Bits{0}},
      {"mul.lo.s32", {0x10000, 0x10001}, 0x10000},
      {"mul.lo.s64", {~Bits{0}, 5}, ~Bits{4}},
      {"mad.lo.s32", {0xffffffff, 7, 5}, 0xfffffffe},
      {"mad.lo.s32", {0x10000, 0x10001, 0xffffffff}, 0xffff},
      {"mul.wide.u16", {0xffff, 0xffff}, 0xfffe0001},
      {"mul.wide.u32", {0xffffffff, 0xffffffff}, 0xfffffffe00000001},
      {"mul.wide.s32", {0xffffffff, 7}, ~Bits{6}},
      {"div.s32", {0xfffffff9, 2}, 0xfffffffd},
      {"div.s64", {~Bits{6}, 2}, ~Bits{2}},
      {"div.u32", {0xfffffff9, 2}, 0x7ffffffc},
      {"rem.s64", {~Bits{6}, 4}, ~Bits{2}},
      {"rem.u32", {10, 4}, 2},
      {"abs.s32", {0xfffffff9}, 7},
      {"neg.s32", {5}, 0xfffffffb},
      {"neg.s64", {5}, ~Bits{4}},
      {"min.s32", {0xffffffff, 1}, 0xffffffff},
      {"min.u32", {0xffffffff, 1}, 1},
      {"min.s64", {~Bits{0}, 1}, ~Bits{0}},
      {"max.s32", {0xffffffff, 1}, 1},
      {"max.u32", {0xffffffff, 1}, 0xffffffff},
      {"max.s64", {~Bits{0}, 1}, 1},
      {"max.u64", {~Bits{0}, 1}, ~Bits{0}},
      {"and.b16", {0xf0f0, 0x3ccc}, 0x30c0},
      {"and.b32", {0xf0f0f0f0, 0x3ccc3ccc}, 0x30c030c0},
      {"and.b64", {~Bits{0}, 0x123456789}, 0x123456789},
      {"or.b16", {0xf000, 0x000f}, 0xf00f},
      {"or.b32", {0xf0000000, 0xf}, 0xf000000f},
      {"or.b64", {Bits{1} << 63, 1}, (Bits{1} << 63) + 1},
      {"xor.b32", {0xff00ff00, 0xffffffff}, 0x00ff00ff},
      {"xor.b64", {~Bits{0}, 1}, ~Bits{1}},
      {"not.b32", {0xff00ff00}, 0x00ff00ff},
      {"not.b64", {0}, ~Bits{0}},
      {"shl.b32", {0x80000001, 1}, 2},
      {"shl.b32", {1, 32}, 0},
      {"shl.b64", {1, 63}, Bits{1} << 63},
      {"shl.b64", {1, 64}, 0},
      {"shr.u32", {0x80000000, 31}, 1},
      {"shr.u32", {0x80000000, 32}, 0},
      {"shr.s32", {0x80000000, 4}, 0xf8000000},
      {"shr.s32", {0x80000000, 99}, 0xffffffff},
      {"shr.u64", {Bits{1} << 63, 63}, 1},
      {"shr.b64", {Bits{1} << 63, 64}, 0},
      {"shr.s64", {Bits{1} << 63, 64}, ~Bits{0}},
      {"popc.b32", {0xf00f0001}, 9},
      {"clz.b32", {1}, 31},
      {"clz.b32", {0}, 32},
      {"brev.b32", {0x80000001}, 0x80000001},
      {"brev.b32", {0x0000000d}, 0xb0000000},
      {"bfind.shiftamt.u32", {0x00010000}, 15},
      {"bfind.shiftamt.u32", {0}, 0xffffffff},
      {"dp4a.s32.s32", {0x01ff7f80, 0x01ff7f80, 5}, 32520},  // 1 + 1 + 127^2 + 128^2 + 5
      {"dp4a.s32.s32", {0x02038080, 0xfe017f80, 0}, 127},    // -4 + 3 - 128 * 127 + 128^2
      {"bfi.b32", {0xff, 0x12345678, 8, 8}, 0x1234ff78},
      {"bfi.b32", {0xff, 0x12345678, 28, 8}, 0xf2345678},
      {"bfi.b32", {0xff, 0x12345678, 8, 0}, 0x12345678},
      {"setp.eq.b32", {5, 5}, 1},
      {"setp.eq.b64", {5, Bits{5} << 32}, 0},
      {"setp.eq.s16", {0xffff, 0xffff}, 1},
      {"setp.eq.s32", {5, 6}, 0},
      {"setp.eq.s64", {5, 5}, 1},
      {"setp.ne.s16", {1, 2}, 1},
      {"setp.ne.s32", {5, 5}, 0},
      {"setp.ne.s64", {5, 6}, 1},
      {"setp.lt.s16", {0xffff, 0}, 1},
      {"setp.lt.u16", {0xffff, 0}, 0},
      {"setp.lt.s32", {0xffffffff, 0}, 1},
      {"setp.lt.u32", {0xffffffff, 0}, 0},
      {"setp.lt.s64", {~Bits{0}, 0}, 1},
      {"setp.lt.u64", {~Bits{0}, 0}, 0},
      {"setp.le.s64", {~Bits{0}, ~Bits{0}}, 1},
      {"setp.le.u32", {3, 2}, 0},
      {"setp.gt.s16", {0, 0xffff}, 1},
      {"setp.gt.u16", {0, 0xffff}, 0},
      {"setp.gt.s32", {0, 0xffffffff}, 1},
      {"setp.gt.s64", {0, ~Bits{0}}, 1},
      {"setp.gt.u32", {0, 0xffffffff}, 0},
      {"setp.gt.u64", {0, ~Bits{0}}, 0},
      {"setp.ge.s64", {~Bits{0}, 0}, 0},
      {"setp.ge.u32", {2, 2}, 1},
      {"and.pred", {1, 0}, 0},
      {"or.pred", {1, 0}, 1},
      {"xor.pred", {1, 1}, 0},
      {"not.pred", {0}, 1},
      {"mov.pred", {1}, 1},

      {"add.rn.f32", {f(1), f(0x1p-24F)}, f(1)},
      {"add.rn.f32", {f(0x1.000002p0F), f(0x1p-24F)}, f(0x1.000004p0F)},
      {"add.rn.f32", {kInf, kInf | kMinusZero}, kNan},
      {"add.rn.f32", {kOtherNan, f(1)}, kNan},
      {"add.rn.f32", {1, 1}, 2},
      {"sub.rn.f32", {f(1), f(1)}, 0},
      {"mul.rn.f32", {f(0x1p-100F), f(0x1p-49F)}, 1},
      {"mul.rn.f32", {0, kInf}, kNan},
      {"mul.rn.f32", {f(-2), 0}, kMinusZero},
      {"div.rn.f32", {f(1), f(3)}, 0x3eaaaaab},
      {"div.rn.f32", {f(1), kMinusZero}, kInf | kMinusZero},
      {"div.rn.f32", {0, 0}, kNan},
      {"rcp.rn.f32", {f(3)}, 0x3eaaaaab},
      {"sqrt.rn.f32", {f(2)}, 0x3fb504f3},
      {"sqrt.rn.f32", {f(-1)}, kNan},
      {"sqrt.rn.f32", {kMinusZero}, kMinusZero},
      {"fma.rn.f32", {f(0x1.000002p0F), f(0x1.000002p0F), f(-0x1.000004p0F)}, f(0x1p-46F)},
      {"fma.rn.f32", {kInf, 0, kOtherNan}, kNan},
      {"neg.f32", {f(1.5F)}, f(-1.5F)},
      {"min.f32", {kOtherNan, f(2)}, f(2)},
      {"min.f32", {f(2), kOtherNan}, f(2)},
      {"min.f32", {kOtherNan, kOtherNan}, kNan},
      {"min.f32", {0, kMinusZero}, kMinusZero},
      {"max.f32", {0, kMinusZero}, 0},
      {"max.f32", {kMinusZero, 0}, 0},
      {"max.f32", {f(-3), kOtherNan}, f(-3)},
      {"max.f32", {f(-3), f(2)}, f(2)},
      {"add.rn.f64", {d(1), d(0x1p-53)}, d(1)},
      {"sub.rn.f64", {d(1), d(0x1p-54)}, d(1)},
      {"mul.rn.f64", {d(3), d(0.5)}, d(1.5)},
      {"div.rn.f64", {d(1), d(3)}, 0x3fd5555555555555},
      {"rcp.rn.f64", {d(4)}, d(0.25)},
      {"fma.rn.f64", {d(1 + 0x1p-52), d(1 + 0x1p-52), d(-1 - 0x1p-51)}, d(0x1p-104)},
      {"neg.f64", {d(2)}, d(-2)},
      {"setp.eq.f32", {0, kMinusZero}, 1},
      {"setp.eq.f32", {kNan, kNan}, 0},
      {"setp.eq.f64", {d(1), d(1)}, 1},
      {"setp.neu.f32", {kNan, kNan}, 1},
      {"setp.neu.f64", {d(1), d(1)}, 0},
      {"setp.lt.f32", {f(-1), f(1)}, 1},
      {"setp.lt.f32", {kNan, f(1)}, 0},
      {"setp.ltu.f32", {kNan, f(1)}, 1},
      {"setp.lt.f64", {kDoubleNan, d(1)}, 0},
      {"setp.ltu.f64", {kDoubleNan, d(1)}, 1},
      {"setp.ltu.f64", {d(2), d(1)}, 0},
      {"setp.le.f32", {f(1), f(1)}, 1},
      {"setp.le.f64", {d(2), d(1)}, 0},
      {"setp.leu.f32", {f(2), f(1)}, 0},
      {"setp.leu.f64", {kDoubleNan, d(1)}, 1},
      {"setp.gt.f32", {kInf, f(1)}, 1},
      {"setp.gt.f64", {d(1), kDoubleNan}, 0},
      {"setp.gtu.f32", {f(1), kNan}, 1},
      {"setp.gtu.f64", {d(1), kDoubleNan}, 1},
      {"setp.ge.f64", {d(1), d(1)}, 1},
      {"setp.ge.f64", {d(1), d(2)}, 0},
      {"setp.ge.f64", {d(1), kDoubleNan}, 0},
      {"setp.gtu.f64", {d(1), d(2)}, 0},
      {"setp.ge.f32", {f(1), f(1)}, 1},
      {"setp.geu.f32", {f(0), f(1)}, 0},
      {"setp.geu.f64", {d(0), kDoubleNan}, 1},

      {"cvt.u16.u32", {0x12345678}, 0x5678},
      {"cvt.u32.u16", {0xffff}, 0xffff},
      {"cvt.s32.s16", {0xffff}, 0xffffffff},
      {"cvt.s32.s8", {0x80}, 0xffffff80},
      {"cvt.u32.u64", {0x123456789abcdef0}, 0x9abcdef0},
      {"cvt.u64.u32", {0xffffffff}, 0xffffffff},
      {"cvt.s64.s32", {0xffffffff}, ~Bits{0}},
      {"cvt.rn.f32.s32", {0x01000001}, f(0x1p24F)},
      {"cvt.rn.f32.s64", {~Bits{0}}, f(-1)},
      {"cvt.rn.f64.s32", {0xffffffff}, d(-1)},
      {"cvt.rn.f64.s64", {(Bits{1} << 53) + 1}, d(0x1p53)},
      {"cvt.rn.f64.u64", {(Bits{1} << 63) + 1}, d(0x1p63)},
      {"cvt.rzi.u32.f32", {f(3.99F)}, 3},
      {"cvt.rzi.u32.f32", {f(-1)}, 0},
      {"cvt.rzi.u32.f32", {f(0x1p40F)}, 0xffffffff},
      {"cvt.rzi.u32.f32", {kNan}, 0},
      {"cvt.f64.f32", {f(0x1p-149F)}, d(0x1p-149)},
      {"cvt.rn.f32.f64", {d(1 + 0x1p-24)}, f(1)},
      {"cvt.rn.f32.f64", {d(1 + 3 * 0x1p-24)}, f(1 + 0x1p-22F)},
      {"cvt.rn.f32.f64", {kDoubleNan}, kNan},

      {"mov.b32", {kOtherNan}, kOtherNan},
      {"mov.b64", {0x123456789abcdef0}, 0x123456789abcdef0},
      {"mov.f32", {kOtherNan}, kOtherNan},
      {"mov.f64", {kDoubleNan}, kDoubleNan},
      {"mov.u16", {0xabcd}, 0xabcd},
      {"mov.u32", {7}, 7},
      {"mov.u64", {7}, 7},
      {"mov.b64={}", {0x9abcdef0, 0x12345678}, 0x123456789abcdef0},
      {"cvta.to.global.u64", {0x7f0012345678}, 0x7f0012345678},
      {"cvta.to.local.u64", {kLocalWindow + 8}, kLocalWindow + 8},
      {"cvta.local.u64", {kLocalWindow + 8}, kLocalWindow + 8},
      {"selp.b16", {1, 2, 1}, 1},
      {"selp.b32", {1, 2, 0}, 2},
      {"selp.b64", {1, 2, 0}, 2},
      {"selp.f32", {kOtherNan, 2, 1}, kOtherNan},
      {"selp.f64", {1, 2, 1}, 1},
      {"selp.u16", {1, 2, 0}, 2},
      {"selp.u32", {1, 2, 1}, 1},
      {"selp.u64", {1, 2, 1}, 1},
  };
  return all;
}

TEST(PtxInstructions, GiveWhatTheIsaSays) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(testing::Message() << row.name << " of " << std::hex << row.in.front());
    Bench bench(row.name);
    ASSERT_TRUE(bench.known());
    ASSERT_EQ(bench.form().operands.size(), row.in.size() + 1);
    for (std::size_t i = 0; i < row.in.size(); ++i) bench.set(i + 1, 5, row.in[i]);
    const Bits before = bench.get(0, 6);
    bench.run(1U << 5);
    EXPECT_EQ(bench.problem(), "");
    EXPECT_EQ(bench.get(0, 5), row.out);
    EXPECT_EQ(bench.get(0, 6), before) << "a lane that was not there";
    for (int lane = 0; lane < kLanes; ++lane) {
      for (std::size_t i = 0; i < row.in.size(); ++i) bench.set(i + 1, lane, row.in[i]);
    }
    bench.run(~0U);
    EXPECT_EQ(bench.get(0, 31), row.out) << "with all lanes";
  }
}

TEST(PtxInstructions, DivisionsThatTheIsaLeavesOpenAreReported) {
  Bench by_zero("div.u32");
  by_zero.run(1);
  EXPECT_NE(by_zero.problem(), "");
  Bench beyond("div.s32");
  beyond.set(1, 0, 0x80000000);
  beyond.set(2, 0, 0xffffffff);
  beyond.run(1);
  EXPECT_NE(beyond.problem(), "");
}

/// What f64 arithmetic makes of NaN is a NaN whose bits nobody may count on.
TEST(PtxInstructions, ADoubleNanHasOtherBits) {
  Bench bench("add.rn.f64");
  bench.set(1, 0, kDoubleNan);
  bench.run(1);
  EXPECT_GT(bench.get(0, 0) & ~(Bits{1} << 63), Bits{0x7ff} << 52);
  EXPECT_NE(bench.get(0, 0), kDoubleNan);
}

TEST(PtxInstructions, HalvesComeLowerFirst) {
  Bench bench("mov.b64{}=");
  bench.set(2, 3, 0x123456789abcdef0);
  bench.run(~0U);
  EXPECT_EQ(bench.get(0, 3), 0x9abcdef0U);
  EXPECT_EQ(bench.get(1, 3), 0x12345678U);
}

/// d = the value of another lane: a lane's value is 100 and its number.
std::vector<Bits> shuffled(std::string_view name, Bits b, Bits c) {
  Bench bench(name);
  for (int lane = 0; lane < kLanes; ++lane) {
    bench.set(2, lane, 100 + static_cast<Bits>(lane));
    bench.set(3, lane, b);
    bench.set(4, lane, c);
  }
  bench.run(~0U);
  EXPECT_EQ(bench.problem(), "");
  std::vector<Bits> out;
  for (int lane = 0; lane < kLanes; ++lane) out.push_back(bench.get(0, lane) + 1000 * bench.get(1, lane));
  return out;
}

TEST(PtxInstructions, Shuffles) {
  const auto swapped = shuffled("shfl.sync.bfly.b32", 16, 31);
  EXPECT_EQ(swapped[0], 1116U);
  EXPECT_EQ(swapped[20], 1104U);
  const auto one = shuffled("shfl.sync.idx.b32", 7, 31);
  EXPECT_EQ(one[0], 1107U);
  EXPECT_EQ(one[31], 1107U);
  // Segments of 8 lanes: the mask is in bits 8 to 12 of c.
  const auto segments = shuffled("shfl.sync.idx.b32", 2, 0x1800 | 31);
  EXPECT_EQ(segments[0], 1102U);
  EXPECT_EQ(segments[31], 1126U);
  const auto down = shuffled("shfl.sync.down.b32", 30, 31);
  EXPECT_EQ(down[1], 1131U);
  EXPECT_EQ(down[2], 102U) << "beyond the last lane: its own, out of range";
  const auto up = shuffled("shfl.sync.up.b32", 1, 0);
  EXPECT_EQ(up[0], 100U);
  EXPECT_EQ(up[1], 1100U);
}

TEST(PtxInstructions, AShuffleFromALaneThatIsNotThereIsReported) {
  Bench bench("shfl.sync.bfly.b32");
  bench.set(3, 0, 1);
  bench.set(4, 0, 31);
  bench.run(1);
  EXPECT_NE(bench.problem(), "");
}

TEST(PtxInstructions, VotesAndReductions) {
  Bench ballot("vote.sync.ballot.b32");
  ballot.set(1, 0, 1);
  ballot.set(1, 4, 1);
  ballot.run(~0U);
  EXPECT_EQ(ballot.get(0, 9), 0x11U);
  Bench any("vote.sync.any.pred");
  any.run(~0U);
  EXPECT_EQ(any.get(0, 0), 0U);
  any.set(1, 30, 1);
  any.run(~0U);
  EXPECT_EQ(any.get(0, 0), 1U);
  Bench all("vote.sync.all.pred");
  all.set(1, 30, 1);
  all.run(~0U);
  EXPECT_EQ(all.get(0, 0), 0U);
  for (const auto& [name, expected] :
       {std::pair("redux.sync.min.s32", Bits{0xfffffff0}), std::pair("redux.sync.max.s32", Bits{15}),
        std::pair("redux.sync.min.u32", Bits{0}), std::pair("redux.sync.max.u32", Bits{0xffffffff}),
        std::pair("redux.sync.add.s32", Bits{0xfffffff0}), std::pair("redux.sync.add.u32", Bits{0xfffffff0})}) {
    Bench bench(name);
    for (int lane = 0; lane < kLanes; ++lane) bench.set(1, lane, static_cast<std::uint32_t>(lane - 16));
    bench.run(~0U);
    EXPECT_EQ(bench.get(0, 12), expected) << name;
  }
}

TEST(PtxInstructions, EveryOneThatTheKernelsUseIsTestedHere) {
  std::set<std::string> tested;
  for (const Row& row : rows()) tested.insert(row.name);
  for (const char* elsewhere : {"mov.b64{}=", "shfl.sync.bfly.b32", "shfl.sync.idx.b32", "vote.sync.ballot.b32",
                                "vote.sync.any.pred", "redux.sync.min.s32", "redux.sync.max.s32", "redux.sync.add.s32",
                                "redux.sync.add.u32", "bra", "bra.uni", "ret", "call.uni", "bar.sync"}) {
    tested.insert(elsewhere);
  }
  std::ifstream file(NANSCOPE_OPS_PTX);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto program = read_program(text);
  ASSERT_TRUE(program) << program.error().message;
  for (const std::string& name : program->names) {
    // Loads and stores have tests of their own, in test_machine.cpp.
    if (name.starts_with("ld.") || name.starts_with("st.")) continue;
    EXPECT_TRUE(tested.count(name)) << name;
  }
}

}  // namespace
}  // namespace nanscope::ptx

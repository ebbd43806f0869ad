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
  alignas(64) std::array<std::byte, 256 * 14> registers_{};
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
      {"sub.s16", {1, 2}, 0xffff},
      {"sub.s32", {1, 2}, 0xffffffff},
      {"sub.s64", {1, 2}, ~Bits{0}},
      {"mul.lo.s16", {0x7fff, 3}, 0x7ffd},
      {"mul.lo.s32", {0x10000, 0x10001}, 0x10000},
      {"mul.lo.s64", {~Bits{0}, 5}, ~Bits{4}},
      {"mad.lo.s32", {0xffffffff, 7, 5}, 0xfffffffe},
      {"mad.lo.s32", {0x10000, 0x10001, 0xffffffff}, 0xffff},
      {"mul.wide.u16", {0xffff, 0xffff}, 0xfffe0001},
      {"mul.wide.u32", {0xffffffff, 0xffffffff}, 0xfffffffe00000001},
      {"mul.wide.s32", {0xffffffff, 7}, ~Bits{6}},
      {"mad.wide.u32", {0xffffffff, 0xffffffff, 0x1ffffffff}, 0},
      {"mad.wide.u32", {0x10000, 0x10000, 5}, 0x100000005},
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
      {"shl.b16", {0x8001, 1}, 2},
      {"shl.b16", {1, 16}, 0},
      {"shl.b32", {0x80000001, 1}, 2},
      {"shl.b32", {1, 32}, 0},
      {"shl.b64", {1, 63}, Bits{1} << 63},
      {"shl.b64", {1, 64}, 0},
      {"shr.u16", {0x8000, 15}, 1},
      {"shr.u16", {0x8000, 16}, 0},
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
      {"dp4a.u32.u32", {0x80008001, 0x01010101, 3}, 260},    // 128 + 0 + 128 + 1 + 3
      {"dp4a.u32.u32", {0xff000000, 0xff000000, 0xffffffff}, 65024},
      {"lop3.b32", {0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xa8}, 0xa8a8a8a8},  // (a | b) & c
      {"lop3.b32", {0xffff0000, 0xff00ff00, 0xf0f0f0f0, 0x96}, 0xf00f0ff0},  // a ^ b ^ c
      {"min.s16x2", {0x80010005, 0x7fff0003}, 0x80010003},
      {"max.s16x2", {0x80010005, 0x7fff0003}, 0x7fff0005},
      {"max.s16x2", {0xffff8000, 0xfffe7fff}, 0xffff7fff},
      {"max.u16x2", {0x80010005, 0x7fff0003}, 0x80010005},
      {"max.u16x2", {0xfffe7fff, 0xffff8000}, 0xffff8000},
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
      {"min.xorsign.abs.f32", {f(-3), f(2)}, f(-2)},
      {"min.xorsign.abs.f32", {f(-3), f(-0x1p-149F)}, 1},
      {"min.xorsign.abs.f32", {kMinusZero, f(2)}, kMinusZero},
      {"min.xorsign.abs.f32", {kOtherNan, f(2)}, f(-2)},
      {"min.xorsign.abs.f32", {kOtherNan, kNan}, kNan},
      // bf16: 1 = 3f80, 2 = 4000, -3 = c040, NaN 7fc1; f16: 1 = 3c00, 2 = 4000, -3 = c200, NaN 7e01, least 0001.
      {"min.bf16x2", {0x3f80c040, 0x40003f80}, 0x3f80c040},
      {"min.bf16x2", {0x7fc17fc1, 0x40007fc1}, 0x40007fff},
      {"min.bf16x2", {0x00008000, 0x80000000}, 0x80008000},
      {"max.bf16x2", {0x3f80c040, 0x40003f80}, 0x40003f80},
      {"max.bf16x2", {0x80000001, 0x00000002}, 0x00000002},
      {"min.xorsign.abs.bf16x2", {0xc0403f80, 0x4000c040}, 0xc000bf80},
      {"min.f16x2", {0x3c00c200, 0x40003c00}, 0x3c00c200},
      {"min.f16x2", {0x7e013c00, 0xc2007c00}, 0xc2003c00},
      {"max.f16x2", {0x3c00c200, 0x4000fc00}, 0x4000c200},
      {"max.f16x2", {0x7e010001, 0xc2008001}, 0xc2000001},
      {"max.NaN.f16x2", {0x7e013c00, 0x3c004000}, 0x7fff4000},
      {"max.NaN.f16x2", {0x3c00fe02, 0x40003c00}, 0x40007fff},
      {"min.xorsign.abs.f16x2", {0xc2000001, 0x3c00c000}, 0xbc008001},
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
      {"cvt.u64.u16", {0xffff}, 0xffff},
      {"cvt.u64.u32", {0xffffffff}, 0xffffffff},
      {"cvt.s64.s32", {0xffffffff}, ~Bits{0}},
      {"cvt.rn.f32.s32", {0x01000001}, f(0x1p24F)},
      {"cvt.rn.f32.s64", {~Bits{0}}, f(-1)},
      {"cvt.rn.f64.s32", {0xffffffff}, d(-1)},
      {"cvt.rn.f64.u32", {0xffffffff}, d(4294967295.0)},
      {"cvt.rn.f64.s64", {(Bits{1} << 53) + 1}, d(0x1p53)},
      {"cvt.rn.f64.u64", {(Bits{1} << 63) + 1}, d(0x1p63)},
      {"cvt.rzi.u32.f32", {f(3.99F)}, 3},
      {"cvt.rzi.u32.f32", {f(-1)}, 0},
      {"cvt.rzi.u32.f32", {f(0x1p40F)}, 0xffffffff},
      {"cvt.rzi.u32.f32", {kNan}, 0},
      {"cvt.f64.f32", {f(0x1p-149F)}, d(0x1p-149)},
      {"cvt.f32.f16", {0x3555}, f(0x1.554p-2F)},
      {"cvt.f32.f16", {0x8001}, f(-0x1p-24F)},
      {"cvt.f32.f16", {0xfc00}, kInf | kMinusZero},
      {"cvt.f32.f16", {0x7e01}, kNan},
      // The lower code to the lower half: 448 and -0; 2^-9 and -1.125; NaN and 7 * 2^-9.
      {"cvt.rn.f16x2.e4m3x2", {0x807e}, 0x80005f00},
      {"cvt.rn.f16x2.e4m3x2", {0xb901}, 0xbc801800},
      {"cvt.rn.f16x2.e4m3x2", {0x07ff}, 0x23007fff},
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
  Bench narrow("mov.b32{}=");
  narrow.set(2, 3, 0x12345678);
  narrow.run(~0U);
  EXPECT_EQ(narrow.get(0, 3), 0x5678U);
  EXPECT_EQ(narrow.get(1, 3), 0x1234U);
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

constexpr const char* kBrainProduct = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";
constexpr const char* kHalfProduct = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";

/// Sets half a word: which of A's eight elements of a lane, or of B's four.
void set_element(Bench& bench, std::size_t first_operand, int lane, int element, Bits code) {
  const std::size_t operand = first_operand + static_cast<std::size_t>(element) / 2;
  const int shift = element % 2 * 16;
  bench.set(operand, lane, (bench.get(operand, lane) & ~(Bits{0xffff} << shift)) | code << shift);
}
constexpr std::size_t kA = 4, kB = 8, kC = 10;

/// Where elements of A, B and D lie, as the figures of the ISA's "Matrix Fragments for mma.m16n8k16 with floating point
/// type" have it, read off for some lanes: A's (row, column) is element i of lane t, and so on.
TEST(PtxInstructions, MatrixFragmentsLieWhereTheIsaSays) {
  struct Element {
    int row, column, lane, i;
  };
  const Element of_a[] = {{0, 0, 0, 0}, {0, 1, 0, 1},    {0, 7, 3, 1},  {8, 0, 0, 2},   {0, 8, 0, 4},   {0, 15, 3, 5},
                          {8, 8, 0, 6}, {15, 15, 31, 7}, {7, 6, 31, 0}, {15, 9, 28, 7}, {5, 12, 22, 4}, {13, 3, 21, 3}};
  for (const Element& a : of_a) {
    // All of B's row `a.column` is 1: row a.row of D is the element.
    Bench bench(kBrainProduct);
    ASSERT_TRUE(bench.known());
    set_element(bench, kA, a.lane, a.i, 0x40a0);  // 5
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        if (lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8) == a.column) set_element(bench, kB, lane, i, 0x3f80);
      }
    }
    bench.run(~0U);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const bool in_row = lane / 4 + (i < 2 ? 0 : 8) == a.row;
        EXPECT_EQ(bench.get(static_cast<std::size_t>(i), lane), in_row ? f(5) : 0) << a.row << ", " << a.column;
      }
    }
  }
  const Element of_b[] = {{0, 0, 0, 0}, {1, 0, 0, 1}, {8, 0, 0, 2}, {15, 7, 31, 3}, {7, 4, 19, 1}, {10, 2, 9, 2}};
  for (const Element& b : of_b) {
    // A's column b.row is 1, 2, ... 16: so is D's column b.column.
    Bench bench(kHalfProduct);
    set_element(bench, kB, b.lane, b.i, 0x3c00);  // 1
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 8; ++i) {
        const int row = lane / 4 + (i % 4 < 2 ? 0 : 8);
        const int column = lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8);
        constexpr std::array<Bits, 16> kOneTo16 = {0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800,
                                                   0x4880, 0x4900, 0x4980, 0x4a00, 0x4a80, 0x4b00, 0x4b80, 0x4c00};
        if (column == b.row) set_element(bench, kA, lane, i, kOneTo16[static_cast<std::size_t>(row)]);
      }
    }
    bench.run(~0U);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i < 2 ? 0 : 8);
        const bool in_column = lane % 4 * 2 + i % 2 == b.column;
        EXPECT_EQ(bench.get(static_cast<std::size_t>(i), lane), in_column ? f(static_cast<float>(row + 1)) : 0)
            << b.row << ", " << b.column;
      }
    }
  }
}

/// D[0, 0] of up to 16 products and an accumulator.
Bits first_sum(const char* name, const std::vector<std::pair<Bits, Bits>>& products, Bits c) {
  Bench bench(name);
  for (std::size_t k = 0; k < products.size(); ++k) {
    const int lane = static_cast<int>(k) % 8 / 2;
    const int i = static_cast<int>(k) % 2;
    set_element(bench, kA, lane, i + (k < 8 ? 0 : 4), products[k].first);
    set_element(bench, kB, lane, i + (k < 8 ? 0 : 2), products[k].second);
  }
  bench.set(kC, 0, c);
  bench.run(~0U);
  EXPECT_EQ(bench.problem(), "");
  return bench.get(0, 0);
}

/// The model of kernels/ops/gemm_tensor_core.h, by hand.
TEST(PtxInstructions, MatrixProductsAreCutOffBelowTheLargest) {
  // bf16: 1 = 3f80, -1 = bf80, 2^-12 = 3980, 2^-13 = 3900, 2^14 = 4680; its negative c680.
  EXPECT_EQ(first_sum(kBrainProduct, {{0x3f80, 0x4000}, {0x4040, 0x4080}}, f(0.5F)), f(14.5F));
  EXPECT_EQ(first_sum(kBrainProduct, {{0x3f80, 0x3f80}, {0x3980, 0x3980}, {0x3980, 0x3980}}, 0), 0x3f800001U);
  EXPECT_EQ(first_sum(kBrainProduct, {{0x39e0, 0x3980}}, f(1)), f(1)) << "1.75 * 2^-24, to nearest 1 + 2^-23";
  EXPECT_EQ(first_sum(kBrainProduct, {{0xb900, 0x3980}}, f(1)), 0x3f7fffffU) << "1 - 2^-25, towards zero";
  EXPECT_EQ(first_sum(kBrainProduct, {{0xb900, 0x3900}}, f(1)), f(1)) << "2^-26 is cut off";
  EXPECT_EQ(first_sum(kBrainProduct, {{0x4680, 0x4680}, {0x3f80, 0x3f80}, {0xc680, 0x4680}}, 0), 0U);
  EXPECT_EQ(first_sum(kBrainProduct, {{0x4680, 0x4680}, {0xc680, 0x4680}}, f(7)), 0U) << "the accumulator too";
  // 16 of 2^-24 beside 1: all count, one by one none would.
  std::vector<std::pair<Bits, Bits>> many(15, {0x3980, 0x3980});
  many.push_back({0x3f80, 0x3f80});
  EXPECT_EQ(first_sum(kBrainProduct, many, 0), 0x3f800007U) << "1 + 15 * 2^-24, cut off to 1 + 7 * 2^-23";
  // f16: 1.5 = 3e00, 2^-12 = 0c00, 2^-13 = 0800.
  EXPECT_EQ(first_sum(kHalfProduct, {{0x3e00, 0x3e00}, {0x0c00, 0x0800}, {0xbe00, 0x3e00}}, 0), f(0x1p-25F));
}

TEST(PtxInstructions, MatrixProductsKnowSubnormalsInfAndNan) {
  EXPECT_EQ(first_sum(kBrainProduct, {{0x0001, 0x3f80}}, 0), f(0x1p-133F));
  EXPECT_EQ(first_sum(kHalfProduct, {{0x0001, 0x0001}}, 0), f(0x1p-48F));
  EXPECT_EQ(first_sum(kHalfProduct, {{0x0001, 0x7800}, {0x0c00, 0x0800}}, 0), f(0x1p-9F)) << "2^-25 below 2^1";
  EXPECT_EQ(first_sum(kBrainProduct, {{0x1a00, 0x1a80}}, 0), 1U) << "2^-75 * 2^-74";
  EXPECT_EQ(first_sum(kBrainProduct, {{0x9a00, 0x1a00}}, 0), kMinusZero) << "-2^-150";
  EXPECT_EQ(first_sum(kBrainProduct, {{0x8000, 0x3f80}}, kMinusZero), 0U);
  EXPECT_EQ(first_sum(kBrainProduct, {{0x5f80, 0x5f00}, {0x5f80, 0x5f00}}, 0), kInf) << "2^127 + 2^127";
  EXPECT_EQ(first_sum(kBrainProduct, {{0x5f80, 0x5f80}, {0xdf80, 0x5f00}}, 0), f(0x1p127F)) << "2^128 - 2^127";
  EXPECT_EQ(first_sum(kBrainProduct, {{0x7f80, 0x3f80}}, 0), kInf);
  EXPECT_EQ(first_sum(kBrainProduct, {{0x7f80, 0xbf80}}, f(1)), kInf | kMinusZero);
  EXPECT_EQ(first_sum(kBrainProduct, {{0x7f80, 0x0000}}, 0), kNan);
  EXPECT_EQ(first_sum(kBrainProduct, {{0x7f80, 0x3f80}}, kInf | kMinusZero), kNan);
  EXPECT_EQ(first_sum(kHalfProduct, {{0x7e01, 0x0000}}, 0), kNan);
  EXPECT_EQ(first_sum(kHalfProduct, {}, kOtherNan), kNan);
  EXPECT_EQ(first_sum(kHalfProduct, {{0x7c00, 0x3c00}}, 0), kInf);
}

TEST(PtxInstructions, EveryOneThatTheKernelsUseIsTestedHere) {
  std::set<std::string> tested;
  for (const Row& row : rows()) tested.insert(row.name);
  for (const char* elsewhere :
       {"mov.b32{}=", "mov.b64{}=", "bar.warp.sync", "shfl.sync.bfly.b32", "shfl.sync.idx.b32", "vote.sync.ballot.b32",
        "vote.sync.any.pred", kBrainProduct, kHalfProduct, "redux.sync.min.s32", "redux.sync.max.s32",
        "redux.sync.add.s32", "redux.sync.add.u32", "bra", "bra.uni", "ret", "call.uni", "bar.sync",
        // in test_machine.cpp
        "cp.async.cg.shared.global", "cp.async.commit_group", "cp.async.wait_group", "mad.lo.cc.u32", "madc.hi.u32"}) {
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

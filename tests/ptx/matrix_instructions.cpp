/// mma.sync.m16n8k16 of f16 and bf16 with f32 sums, fragments as the PTX ISA lays them out ("Matrix Fragments for
/// mma.m16n8k16 with floating point type"). The ISA says of the sums that they are at least of single precision, in no
/// order; what is done here is the model of kernels/ops/gemm_tensor_core.h, written another way: each number is an
/// integer times a power of two, and the result is cut off where its leading bit tells.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/ptx/instruction_table.h"

namespace nanscope::ptx {
namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kDepth = 16;
constexpr int kKept = 25;  ///< bits below the largest exponent
constexpr std::uint32_t kMadeNan = 0x7fffffffU;

struct FloatFormat {
  int exponent_bits;
  int fraction_bits;
};
constexpr FloatFormat kSingle{8, 23};
constexpr FloatFormat kBrain{8, 7};
constexpr FloatFormat kHalf{5, 10};

/// significand * 2^lowest, where a normal significand's leading bit stands for 2^exponent.
struct Number {
  bool negative = false;
  bool nan = false;
  bool infinite = false;
  std::uint64_t significand = 0;
  int exponent = 0;
  int lowest = 0;
};

Number number_of(std::uint32_t code, FloatFormat format) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const std::uint32_t top = (1U << format.exponent_bits) - 1U;
  const std::uint32_t field = code >> format.fraction_bits & top;
  const std::uint32_t fraction = code & ((1U << format.fraction_bits) - 1U);
  Number number;
  number.negative = (code >> (format.exponent_bits + format.fraction_bits) & 1U) != 0;
  number.nan = field == top && fraction != 0;
  number.infinite = field == top && fraction == 0;
  number.significand = field == 0 ? fraction : fraction + (std::uint64_t{1} << format.fraction_bits);
  number.exponent = std::max(static_cast<int>(field), 1) - bias;
  number.lowest = number.exponent - format.fraction_bits;
  return number;
}

Number operator*(const Number& a, const Number& b) {
  const bool no_number = (a.infinite && b.significand == 0) || (b.infinite && a.significand == 0);
  return {a.negative != b.negative,      a.nan || b.nan || no_number, a.infinite || b.infinite,
          a.significand * b.significand, a.exponent + b.exponent,     a.lowest + b.lowest};
}

/// units * 2^lowest as f32, cut off.
std::uint32_t cut_off(std::int64_t units, int lowest) {
  if (units == 0) return 0;
  const std::uint32_t sign = units < 0 ? 0x80000000U : 0U;
  const auto magnitude = static_cast<std::uint64_t>(units < 0 ? -units : units);
  const int leading = static_cast<int>(std::bit_width(magnitude)) - 1 + lowest;
  if (leading >= 128) return sign | 0x7f800000U;
  const int last = std::max(leading - 23, -149);
  const int dropped = last - lowest;
  const std::uint64_t kept = dropped >= 64 ? 0 : dropped >= 0 ? magnitude >> dropped : magnitude << -dropped;
  return sign | std::bit_cast<std::uint32_t>(std::ldexp(static_cast<float>(kept), last));
}

std::uint32_t sum_of(const std::array<Number, kDepth + 1>& terms) {
  bool nan = false;
  bool above = false;
  bool below = false;
  int largest = 0;
  bool any = false;
  for (const Number& term : terms) {
    nan = nan || term.nan;
    if (term.infinite) (term.negative ? below : above) = true;
    if (term.significand == 0) continue;
    largest = any ? std::max(largest, term.exponent) : term.exponent;
    any = true;
  }
  if (nan || (above && below)) return kMadeNan;
  if (above || below) return below ? 0xff800000U : 0x7f800000U;
  const int unit = largest - kKept;
  std::int64_t units = 0;
  for (const Number& term : terms) {
    if (term.significand == 0) continue;
    const int up = term.lowest - unit;
    const std::uint64_t cut = up >= 0 ? term.significand << up : -up >= 64 ? 0 : term.significand >> -up;
    units += term.negative ? -static_cast<std::int64_t>(cut) : static_cast<std::int64_t>(cut);
  }
  return cut_off(units, unit);
}

/// d0 to d3, a0 to a3, b0, b1, c0 to c3: words of a lane.
template <bool kIsHalf>
void multiply(Lanes& lanes, const Instruction& of) {
  constexpr FloatFormat kOperand = kIsHalf ? kHalf : kBrain;
  std::array<std::array<Number, kDepth>, kRows> a;
  std::array<std::array<Number, kColumns>, kDepth> b;
  std::array<std::array<Number, kColumns>, kRows> c;
  const auto word = [&](std::size_t operand, int lane) { return lanes.of<std::uint32_t>(of.operands[operand])[lane]; };
  const auto place_of_sum = [](int lane, int i) {
    return std::pair(static_cast<std::size_t>(lane / 4 + (i < 2 ? 0 : 8)),
                     static_cast<std::size_t>(lane % 4 * 2 + i % 2));
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4;
    const int in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t code = word(4 + static_cast<std::size_t>(i) / 2, lane) >> (i % 2 * 16) & 0xffffU;
      const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
      const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      a[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] = number_of(code, kOperand);
    }
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t code = word(8 + static_cast<std::size_t>(i) / 2, lane) >> (i % 2 * 16) & 0xffffU;
      const int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
      b[static_cast<std::size_t>(row)][static_cast<std::size_t>(group)] = number_of(code, kOperand);
      const auto [sum_row, sum_column] = place_of_sum(lane, i);
      c[sum_row][sum_column] = number_of(word(10 + static_cast<std::size_t>(i), lane), kSingle);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, column] = place_of_sum(lane, i);
      std::array<Number, kDepth + 1> terms;
      for (std::size_t k = 0; k < kDepth; ++k) terms[k] = a[row][k] * b[k][column];
      terms[kDepth] = c[row][column];
      lanes.of<std::uint32_t>(of.operands[static_cast<std::size_t>(i)])[lane] = sum_of(terms);
    }
  }
}

}  // namespace

void add_matrix_instructions(InstructionTable& table) {
  InstructionForm form;
  form.operands.assign(14, {4, false});
  std::fill_n(form.operands.begin(), 4, OperandForm{4, true});
  form.converges = true;
  form.whole_warp = true;
  form.run = &multiply<false>;
  table["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = form;
  form.run = &multiply<true>;
  table["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] = form;
}

}  // namespace nanscope::ptx

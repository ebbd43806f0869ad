/// Two numbers of 16 bits in a register: f16x2 and bf16x2, and what makes them of other formats (PTX
/// ISA 9.7.4, 9.7.9.21). The NaN that they make is 0x7fff. Subnormals are kept.
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "tests/ptx/instruction_table.h"

namespace nanscope::ptx {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
constexpr U16 kHalfNan = 0x7fff;

/// A sign, exponent bits and fraction bits, which the format splits up; IEEE 754's rules.
double value_of(U32 code, int exponent_bits, int fraction_bits) {
  const U32 top = (1U << exponent_bits) - 1U;
  const U32 field = code >> fraction_bits & top;
  const U32 fraction = code & ((1U << fraction_bits) - 1U);
  const bool negative = (code >> (exponent_bits + fraction_bits) & 1U) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = 0;
  if (field == top) {
    magnitude = fraction == 0 ? HUGE_VAL : NAN;
  } else {
    const U32 significand = field == 0 ? fraction : fraction + (1U << fraction_bits);
    magnitude = std::ldexp(significand, (field == 0 ? 1 : static_cast<int>(field)) - bias - fraction_bits);
  }
  return std::copysign(magnitude, negative ? -1.0 : 1.0);
}

struct Half {
  static constexpr const char* kName = "f16x2";
  static double value(U16 code) { return value_of(code, 5, 10); }
};
struct Brain {
  static constexpr const char* kName = "bf16x2";
  static double value(U16 code) { return value_of(code, 8, 7); }
};

template <class Type, bool kMax, bool kPropagate, bool kMagnitudes>
U16 extreme(U16 a, U16 b) {
  const auto sign = static_cast<U16>((a ^ b) & 0x8000U);
  if (kMagnitudes) {
    a &= 0x7fffU;
    b &= 0x7fffU;
  }
  const double x = Type::value(a);
  const double y = Type::value(b);
  if ((std::isnan(x) && std::isnan(y)) || (kPropagate && (std::isnan(x) || std::isnan(y)))) return kHalfNan;
  const bool tie_to_a = std::signbit(x) != kMax;  // -0 is less than +0
  const bool a_wins = std::isnan(y) || (!std::isnan(x) && (x == y ? tie_to_a : (x < y) != kMax));
  const U16 chosen = a_wins ? a : b;
  return kMagnitudes ? static_cast<U16>(chosen | sign) : chosen;
}

template <class Type, bool kMax, bool kPropagate, bool kMagnitudes>
void add_extreme(InstructionTable& table, const std::string& name) {
  add_elementwise<U32, U32, U32>(table, name + "." + Type::kName, [](U32 a, U32 b) {
    const auto one = &extreme<Type, kMax, kPropagate, kMagnitudes>;
    const U32 high = one(static_cast<U16>(a >> 16), static_cast<U16>(b >> 16));
    return high << 16 | one(static_cast<U16>(a), static_cast<U16>(b));
  });
}

template <class Type>
void add_extremes(InstructionTable& table) {
  add_extreme<Type, false, false, false>(table, "min");
  add_extreme<Type, true, false, false>(table, "max");
  add_extreme<Type, true, true, false>(table, "max.NaN");
  add_extreme<Type, false, false, true>(table, "min.xorsign.abs");
}

/// e4m3 has no infinities, and one NaN of each sign. All of its numbers are normal ones of f16.
U16 half_of_e4m3(U32 code) {
  const U32 magnitude = code & 0x7fU;
  if (magnitude == 0x7fU) return kHalfNan;
  const U32 field = magnitude >> 3;
  const U32 fraction = magnitude & 7U;
  const U32 significand = field == 0 ? fraction : fraction + 8U;
  if (significand == 0) return static_cast<U16>(code << 8 & 0x8000U);
  const int leading = static_cast<int>(std::bit_width(significand)) - 1;
  const int exponent = (field == 0 ? 1 : static_cast<int>(field)) - 7 - 3 + leading;
  const U32 rest = (significand << (10 - leading)) & 0x3ffU;
  return static_cast<U16>((code << 8 & 0x8000U) | static_cast<U32>(exponent + 15) << 10 | rest);
}

}  // namespace

void add_packed_instructions(InstructionTable& table) {
  add_extremes<Half>(table);
  add_extremes<Brain>(table);
  add_elementwise<float, U16>(table, "cvt.f32.f16", [](U16 x) {
    const double value = Half::value(x);
    return std::isnan(value) ? std::bit_cast<float>(0x7fffffffU) : static_cast<float>(value);
  });
  add_elementwise<U32, U16>(table, "cvt.rn.f16x2.e4m3x2",
                            [](U16 two) { return U32{half_of_e4m3(two >> 8U)} << 16 | half_of_e4m3(two & 0xffU); });
}

}  // namespace nanscope::ptx

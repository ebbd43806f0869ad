/// f32 and f64, rounded to nearest even, subnormals kept (PTX ISA 9.7.3, 9.7.6). A NaN that f32 arithmetic makes is
/// 0x7fffffff. The bits of one that f64 arithmetic makes are left open: here they are a pattern that nobody expects.
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>

#include "tests/ptx/instruction_table.h"

namespace nanscope::ptx {
namespace {

float made(float x) { return std::isnan(x) ? std::bit_cast<float>(0x7fffffffU) : x; }
double made(double x) { return std::isnan(x) ? std::bit_cast<double>(std::uint64_t{0x7ffbadbadbadbad0}) : x; }

/// The number where one is NaN; +0 is more than -0.
template <class T>
T smaller(T a, T b) {
  if (std::isnan(a)) return made(b);
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T larger(T a, T b) {
  if (std::isnan(a)) return made(b);
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <class T>
void add_arithmetic(InstructionTable& table) {
  add_binary<T>(table, "add.rn", [](T a, T b) { return made(a + b); });
  add_binary<T>(table, "sub.rn", [](T a, T b) { return made(a - b); });
  add_binary<T>(table, "mul.rn", [](T a, T b) { return made(a * b); });
  add_binary<T>(table, "div.rn", [](T a, T b) { return made(a / b); });
  add_binary<T>(table, "min", [](T a, T b) { return smaller(a, b); });
  add_binary<T>(table, "max", [](T a, T b) { return larger(a, b); });
  add_unary<T>(table, "rcp.rn", [](T a) { return made(T{1} / a); });
  add_unary<T>(table, "sqrt.rn", [](T a) { return made(std::sqrt(a)); });
  add_unary<T>(table, "neg", [](T a) { return -a; });
  add_unary<T>(table, "abs", [](T a) { return std::abs(a); });
  add_elementwise<T, T, T, T>(table, std::string("fma.rn.") + TypeName<T>::value,
                              [](T a, T b, T c) { return made(std::fma(a, b, c)); });
}

/// Of the magnitudes; the sign is that of the product.
float smaller_magnitude(float a, float b) {
  const float smaller_one = smaller(std::abs(a), std::abs(b));
  return std::isnan(smaller_one) ? smaller_one
                                 : std::copysign(smaller_one, std::signbit(a) == std::signbit(b) ? 1.0F : -1.0F);
}

template <class T, class Compare, bool kUnordered>
struct FloatComparison {
  static void run(Lanes& lanes, const Instruction& of) {
    std::uint32_t bits = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      const T a = lanes.of<T>(of.operands[1])[lane];
      const T b = lanes.of<T>(of.operands[2])[lane];
      const bool nan = std::isnan(a) || std::isnan(b);
      bits |= std::uint32_t{nan ? kUnordered : Compare{}(a, b)} << lane;
    }
    write_predicate(lanes, of.operands[0], bits);
  }
};

/// "lt" is false where one is NaN, "ltu" true.
template <class T, class Compare>
void add_float_comparison(InstructionTable& table, const std::string& name) {
  const std::vector<OperandForm> operands = {{0, true}, {sizeof(T), false}, {sizeof(T), false}};
  table["setp." + name + "." + TypeName<T>::value] = {&FloatComparison<T, Compare, false>::run, operands};
  table["setp." + name + "u." + TypeName<T>::value] = {&FloatComparison<T, Compare, true>::run, operands};
}

template <class T>
void add_all(InstructionTable& table) {
  add_arithmetic<T>(table);
  add_float_comparison<T, std::equal_to<T>>(table, "eq");
  add_float_comparison<T, std::not_equal_to<T>>(table, "ne");
  add_float_comparison<T, std::less<T>>(table, "lt");
  add_float_comparison<T, std::less_equal<T>>(table, "le");
  add_float_comparison<T, std::greater<T>>(table, "gt");
  add_float_comparison<T, std::greater_equal<T>>(table, "ge");
}

}  // namespace

void add_float_instructions(InstructionTable& table) {
  add_all<float>(table);
  add_all<double>(table);
  add_binary<float>(table, "min.xorsign.abs", [](float a, float b) { return smaller_magnitude(a, b); });
}

}  // namespace nanscope::ptx

/// cvt (PTX ISA 9.7.9.21). Between integers the source is read with its own type and cut off or extended to the
/// destination's register; from floats to integers numbers beyond the range become its ends, NaN 0.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tests/ptx/instruction_table.h"

namespace nanscope::ptx {
namespace {

template <class Out, class In>
struct BetweenIntegers {
  static void run(Lanes& lanes, const Instruction& of) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!lanes.has(lane)) continue;
      const auto value = static_cast<Out>(static_cast<In>(read_lane(lanes, of.operands[1], lane)));
      write_lane(lanes, of.operands[0], lane, static_cast<std::uint64_t>(value));
    }
  }
};

template <class Out, class In>
void add_between_integers(InstructionTable& table) {
  if constexpr (!std::is_same_v<Out, In>) {
    table[std::string("cvt.") + TypeName<Out>::value + "." + TypeName<In>::value] = {
        &BetweenIntegers<Out, In>::run, {{kAnyWidth, true}, {kAnyWidth, false}}};
  }
}

template <class Out>
void add_from_integers(InstructionTable& table) {
  add_between_integers<Out, std::uint8_t>(table);
  add_between_integers<Out, std::int8_t>(table);
  add_between_integers<Out, std::uint16_t>(table);
  add_between_integers<Out, std::int16_t>(table);
  add_between_integers<Out, std::uint32_t>(table);
  add_between_integers<Out, std::int32_t>(table);
  add_between_integers<Out, std::uint64_t>(table);
  add_between_integers<Out, std::int64_t>(table);
}

/// Hosts round to nearest even, too.
template <class Out, class In>
void add_to_float(InstructionTable& table) {
  add_elementwise<Out, In>(table, std::string("cvt.rn.") + TypeName<Out>::value + "." + TypeName<In>::value,
                           [](In x) { return static_cast<Out>(x); });
}

template <class Out, class In>
void add_truncation(InstructionTable& table) {
  add_elementwise<Out, In>(table, std::string("cvt.rzi.") + TypeName<Out>::value + "." + TypeName<In>::value, [](In x) {
    if (std::isnan(x)) return Out{0};
    const In whole = std::trunc(x);
    // The ends themselves may be beyond what In can hold, the powers of two above them are not.
    const In above = std::ldexp(In{1}, std::numeric_limits<Out>::digits);
    if (whole >= above) return std::numeric_limits<Out>::max();
    if (whole <= (std::is_signed_v<Out> ? -above : In{0})) return std::numeric_limits<Out>::min();
    return static_cast<Out>(whole);
  });
}

template <class In>
void add_from_float(InstructionTable& table) {
  add_truncation<std::uint32_t, In>(table);
  add_truncation<std::int32_t, In>(table);
  add_truncation<std::uint64_t, In>(table);
  add_truncation<std::int64_t, In>(table);
}

}  // namespace

void add_conversions(InstructionTable& table) {
  add_from_integers<std::uint8_t>(table);
  add_from_integers<std::int8_t>(table);
  add_from_integers<std::uint16_t>(table);
  add_from_integers<std::int16_t>(table);
  add_from_integers<std::uint32_t>(table);
  add_from_integers<std::int32_t>(table);
  add_from_integers<std::uint64_t>(table);
  add_from_integers<std::int64_t>(table);
  add_to_float<float, std::int32_t>(table);
  add_to_float<float, std::uint32_t>(table);
  add_to_float<float, std::int64_t>(table);
  add_to_float<float, std::uint64_t>(table);
  add_to_float<double, std::int32_t>(table);
  add_to_float<double, std::uint32_t>(table);
  add_to_float<double, std::int64_t>(table);
  add_to_float<double, std::uint64_t>(table);
  add_from_float<float>(table);
  add_from_float<double>(table);
  add_elementwise<double, float>(table, "cvt.f64.f32", [](float x) { return double{x}; });
  add_elementwise<float, double>(table, "cvt.rn.f32.f64", [](double x) {
    return std::isnan(x) ? std::bit_cast<float>(0x7fffffffU) : static_cast<float>(x);
  });
}

}  // namespace nanscope::ptx

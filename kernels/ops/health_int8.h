#pragma once
/// Health of tiles of int8. For health_scan.h.
#include "kernels/ops/health_codes.h"

#if defined(NANSCOPE_CODE_REGISTERS)

namespace nanscope::kernels::NANSCOPE_ISA {

/// int8, in one group. Squares are of magnitudes in bytes, as which -128 would be negative: in those tiles they are
/// put right afterwards.
struct HealthInt8 {
  struct Totals {
    CodeWords sum = {};
    CodeDwords squares = {};
    Codes nonzero = {};
    Codes top = splat_code(0x80);     ///< signed
    Codes bottom = splat_code(0x7f);  ///< signed
  };

  NANSCOPE_LANE void add(Totals& totals, Codes code) {
    totals.top = higher_signed(totals.top, code);
    totals.bottom = lower_signed(totals.bottom, code);
    totals.nonzero += lower_code(code, splat_code(1));
    totals.sum += multiply_pairs(splat_code(1), code);
    const Codes magnitude = magnitudes(code);
    totals.squares += multiply_pairs(multiply_pairs(magnitude, magnitude), splat_word(1));
  }

  /// How many are -128, and how many that or 127 or -127.
  struct Largest {
    std::int64_t lowest = 0;
    std::int64_t saturated = 0;
  };
  NANSCOPE_CALLED Largest count_largest(const std::uint8_t* codes, std::int64_t count) {
    Codes lowest = {};
    Codes saturated = {};
    const Codes largest = splat_code(0x7f);
    for_codes(codes, count, 0, [&](Codes code) NANSCOPE_INLINE_LAMBDA {
      lowest -= reinterpret_cast<Codes>(code == splat_code(0x80));
      saturated -= reinterpret_cast<Codes>(lower_code(magnitudes(code), largest) == largest);
    });
    const CodeDwords of = sum_of_eights(saturated);
    const FourDwords both = sums_across(sum_of_eights(lowest), of, of, of);
    return {both[0], both[1]};
  }

  NANSCOPE_LANE void finish(const Totals& totals, std::int64_t count, int bottom, int top, const Largest& largest,
                            Health* result) {
    const CodeDwords nonzero = sum_of_eights(totals.nonzero);
    const FourDwords of = sums_across(multiply_pairs(totals.sum, splat_word(1)), totals.squares, nonzero, nonzero);
    const std::int64_t squares = of[1] + largest.lowest * (2 * 128 * 128);
    const TwoSums sums = {static_cast<double>(of[0]), static_cast<double>(squares)};
    store_finite(result, {count, largest.saturated, 0, count - of[2], sums, static_cast<float>(bottom),
                          static_cast<float>(top)});
  }

  /// A tile that does not fill registers: what is added to fill them is 0, which may widen the range.
  NANSCOPE_CALLED void scan_part(const std::uint8_t* codes, std::int64_t count, Health* result) {
    Totals totals;
    for_codes(codes, count, 0, [&](Codes code) NANSCOPE_INLINE_LAMBDA { add(totals, code); });
    int top = -128;
    int bottom = 127;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto code = static_cast<std::int8_t>(codes[i]);
      top = code > top ? code : top;
      bottom = code < bottom ? code : bottom;
    }
    finish(totals, count, bottom, top, count_largest(codes, count), result);
  }

  /// Health of `count` codes, at most a tile of them.
  NANSCOPE_LANE void scan(const std::uint8_t* codes, std::int64_t count, Health* result) {
    if (count % kCodesAtOnce != 0) return scan_part(codes, count, result);
    Totals totals;
    for (const std::uint8_t* at = codes; at < codes + count; at += kCodesAtOnce) {
      __builtin_prefetch(at + kAhead);
      add(totals, load_codes(at));
    }
    const int top = 127 - lowest_code(totals.top ^ splat_code(0x7f));
    const int bottom = lowest_code(totals.bottom ^ splat_code(0x80)) - 128;
    Largest largest;
    if (top == 127 || bottom <= -127) largest = count_largest(codes, count);
    finish(totals, count, bottom, top, largest, result);
  }
  /// As HealthCodes::scan_tiles().
  NANSCOPE_CALLED std::int64_t scan_tiles(const std::uint8_t* codes, std::int64_t columns, std::int64_t tiles,
                                          Health* results) {
    for (std::int64_t tile = 0; tile < tiles; ++tile) scan(codes + tile * columns, columns, results + tile);
    return tiles;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif

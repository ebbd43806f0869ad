#pragma once
/// Health of a tile of 8 bit codes in integers: e4m3, e5m2, their fnuz kinds and int8. For health_scan.h.
///
/// A code of a float is a sign, four bits h and three bits l below them. Its magnitude in units of the format's
/// smallest is a multiple, which l and a bit from h give, times a weight of h. Weights of one byte each, with a bit of
/// the multiple, make a group: multiples times weights of a group are words, whose sums and squares' sums fit 32 bits
/// for a tile. A pair of codes gives its sum and its difference, whose squares add up to twice the pair's. Groups are
/// put together at the end, exactly; a sum of squares of more than 53 bits is rounded once.
///
/// What few tiles have is not counted on the way but in another pass over those: largest values, zeros and subnormals
/// of e5m2, and the least magnitude where all codes have one sign.
#include "kernels/warp/warp_cpu_bytes.h"

#if defined(NANSCOPE_CODE_REGISTERS)
#include "core/tensor/health.h"
#include "kernels/ops/health_store.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Floats that are taken apart in the same way.
enum class CodeKind : std::uint8_t { e4m3, e5m2 };

/// What differs between the formats of a kind; codes without the sign.
struct CodeFormat {
  int largest;     ///< of the largest finite value
  int special;     ///< the first that is Inf or NaN; 128 when there is none
  bool fnuz;       ///< 0x80 is NaN
  float unit;      ///< the smallest subnormal
  float exponent;  ///< 2 to the power of 127 less the format's bias: from f32's exponent to the format's
};

/// The parts of a code and what they stand for.
template <CodeKind Kind>
struct CodeParts {
  static constexpr bool kTwoBits = Kind == CodeKind::e5m2;  ///< of mantissa; the exponent's last bit is in l
  static constexpr int kGroups = kTwoBits ? 3 : 2;
  /// Of h: of e4m3 0 to 8 and 9 to 15; of e5m2 1 to 5, 6 to 10 and 11 to 15, and none of 0: those few codes are their
  /// own multiples of the unit.
  static constexpr int group_of(int h) { return kTwoBits ? (h + 4) / 5 - 1 : h / 9; }
  /// Binary places of a multiple above the unit's; of e5m2 the exponent's last bit is in the multiple.
  static constexpr int places(int h) { return h == 0 ? 0 : kTwoBits ? 2 * h - 1 : h - 1; }
  /// The same of a group's.
  static constexpr int shift(int group) { return kTwoBits ? 1 + 10 * group : 8 * group; }
  /// A byte has no 256: of e5m2's last h of a group the multiple is fourfold instead.
  static constexpr bool fourfold(int h) { return kTwoBits && h % 5 == 0; }

  /// A table of byte(i) at each place i.
  template <class Byte>
  static constexpr ByteTable table(const Byte& byte) {
    ByteTable table{};
    for (int i = 0; i < kCodesAtOnce; ++i) table.of[i] = static_cast<std::uint8_t>(byte(i % 16));
    return table;
  }
  /// Weights of one group by h; 0 in the others.
  static constexpr ByteTable weights(int group) {
    return table(
        [group](int h) { return group_of(h) == group ? 1 << (places(h) - shift(group) - (fourfold(h) ? 2 : 0)) : 0; });
  }
  /// By h, what is put above l: the implicit bit of e4m3; of e5m2 the bit that says fourfold, or one with which
  /// lookup() finds nothing.
  static constexpr ByteTable above() {
    return table([](int h) {
      if (h == 0) return kTwoBits ? 0x80 : 0;
      return !kTwoBits || fourfold(h) ? 8 : 0;
    });
  }
  /// Of e5m2: multiples by l and the bit above.
  static constexpr ByteTable multiples() {
    return table([](int i) { return (4 + i % 4) << (i / 4 % 2 + (i < 8 ? 0 : 2)); });
  }
};

/// Bytes from a code to what is asked for early: the tiles after it, and what is hashed meanwhile.
inline constexpr std::int64_t kAhead = 3072;

/// body(codes) for all registers of `count` codes, the last filled up with `rest`.
template <class Body>
NANSCOPE_LANE void for_codes(const std::uint8_t* codes, std::int64_t count, std::uint8_t rest, const Body& body) {
  std::int64_t at = 0;
  for (; at + kCodesAtOnce <= count; at += kCodesAtOnce) body(load_codes(codes + at));
  if (at == count) return;
  alignas(kCodesAtOnce) std::uint8_t last[kCodesAtOnce];
  for (int i = 0; i < kCodesAtOnce; ++i) last[i] = at + i < count ? codes[at + i] : rest;
  body(load_codes(last));
}

template <CodeKind Kind>
struct HealthCodes : CodeParts<Kind> {
  using CodeParts<Kind>::kTwoBits;
  using CodeParts<Kind>::kGroups;
  using CodeParts<Kind>::shift;
  /// Registers whose sums of a group fit 16 bits: two products of at most 15 * 2^7 each, or 14 * 2^8.
  static constexpr int kSteps = kTwoBits ? 4 : 8;
  static_assert(kTileChannels <= 16 * kCodesAtOnce, "counts fit a byte, and sums of squares 32 bits");
  static constexpr ByteTable kWeights[3] = {CodeParts<Kind>::weights(0), CodeParts<Kind>::weights(1),
                                            CodeParts<Kind>::weights(2)};
  static constexpr ByteTable kMultiples = CodeParts<Kind>::multiples();
  static constexpr ByteTable kAbove = CodeParts<Kind>::above();

  struct Totals {
    CodeWords sum[kGroups] = {};
    CodeDwords whole_sum[kGroups] = {};
    CodeDwords squares[kGroups] = {};  ///< twice
    Codes nonzero = {};                ///< of e4m3
    Codes above = {};                  ///< of e4m3 8 for each normal number; of e5m2 all of the bits
    Codes most = {};                   ///< unsigned
    Codes top = splat_code(0x80);      ///< signed
  };

  NANSCOPE_LANE void add(Totals& totals, Codes code) {
    totals.most = higher_code(totals.most, code);
    totals.top = higher_signed(totals.top, code);
    const Codes h = high_four(code);
    const Codes above = lookup(load_table(kAbove), h);
    Codes multiple = (code & splat_code(7)) | above;
    if constexpr (kTwoBits) {
      multiple = lookup(load_table(kMultiples), multiple);
      totals.above |= above;
    } else {
      totals.above += above;
      totals.nonzero += lower_code(multiple, splat_code(1));
    }
    const Codes both = signed_as(multiple, code);
    const Codes apart = alternating(both);
    NANSCOPE_UNROLL for (int group = 0; group < kGroups; ++group) {
      const Codes weight = lookup(load_table(kWeights[group]), h);
      const CodeWords sum = multiply_pairs(weight, both);
      const CodeWords difference = multiply_pairs(weight, apart);
      totals.sum[group] += sum;
      totals.squares[group] += multiply_pairs(sum, sum) + multiply_pairs(difference, difference);
    }
  }
  /// Before the sums leave 16 bits.
  NANSCOPE_LANE void carry(Totals& totals) {
    NANSCOPE_UNROLL for (int group = 0; group < kGroups; ++group) {
      totals.whole_sum[group] += multiply_pairs(totals.sum[group], splat_word(1));
      totals.sum[group] = CodeWords{};
    }
  }
  /// `count` is a multiple of 32.
  NANSCOPE_LANE void add_tile(Totals& totals, const std::uint8_t* codes, std::int64_t count) {
    const std::uint8_t* end = codes + count;
    while (codes < end) {
      const std::uint8_t* next = codes + kSteps * kCodesAtOnce < end ? codes + kSteps * kCodesAtOnce : end;
      for (; codes < next; codes += kCodesAtOnce) {
        __builtin_prefetch(codes + kAhead);
        add(totals, load_codes(codes));
      }
      carry(totals);
    }
  }

  /// Of a code that is a number.
  NANSCOPE_LANE float value(const CodeFormat& format, int code) {
    const float magnitude =
        from_bits_uniform((static_cast<std::uint32_t>(code) & 0x7fU) << (kTwoBits ? 21 : 20)) * format.exponent;
    return (code < 128 ? magnitude : -magnitude) + 0.0F;
  }

  /// Of e5m2, codes whose h is 0.
  struct Small {
    std::int64_t zero = 0;
    std::int64_t subnormal = 0;
    std::int64_t sum = 0;  ///< in units, as the next
    std::int64_t squares = 0;
  };
  NANSCOPE_LANE Small count_small(const std::uint8_t* codes, std::int64_t count) {
    Codes zero = {};
    Codes below = {};
    Codes sum = {};  // signed, at most 16 * 7
    CodeWords squares = {};
    for_codes(codes, count, 0x7f, [&](Codes code) NANSCOPE_INLINE_LAMBDA {
      const Codes magnitude = code & splat_code(0x7f);
      zero -= below_code(magnitude, 1);
      below -= below_code(magnitude, 4);
      const Codes multiple = magnitude & below_code(magnitude, 8);
      sum += signed_as(multiple, code);
      squares += multiply_pairs(multiple, multiple);
    });
    const FourDwords of = sums_across(sum_of_eights(zero), sum_of_eights(below), sum_of_eights(sum ^ splat_code(0x80)),
                                      multiply_pairs(squares, splat_word(1)));
    return {of[0], of[1] - of[0], of[2] - 0x80 * kCodesAtOnce, of[3]};
  }

  NANSCOPE_CALLED std::int64_t count_saturated(const CodeFormat& format, const std::uint8_t* codes,
                                               std::int64_t count) {
    Codes below = {};
    for_codes(codes, count, 0xff,
              [&](Codes code) NANSCOPE_INLINE_LAMBDA { below -= below_code(code & splat_code(0x7f), format.largest); });
    const CodeDwords of = sum_of_eights(below);
    return count - sums_across(of, of, of, of)[0];
  }

  NANSCOPE_CALLED bool some_code(const std::uint8_t* codes, std::int64_t count, std::uint8_t which) {
    Codes found = {};
    for_codes(codes, count, 0,
              [&](Codes code) NANSCOPE_INLINE_LAMBDA { found |= reinterpret_cast<Codes>(code == splat_code(which)); });
    return some_negative(found);
  }

  /// The largest codes, without sign and signed, and the least without: that of the least magnitude where all have one
  /// sign.
  struct Ends {
    int most;
    int top;
    int least;
  };
  NANSCOPE_LANE int highest_signed(Codes top) { return 127 - lowest_code(top ^ splat_code(0x7f)); }
  NANSCOPE_CALLED Ends find_ends(const std::uint8_t* codes, std::int64_t count) {
    Codes most = {};
    Codes top = splat_code(0x80);
    Codes least = splat_code(0xff);
    for_codes(codes, count, codes[0], [&](Codes code) NANSCOPE_INLINE_LAMBDA {
      most = higher_code(most, code);
      top = higher_signed(top, code);
      least = lower_code(least, code);
    });
    return {255 - lowest_code(~most), highest_signed(top), lowest_code(least)};
  }

  NANSCOPE_LANE void set_sums(const CodeFormat& format, const Totals& totals, const std::uint8_t* codes,
                              FiniteHealth& health) {
    const auto unit = static_cast<double>(format.unit);
    if constexpr (kTwoBits) {
      Small small;
      if (some_negative(totals.above)) small = count_small(codes, health.count);
      health.zero = small.zero;
      health.subnormal = small.subnormal;
      const TwoSums sums = {sum_of(totals, small.sum), squares_of(totals, small.squares)};
      health.sums = sums * TwoSums{unit, unit * unit};
    } else {
      constexpr double kHigher = static_cast<double>(std::int64_t{1} << 2 * shift(1));
      // At most 512 times 15 * 2^14, and 512 times (15 * 2^7)^2.
      const CodeDwords sum = totals.whole_sum[0] + (totals.whole_sum[1] << shift(1));
      const CodeDwords counts = sum_of_eights(totals.above) + (sum_of_eights(totals.nonzero) << 16);
      const FourDwords of = sums_across(sum, halves(totals.squares[0]), halves(totals.squares[1]), counts);
      const FourDoubles units = to_doubles(of) * FourDoubles{unit, unit * unit, unit * unit * kHigher, 0.0};
      health.sums = TwoSums{units[0], units[1] + units[2]};
      const std::int64_t nonzero = of[3] >> 16;
      health.zero = health.count - nonzero;
      health.subnormal = nonzero - (of[3] & 0xffff) / 8;
    }
  }
  NANSCOPE_LANE double sum_of(const Totals& totals, std::int64_t small) {
    const FourDwords of =
        sums_across(totals.whole_sum[0], totals.whole_sum[1], totals.whole_sum[kGroups - 1], CodeDwords{});
    const auto upper = static_cast<std::int64_t>(of[2]) * (1 << shift(2));
    return static_cast<double>(upper + of[1] * (1LL << shift(1)) + of[0] * (1LL << shift(0)) + small);
  }
  /// In units, rounded once.
  NANSCOPE_LANE double squares_of(const Totals& totals, std::int64_t small) {
    // The upper of at most 34 bits; from 41 bits on the lower, of 55, is the upper's.
    constexpr int kBorder = 2 * shift(2) - 1;
    const CodeLongs lowest = sums_of_two(totals.squares[0]) << (2 * shift(0) - 1);
    const CodeLongs low = lowest + (sums_of_two(totals.squares[1]) << (2 * shift(1) - 1));
    const TwoLongs of = sums_across(low, sums_of_two(totals.squares[kGroups - 1]));
    const std::int64_t lower = of[0] + small;
    const std::int64_t upper = of[1] + (lower >> kBorder);
    return static_cast<double>(upper) * static_cast<double>(std::int64_t{1} << kBorder) +
           static_cast<double>(lower & ((std::int64_t{1} << kBorder) - 1));
  }

  /// Whether nothing is to be looked for in a tile but what its totals say.
  NANSCOPE_LANE bool ordinary(const CodeFormat& format, const Ends& ends) {
    return !format.fnuz && ends.top >= 0 && ends.top < format.largest && ends.most >= 128 &&
           ends.most < 128 + format.largest;
  }
  /// Another tile.
  NANSCOPE_CALLED bool scan_rare(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count,
                                 const Totals& totals, Ends ends, Health* result) {
    if (ends.top >= format.special || ends.most >= 128 + format.special) return false;
    if (format.fnuz && some_code(codes, count, 0x80)) return false;
    if (ends.top < 0 || ends.most < 128) ends = find_ends(codes, count);
    const int min = ends.most < 128 ? ends.least : ends.most;
    const int max = ends.top < 0 ? ends.least : ends.top;
    FiniteHealth health{count, 0, 0, 0, {}, value(format, min), value(format, max)};
    set_sums(format, totals, codes, health);
    const bool largest = ends.top >= format.largest || ends.most >= 128 + format.largest;
    if (largest) health.saturated = count_saturated(format, codes, count);
    store_finite(result, health);
    return true;
  }

  /// A tile that does not fill registers.
  NANSCOPE_CALLED bool scan_part(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count,
                                 Health* result) {
    alignas(kCodesAtOnce) std::uint8_t filled[kTileChannels];
    const std::int64_t whole = (count + kCodesAtOnce - 1) / kCodesAtOnce * kCodesAtOnce;
    for (std::int64_t i = 0; i < whole; ++i) filled[i] = i < count ? codes[i] : std::uint8_t{0};
    Totals totals;
    add_tile(totals, filled, whole);
    return scan_rare(format, codes, count, totals, find_ends(codes, count), result);
  }

  /// Health of `count` codes, at most a tile of them; false where some are Inf or NaN, and nothing is written.
  NANSCOPE_LANE bool scan(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count, Health* result) {
    if (count % kCodesAtOnce != 0) return scan_part(format, codes, count, result);
    Totals totals;
    add_tile(totals, codes, count);
    const Ends ends{255 - lowest_code(~totals.most), highest_signed(totals.top), 0};
    if (!ordinary(format, ends)) {
      const Totals copy = totals;  // so that those of the others stay in registers
      return scan_rare(format, codes, count, copy, ends, result);
    }
    FiniteHealth health{count, 0, 0, 0, {}, value(format, ends.most), value(format, ends.top)};
    set_sums(format, totals, codes, health);
    store_finite(result, health);
    return true;
  }
  /// Of tiles of `columns` codes that follow one another; the answer is how many there are before one of which scan()
  /// says false.
  NANSCOPE_CALLED std::int64_t scan_tiles(const CodeFormat& format, const std::uint8_t* codes, std::int64_t columns,
                                          std::int64_t tiles, Health* results) {
    std::int64_t done = 0;
    while (done < tiles && scan(format, codes + done * columns, columns, results + done)) ++done;
    return done;
  }
};

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

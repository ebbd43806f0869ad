#pragma once
/// Health of tiles of 8 bit floats in integers: e4m3, e5m2 and their fnuz kinds. For health_scan.h.
///
/// A code of a float is a sign, four bits h and three bits l below them. Its magnitude in units of the format's
/// smallest is a multiple, which l and a bit from h give, times a weight of h. Weights of one byte each, with a bit of
/// the multiple, make a group: multiples times weights of a group are words, whose sums and squares' sums fit 32 bits
/// for a tile. A pair of codes gives its sum and its difference, whose squares add up to twice the pair's. Groups are
/// put together at the end, exactly; a sum of squares of more than 53 bits is rounded once. The ends of four tiles are
/// made at once, a lane each: one by one they take as long as a third of what comes before.
///
/// Two groups hold all of e4m3, but of e5m2 a window of 20 binades. Few tiles spread over more; the window is chosen by
/// what the first of four tiles begins with.
///
/// What few tiles have is not counted on the way but in another pass over those: largest values, zeros and subnormals
/// of e5m2, its values outside of the window, and the least magnitude where all codes have one sign.
#include "kernels/warp/warp_cpu_bytes.h"

#if defined(NANSCOPE_CODE_REGISTERS)
#include "core/tensor/health.h"
#include "kernels/ops/health_store.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

__extension__ using WideInteger = __int128;

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
  static constexpr int kGroups = 2;
  /// Values of h in a group of e5m2. e4m3's are 0 to 8 and 9 to 15.
  static constexpr int kGroupOfTwoBits = 5;
  /// The lowest h of the window, which of e5m2 is 1 to 6, or 11 for what is above that of 1; none of them holds 0:
  /// those few codes are their own multiples of the unit.
  static constexpr int kWindows = kTwoBits ? 11 : 1;
  static constexpr int kLastOfAll = kTwoBits ? 6 : 1;  ///< the window that holds the largest codes

  /// Of the window from `lowest` on; -1: in none.
  static constexpr int group_of(int lowest, int h) {
    if (!kTwoBits) return h / 9;
    return h < lowest || h >= lowest + kGroups * kGroupOfTwoBits ? -1 : (h - lowest) / kGroupOfTwoBits;
  }
  /// Binary places of a multiple above the unit's; of e5m2 the exponent's last bit is in the multiple.
  static constexpr int places(int h) { return h == 0 ? 0 : kTwoBits ? 2 * h - 1 : h - 1; }
  /// The same of the window, and of its upper group above that.
  static constexpr int shift(int lowest) { return kTwoBits ? 2 * lowest - 1 : 0; }
  static constexpr int kUpper = kTwoBits ? 2 * kGroupOfTwoBits : 8;
  /// A byte has no 256: of e5m2's last h of a group the multiple is fourfold instead.
  static constexpr bool fourfold(int lowest, int h) {
    return kTwoBits && (h - lowest) % kGroupOfTwoBits == kGroupOfTwoBits - 1;
  }

  /// A table of byte(i) at each place i.
  template <class Byte>
  static constexpr ByteTable table(const Byte& byte) {
    ByteTable table{};
    for (int i = 0; i < kCodesAtOnce; ++i) table.of[i] = static_cast<std::uint8_t>(byte(i % 16));
    return table;
  }
  struct Window {
    /// Of each group, by h; 0 in the others.
    ByteTable weights[kGroups];
    /// By h, what is put above l: the implicit bit of e4m3; of e5m2 the bit that says fourfold, or one with which
    /// lookup() finds nothing.
    ByteTable above;
  };
  static constexpr Window window(int lowest) {
    Window window{};
    for (int group = 0; group < kGroups; ++group) {
      window.weights[group] = table([lowest, group](int h) {
        const int above = places(h) - shift(lowest) - kUpper * group;
        return group_of(lowest, h) == group ? 1 << (above - (fourfold(lowest, h) ? 2 : 0)) : 0;
      });
    }
    window.above = table([lowest](int h) {
      if (kTwoBits) return group_of(lowest, h) < 0 ? 0x80 : fourfold(lowest, h) ? 8 : 0;
      return h == 0 ? 0 : 8;
    });
    return window;
  }
  struct AllWindows {
    Window of[kWindows + 1];  ///< by the lowest h
  };
  static constexpr AllWindows windows() {
    AllWindows windows{};
    for (int lowest = 1; lowest <= kWindows; ++lowest) windows.of[lowest] = window(lowest);
    return windows;
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
  using Parts = CodeParts<Kind>;
  using Parts::kGroups;
  using Parts::kTwoBits;
  using Parts::kUpper;
  /// Registers whose sums of a group fit 16 bits: two products of at most 15 * 2^7 each, or 14 * 2^8.
  static constexpr int kSteps = kTwoBits ? 4 : 8;
  static_assert(kTileChannels <= 16 * kCodesAtOnce, "counts fit a byte, and sums of squares 32 bits");
  static constexpr typename Parts::AllWindows kAllWindows = Parts::windows();
  static constexpr ByteTable kMultiples = Parts::multiples();

  struct Totals {
    CodeWords sum[kGroups] = {};
    CodeDwords whole_sum = {};
    CodeDwords squares[kGroups] = {};  ///< twice
    Codes nonzero = {};                ///< of e4m3
    Codes above = {};                  ///< of e4m3 8 for each normal number; of e5m2 all of the bits
    Codes most = {};                   ///< unsigned
    Codes top = splat_code(0x80);      ///< signed
  };
  /// Those of a whole tile in memory. Neither set to zeros nor copied as a struct, of which g++ makes string
  /// instructions.
  struct TileTotals {
    CodeDwords sum;  ///< of both groups
    CodeDwords squares[kGroups];
    Codes nonzero;
    Codes above;
    Codes most;
    Codes top;
  };
  NANSCOPE_LANE void store(const Totals& totals, TileTotals* to) {
    to->sum = totals.whole_sum;
    to->squares[0] = totals.squares[0];
    to->squares[1] = totals.squares[1];
    to->nonzero = totals.nonzero;
    to->above = totals.above;
    to->most = totals.most;
    to->top = totals.top;
  }
  /// A window's tables in registers.
  struct Tables {
    Codes weights[kGroups];
    Codes above;
  };
  NANSCOPE_LANE Tables tables_of(int lowest) {
    const typename Parts::Window& window = kAllWindows.of[lowest];
    return {{load_table(window.weights[0]), load_table(window.weights[1])}, load_table(window.above)};
  }

  NANSCOPE_LANE void add(Totals& totals, const Tables& tables, Codes code) {
    totals.most = higher_code(totals.most, code);
    totals.top = higher_signed(totals.top, code);
    const Codes h = high_four(code);
    const Codes above = lookup(tables.above, h);
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
      const Codes weight = lookup(tables.weights[group], h);
      const CodeWords sum = multiply_pairs(weight, both);
      const CodeWords difference = multiply_pairs(weight, apart);
      totals.sum[group] += sum;
      totals.squares[group] += multiply_pairs(sum, sum) + multiply_pairs(difference, difference);
    }
  }
  /// Before the sums leave 16 bits.
  NANSCOPE_LANE void carry(Totals& totals) {
    totals.whole_sum += multiply_pairs(totals.sum[0], splat_word(1)) +
                        multiply_pairs(totals.sum[1], splat_word(std::int16_t{1} << kUpper));
    totals.sum[0] = totals.sum[1] = CodeWords{};
  }
  /// Of tiles of `count` codes, a multiple of 32, that follow one another. A function of its own: what comes before and
  /// after it would take its registers.
  NANSCOPE_CALLED void add_tiles(int lowest, const std::uint8_t* codes, std::int64_t count, std::int64_t tiles,
                                 TileTotals* results) {
    const Tables tables = tables_of(lowest);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      Totals totals;
      const std::uint8_t* end = codes + count;
      while (end - codes >= kSteps * kCodesAtOnce) {
        _Pragma("GCC unroll 2") for (int step = 0; step < kSteps; ++step, codes += kCodesAtOnce) {
          __builtin_prefetch(codes + kAhead);
          add(totals, tables, load_codes(codes));
        }
        carry(totals);
      }
      for (; codes < end; codes += kCodesAtOnce) {
        add(totals, tables, load_codes(codes));
        carry(totals);
      }
      store(totals, results + tile);
    }
  }
  /// The same of any count.
  NANSCOPE_CALLED void add_part(int lowest, const std::uint8_t* codes, std::int64_t count, TileTotals* result) {
    alignas(kCodesAtOnce) std::uint8_t filled[kTileChannels];
    const std::int64_t whole = (count + kCodesAtOnce - 1) / kCodesAtOnce * kCodesAtOnce;
    for (std::int64_t i = 0; i < whole; ++i) filled[i] = i < count ? codes[i] : std::uint8_t{0};
    add_tiles(lowest, filled, whole, 1, result);
  }

  /// Of a code that is a number.
  NANSCOPE_LANE float value(const CodeFormat& format, int code) {
    const float magnitude =
        from_bits_uniform((static_cast<std::uint32_t>(code) & 0x7fU) << (kTwoBits ? 21 : 20)) * format.exponent;
    return (code < 128 ? magnitude : -magnitude) + 0.0F;
  }

  /// The same of four, without sign; 0 less one of them is no -0.
  NANSCOPE_LANE FourFloats magnitudes(const CodeFormat& format, FourDwords codes) {
    return reinterpret_cast<FourFloats>((codes & 0x7f) << (kTwoBits ? 21 : 20)) * format.exponent;
  }

  /// Of e5m2, codes whose h is 0, of a tile.
  struct SmallTotals {
    CodeDwords zero;
    CodeDwords below;  ///< zeros and subnormals
    CodeDwords sum;    ///< in units, as the next, and 128 for each byte of a register
    CodeDwords squares;
    Codes next;  ///< of the others the least magnitude, less 8
  };
  NANSCOPE_CALLED void count_small(const std::uint8_t* codes, std::int64_t count, SmallTotals* result) {
    Codes zero = {};
    Codes below = {};
    Codes sum = {};  // signed, at most 16 * 7
    CodeWords squares = {};
    Codes next = splat_code(0xff);  // less 8 the small ones are the largest
    const Codes normal = border_code(4);
    const Codes large = border_code(8);
    for_codes(codes, count, 0x7f, [&](Codes code) NANSCOPE_INLINE_LAMBDA {
      const Codes magnitude = code & splat_code(0x7f);
      zero -= reinterpret_cast<Codes>(magnitude == Codes{});
      below -= below_code(magnitude, normal);
      const Codes multiple = magnitude & below_code(magnitude, large);
      sum += signed_as(multiple, code);
      squares += multiply_pairs(multiple, multiple);
      next = lower_code(next, magnitude - splat_code(8));
    });
    result->zero = sum_of_eights(zero);
    result->below = sum_of_eights(below);
    result->sum = sum_of_eights(sum ^ splat_code(0x80));
    result->squares = multiply_pairs(squares, splat_word(1));
    result->next = next;
  }
  /// Of four tiles, a lane each.
  struct FourSmall {
    FourDwords zero;
    FourDwords subnormal;
    FourDwords sum;
    FourDwords squares;
    FourDwords next;  ///< of the others the least magnitude, as a code
  };
  NANSCOPE_LANE FourSmall small_of(const SmallTotals* const (&of)[4]) {
    FourSmall small;
    small.zero = sums_across(of[0]->zero, of[1]->zero, of[2]->zero, of[3]->zero);
    small.subnormal = sums_across(of[0]->below, of[1]->below, of[2]->below, of[3]->below) - small.zero;
    small.sum = sums_across(of[0]->sum, of[1]->sum, of[2]->sum, of[3]->sum) - 0x80 * kCodesAtOnce;
    small.squares = sums_across(of[0]->squares, of[1]->squares, of[2]->squares, of[3]->squares);
    small.next = 8 + 255 - highest_codes(~of[0]->next, ~of[1]->next, ~of[2]->next, ~of[3]->next);
    return small;
  }

  NANSCOPE_CALLED std::int64_t count_saturated(const CodeFormat& format, const std::uint8_t* codes,
                                               std::int64_t count) {
    Codes below = {};
    const Codes largest = border_code(format.largest);
    for_codes(codes, count, 0xff,
              [&](Codes code) NANSCOPE_INLINE_LAMBDA { below -= below_code(code & splat_code(0x7f), largest); });
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

  /// Of four tiles, a lane each: what the end of a tile makes of its totals.
  struct FourEnds {
    FourDwords most;
    FourDwords top;
    FourDoubles sum;
    FourDoubles squares;
    FourDwords zero;
    FourDwords subnormal;
  };
  /// Of the window alone, in its units.
  NANSCOPE_LANE FourDwords sums_of(const TileTotals* const (&of)[4]) {
    // At most 512 times 15 * 2^14, or 7 * 2^19.
    return sums_across(of[0]->sum, of[1]->sum, of[2]->sum, of[3]->sum);
  }
  /// The same of squares, of e5m2: at most 512 times (7 * 2^19)^2.
  NANSCOPE_LANE CodeLongs squares_of(const TileTotals* const (&of)[4]) {
    CodeLongs both[kGroups];
    NANSCOPE_UNROLL for (int group = 0; group < kGroups; ++group) {
      both[group] = sums_across(sums_of_two(of[0]->squares[group]), sums_of_two(of[1]->squares[group]),
                                sums_of_two(of[2]->squares[group]), sums_of_two(of[3]->squares[group]));
    }
    return (both[0] + (both[1] << (2 * kUpper))) >> 1;
  }
  /// As of tiles whose codes are in the window.
  NANSCOPE_LANE FourEnds ends_of(const CodeFormat& format, int lowest, std::int64_t count,
                                 const TileTotals* const (&of)[4]) {
    const auto unit = static_cast<double>(format.unit) * static_cast<double>(1 << Parts::shift(lowest));
    FourEnds ends;
    ends.most = highest_codes(of[0]->most, of[1]->most, of[2]->most, of[3]->most);
    const Codes sign = splat_code(0x80);
    ends.top = highest_codes(of[0]->top ^ sign, of[1]->top ^ sign, of[2]->top ^ sign, of[3]->top ^ sign) - 128;
    ends.sum = to_doubles(sums_of(of)) * unit;
    if constexpr (kTwoBits) {
      ends.squares = to_doubles(squares_of(of)) * (unit * unit);
      ends.zero = ends.subnormal = FourDwords{};
    } else {
      constexpr double kHigher = static_cast<double>(std::int64_t{1} << 2 * kUpper);
      CodeDwords counts[4];
      NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
        counts[i] = sum_of_eights(of[i]->above) + (sum_of_eights(of[i]->nonzero) << 16);
      }
      // At most 512 times (15 * 2^7)^2.
      const auto across = [&](int group) NANSCOPE_INLINE_LAMBDA {
        return to_doubles(sums_across(halves(of[0]->squares[group]), halves(of[1]->squares[group]),
                                      halves(of[2]->squares[group]), halves(of[3]->squares[group])));
      };
      ends.squares = (across(0) + across(1) * kHigher) * (unit * unit);
      const FourDwords both = sums_across(counts[0], counts[1], counts[2], counts[3]);
      const FourDwords nonzero = both >> 16;
      ends.zero = static_cast<std::int32_t>(count) - nonzero;
      ends.subnormal = nonzero - ((both & 0xffff) >> 3);
    }
    return ends;
  }
  /// Of e5m2, with the codes whose h is 0; false where codes are outside of the window besides, or where a sum of
  /// squares does not fit 63 bits.
  NANSCOPE_LANE bool add_small(const CodeFormat& format, int lowest, const TileTotals* const (&of)[4],
                               const SmallTotals* const (&small_totals)[4], FourEnds& ends) {
    const FourSmall small = small_of(small_totals);
    const int shift = Parts::shift(lowest);
    const CodeLongs squares = squares_of(of);
    const FourDwords negative = ends.most & 0x7f;
    const int above = (lowest + kGroups * Parts::kGroupOfTwoBits) << 3;
    const FourDwords outside = (small.next < lowest << 3) | (ends.top >= above) | (negative >= above);
    const std::int64_t all = squares[0] | squares[1] | squares[2] | squares[3];
    if (some_negative(outside) || all >> (62 - 2 * shift) != 0) return false;
    const auto unit = static_cast<double>(format.unit);
    ends.zero = small.zero;
    ends.subnormal = small.subnormal;
    ends.sum = small_to_doubles((to_longs(sums_of(of)) << shift) + to_longs(small.sum)) * unit;
    ends.squares = to_doubles((squares << (2 * shift)) + to_longs(small.squares)) * (unit * unit);
    return true;
  }

  /// Sums in units and in their squares.
  struct UnitSums {
    WideInteger sum = 0;
    WideInteger squares = 0;
  };
  NANSCOPE_LANE void add(UnitSums& sums, int lowest, const TileTotals& totals) {
    const CodeDwords sum = totals.sum;
    const CodeLongs squares = sums_of_two(totals.squares[0]) + (sums_of_two(totals.squares[1]) << (2 * kUpper));
    sums.sum += static_cast<WideInteger>(sums_across(sum, sum, sum, sum)[0]) << Parts::shift(lowest);
    sums.squares += static_cast<WideInteger>(sums_across(squares, squares)[0] >> 1) << (2 * Parts::shift(lowest));
  }
  /// Of e5m2, any tile: of two windows that hold all codes whose h is not 0.
  NANSCOPE_CALLED void count_all(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count,
                                 Health* result) {
    SmallTotals small_totals;
    count_small(codes, count, &small_totals);
    const FourSmall small = small_of({&small_totals, &small_totals, &small_totals, &small_totals});
    UnitSums sums{small.sum[0], small.squares[0]};
    for (const int lowest : {1, Parts::kWindows}) {
      TileTotals totals;
      add_part(lowest, codes, count, &totals);
      add(sums, lowest, totals);
    }
    const auto unit = static_cast<double>(format.unit);
    result->zero = static_cast<std::uint64_t>(small.zero[0]);
    result->subnormal = static_cast<std::uint64_t>(small.subnormal[0]);
    result->sum = static_cast<double>(sums.sum) * unit;
    result->sum_sq = static_cast<double>(sums.squares) * (unit * unit);
  }

  /// Whether the ends of four tiles are those of numbers of both signs, none of them the largest.
  NANSCOPE_LANE bool ordinary(const CodeFormat& format, const FourEnds& ends) {
    const FourDwords wrong =
        (ends.top < 0) | (ends.top >= format.largest) | (ends.most < 128) | (ends.most >= 128 + format.largest);
    return !format.fnuz && !some_negative(wrong);
  }
  /// What store_four() wrote of a tile, put right; false where some are Inf or NaN. `whole`: all codes are in its sums.
  NANSCOPE_CALLED bool mend(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count, Ends ends,
                            bool whole, Health* result) {
    if (ends.top >= format.special || ends.most >= 128 + format.special) return false;
    if (format.fnuz && some_code(codes, count, 0x80)) return false;
    if (ends.top < 0 || ends.most < 128) ends = find_ends(codes, count);
    if constexpr (kTwoBits) {
      if (!whole) count_all(format, codes, count, result);
    }
    const float min = value(format, ends.most < 128 ? ends.least : ends.most);
    const float max = value(format, ends.top < 0 ? ends.least : ends.top);
    FiniteHealth health{count, 0, 0, 0, TwoSums{result->sum, result->sum_sq}, min, max};
    health.zero = static_cast<std::int64_t>(result->zero);
    health.subnormal = static_cast<std::int64_t>(result->subnormal);
    const bool largest = ends.top >= format.largest || ends.most >= 128 + format.largest;
    if (largest) health.saturated = count_saturated(format, codes, count);
    store_finite(result, health);
    return true;
  }

  /// Of e5m2, the window for tiles that begin with these: up to 8 times the largest of them, and down to 2^16th of it.
  NANSCOPE_LANE int window_for(const std::uint8_t* codes) {
    if constexpr (!kTwoBits) return 1;
    const int largest = highest_code(load_codes(codes) & splat_code(0x7f)) >> 3;
    return largest < 9 ? 1 : largest < Parts::kLastOfAll + 8 ? largest - 8 : Parts::kLastOfAll;
  }
  /// Four tiles or fewer of `count` codes, a multiple of 32, that follow one another; how many there are before one
  /// that holds Inf or NaN.
  NANSCOPE_LANE std::int64_t scan_four(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count,
                                       std::int64_t tiles, Health* results) {
    TileTotals totals[4];
    const int lowest = window_for(codes);
    add_tiles(lowest, codes, count, tiles, totals);
    const TileTotals* of[4];
    for (int i = 0; i < 4; ++i) of[i] = totals + (i < tiles ? i : 0);
    FourEnds ends = ends_of(format, lowest, count, of);
    bool whole = true;
    if constexpr (kTwoBits) {
      whole = !some_negative(of[0]->above | of[1]->above | of[2]->above | of[3]->above);
      if (!whole) {
        SmallTotals small[4];
        const SmallTotals* each[4];
        for (std::int64_t i = 0; i < tiles; ++i) count_small(codes + i * count, count, small + i);
        for (int i = 0; i < 4; ++i) each[i] = small + (i < tiles ? i : 0);
        whole = add_small(format, lowest, of, each, ends);
      }
    }
    store_four(results, tiles, count, ends.zero, ends.subnormal, ends.sum, ends.squares,
               FourFloats{} - magnitudes(format, ends.most), magnitudes(format, ends.top));
    if (whole && ordinary(format, ends)) return tiles;
    for (std::int64_t i = 0; i < tiles; ++i) {
      const Ends of_tile{ends.most[i], ends.top[i], 0};
      const bool of_window = !kTwoBits || whole || !some_negative(totals[i].above);
      if (!mend(format, codes + i * count, count, of_tile, of_window, results + i)) return i;
    }
    return tiles;
  }
  /// A tile that does not fill registers.
  NANSCOPE_CALLED bool scan_part(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count,
                                 Health* result) {
    TileTotals totals;
    add_part(1, codes, count, &totals);
    const FourEnds ends = ends_of(format, 1, count, {&totals, &totals, &totals, &totals});
    store_four(result, 1, count, ends.zero, ends.subnormal, ends.sum, ends.squares, FourFloats{}, FourFloats{});
    return mend(format, codes, count, find_ends(codes, count), !kTwoBits, result);
  }
  /// Health of tiles of `columns` codes, at most a tile of them, that follow one another; the answer is how many there
  /// are before one of which some are Inf or NaN.
  NANSCOPE_CALLED std::int64_t scan_tiles(const CodeFormat& format, const std::uint8_t* codes, std::int64_t columns,
                                          std::int64_t tiles, Health* results) {
    std::int64_t done = 0;
    if (columns % kCodesAtOnce != 0) {
      while (done < tiles && scan_part(format, codes + done * columns, columns, results + done)) ++done;
      return done;
    }
    while (done < tiles) {
      const std::int64_t some = tiles - done < 4 ? tiles - done : 4;
      const std::int64_t good = scan_four(format, codes + done * columns, columns, some, results + done);
      done += good;
      if (good < some) break;
    }
    return done;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif

#pragma once
/// Health of a tile of 8 bit codes in integers: e4m3, e5m2, their fnuz kinds and int8. For health_scan.h.
///
/// A code is a sign, four bits h and three bits l below them. Its magnitude in units of the format is
/// multiple(h, l) * weight(h): of e4m3 multiple is 8 + l (l where h is 0), and weight 2^(h - 1); of e5m2, whose last
/// bit of exponent is in l, it is (4 + l mod 4) * 2^(l / 4), and 4^h. Weights of eight bits each make a group:
/// multiples times weights of a group are words, whose sums and squares' sums fit 32 bits for a tile. Groups are put
/// together at the end, exactly; a sum of squares of more than 53 bits is rounded once.
#include "kernels/warp/warp_cpu_bytes.h"

#if defined(NANSCOPE_CODE_REGISTERS)
#include "core/tensor/health.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Formats that are taken apart in the same way.
enum class CodeKind : std::uint8_t { e4m3, e5m2, int8 };

/// What differs between the formats of a kind; codes without the sign.
struct CodeFormat {
  int largest;  ///< of the largest finite value
  int special;  ///< the first that is Inf or NaN; 128 when there is none
  bool fnuz;    ///< 0x80 is NaN
  float unit;
};

/// The parts of a code and what they stand for.
template <CodeKind Kind>
struct CodeParts {
  static constexpr int multiple(int h, int l) {
    if (Kind == CodeKind::e4m3) return h == 0 ? l : 8 + l;
    return h == 0 && l < 4 ? 2 * l : (4 + l % 4) << (l / 4);
  }
  static constexpr int exponent(int h) { return Kind == CodeKind::e5m2 ? 2 * h : h == 0 ? 0 : h - 1; }

  /// Weights of one group by h; 0 in the others.
  static constexpr ByteTable weights(int group) {
    ByteTable table{};
    for (int h = 0; h < 16; ++h) {
      if (exponent(h) / 8 == group) table.of[h] = static_cast<std::uint8_t>(1 << exponent(h) % 8);
    }
    return table;
  }
  /// Multiples by l, and by l + 8 where h is not 0.
  static constexpr ByteTable multiples() {
    ByteTable table{};
    for (int i = 0; i < 16; ++i) table.of[i] = static_cast<std::uint8_t>(multiple(i / 8, i % 8));
    return table;
  }
  /// 8 where h is not 0.
  static constexpr ByteTable above() {
    ByteTable table{};
    for (int h = 1; h < 16; ++h) table.of[h] = 8;
    return table;
  }
};

template <CodeKind Kind>
struct HealthCodes : CodeParts<Kind> {
  using CodeParts<Kind>::multiple;
  using CodeParts<Kind>::exponent;
  static constexpr int kGroups = Kind == CodeKind::e4m3 ? 2 : Kind == CodeKind::e5m2 ? 4 : 1;
  /// Steps of 32 codes whose sums of a group fit 16 bits: two products of at most 15 * 128 each.
  static constexpr int kSteps = 8;
  static_assert(kTileChannels <= 2 * kSteps * kCodesAtOnce, "counts fit a byte, and sums of squares 32 bits");
  static constexpr ByteTable kWeights[4] = {CodeParts<Kind>::weights(0), CodeParts<Kind>::weights(1),
                                            CodeParts<Kind>::weights(2), CodeParts<Kind>::weights(3)};
  static constexpr ByteTable kMultiples = CodeParts<Kind>::multiples();
  static constexpr ByteTable kAbove = CodeParts<Kind>::above();
  static constexpr unsigned kNormal = Kind == CodeKind::e4m3 ? 8 : 1;  ///< what a normal number adds to the count

  struct Totals {
    CodeWords sum[kGroups] = {};
    CodeDwords whole_sum[kGroups] = {};
    CodeDwords squares[kGroups] = {};
    Codes nonzero = {};
    Codes normal = {};
    Codes most = {};                  ///< unsigned
    Codes top = splat_code(0x80);     ///< signed
    Codes bottom = splat_code(0x7f);  ///< signed
  };

  /// `ranged` is `code` where only some of it are of the tile: then the others repeat one that is.
  NANSCOPE_LANE void add(Totals& totals, Codes code, Codes ranged) {
    totals.most = higher_code(totals.most, ranged);
    totals.top = higher_signed(totals.top, ranged);
    totals.bottom = lower_signed(totals.bottom, ranged);
    const Codes one = splat_code(1);
    Codes with_sign = code;
    const Codes h = high_four(code);
    if constexpr (Kind == CodeKind::int8) {
      totals.nonzero += lower_code(code, one);
    } else {
      const Codes above = lookup(load_table(kAbove), h);
      Codes multiple = (code & splat_code(7)) | above;
      if constexpr (Kind == CodeKind::e5m2) {
        multiple = lookup(load_table(kMultiples), multiple);
        totals.normal += lower_code(code & splat_code(0x7c), one);
      } else {
        totals.normal += above;
      }
      totals.nonzero += lower_code(multiple, one);
      with_sign = signed_as(multiple, code);
    }
    const Codes even = with_sign & reinterpret_cast<Codes>(splat_word(0xff));
    NANSCOPE_UNROLL for (int group = 0; group < kGroups; ++group) {
      const Codes weight = Kind == CodeKind::int8 ? one : lookup(load_table(kWeights[group]), h);
      const CodeWords pair = multiply_pairs(weight, with_sign);
      const CodeWords first = multiply_pairs(weight, even);
      const CodeWords second = pair - first;
      totals.sum[group] += pair;
      totals.squares[group] += multiply_pairs(first, first) + multiply_pairs(second, second);
    }
  }
  /// Before the sums leave 16 bits.
  NANSCOPE_LANE void carry(Totals& totals) {
    NANSCOPE_UNROLL for (int group = 0; group < kGroups; ++group) {
      totals.whole_sum[group] += multiply_pairs(totals.sum[group], splat_word(1));
      totals.sum[group] = CodeWords{};
    }
  }

  NANSCOPE_LANE void add_tile(Totals& totals, const std::uint8_t* codes, std::int64_t count) {
    std::int64_t at = 0;
    for (int step = 0; at + kCodesAtOnce <= count; at += kCodesAtOnce) {
      __builtin_prefetch(codes + at + 1024);
      const Codes code = load_codes(codes + at);
      add(totals, code, code);
      if (++step % kSteps == 0) carry(totals);
    }
    if (at < count) {
      alignas(kCodesAtOnce) std::uint8_t rest[kCodesAtOnce] = {};
      alignas(kCodesAtOnce) std::uint8_t ranged[kCodesAtOnce];
      for (int i = 0; i < kCodesAtOnce; ++i) ranged[i] = codes[at + i < count ? at + i : 0];
      for (int i = 0; at + i < count; ++i) rest[i] = codes[at + i];
      add(totals, load_codes(rest), load_codes(ranged));
    }
    carry(totals);
  }

  /// Of a code that is a number.
  NANSCOPE_LANE float value(const CodeFormat& format, int code) {
    if constexpr (Kind == CodeKind::int8) return static_cast<float>(static_cast<std::int8_t>(code));
    const int h = code >> 3 & 15;
    const auto units = static_cast<std::int64_t>(multiple(h, code & 7)) << exponent(h);
    return static_cast<float>(code < 128 ? units : -units) * format.unit;
  }

  /// Minimum and maximum, which stand for the values' order in two's complement (int8) or sign and magnitude.
  NANSCOPE_LANE void set_range(Health& health, const CodeFormat& format, int most, int top, int bottom) {
    if constexpr (Kind == CodeKind::int8) {
      health.min = value(format, bottom);
      health.max = value(format, top);
    } else {
      health.min = value(format, most < 128 ? bottom : most);
      health.max = value(format, top < 0 ? bottom & 0xff : top);
    }
    health.absmax = -health.min > health.max ? -health.min : health.max;
  }

  NANSCOPE_LANE std::uint64_t count_saturated(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count) {
    const auto reaches = [&](auto code) {
      // Of int8 127, -128 and -127.
      if constexpr (Kind == CodeKind::int8) return static_cast<decltype(code)>(code - 0x7f) <= 2;
      return (code & 0x7f) >= static_cast<std::uint8_t>(format.largest);
    };
    Codes found = {};  // 255 for each, so that the steps of a tile fit
    std::int64_t at = 0;
    for (; at + kCodesAtOnce <= count; at += kCodesAtOnce)
      found += reinterpret_cast<Codes>(reaches(load_codes(codes + at)));
    const CodeDwords sums = sum_of_eights(Codes{} - found);
    auto saturated = static_cast<std::uint64_t>(sums_across(sums, sums, sums, sums).of[0]);
    for (; at < count; ++at) saturated += reaches(codes[at]) ? 1U : 0U;
    return saturated;
  }

  /// Health of `count` codes, at most a tile of them; false where some are Inf or NaN, and nothing is written.
  NANSCOPE_CALLED bool scan(const CodeFormat& format, const std::uint8_t* codes, std::int64_t count, Health* result) {
    Totals totals;
    add_tile(totals, codes, count);
    const int most = 255 - lowest_code(~totals.most);
    const int top = 127 - lowest_code(totals.top ^ splat_code(0x7f));
    const int bottom = lowest_code(totals.bottom ^ splat_code(0x80)) - 128;
    if (top >= format.special || most >= 128 + format.special || (format.fnuz && bottom == -128)) return false;

    // Both counts fit 16 bits.
    const CodeDwords counts = sum_of_eights(totals.normal) + (sum_of_eights(totals.nonzero) << 16);
    std::int64_t sum = 0;
    double squares = 0;
    std::uint32_t counted = 0;
    if constexpr (kGroups == 4) {
      const FourSums sums =
          sums_across(totals.whole_sum[0], totals.whole_sum[1], totals.whole_sum[2], totals.whole_sum[3]);
      const FourSums of = sums_across(totals.squares[0], totals.squares[1], totals.squares[2], totals.squares[3]);
      for (int group = 0; group < 4; ++group) sum += static_cast<std::int64_t>(sums.of[group]) * (1LL << 8 * group);
      const std::int64_t low = of.of[0] + (static_cast<std::int64_t>(of.of[1]) << 16);
      const std::int64_t high = of.of[2] + (static_cast<std::int64_t>(of.of[3]) << 16);
      squares = static_cast<double>(high) * 0x1p32 + static_cast<double>(low);
      counted = static_cast<std::uint32_t>(sums_across(counts, counts, counts, counts).of[0]);
    } else {
      constexpr int kHigh = kGroups - 1;
      // At most 512 times 15 * 2^14.
      const CodeDwords whole =
          kGroups == 1 ? totals.whole_sum[0] : totals.whole_sum[0] + (totals.whole_sum[kHigh] << 8);
      const FourSums of = sums_across(whole, totals.squares[0], totals.squares[kHigh], counts);
      sum = of.of[0];
      squares = static_cast<double>(of.of[1] + (kGroups == 1 ? 0 : static_cast<std::int64_t>(of.of[2]) << 16));
      counted = static_cast<std::uint32_t>(of.of[3]);
    }
    Health health;
    health.count = static_cast<std::uint64_t>(count);
    const std::uint64_t nonzero = counted >> 16;
    health.zero = health.count - nonzero;
    if constexpr (Kind != CodeKind::int8) health.subnormal = nonzero - (counted & 0xffff) / kNormal;
    const bool largest =
        Kind == CodeKind::int8 ? bottom <= -127 || top == 127 : top >= format.largest || most >= 128 + format.largest;
    if (largest) health.saturated = count_saturated(format, codes, count);
    const auto unit = static_cast<double>(format.unit);
    health.sum = static_cast<double>(sum) * unit;
    health.sum_sq = squares * (unit * unit);
    set_range(health, format, most, top, bottom);
    *result = health;
    return true;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

#endif

#pragma once
/// One pass over bytes of unknown meaning that counts NaN and Inf under each format that they may be in. The source of
/// the CPU's and the GPU's scan: all it adds up are integers, so that no order shows in the result.
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define NANSCOPE_SCAN_FN __host__ __device__ inline
#else
#define NANSCOPE_SCAN_FN inline
#endif

namespace nanscope::live {

/// The formats that a scan reads the bytes as, widest first.
enum class Reading : std::uint8_t { f32, f16, bf16, e4m3, e5m2 };
inline constexpr int kReadings = 5;

/// What bytes are under one format.
struct FormatCounts {
  std::uint64_t elements = 0;
  std::uint64_t nan = 0;
  std::uint64_t pos_inf = 0;
  std::uint64_t neg_inf = 0;
  std::uint64_t zero = 0;
  std::uint64_t exponents = 0;         ///< sum of the biased exponents of finite elements but zeros
  std::uint64_t exponent_squares = 0;  ///< of their squares
  std::uint64_t highest = 0;           ///< the highest of them

  bool operator==(const FormatCounts&) const = default;
};

struct ScanCounts {
  FormatCounts as[kReadings];
  std::uint64_t checksum = 0;  ///< changes when the bytes do, but for a chance of 2^-32

  bool operator==(const ScanCounts&) const = default;
};

/// Bits of a format that is sign, exponent and mantissa; `nan_is_all_ones`: e4m3, whose top exponent is otherwise
/// finite.
template <int ExponentBits, int MantissaBits, bool NanIsAllOnes = false>
NANSCOPE_SCAN_FN void add_code(FormatCounts& counts, std::uint32_t code) {
  constexpr std::uint32_t kTop = (1U << ExponentBits) - 1U;
  constexpr std::uint32_t kMantissa = (1U << MantissaBits) - 1U;
  const std::uint32_t exponent = (code >> MantissaBits) & kTop;
  const std::uint32_t mantissa = code & kMantissa;
  const bool negative = ((code >> (ExponentBits + MantissaBits)) & 1U) != 0;
  const bool special = exponent == kTop && (!NanIsAllOnes || mantissa == kMantissa);
  const bool nan = special && (NanIsAllOnes || mantissa != 0);
  const bool zero = exponent == 0 && mantissa == 0;
  ++counts.elements;
  counts.nan += nan ? 1U : 0U;
  counts.pos_inf += special && !nan && !negative ? 1U : 0U;
  counts.neg_inf += special && !nan && negative ? 1U : 0U;
  counts.zero += zero ? 1U : 0U;
  const std::uint32_t counted = special || zero ? 0U : exponent;
  counts.exponents += counted;
  counts.exponent_squares += static_cast<std::uint64_t>(counted) * counted;
  if (counted > counts.highest) counts.highest = counted;
}

/// Four bytes, the `index`th of the range; those outside the range are 0.
NANSCOPE_SCAN_FN void add_word(ScanCounts& counts, std::uint32_t word, std::uint64_t index) {
  add_code<8, 23>(counts.as[static_cast<int>(Reading::f32)], word);
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t code = (word >> (16 * half)) & 0xffffU;
    add_code<5, 10>(counts.as[static_cast<int>(Reading::f16)], code);
    add_code<8, 7>(counts.as[static_cast<int>(Reading::bf16)], code);
  }
  for (int byte = 0; byte < 4; ++byte) {
    const std::uint32_t code = (word >> (8 * byte)) & 0xffU;
    add_code<4, 3, true>(counts.as[static_cast<int>(Reading::e4m3)], code);
    add_code<5, 2>(counts.as[static_cast<int>(Reading::e5m2)], code);
  }
  // The finaliser of SplitMix64 (Steele, Lea, Flood 2014) over place and content.
  std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15ULL + word;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  counts.checksum += mixed ^ (mixed >> 31);
}

/// Adds what another part of the same range counted.
NANSCOPE_SCAN_FN void add_counts(ScanCounts& into, const ScanCounts& part) {
  for (int i = 0; i < kReadings; ++i) {
    into.as[i].elements += part.as[i].elements;
    into.as[i].nan += part.as[i].nan;
    into.as[i].pos_inf += part.as[i].pos_inf;
    into.as[i].neg_inf += part.as[i].neg_inf;
    into.as[i].zero += part.as[i].zero;
    into.as[i].exponents += part.as[i].exponents;
    into.as[i].exponent_squares += part.as[i].exponent_squares;
    if (part.as[i].highest > into.as[i].highest) into.as[i].highest = part.as[i].highest;
  }
  into.checksum += part.checksum;
}

/// A range that may begin and end within a word. Words that hold its ends are read whole: memory is allocated in larger
/// pieces than words.
struct ScanRange {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;

  NANSCOPE_SCAN_FN std::uint64_t first_word() const { return address / 4; }
  NANSCOPE_SCAN_FN std::uint64_t words() const { return bytes == 0 ? 0 : (address + bytes + 3) / 4 - address / 4; }
  /// The `index`th word with the bytes that are outside set to 0. Little-endian.
  NANSCOPE_SCAN_FN std::uint32_t masked(std::uint32_t word, std::uint64_t index) const {
    const std::uint64_t at = (first_word() + index) * 4;
    for (std::uint64_t byte = 0; byte < 4; ++byte) {
      if (at + byte < address || at + byte >= address + bytes) word &= ~(0xffU << (8 * byte));
    }
    return word;
  }
};

/// The CPU's scan, for tests and for bytes that were copied.
ScanCounts scan_bytes(const void* data, std::size_t bytes);

}  // namespace nanscope::live

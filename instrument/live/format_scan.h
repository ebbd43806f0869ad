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

/// Elements of one format at every second place, as sums: those of even or of odd index. Where a format is twice as
/// wide as the elements that it is read as, its mantissas fill the even places and its exponents the odd ones.
template <class Count>
struct LaneCountsOf {
  Count nan = 0;
  Count payload_nan = 0;  ///< of these, with bits that no arithmetic on a GPU leaves
  Count pos_inf = 0;
  Count finite = 0;            ///< but zeros
  Count exponents = 0;         ///< sum of the biased exponents of `finite`
  Count exponent_squares = 0;  ///< of their squares

  bool operator==(const LaneCountsOf&) const = default;
};
using LaneCounts = LaneCountsOf<std::uint64_t>;

/// What bytes are under one format.
template <class Count>
struct FormatCountsOf {
  LaneCountsOf<Count> lanes[2];  ///< elements of even and of odd index; of f32 all are in the first
  Count highest = 0;             ///< the highest exponent of `finite`

  bool operator==(const FormatCountsOf&) const = default;
  NANSCOPE_SCAN_FN Count nan() const { return lanes[0].nan + lanes[1].nan; }
  NANSCOPE_SCAN_FN Count payload_nan() const { return lanes[0].payload_nan + lanes[1].payload_nan; }
  NANSCOPE_SCAN_FN Count pos_inf() const { return lanes[0].pos_inf + lanes[1].pos_inf; }
};
using FormatCounts = FormatCountsOf<std::uint64_t>;

/// With `Count` of 32 bits it holds up to 2^14 words: the squares of bf16's exponents are below 2^16.
template <class Count>
struct ScanCountsOf {
  FormatCountsOf<Count> as[kReadings];
  Count words = 0;
  std::uint64_t checksum = 0;  ///< changes when the bytes do, but for a chance of 2^-32

  bool operator==(const ScanCountsOf&) const = default;
};
using ScanCounts = ScanCountsOf<std::uint64_t>;

/// Bits of a format that is sign, exponent and mantissa; `nan_is_all_ones`: e4m3, whose top exponent is otherwise
/// finite. Arithmetic on a GPU makes one NaN, the positive one of all ones (PTX ISA, "Floating-point instructions");
/// constants in a program and x86 have the top mantissa bit alone. A copy or conversion keeps some of these ones: f32
/// may have any number of them before its zeros.
template <int ExponentBits, int MantissaBits, bool NanIsAllOnes = false, class Count>
NANSCOPE_SCAN_FN std::uint32_t add_code(LaneCountsOf<Count>& lane, std::uint32_t code) {
  constexpr std::uint32_t kTop = (1U << ExponentBits) - 1U;
  constexpr std::uint32_t kMantissa = (1U << MantissaBits) - 1U;
  constexpr std::uint32_t kQuiet = 1U << (MantissaBits - 1);
  const std::uint32_t exponent = (code >> MantissaBits) & kTop;
  const std::uint32_t mantissa = code & kMantissa;
  const bool negative = ((code >> (ExponentBits + MantissaBits)) & 1U) != 0;
  const bool special = exponent == kTop && (!NanIsAllOnes || mantissa == kMantissa);
  const bool nan = special && (NanIsAllOnes || mantissa != 0);
  const bool finite = !special && (exponent | mantissa) != 0;
  const bool ones =
      MantissaBits > 16 ? mantissa + (mantissa & (0U - mantissa)) == kMantissa + 1U : mantissa == kMantissa;
  const bool made = (ones && !(negative && mantissa == kMantissa)) || (!NanIsAllOnes && mantissa == kQuiet);
  lane.nan += nan ? 1U : 0U;
  lane.payload_nan += nan && !made ? 1U : 0U;
  lane.pos_inf += special && !nan && !negative ? 1U : 0U;
  lane.finite += finite ? 1U : 0U;
  const std::uint32_t counted = finite ? exponent : 0U;
  lane.exponents += counted;
  lane.exponent_squares += static_cast<Count>(counted) * counted;
  return counted;
}

template <class Count>
NANSCOPE_SCAN_FN void raise(Count& highest, std::uint64_t value) {
  if (value > highest) highest = static_cast<Count>(value);
}

/// Four bytes, the `index`th of the range; those outside the range are 0.
template <class Count>
NANSCOPE_SCAN_FN void add_word(ScanCountsOf<Count>& counts, std::uint32_t word, std::uint64_t index) {
  FormatCountsOf<Count>* as = counts.as;
  ++counts.words;
  FormatCountsOf<Count>& f32 = as[static_cast<int>(Reading::f32)];
  raise(f32.highest, add_code<8, 23>(f32.lanes[0], word));
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t code = (word >> (16 * half)) & 0xffffU;
    FormatCountsOf<Count>& f16 = as[static_cast<int>(Reading::f16)];
    FormatCountsOf<Count>& bf16 = as[static_cast<int>(Reading::bf16)];
    raise(f16.highest, add_code<5, 10>(f16.lanes[half], code));
    raise(bf16.highest, add_code<8, 7>(bf16.lanes[half], code));
  }
  for (int byte = 0; byte < 4; ++byte) {
    const std::uint32_t code = (word >> (8 * byte)) & 0xffU;
    FormatCountsOf<Count>& e4m3 = as[static_cast<int>(Reading::e4m3)];
    FormatCountsOf<Count>& e5m2 = as[static_cast<int>(Reading::e5m2)];
    raise(e4m3.highest, add_code<4, 3, true>(e4m3.lanes[byte % 2], code));
    raise(e5m2.highest, add_code<5, 2>(e5m2.lanes[byte % 2], code));
  }
  // The finaliser of SplitMix64 (Steele, Lea, Flood 2014) over place and content.
  std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15ULL + word;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  counts.checksum += mixed ^ (mixed >> 31);
}

/// Adds what another part of the same range counted: `add` takes a sum of `into` and one of the part, `highest` two
/// maxima.
template <class Count, class Add, class Highest>
NANSCOPE_SCAN_FN void merge_counts(ScanCounts& into, const ScanCountsOf<Count>& part, Add add, Highest highest) {
  for (int i = 0; i < kReadings; ++i) {
    for (int lane = 0; lane < (i == static_cast<int>(Reading::f32) ? 1 : 2); ++lane) {
      LaneCounts& to = into.as[i].lanes[lane];
      const LaneCountsOf<Count>& from = part.as[i].lanes[lane];
      add(to.nan, from.nan);
      add(to.payload_nan, from.payload_nan);
      add(to.pos_inf, from.pos_inf);
      add(to.finite, from.finite);
      add(to.exponents, from.exponents);
      add(to.exponent_squares, from.exponent_squares);
    }
    highest(into.as[i].highest, part.as[i].highest);
  }
  add(into.words, part.words);
  add(into.checksum, part.checksum);
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

/// Words at the beginning of a range that are kept between two scans. A tensor begins where its pointer points: one
/// that is smaller ends among them, and what lies behind is of others.
inline constexpr std::uint64_t kBeginningWords = 16384;

/// What is seen of a range.
struct Scan {
  ScanCounts all;
  ScanCounts written;   ///< words of the beginning that have changed since they were kept; a first scan leaves it
  ScanCounts replaced;  ///< what these were before

  NANSCOPE_SCAN_FN ScanCounts& of(int pass) { return pass == 0 ? all : pass == 1 ? written : replaced; }
};

/// What a scan is given. The first keeps the beginning; one that is `again` compares with what was kept.
struct ScanJob {
  ScanRange range;
  Scan* scan = nullptr;                ///< begins as zeros
  std::uint32_t* beginning = nullptr;  ///< kBeginningWords
  std::uint32_t again = 0;

  NANSCOPE_SCAN_FN int passes() const { return again != 0 ? 3 : 1; }
  NANSCOPE_SCAN_FN std::uint64_t words(int pass) const {
    return pass == 0 || range.words() < kBeginningWords ? range.words() : kBeginningWords;
  }
  /// The `index`th word in a pass.
  template <class Count>
  NANSCOPE_SCAN_FN void look(ScanCountsOf<Count>& mine, std::uint32_t word, std::uint64_t index, int pass) const {
    if (index == 0 || index + 1 == range.words()) word = range.masked(word, index);
    if (pass > 0 && word == beginning[index]) return;
    add_word(mine, pass < 2 ? word : beginning[index], index);
    if (again == 0 && index < kBeginningWords) beginning[index] = word;
  }
};

/// The CPU's scan, for tests and for bytes that were copied.
ScanCounts scan_bytes(const void* data, std::size_t bytes);

/// A job on the CPU, on memory that it can read.
void scan_on_cpu(const ScanJob& job);

}  // namespace nanscope::live

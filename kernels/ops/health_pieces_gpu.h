#pragma once
/// What health and hash of a large tensor on a GPU have in common in all formats: four lanes share a tile, of which
/// each takes 16 bytes in every 64, a piece, by one load. A warp has eight tiles side by side; what has an order in the
/// definition, the sums of a lane of 32, keeps it, because a lane here stands for several of them.
///
/// Eight of the hash's lanes belong to one lane here: of piece i it has words 8i + 2p and 8i + 2p + 1, where p is its
/// place among the four.
#include <cstddef>

#include "kernels/ops/content_hash.h"
#include "kernels/warp/warp.h"

#if defined(__CUDACC__)
#include "core/tensor/health.h"
#include "kernels/warp/warp_cuda_packed.h"

namespace nanscope::kernels::NANSCOPE_ISA {

inline constexpr int kTileLanes = 4;
inline constexpr int kTilesAtOnce = kLanes / kTileLanes;
inline constexpr int kPieceBytes = 64;
inline constexpr std::uint64_t kSecretStep = 0x9e3779b97f4a7c15U;

NANSCOPE_FN U32 tile_of_lane() { return lane_id() / kTileLanes; }
NANSCOPE_FN U32 place_in_tile() { return lane_id() % kTileLanes; }

/// The hash of the bytes that a lane has loaded.
struct PieceHash {
  static constexpr int kOwn = 8;  ///< lanes of the hash that belong to one here
  U64 totals[kOwn];               ///< of piece i, word w: i % 4 * 2 + w

  /// Two words and their secrets, each the lower half first.
  NANSCOPE_LANE void add(PieceHash& hash, int piece, const uint4& words, const uint4& secrets) {
    add_word(hash.totals[piece % 4 * 2], words.x, words.y, secrets.x, secrets.y);
    add_word(hash.totals[piece % 4 * 2 + 1], words.z, words.w, secrets.z, secrets.w);
  }
  /// As ChunkHash::add().
  NANSCOPE_LANE void add_word(U64& total, U32 low, U32 high, U32 secret_low, U32 secret_high) {
    total = mad_wide(low ^ secret_low, high ^ secret_high, total) + join_halves(high, low);
  }
  /// What a lane of the hash adds to that of the chunk, as ChunkHash::folded(). `total` began with the lane's secret.
  NANSCOPE_LANE U64 folded(U64 total, U64 secret) {
    return ChunkHash::mix(ChunkHash::mix(total ^ (secret >> 7)) + secret);
  }
};

/// What a tile may hold that is not counted at first, and what it takes another form to scan.
enum Found : U32 { kSaturated = 1, kSmall = 2, kZero = 4, kBad = 8 };

template <Format F>
NANSCOPE_FN U32 found_in(float min, float max, float least) {
  constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(F)];
  constexpr float kLargest = kInfo.max_finite;
  constexpr float kNormal = kInfo.min_normal;
  return (max >= kLargest || min <= -kLargest ? kSaturated : 0U) | (least < kNormal ? kSmall : 0U) |
         (least == 0.0F ? kZero : 0U);
}

/// What is known of a finite tile before small and zero ones are counted in it, where `found` says that it has some.
struct TileSummary {
  double sum;  ///< this and the next three may be -0
  double sum_sq;
  float min;
  float max;
  U32 zero;
  U32 saturated;
  U32 found;
};

/// A whole tile, stored by one lane, 16 bytes at a time.
NANSCOPE_FN void store_health(Health* result, bool sums, const TileSummary& tile) {
  static_assert(offsetof(Health, saturated) == 32 && offsetof(Health, zero) == 48);
  static_assert(offsetof(Health, sum) == 80 && offsetof(Health, min) == 96);
  constexpr std::uint64_t kNotTaken = 0x7ff8000000000000U;
  const float least = tile.min + 0.0F;
  const float most = tile.max + 0.0F;
  auto* to = reinterpret_cast<ulonglong2*>(result);
  to[0] = {kTileChannels, 0};
  to[1] = {0, 0};
  to[2] = {tile.saturated, 0};
  to[3] = {tile.zero, 0};
  to[4] = {0, ~0ULL};
  to[5] = {sums ? raw_bits(tile.sum + 0.0) : kNotTaken, sums ? raw_bits(tile.sum_sq + 0.0) : kNotTaken};
  to[6] = {join_halves(raw_bits(least), raw_bits(most)), raw_bits(-least > most ? -least : most)};
}

/// Elements of a tile that mark(word) marks by `bits`, of each the highest bit of a byte, counted by its four lanes
/// from `pieces` pieces.
template <class Mark>
NANSCOPE_FN U32 count_marked(const uint4* from, int pieces, U32 bits, const Mark& mark) {
  U32 all = 0;  // 128 for each
  const auto add = [&](U32 word) { all = __dp4a(mark(word) & bits, 0x01010101U, all); };
  NANSCOPE_UNROLL for (int i = 0; i < pieces; ++i) {
    const uint4 words = from[i * kTileLanes];
    add(words.x);
    add(words.y);
    add(words.z);
    add(words.w);
  }
  NANSCOPE_UNROLL for (int m = 1; m < kTileLanes; m *= 2) all += xor_lane(all, m);
  return all / 128U;
}

/// Counts what some lane has found in its tile of floats, and puts it into what is stored, which the lane that does so
/// has written or is behind a warp_sync(). `from`: the lane's quad of the first piece. Of a tile that is bad it means
/// nothing. Rare, so that it is a function of its own, out of the way of a kernel's loop.
template <Format F>
NANSCOPE_CALLED void count_tile(const uint4* from, U32 found, Health* result) {
  constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(F)];
  constexpr auto kCount = static_cast<U32>(kTileChannels);
  constexpr int kPieces = static_cast<int>(kTileChannels) * kInfo.bits / 8 / kPieceBytes;
  constexpr U32 kSign = 1U << (kInfo.bits - 1);
  constexpr U32 kEach = 0xffffffffU / (0xffffffffU >> (32 - kInfo.bits));  // a 1 in each element
  constexpr U32 kSigns = kSign * kEach;
  constexpr U32 kNormalCode = 1U << kInfo.mantissa_bits;
  // e4m3 has all codes below its NaN, the others none of the largest exponent.
  constexpr U32 kLargestCode = kInfo.bits == 8 ? kSign - 2 : kSign - 1 - kNormalCode;
  // Magnitudes of `code` and more carry into the sign bit.
  const auto at_least = [&](U32 code) {
    return count_marked(from, kPieces, kSigns, [&](U32 word) { return (word & ~kSigns) + (kSign - code) * kEach; });
  };
  const bool first = place_in_tile() == 0;
  if (any((found & kSaturated) != 0)) {
    const U32 saturated = at_least(kLargestCode);
    if (first) result->saturated = saturated;
  }
  if (any((found & kSmall) != 0)) {
    const U32 nonzero = any((found & kZero) != 0) ? at_least(1) : kCount;
    const U32 normal = at_least(kNormalCode);
    if (first) result->zero = kCount - nonzero;
    if (first) result->subnormal = nonzero - normal;
  }
}

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

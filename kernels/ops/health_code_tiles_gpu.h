#pragma once
/// Health and hash of e4m3 and int8 on a GPU, where a tensor is large: a warp takes two chunks of the hash, one after
/// the other, eight tiles at once, four lanes each. For health_scan.h, which says when; health_codes_gpu.h is for any
/// tile.
#include <bit>

#include "kernels/ops/health_pieces_gpu.h"

#if defined(__CUDACC__)

namespace nanscope::kernels::NANSCOPE_ISA {

inline constexpr U32 kByteSigns = 0x80808080U;
inline constexpr U32 kEachByte = 0x01010101U;
/// A lane's part of a tile of int8. The extremes are those of the upper bytes of two numbers of 16 bits, whose lower
/// bytes decide nothing.
struct Int8Tile {
  U32 sum = 0;
  U32 squares = 0;
  U32 nonzero = 0;  ///< 128 each
  U32 max = kByteSigns;
  U32 min = ~kByteSigns;

  NANSCOPE_LANE void add(Int8Tile& tile, U32 four) {
    tile.sum = to_u32(__dp4a(to_i32(four), to_i32(kEachByte), to_i32(tile.sum)));
    tile.squares = to_u32(__dp4a(to_i32(four), to_i32(four), to_i32(tile.squares)));
    // The addition carries into bit 7 of what is not 0 below it.
    const U32 marks = or_and((four & ~kByteSigns) + ~kByteSigns, four, kByteSigns);
    tile.nonzero = __dp4a(marks, kEachByte, tile.nonzero);
    const U32 lower = four << 8;
    tile.max = max_s16x2(max_s16x2(tile.max, four), lower);
    tile.min = min_s16x2(min_s16x2(tile.min, four), lower);
  }
  NANSCOPE_LANE void merge(Int8Tile& tile, int other) {
    tile.sum += xor_lane(tile.sum, other);
    tile.squares += xor_lane(tile.squares, other);
    tile.nonzero += xor_lane(tile.nonzero, other);
    tile.max = max_s16x2(tile.max, xor_lane(tile.max, other));
    tile.min = min_s16x2(tile.min, xor_lane(tile.min, other));
  }

  struct Summary {
    double sum;
    double sum_sq;
    float min;
    float max;
    U32 zero;
    U32 found;
  };
  NANSCOPE_LANE Summary summary(const Int8Tile& tile) {
    const I32 max = ::max(to_i32(tile.max) >> 24, to_i32(tile.max << 16) >> 24);
    const I32 min = ::min(to_i32(tile.min) >> 24, to_i32(tile.min << 16) >> 24);
    const U32 zero = static_cast<U32>(kTileChannels) - tile.nonzero / 128U;
    const U32 found = max == 127 || min <= -127 ? kSaturated : 0U;
    return {to_f64(to_i32(tile.sum)), to_f64(tile.squares), to_f32(min), to_f32(max), zero, found};
  }
  /// Of those that are saturated bit 7 is 0. 127, -127 and -128 are 0, 2 and 1 when 129 is added to each byte by
  /// itself.
  NANSCOPE_LANE U32 below_saturated(U32 four) {
    const U32 moved = ((four & ~kByteSigns) + kEachByte) ^ (~four & kByteSigns);
    return ((moved & ~kByteSigns) + 0x7d * kEachByte) | moved;
  }
  NANSCOPE_LANE void count(const uint4* from, int pieces, U32 /*found*/, bool first, Health* result) {
    const U32 below = count_marked(from, pieces, kByteSigns, [](U32 four) { return below_saturated(four); });
    if (first) result->saturated = static_cast<U32>(kTileChannels) - below;
  }
};

/// Of e4m3. A sum f32(x) + kPlace has the units of x, 2^-9 each, in its low bits: as a number b = kOrigin + units.
/// What kOrigin adds to the sums of b and of b * b, modulo 2^32 and 2^64, is known and taken off in the end.
struct E4m3Tile {
  static constexpr float kPlace = 0x1.8p14F;
  static constexpr std::uint64_t kOrigin = std::bit_cast<std::uint32_t>(kPlace);
  static constexpr double kUnit = 0x1p-9;

  U32 sum = 0;
  U64 squares = 0;
  U32 max = 0xfbfffbffU;  ///< f16: -65504
  U32 min = 0x7bff7bffU;
  U32 least = 0x7bff7bffU;

  NANSCOPE_LANE void add(E4m3Tile& tile, U32 four) {
    U32 pairs[2];
    decode_e4m3(four, pairs[0], pairs[1]);
    NANSCOPE_UNROLL for (const U32 pair : pairs) {
      tile.max = F16Pair::max_propagate(tile.max, pair);
      tile.min = F16Pair::min(tile.min, pair);
      tile.least = F16Pair::smaller_magnitude(tile.least, pair);
      U32 low, high;
      F16Pair::decode(pair, low, high);
      add_units(tile, F32Bits::add(low, kPlace));
      add_units(tile, F32Bits::add(high, kPlace));
    }
  }
  NANSCOPE_LANE void add_units(E4m3Tile& tile, U32 b) {
    tile.sum += b;
    tile.squares = mad_wide(b, b, tile.squares);
  }
  NANSCOPE_LANE void merge(E4m3Tile& tile, int other) {
    tile.sum += xor_lane(tile.sum, other);
    tile.squares += xor_lane(tile.squares, other);
    tile.max = F16Pair::max_propagate(tile.max, xor_lane(tile.max, other));
    tile.min = F16Pair::min(tile.min, xor_lane(tile.min, other));
    tile.least = F16Pair::smaller_magnitude(tile.least, xor_lane(tile.least, other));
  }

  NANSCOPE_LANE Int8Tile::Summary summary(const E4m3Tile& tile) {
    constexpr auto kCount = static_cast<std::uint64_t>(kTileChannels);
    // sum b^2 = sum units^2 + 2 kOrigin sum units + kCount kOrigin^2
    const I32 units = to_i32(tile.sum - static_cast<U32>(kCount * kOrigin));
    const U64 squares =
        tile.squares - kCount * kOrigin * kOrigin - static_cast<U64>(static_cast<std::int64_t>(units)) * (2 * kOrigin);
    U32 low[3], high[3];
    F16Pair::decode(tile.min, low[0], high[0]);
    F16Pair::decode(tile.max, low[1], high[1]);
    F16Pair::decode(tile.least, low[2], high[2]);
    const F32 min = from_bits(F32Bits::min(low[0], high[0]));
    const F32 max = from_bits(F32Bits::max(low[1], high[1]));
    const F32 least = abs(from_bits(F32Bits::smaller_magnitude(low[2], high[2])));
    const bool bad = is_nan(from_bits(low[1])) || is_nan(from_bits(high[1]));
    const U32 found = bad ? kBad : found_in<Format::e4m3>(min, max, least);
    return {to_f64(units) * kUnit, static_cast<double>(squares) * (kUnit * kUnit), min, max, 0, found};
  }

  NANSCOPE_LANE void count(const uint4* from, int pieces, U32 found, bool first, Health* result) {
    count_found<Format::e4m3>(from, pieces, kByteSigns, found, first, result);
  }
};

/// Tile: Int8Tile or E4m3Tile.
template <class Tile>
struct HealthCodeTilesGpu {
  static constexpr int kTileBytes = static_cast<int>(kTileChannels);
  static constexpr int kPieces = kTileBytes / kPieceBytes;
  static constexpr int kChunkTiles = static_cast<int>(kHashChunk) / kTileBytes;
  static constexpr int kRounds = kChunkTiles / kTilesAtOnce;
  static constexpr int kChunks = 2;  ///< of a warp

  /// `secret`: that of the lane's first word in the tile.
  NANSCOPE_LANE void scan(Tile& tile, PieceHash& hash, const uint4* from, U64 secret) {
    uint4 loaded[kPieces];  // on their way before the first is used
    NANSCOPE_UNROLL for (int i = 0; i < kPieces; ++i) loaded[i] = from[i * kTileLanes];
    NANSCOPE_UNROLL for (int i = 0; i < kPieces; ++i) {
      const uint4 words = loaded[i];
      Tile::add(tile, words.x);
      Tile::add(tile, words.y);
      Tile::add(tile, words.z);
      Tile::add(tile, words.w);
      uint4 secrets;
      const U64 first = secret + kSecretStep * static_cast<std::uint64_t>(i * kPieceBytes / 4);
      split_halves(first, secrets.x, secrets.y);
      split_halves(first + kSecretStep * 2, secrets.z, secrets.w);
      PieceHash::add(hash, i, words, secrets);
    }
  }

  /// The hash of a chunk whose tiles the eight fours of lanes have shared: a lane of the hash for each lane here, its
  /// eight parts added by way of shared memory.
  NANSCOPE_LANE std::uint64_t folded(const PieceHash& hash, uint4* memory) {
    constexpr int kPitch = kTilesAtOnce + 1;
    auto* parts = reinterpret_cast<U64*>(memory) + block_warp() * (kLanes * kPitch);
    U64* to = parts + place_in_tile() * PieceHash::kOwn * kPitch + tile_of_lane();
    NANSCOPE_UNROLL for (int i = 0; i < PieceHash::kOwn; ++i) to[i * kPitch] = hash.totals[i];
    warp_sync();
    const U32 place = lane_id() / PieceHash::kOwn;
    const U32 one = lane_id() % PieceHash::kOwn;
    const U64* from = parts + lane_id() * kPitch;
    U64 total = from[0];
    NANSCOPE_UNROLL for (int i = 1; i < kTilesAtOnce; ++i) total += from[i];
    warp_sync();
    const U32 lane = one / 2 * 8 + 2 * place + one % 2;
    const U64 secret = static_cast<U64>(2 * lane + 1) * kSecretStep;
    return sum_u64(PieceHash::folded(total + secret, secret));
  }

  /// The hash of a chunk; its tiles' Health to `result`. Adds to `again` bits of those that must be scanned in another
  /// way, in their order from bit `bit` on.
  NANSCOPE_LANE std::uint64_t run_chunk(const uint4* from, Health* result, bool sums, uint4* memory,
                                        std::uint64_t& again, int bit) {
    U64 secret = static_cast<U64>(tile_of_lane() * (kTileBytes / 4) + 4 * place_in_tile() + 1) * kSecretStep;
    PieceHash hash{};
    for (int round = 0; round < kRounds; ++round) {
      Tile tile;
      scan(tile, hash, from, secret);
      NANSCOPE_UNROLL for (int m = 1; m < kTileLanes; m *= 2) Tile::merge(tile, m);
      const bool first = place_in_tile() == 0;
      U32 found = 0;
      if (first) {
        const Int8Tile::Summary all = Tile::summary(tile);
        found = all.found;
        store_health(result, sums, all.sum, all.sum_sq, all.min, all.max, all.zero);
      }
      if (any(found != 0)) {
        warp_sync();  // what is counted is stored after what was
        Tile::count(from, kPieces, found, first, result);
        again |= marked_tiles(found == kBad, 1) << (bit + round * kTilesAtOnce);
      }
      from += kTilesAtOnce * kTileBytes / 16;
      result += kTilesAtOnce;
      secret += kSecretStep * static_cast<std::uint64_t>(kTilesAtOnce * kTileBytes / 4);
    }
    return folded(hash, memory);
  }

  /// The whole chunks of a warp, where addresses are multiples of 16. The answer has a bit for each of their tiles, in
  /// their order, that must be scanned in another way.
  NANSCOPE_LANE std::uint64_t run(const HealthScanArgs& args, std::int64_t warp, uint4* memory) {
    const std::int64_t chunk = warp * kChunks;
    const auto* from = reinterpret_cast<const uint4*>(args.x.data) + chunk * (kHashChunk / 16) +
                       tile_of_lane() * (kTileBytes / 16) + place_in_tile();
    Health* result = args.tiles + chunk * kChunkTiles + tile_of_lane();
    std::uint64_t again = 0;
    for (int i = 0; i < kChunks; ++i) {
      const std::uint64_t hash = run_chunk(from, result, args.sums, memory, again, i * kChunkTiles);
      store_uniform(args.chunks + chunk + i, hash);
      from += kHashChunk / 16;
      result += kChunkTiles;
    }
    return again;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

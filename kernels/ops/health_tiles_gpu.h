#pragma once
/// Health and hash of f32, f16 and bf16 on a GPU, where a tensor is large: a warp takes eight chunks of the hash at
/// once, four lanes each, a tile after another. For health_scan.h, which says when.
///
/// A lane adds up as eight of the 32 lanes that the sums are defined by, f32: those of columns 4p to 4p + 3 and 16
/// more; f16 and bf16: of 8p to 8p + 7. The butterfly over the 32 goes through shared memory: after each tile four
/// lanes add what the four have left there, each a half of one of the two sums.
#include "kernels/ops/health_pieces_gpu.h"

#if defined(__CUDACC__)
#include <cmath>
#include <type_traits>

namespace nanscope::kernels::NANSCOPE_ISA {

/// What the warps of a block share, in units of 16 bytes: the hash's secrets; a lane's parts of sums, in rows of each
/// place in a tile; ranges, in such rows too. Rows are one longer than there are threads or tiles, so that places lie
/// in different banks.
struct WideMemory {
  static constexpr int kThreads = kBlockWarps * kLanes;
  static constexpr int kSecrets = static_cast<int>(kHashChunk) / 16;
  static constexpr int kSumPitch = kThreads + 1;
  static constexpr int kSums = 2 * kTileLanes * kSumPitch;
  static constexpr int kRangePitch = kThreads / kTileLanes + 1;
  static constexpr int kAll = kSecrets + kSums + kTileLanes * kRangePitch;

  /// The secrets of all words of a chunk, by all warps of the block. The caller waits for the others.
  NANSCOPE_FN void make_secrets(uint4* memory) {
    auto* secrets = reinterpret_cast<ulonglong2*>(memory);
    U64 secret = static_cast<U64>(4 * threadIdx.x + 1) * kSecretStep;
    NANSCOPE_UNROLL for (int i = 0; i < kSecrets / kThreads; ++i) {
      secrets[i * kThreads + threadIdx.x] = {secret, secret + 2 * kSecretStep};
      secret += 4 * kThreads * kSecretStep;
    }
  }
};

template <Format F>
struct HealthTilesGpu {
  static constexpr bool kHalves = F != Format::f32;
  static constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(F)];
  static constexpr int kTileBytes = static_cast<int>(kTileChannels) * (kHalves ? 2 : 4);
  static constexpr int kPieces = kTileBytes / kPieceBytes;
  static constexpr int kChunkTiles = static_cast<int>(kHashChunk) / kTileBytes;
  static constexpr int kAhead = 4;  ///< loads that are on their way together
  using Pair = std::conditional_t<F == Format::bf16, Bf16Pair, F16Pair>;
  using Word = std::conditional_t<kHalves, Pair, F32Bits>;

  /// Of a lane. What is least and most: an f32 in a register, or two f16 or bf16.
  struct Tile {
    F64 sum[8];
    F64 squares[8];
    U32 min;
    U32 max;
    U32 least;
  };

  NANSCOPE_LANE void add(Tile& tile, bool first, int own, U32 x) {
    const F64 wide = F32Bits::widen(x);
    tile.sum[own] = first ? wide : tile.sum[own] + wide;
    tile.squares[own] = first ? wide * wide : fma(wide, wide, tile.squares[own]);
  }

  /// Word `at` of the four that a lane has of a piece.
  NANSCOPE_LANE void add_word(Tile& tile, int piece, int at, U32 word) {
    if constexpr (kHalves) {
      U32 low, high;
      Pair::decode(word, low, high);
      add(tile, piece == 0, 2 * at, low);
      add(tile, piece == 0, 2 * at + 1, high);
    } else {
      add(tile, piece < 2, piece % 2 * 4 + at, word);
    }
    const bool first = piece == 0 && at == 0;
    tile.min = first ? word : Word::min(tile.min, word);
    tile.max = first ? word : Word::max(tile.max, word);
    tile.least = first ? word : Word::smaller_magnitude(tile.least, word);
  }

  /// Adds up the lane's part of a tile, as if all of it were finite, and hashes it.
  NANSCOPE_LANE void scan(Tile& tile, PieceHash& hash, const uint4* from, const uint4* secrets) {
    NANSCOPE_UNROLL for (int begin = 0; begin < kPieces; begin += kAhead) {
      uint4 loaded[kAhead];
      uint4 keys[kAhead];
      NANSCOPE_UNROLL for (int i = 0; i < kAhead; ++i) loaded[i] = from[(begin + i) * kTileLanes];
      NANSCOPE_UNROLL for (int i = 0; i < kAhead; ++i) keys[i] = secrets[(begin + i) * kTileLanes];
      NANSCOPE_UNROLL for (int i = 0; i < kAhead; ++i) {
        const U32 words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
        NANSCOPE_UNROLL for (int at = 0; at < 4; ++at) add_word(tile, begin + i, at, words[at]);
        PieceHash::add(hash, begin + i, loaded[i], keys[i]);
      }
    }
  }

  /// Leaves the lane's sums where the four lanes of the tile look for them: two that are added first in each 16 bytes.
  NANSCOPE_LANE void leave(const F64 (&sums)[8], int which, double2* to) {
    NANSCOPE_UNROLL for (int odd = 0; odd < 2; ++odd) {
      double2* slot = to + which * 2 + odd;
      if constexpr (kHalves) {
        slot[0] = {sums[odd], sums[odd + 4]};
        slot[kTileLanes * WideMemory::kSumPitch] = {sums[odd + 2], sums[odd + 6]};
      } else {
        slot[0] = {sums[odd] + sums[odd + 4], sums[odd + 2] + sums[odd + 6]};
      }
    }
  }
  /// Over the four places, in the butterfly's order: p and p + 2 first; then the two sums that lie together.
  NANSCOPE_LANE F64 sum_places(const double2* from) {
    double2 of[kTileLanes];
    NANSCOPE_UNROLL for (int p = 0; p < kTileLanes; ++p) of[p] = from[p * WideMemory::kSumPitch];
    const F64 a = (of[0].x + of[2].x) + (of[1].x + of[3].x);
    const F64 b = (of[0].y + of[2].y) + (of[1].y + of[3].y);
    return a + b;
  }

  struct Range {
    float min;
    float max;
    float least;
  };
  NANSCOPE_LANE Range range_of(const uint4* from) {
    uint4 all = from[0];
    NANSCOPE_UNROLL for (int p = 1; p < kTileLanes; ++p) {
      const uint4 next = from[p * WideMemory::kRangePitch];
      all.x = Word::min(all.x, next.x);
      all.y = Word::max(all.y, next.y);
      all.z = Word::smaller_magnitude(all.z, next.z);
    }
    if constexpr (kHalves) {
      U32 high[3];
      Pair::decode(all.x, all.x, high[0]);
      Pair::decode(all.y, all.y, high[1]);
      Pair::decode(all.z, all.z, high[2]);
      all.x = F32Bits::min(all.x, high[0]);
      all.y = F32Bits::max(all.y, high[1]);
      all.z = F32Bits::smaller_magnitude(all.z, high[2]);
    }
    return {from_bits(all.x), from_bits(all.y), abs(from_bits(all.z))};
  }

  /// The four lanes' parts of a tile become its Health, which the first of them stores; the answer is what it found.
  /// NaN and Inf show in the sum of squares, which no finite f32 overflows.
  NANSCOPE_LANE U32 finish(const Tile& tile, bool sums, uint4* memory, Health* result) {
    auto* places = reinterpret_cast<double2*>(memory + WideMemory::kSecrets);
    uint4* ranges = memory + WideMemory::kSecrets + WideMemory::kSums + threadIdx.x / kTileLanes;
    double2* to = places + place_in_tile() * WideMemory::kSumPitch + threadIdx.x / kTileLanes * kTileLanes;
    leave(tile.sum, 0, to);
    leave(tile.squares, 1, to);
    ranges[place_in_tile() * WideMemory::kRangePitch] = {tile.min, tile.max, tile.least, 0};
    warp_sync();
    F64 part = sum_places(places + threadIdx.x);
    if constexpr (kHalves) part += sum_places(places + kTileLanes * WideMemory::kSumPitch + threadIdx.x);
    const F64 sum = part + xor_lane(part, 1);
    const F64 squares = xor_lane(sum, 2);
    U32 found = 0;
    if (place_in_tile() == 0) {
      const Range range = range_of(ranges);
      found = squares < HUGE_VAL ? found_in<F>(range.min, range.max, range.least) : kBad;
      store_health(result, sums, sum, squares, range.min, range.max, 0);
    }
    warp_sync();
    return found;
  }

  /// The secrets of the hash's lanes that belong to this one are those of its first four pieces.
  NANSCOPE_LANE void begin_hash(PieceHash& hash, const uint4* secrets) {
    NANSCOPE_UNROLL for (int i = 0; i < PieceHash::kOwn / 2; ++i) {
      const auto two = reinterpret_cast<const ulonglong2*>(secrets)[i * kTileLanes];
      hash.totals[2 * i] = two.x;
      hash.totals[2 * i + 1] = two.y;
    }
  }
  /// The hash of the chunk whose pieces the four lanes share.
  NANSCOPE_LANE std::uint64_t folded(const PieceHash& hash, const uint4* secrets) {
    U64 sum = 0;
    NANSCOPE_UNROLL for (int i = 0; i < PieceHash::kOwn / 2; ++i) {
      const auto two = reinterpret_cast<const ulonglong2*>(secrets)[i * kTileLanes];
      sum += PieceHash::folded(hash.totals[2 * i], two.x) + PieceHash::folded(hash.totals[2 * i + 1], two.y);
    }
    NANSCOPE_UNROLL for (int m = 1; m < kTileLanes; m *= 2) sum += xor_lane(sum, m);
    return sum;
  }

  /// The eight whole chunks of a warp, where addresses are multiples of 16. The answer has a bit for each of their
  /// tiles, in their order, that must be scanned in another way.
  NANSCOPE_LANE std::uint64_t run(const HealthScanArgs& args, std::int64_t warp, uint4* memory) {
    const std::int64_t chunk = warp * kTilesAtOnce + tile_of_lane();
    const auto* from = reinterpret_cast<const uint4*>(args.x.data) + chunk * (kHashChunk / 16) + place_in_tile();
    const uint4* secrets = memory + place_in_tile();
    Health* result = args.tiles + chunk * kChunkTiles;
    PieceHash hash;
    begin_hash(hash, secrets);
    std::uint64_t again = 0;
    for (int at = 0; at < kChunkTiles; ++at) {
      Tile tile;
      scan(tile, hash, from, secrets);
      const U32 found = finish(tile, args.sums, memory, result);
      if (any(found != 0)) {
        count_found<F>(from, kPieces, kHalves ? 0x80008000U : 0x80000000U, found, place_in_tile() == 0, result);
        again |= marked_tiles(found == kBad, kChunkTiles) << at;
      }
      from += kTileBytes / 16;
      secrets += kTileBytes / 16;
      ++result;
    }
    const std::uint64_t all = folded(hash, memory + place_in_tile());
    if (place_in_tile() == 0) args.chunks[chunk] = all;
    return again;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

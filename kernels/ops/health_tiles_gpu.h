#pragma once
/// Health and hash of f32, f16 and bf16 on a GPU, where a tensor is large: a warp takes eight chunks of the hash at
/// once, four lanes each, a tile after another. For health_scan.h, which says when.
///
/// A lane adds up as eight of the 32 lanes that the sums are defined by, f32: those of columns 4p to 4p + 3 and 16
/// more; f16 and bf16: of 8p to 8p + 7. The butterfly over the 32 goes through shared memory: after each tile four
/// lanes add what the four have left there. What is left of 32 tiles, four of each chunk, becomes their Health at once,
/// a tile a lane.
#include "kernels/ops/health_stages_gpu.h"

#if defined(__CUDACC__)
#include <cmath>
#include <type_traits>

namespace nanscope::kernels::NANSCOPE_ISA {

template <Format F>
struct HealthTilesGpu {
  static constexpr bool kHalves = F != Format::f32;
  static constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(F)];
  static constexpr int kTileBytes = static_cast<int>(kTileChannels) * (kHalves ? 2 : 4);
  static constexpr int kTileSteps = kTileBytes / kStageBytes;
  static constexpr int kSteps = static_cast<int>(kHashChunk) / kStageBytes;
  static constexpr int kChunkTiles = static_cast<int>(kHashChunk) / kTileBytes;
  static constexpr int kChunkTilesAtOnce = kLanes / kTilesAtOnce;  ///< whose Health is made together
  using Pair = std::conditional_t<F == Format::bf16, Bf16Pair, F16Pair>;
  using Word = std::conditional_t<kHalves, Pair, F32Bits>;

  /// The warp's tiles are one of each of eight chunks.
  struct Rows {
    NANSCOPE_LANE constexpr int of(int row) { return row * static_cast<int>(kHashChunk); }
  };
  using Ring = StageRing<Rows, 3>;

  // Quads of a warp, behind its ring: parts of sums in rows of each place in a tile, one longer than there are lanes,
  // so that places lie in different banks; two quads of each of 32 tiles. Health takes all of their place.
  static constexpr int kPartPitch = kLanes + 1;
  static constexpr int kParts = kTileLanes * kPartPitch;
  static constexpr int kLeft = kLanes * kHealthQuads;
  static_assert(kParts + 2 * static_cast<int>(kLanes) <= kLeft);
  using Memory = LargeMemory<Ring::kAll + kLeft>;

  // What HealthLargeForm wants to know.
  static constexpr Format kFormat = F;
  static constexpr int kChunks = kTilesAtOnce;  ///< of a warp
  static constexpr int kTiles = kChunks * kChunkTiles;
  static constexpr int kBlocksAtOnce = 4;
  /// On an H200 256 warps take 1.3 times what one chunk a warp does, 1024 take 0.5 to 0.7
  /// (docs/measurements-gpu.md); between them nothing was measured.
  static constexpr std::int64_t kSeveralFrom = 512;

  /// Of a lane. An f32 in a register, or two f16 or bf16.
  struct Tile {
    F64 sum[8];
    F64 squares[8];
    U32 most;      ///< as signed integers: the maximum, if any is not negative; else that of the least magnitude
    U32 least;     ///< as unsigned ones: the minimum, if any is negative; else the maximum
    U32 smallest;  ///< of magnitude
  };

  NANSCOPE_LANE U32 max_signed(U32 a, U32 b) {
    if constexpr (kHalves) return max_s16x2(a, b);
    return to_u32(::max(to_i32(a), to_i32(b)));
  }
  NANSCOPE_LANE U32 max_unsigned(U32 a, U32 b) {
    if constexpr (kHalves) return max_u16x2(a, b);
    return ::max(a, b);
  }

  NANSCOPE_LANE void add(Tile& tile, bool first, int own, U32 x) {
    const F64 wide = F32Bits::widen(x);
    tile.sum[own] = first ? wide : tile.sum[own] + wide;
    tile.squares[own] = first ? wide * wide : fma(wide, wide, tile.squares[own]);
  }

  /// As if all of it were finite.
  NANSCOPE_LANE void add_piece(Tile& tile, int piece, const uint4& quad) {
    const U32 words[4] = {quad.x, quad.y, quad.z, quad.w};
    NANSCOPE_UNROLL for (int at = 0; at < 4; ++at) {
      const U32 word = words[at];
      if constexpr (kHalves) {
        U32 low, high;
        Pair::decode(word, low, high);
        add(tile, piece == 0, 2 * at, low);
        add(tile, piece == 0, 2 * at + 1, high);
      } else {
        add(tile, piece < 2, piece % 2 * 4 + at, word);
      }
      const bool first = piece == 0 && at == 0;
      tile.most = first ? word : max_signed(tile.most, word);
      tile.least = first ? word : max_unsigned(tile.least, word);
      tile.smallest = first ? word : Word::smaller_magnitude(tile.smallest, word);
    }
  }

  /// Over the four places, in the butterfly's order: p and p + 2 first; then the two sums that lie together.
  NANSCOPE_LANE F64 sum_places(const uint4* parts) {
    const auto* from = reinterpret_cast<const double2*>(parts) + lane_id();
    double2 of[kTileLanes];
    NANSCOPE_UNROLL for (int p = 0; p < kTileLanes; ++p) of[p] = from[p * kPartPitch];
    const F64 a = (of[0].x + of[2].x) + (of[1].x + of[3].x);
    const F64 b = (of[0].y + of[2].y) + (of[1].y + of[3].y);
    return a + b;
  }
  /// Of f16 and bf16: a quarter of the sum over the four lanes.
  NANSCOPE_LANE F64 part_of_halves(const F64 (&sums)[8], uint4* parts, double2* to) {
    NANSCOPE_UNROLL for (int odd = 0; odd < 2; ++odd) {
      to[odd] = {sums[odd], sums[odd + 4]};
      to[odd + 2] = {sums[odd + 2], sums[odd + 6]};
    }
    warp_sync();
    return sum_places(parts);
  }
  /// The two sums of the tile, for its first lane. When it ends other lanes may still read `parts`, which is written
  /// again after a barrier of the ring's next step or of finish().
  NANSCOPE_LANE double2 totals(const Tile& tile, uint4* parts) {
    double2* to = reinterpret_cast<double2*>(parts) + place_in_tile() * kPartPitch + tile_of_lane() * kTileLanes;
    if constexpr (kHalves) {
      F64 sum = part_of_halves(tile.sum, parts, to);
      warp_sync();
      F64 squares = part_of_halves(tile.squares, parts, to);
      NANSCOPE_UNROLL for (int m = 2; m > 0; m /= 2) {
        sum += xor_lane(sum, m);
        squares += xor_lane(squares, m);
      }
      return {sum, squares};
    } else {
      NANSCOPE_UNROLL for (int odd = 0; odd < 2; ++odd) {
        to[odd] = {tile.sum[odd] + tile.sum[odd + 4], tile.sum[odd + 2] + tile.sum[odd + 6]};
        to[odd + 2] = {tile.squares[odd] + tile.squares[odd + 4], tile.squares[odd + 2] + tile.squares[odd + 6]};
      }
      warp_sync();
      const F64 part = sum_places(parts);
      const F64 sum = part + xor_lane(part, 1);
      return {sum, xor_lane(sum, 2)};
    }
  }

  /// The four lanes' parts of a tile become record `index` of 32.
  NANSCOPE_LANE void leave(Tile& tile, uint4* left, U32 index) {
    const double2 sums = totals(tile, left);
    NANSCOPE_UNROLL for (int m = 1; m < kTileLanes; m *= 2) {
      tile.most = max_signed(tile.most, xor_lane(tile.most, m));
      tile.least = max_unsigned(tile.least, xor_lane(tile.least, m));
      tile.smallest = Word::smaller_magnitude(tile.smallest, xor_lane(tile.smallest, m));
    }
    if (place_in_tile() != 0) return;
    uint4* record = left + kParts + index;
    *reinterpret_cast<double2*>(record) = sums;
    record[kLanes] = {tile.most, tile.least, tile.smallest, 0};
  }

  /// Of the record that the lane has. NaN and Inf show in the sum of squares, which no finite f32 overflows.
  NANSCOPE_LANE TileSummary summary(const uint4* left) {
    const auto sums = *reinterpret_cast<const double2*>(left + kParts + lane_id());
    const uint4 record = left[kParts + kLanes + lane_id()];
    U32 most = record.x;
    U32 least = record.y;
    U32 smallest = record.z;
    if constexpr (kHalves) {
      most = max_s16x2(most, most << 16) >> 16;
      least = max_u16x2(least, least << 16) >> 16;
      Pair::decode(most | least << 16, most, least);
      U32 high;
      Pair::decode(smallest, smallest, high);
      smallest = F32Bits::smaller_magnitude(smallest, high);
    }
    const float magnitude = abs(from_bits(smallest));
    const float min = to_i32(least) < 0 ? from_bits(least) : magnitude;
    const float max = to_i32(most) < 0 ? -magnitude : from_bits(most);
    const U32 found = sums.y < HUGE_VAL ? found_in<F>(min, max, magnitude) : kBad;
    return {sums.x, sums.y, min, max, 0, 0, found};
  }

  /// Of the tiles that have left records: kChunkTilesAtOnce of each chunk, where `base` and `result` are those of the
  /// first. As totals() it leaves its last barrier to the ring. The answer has a bit for each lane whose tile must be
  /// scanned in another way.
  NANSCOPE_LANE U32 finish(const HealthScanArgs& args, uint4* left, const char* base, Health* result) {
    warp_sync();  // records are there
    const TileSummary tile = summary(left);
    warp_sync();  // and read
    store_tiles<kChunkTilesAtOnce, kChunkTiles>(result, left, args.sums, tile);
    if (any(tile.found != 0)) {
      warp_sync();  // what lanes have stored is stored before others count in it
      _Pragma("unroll 1") for (int at = 0; at < kChunkTilesAtOnce; ++at) {
        const U32 chunk = tile_of_lane();
        const U32 found = __shfl_sync(kWholeWarp, tile.found, static_cast<int>(chunk) * kChunkTilesAtOnce + at);
        if (!any(found != 0)) continue;
        const char* from = base + chunk * kHashChunk + at * kTileBytes;
        count_tile<F>(reinterpret_cast<const uint4*>(from) + place_in_tile(), found, result + chunk * kChunkTiles + at);
      }
    }
    return ballot(tile.found == kBad);
  }
  /// A bit for each tile of the warp, in their order: `lanes` as of finish(), whose first tile is number `first` of its
  /// chunk.
  NANSCOPE_LANE std::uint64_t marked_tiles(U32 lanes, int first) {
    std::uint64_t tiles = 0;
    for (; lanes != 0; lanes &= lanes - 1) {
      const int lane = __ffs(static_cast<int>(lanes)) - 1;
      tiles |= std::uint64_t{1} << (lane / kChunkTilesAtOnce * kChunkTiles + first + lane % kChunkTilesAtOnce);
    }
    return tiles;
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

  NANSCOPE_LANE const char* first_byte(const HealthScanArgs& args, std::int64_t warp) {
    return static_cast<const char*>(args.x.data) + warp * kChunks * kHashChunk;
  }
  /// The warp's first loads.
  NANSCOPE_LANE Ring begin(const HealthScanArgs& args, std::int64_t warp, uint4* memory) {
    Ring ring = Ring::begin(Memory::own(memory), first_byte(args, warp));
    NANSCOPE_UNROLL for (int i = 0; i < Ring::kAhead; ++i) Ring::fetch(ring, Ring::place(i), true, kStageBytes);
    return ring;
  }
  /// The whole chunks of a warp, where addresses are multiples of 16. The answer has a bit for each of their tiles, in
  /// their order, that must be scanned in another way.
  NANSCOPE_LANE std::uint64_t run(const HealthScanArgs& args, std::int64_t warp, uint4* memory, Ring& ring) {
    uint4* left = Memory::own(memory) + Ring::kAll;
    const uint4* secrets = memory + place_in_tile();
    PieceHash hash;
    begin_hash(hash, secrets);
    std::uint64_t again = 0;
    _Pragma("unroll 1") for (int at = 0; at < kChunkTiles; ++at) {
      Tile tile;
      NANSCOPE_UNROLL for (int step = 0; step < kTileSteps; ++step) {
        uint4 pieces[kStagePieces];
        const bool some = at * kTileSteps + step + Ring::kAhead < kSteps;
        Ring::template step<kTileSteps>(ring, step, some, kStageBytes, pieces);
        NANSCOPE_UNROLL for (int i = 0; i < kStagePieces; ++i) {
          const int piece = step * kStagePieces + i;
          const uint4 key = secrets[piece * kTileLanes];
          add_piece(tile, piece, pieces[i]);
          PieceHash::add(hash, piece, pieces[i], key);
        }
      }
      secrets += kTileBytes / 16;
      leave(tile, left, tile_of_lane() * kChunkTilesAtOnce + at % kChunkTilesAtOnce);
      if (at % kChunkTilesAtOnce != kChunkTilesAtOnce - 1) continue;
      const int first = at - (kChunkTilesAtOnce - 1);
      const U32 bad =
          finish(args, left, first_byte(args, warp) + first * kTileBytes, args.tiles + warp * kTiles + first);
      again |= marked_tiles(bad, first);
    }
    const std::uint64_t all = folded(hash, memory + place_in_tile());
    if (place_in_tile() == 0) args.chunks[warp * kChunks + tile_of_lane()] = all;
    return again;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

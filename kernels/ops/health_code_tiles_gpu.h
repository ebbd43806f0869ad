#pragma once
/// Health and hash of e4m3 and int8 on a GPU, where a tensor is large: a warp takes two chunks of the hash at once, of
/// which it has four tiles each, four lanes to a tile. What is left of the 32 tiles becomes their Health at once, a
/// tile a lane. For health_scan.h, which says when; health_codes_gpu.h is for any tile.
#include <bit>

#include "kernels/ops/health_stages_gpu.h"

#if defined(__CUDACC__)

namespace nanscope::kernels::NANSCOPE_ISA {

/// What a lane leaves of its part of a tile.
struct LeftPart {
  uint2 words[3];
};

/// A lane's part of a tile of int8. The extremes are those of the upper bytes of two numbers of 16 bits, whose lower
/// bytes decide nothing.
struct Int8Tile {
  static constexpr Format kFormat = Format::int8;
  static constexpr bool kFinds = false;  ///< whether summary() finds what is not counted yet
  static constexpr U32 kSigns = 0x80808080U;
  static constexpr U32 kEach = 0x01010101U;

  U32 sum = 0;
  U32 squares = 0;
  U32 nonzero = 0;    ///< 128 each
  U32 saturated = 0;  ///< 128 each
  U32 max = kSigns;
  U32 min = ~kSigns;

  NANSCOPE_LANE void add(Int8Tile& tile, U32 four) {
    tile.sum = to_u32(__dp4a(to_i32(four), to_i32(kEach), to_i32(tile.sum)));
    tile.squares = to_u32(__dp4a(to_i32(four), to_i32(four), to_i32(tile.squares)));
    // The addition carries into bit 7 of what is not 0 below it.
    const U32 marks = or_and((four & ~kSigns) + ~kSigns, four, kSigns);
    tile.nonzero = __dp4a(marks, kEach, tile.nonzero);
    const U32 lower = four << 8;
    tile.max = max_s16x2(max_s16x2(tile.max, four), lower);
    tile.min = min_s16x2(min_s16x2(tile.min, four), lower);
  }

  /// Of those that are not saturated bit 7 is 1. 127, -127 and -128 are 0, 2 and 1 when 129 is added to each byte by
  /// itself.
  NANSCOPE_LANE U32 below_saturated(U32 four) {
    const U32 moved = ((four & ~kSigns) + kEach) ^ (~four & kSigns);
    return ((moved & ~kSigns) + 0x7d * kEach) | moved;
  }
  /// Whether the tile may have met 127, -127 or -128.
  NANSCOPE_LANE bool may_be_saturated(const Int8Tile& tile) {
    // The additions carry into the sign of a number of 16 bits from its largest upper byte on.
    const U32 high = (tile.max + 0x01000100U) & ~tile.max;
    const U32 low = (~tile.min + 0x02000200U) & tile.min;
    return ((high | low) & 0x80008000U) != 0;
  }
  /// After add() of what is in `pieces`. Here and not, as for other formats, when the tile is done: quantized weights
  /// have a saturated one in every scaled row, and to read such tiles a second time takes as long as the first.
  NANSCOPE_LANE void count(Int8Tile& tile, const uint4 (&pieces)[kStagePieces]) {
    if (!any(may_be_saturated(tile))) return;
    const auto add = [&](U32 four) { tile.saturated = __dp4a(~below_saturated(four) & kSigns, kEach, tile.saturated); };
    NANSCOPE_UNROLL for (const uint4& quad : pieces) {
      add(quad.x);
      add(quad.y);
      add(quad.z);
      add(quad.w);
    }
  }

  NANSCOPE_LANE LeftPart left(const Int8Tile& tile) {
    return {{{tile.sum, tile.squares}, {tile.max, tile.min}, {tile.nonzero, tile.saturated}}};
  }
  NANSCOPE_LANE void merge(Int8Tile& tile, const LeftPart& other) {
    tile.sum += other.words[0].x;
    tile.squares += other.words[0].y;
    tile.max = max_s16x2(tile.max, other.words[1].x);
    tile.min = min_s16x2(tile.min, other.words[1].y);
    tile.nonzero += other.words[2].x;
    tile.saturated += other.words[2].y;
  }
  NANSCOPE_LANE TileSummary summary(const Int8Tile& tile) {
    const I32 max = ::max(to_i32(tile.max) >> 24, to_i32(tile.max << 16) >> 24);
    const I32 min = ::min(to_i32(tile.min) >> 24, to_i32(tile.min << 16) >> 24);
    const U32 zero = static_cast<U32>(kTileChannels) - tile.nonzero / 128U;
    return {to_f64(to_i32(tile.sum)), to_f64(tile.squares), to_f32(min), to_f32(max), zero, tile.saturated / 128U, 0};
  }
};

/// Of e4m3. A sum f32(x) + kPlace has the units of x, 2^-9 each, in its low bits: as a number b = kOrigin + units.
/// What kOrigin adds to the sums of b and of b * b, modulo 2^32 and 2^64, is known and taken off in the end. The
/// extremes are of two f16, as HealthTilesGpu has them.
struct E4m3Tile {
  static constexpr Format kFormat = Format::e4m3;
  static constexpr bool kFinds = true;
  static constexpr float kPlace = 0x1.8p14F;
  static constexpr std::uint64_t kOrigin = std::bit_cast<std::uint32_t>(kPlace);
  static constexpr double kUnit = 0x1p-9;
  static constexpr U32 kInfinity = 0x7c00U;  ///< of f16

  U32 sum = 0;
  U32 squares_low = 0;
  U32 squares_high = 0;
  U32 most = 0x80008000U;
  U32 least = 0;
  U32 smallest = 0x7bff7bffU;

  NANSCOPE_LANE void add(E4m3Tile& tile, U32 four) {
    U32 pairs[2];
    decode_e4m3(four, pairs[0], pairs[1]);
    NANSCOPE_UNROLL for (const U32 pair : pairs) {
      tile.most = max_s16x2(tile.most, pair);
      tile.least = max_u16x2(tile.least, pair);
      tile.smallest = F16Pair::smaller_magnitude(tile.smallest, pair);
      U32 low, high;
      F16Pair::decode(pair, low, high);
      low = F32Bits::add(low, kPlace);
      high = F32Bits::add(high, kPlace);
      tile.sum += low + high;
      add_square(low, tile.squares_low, tile.squares_high);
      add_square(high, tile.squares_low, tile.squares_high);
    }
  }
  NANSCOPE_LANE void count(E4m3Tile& /*tile*/, const uint4 (&/*pieces*/)[kStagePieces]) {}

  NANSCOPE_LANE LeftPart left(const E4m3Tile& tile) {
    return {{{tile.sum, tile.smallest}, {tile.squares_low, tile.squares_high}, {tile.most, tile.least}}};
  }
  NANSCOPE_LANE void merge(E4m3Tile& tile, const LeftPart& other) {
    tile.sum += other.words[0].x;
    tile.smallest = F16Pair::smaller_magnitude(tile.smallest, other.words[0].y);
    const U64 squares =
        join_halves(tile.squares_low, tile.squares_high) + join_halves(other.words[1].x, other.words[1].y);
    split_halves(squares, tile.squares_low, tile.squares_high);
    tile.most = max_s16x2(tile.most, other.words[2].x);
    tile.least = max_u16x2(tile.least, other.words[2].y);
  }
  NANSCOPE_LANE TileSummary summary(const E4m3Tile& tile) {
    constexpr auto kCount = static_cast<std::uint64_t>(kTileChannels);
    // sum b^2 = sum units^2 + 2 kOrigin sum units + kCount kOrigin^2
    const I32 units = to_i32(tile.sum - static_cast<U32>(kCount * kOrigin));
    const U64 squares = join_halves(tile.squares_low, tile.squares_high) - kCount * kOrigin * kOrigin -
                        static_cast<U64>(static_cast<std::int64_t>(units)) * (2 * kOrigin);
    const U32 most = max_s16x2(tile.most, tile.most << 16) >> 16;
    const U32 least = max_u16x2(tile.least, tile.least << 16) >> 16;
    U32 max, min, smallest[2];
    F16Pair::decode(most | least << 16, max, min);
    F16Pair::decode(tile.smallest, smallest[0], smallest[1]);
    const F32 magnitude = abs(from_bits(F32Bits::smaller_magnitude(smallest[0], smallest[1])));
    const bool some_positive = most < 0x8000U;
    const bool some_negative = least >= 0x8000U;
    // A NaN of either sign: the PTX ISA does not say which its conversion gives.
    const bool bad = (some_positive && most > kInfinity) || least > (kInfinity | 0x8000U);
    const F32 highest = some_positive ? from_bits(max) : -magnitude;
    const F32 lowest = some_negative ? from_bits(min) : magnitude;
    const U32 found = bad ? kBad : found_in<kFormat>(lowest, highest, magnitude);
    return {to_f64(units) * kUnit, static_cast<double>(squares) * (kUnit * kUnit), lowest, highest, 0, 0, found};
  }
};

/// Tile: Int8Tile or E4m3Tile.
template <class Tile>
struct HealthCodeTilesGpu {
  static constexpr int kTileBytes = static_cast<int>(kTileChannels);
  static constexpr int kTileSteps = kTileBytes / kStageBytes;
  static constexpr int kChunkTiles = static_cast<int>(kHashChunk) / kTileBytes;

  // What HealthLargeForm wants to know.
  static constexpr Format kFormat = Tile::kFormat;
  static constexpr int kChunks = 2;  ///< of a warp
  static constexpr int kTiles = kChunks * kChunkTiles;
  static constexpr int kBlocksAtOnce = 5;
  /// On an H200 256 warps take a third of what one chunk a warp does (docs/measurements-gpu.md); fewer were not tried.
  static constexpr std::int64_t kSeveralFrom = 128;
  static_assert(kTiles == kLanes);

  static constexpr int kChunkTilesAtOnce = kTilesAtOnce / kChunks;
  static constexpr int kRounds = kChunkTiles / kChunkTilesAtOnce;
  static constexpr int kRoundBytes = kChunkTilesAtOnce * kTileBytes;  ///< of a chunk
  static constexpr int kSteps = kRounds * kTileSteps;

  /// Tiles that lie side by side in the one chunk, then those of the other.
  struct Rows {
    NANSCOPE_LANE constexpr int of(int row) {
      return row / kChunkTilesAtOnce * static_cast<int>(kHashChunk) + row % kChunkTilesAtOnce * kTileBytes;
    }
  };
  using Ring = StageRing<Rows, 2>;

  // Quads of a warp, behind its ring: what lanes leave of each round, whose place Health takes.
  static constexpr int kRoundPairs = 3 * static_cast<int>(kLanes);  ///< of words
  static constexpr int kLeft = kLanes * kHealthQuads;
  static_assert(kRounds * kRoundPairs * 8 <= kLeft * 16);
  using Memory = LargeMemory<Ring::kAll + kLeft>;

  /// Bytes from what is copied in step `step` of the warp to the next.
  NANSCOPE_LANE int forward(int step) {
    return step % kTileSteps == kTileSteps - 1 ? kRoundBytes - (kTileSteps - 1) * kStageBytes : kStageBytes;
  }

  /// The hashes of two chunks, each for the 16 lanes that have shared its tiles. After two exchanges a lane has all
  /// four tiles' part of two of the hash's lanes.
  NANSCOPE_LANE U64 folded(const PieceHash& hash) {
    const bool upper = (lane_id() & 8U) != 0;
    const bool odd = (lane_id() & 4U) != 0;
    U64 four[4], two[2];
    NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) {
      const U64 kept = upper ? hash.totals[4 + i] : hash.totals[i];
      const U64 sent = upper ? hash.totals[i] : hash.totals[4 + i];
      four[i] = kept + xor_lane(sent, 8);
    }
    const U32 first = tile_of_lane() % 2 * 8 + tile_of_lane() / 2 % 2 * 16 + 2 * place_in_tile();
    U64 all = 0;
    NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
      const U64 kept = odd ? four[2 + i] : four[i];
      const U64 sent = odd ? four[i] : four[2 + i];
      two[i] = kept + xor_lane(sent, 4);
      const U64 secret = static_cast<U64>(2 * (first + i) + 1) * kSecretStep;
      all += PieceHash::folded(two[i] + secret, secret);
    }
    NANSCOPE_UNROLL for (int m = 1; m < static_cast<int>(kLanes) / kChunks; m *= 2) all += xor_lane(all, m);
    return all;
  }

  NANSCOPE_LANE void leave(const Tile& tile, uint4* left, int round) {
    auto* to = reinterpret_cast<uint2*>(left) + round * kRoundPairs + lane_id();
    const LeftPart part = Tile::left(tile);
    NANSCOPE_UNROLL for (int i = 0; i < 3; ++i) to[i * static_cast<int>(kLanes)] = part.words[i];
  }
  /// Of tile lane_id() of the warp's, from what its four lanes have left. Lanes begin with different ones of the four,
  /// which lie in different banks.
  NANSCOPE_LANE TileSummary summary(const uint4* left) {
    const U32 in_chunk = lane_id() % kChunkTiles;
    const U32 tile_of_round = lane_id() / kChunkTiles * kChunkTilesAtOnce + in_chunk % kChunkTilesAtOnce;
    const U32 round = in_chunk / kChunkTilesAtOnce;
    const auto* from = reinterpret_cast<const uint2*>(left) + round * kRoundPairs + tile_of_round * kTileLanes;
    Tile tile;
    NANSCOPE_UNROLL for (U32 p = 0; p < kTileLanes; ++p) {
      const uint2* part = from + (p ^ round);
      Tile::merge(tile, {{part[0], part[kLanes], part[2 * kLanes]}});
    }
    return Tile::summary(tile);
  }

  /// The 32 tiles, whose first byte is `base`. The answer has a bit for each that must be scanned in another way.
  NANSCOPE_LANE U32 finish(const HealthScanArgs& args, uint4* left, const char* base, Health* result) {
    warp_sync();  // what lanes leave is there
    const TileSummary mine = summary(left);
    warp_sync();  // and read
    store_tiles<kLanes, kLanes>(result, left, args.sums, mine);
    if constexpr (!Tile::kFinds) return 0;
    if (any(mine.found != 0)) {
      warp_sync();  // what lanes have stored is stored before others count in it
      _Pragma("unroll 1") for (int round = 0; round < kRounds; ++round) {
        const int tile = static_cast<int>(tile_of_lane()) / kChunkTilesAtOnce * kChunkTiles +
                         round * kChunkTilesAtOnce + static_cast<int>(tile_of_lane()) % kChunkTilesAtOnce;
        const U32 found = __shfl_sync(kWholeWarp, mine.found, tile);
        if (!any(found != 0)) continue;
        const auto* from = reinterpret_cast<const uint4*>(base + tile * kTileBytes) + place_in_tile();
        count_tile<kFormat>(from, found, result + tile);
      }
    }
    return ballot(mine.found == kBad);
  }

  NANSCOPE_LANE const char* first_byte(const HealthScanArgs& args, std::int64_t warp) {
    return static_cast<const char*>(args.x.data) + warp * kChunks * kHashChunk;
  }
  /// The warp's first loads.
  NANSCOPE_LANE Ring begin(const HealthScanArgs& args, std::int64_t warp, uint4* memory) {
    Ring ring = Ring::begin(Memory::own(memory), first_byte(args, warp));
    NANSCOPE_UNROLL for (int i = 0; i < Ring::kAhead; ++i) Ring::fetch(ring, Ring::place(i), true, forward(i));
    return ring;
  }
  /// The whole chunks of a warp, where addresses are multiples of 16. The answer has a bit for each of their tiles, in
  /// their order, that must be scanned in another way.
  NANSCOPE_LANE std::uint64_t run(const HealthScanArgs& args, std::int64_t warp, uint4* memory, Ring& ring) {
    uint4* left = Memory::own(memory) + Ring::kAll;
    const uint4* secrets = memory + tile_of_lane() % kChunkTilesAtOnce * (kTileBytes / 16) + place_in_tile();
    PieceHash hash{};
    _Pragma("unroll 1") for (int round = 0; round < kRounds; ++round) {
      Tile tile;
      NANSCOPE_UNROLL for (int step = 0; step < kTileSteps; ++step) {
        uint4 pieces[kStagePieces];
        const int ahead = step + Ring::kAhead;
        const bool some = round * kTileSteps + ahead < kSteps;
        Ring::template step<kTileSteps>(ring, step, some, forward(ahead), pieces);
        NANSCOPE_UNROLL for (int i = 0; i < kStagePieces; ++i) {
          const int piece = step * kStagePieces + i;
          const uint4 key = secrets[piece * kTileLanes];
          Tile::add(tile, pieces[i].x);
          Tile::add(tile, pieces[i].y);
          Tile::add(tile, pieces[i].z);
          Tile::add(tile, pieces[i].w);
          PieceHash::add(hash, piece, pieces[i], key);
        }
        Tile::count(tile, pieces);
      }
      secrets += kRoundBytes / 16;
      leave(tile, left, round);
    }
    const U64 all = folded(hash);
    if (lane_id() % (kLanes / kChunks) == 0) args.chunks[warp * kChunks + lane_id() / (kLanes / kChunks)] = all;
    return finish(args, left, first_byte(args, warp), args.tiles + warp * kTiles);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

#pragma once
/// Health: one pass over a tensor of any format, one Health per tile of one row by kTileChannels.
///
/// Counts, minimum, maximum and first_bad are exact. A zero minimum or maximum is reported as +0. Sums of f32, f16,
/// bf16, e8m0 and i32 are f64: lane l adds columns l, l + 32, ... of the tile ascending, then the butterfly 16 8 4 2 1.
/// Those of all other formats, which have at most 256 codes, are exact, rounded once to f64: they have no order.
/// Non-finite elements take no part in sums, minimum and maximum.
/// A raw copy of any bits is fine: f32 NaN payloads, stale memory. Codes without NaN or Inf have none.
/// saturated counts |x| at or above the largest finite value, so int8's -128 too.
/// Half of the time of f32 and bf16 are the two sums, which is why who needs none can leave them out.
/// With `chunks` the content hash of the same bytes is made too, in the same launch; where tiles and chunks share
/// their borders each tile is hashed right after it was scanned, so that memory is read once. On a GPU large tensors of
/// whole tiles have forms of their own (health_tiles_gpu.h, health_code_tiles_gpu.h), in which a lane stands for
/// several and a warp takes several chunks: else the end of a tile, of which a lane has 16 elements, takes longer than
/// the tile. Checked against plain loops over all codes of every format of 16 bits or fewer.
#include "core/tensor/health.h"
#include "kernels/check.h"
#include "kernels/ops/content_hash.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, D); source (T, D) f32/f16/bf16 or not given: what x was cast from, divided by scale
/// before the cast, for the flushed and clipped counts; tiles: T * ceil(D / kTileChannels) Health, row-major.
/// first_bad is the row-major index row * D + column. flushed: zero here, neither zero nor NaN there.
/// clipped: |source / scale| above x's largest finite value, Inf included, NaN not.
struct HealthScanArgs {
  TensorView x;
  TensorView source;
  TensorView source_scales;  ///< (T, 1), (1, 1) or (1, G) f32, G groups of D / G columns; not given: 1
  Health* tiles = nullptr;
  bool sums = true;  ///< false: sum and sum_sq are NaN, which stands for "not taken"
  /// As ContentHashArgs::chunks, of x; null: no hash.
  std::uint64_t* chunks = nullptr;
  /// Warps from which on each of a GPU scans and hashes several chunks at once; fewer would leave most of it idle. 0:
  /// as the form of each format has it. Tests have less memory.
  std::int64_t several_from = 0;
};

inline Status check(const HealthScanArgs& args) {
  ArgsCheck check("health_scan");
  check.given("x", args.x).that(args.tiles != nullptr, "room for the tiles");
  if (args.source.given()) {
    check.floats("source", args.source).shape("source", args.source, args.x.rows, args.x.columns);
  }
  if (args.source_scales.given()) {
    check.format("source_scales", args.source_scales, {Format::f32});
    const bool groups = args.source_scales.rows == 1 && args.source_scales.columns > 1;
    check.that(!groups || args.x.columns % args.source_scales.columns == 0, "source_scales of groups that fill a row");
    const std::int64_t columns = groups ? args.source_scales.columns : 1;
    check.shape("source_scales", args.source_scales, args.source_scales.rows == 1 ? 1 : args.x.rows, columns);
  }
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/health_code_tiles_gpu.h"
#include "kernels/ops/health_codes.h"
#include "kernels/ops/health_codes_gpu.h"
#include "kernels/ops/health_int8.h"
#include "kernels/ops/health_tiles.h"
#include "kernels/ops/health_tiles_gpu.h"
#include "kernels/ops/health_wide.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// The kernel of a large tensor on a GPU. Tiles: HealthTilesGpu or HealthCodeTilesGpu.
template <class Tiles>
struct HealthScanLarge;

struct HealthScan {
  using Args = HealthScanArgs;
  using Tile = HealthTile;

  /// ptxas left to itself takes 72 registers and spills.
  static constexpr int kBlocksAtOnce = 6;

  NANSCOPE_HOST std::int64_t tiles_per_row(const Args& args) { return div_up(args.x.columns, kTileChannels); }
  NANSCOPE_HOST std::int64_t tiles(const Args& args) { return args.x.rows * tiles_per_row(args); }

#if defined(NANSCOPE_CODE_REGISTERS)
  static constexpr bool kInRuns = true;  ///< tiles are scanned several to a call, with a hash or without
#else
  static constexpr bool kInRuns = false;
#endif

  /// Chunks from which on one warp scans and hashes the same bytes. Of fewer, a GPU would leave most of its
  /// processors idle, and a CPU has them in its cache for the second look; but runs of tiles are worth it at once.
  static constexpr std::int64_t kFusedChunks = kInRuns ? 1 : 256;

  /// Tiles in a chunk where one warp takes all, and hashes them where that is asked for; 0 where tiles, and the hash's
  /// chunks, have warps of their own.
  NANSCOPE_HOST std::int64_t tiles_per_chunk(const Args& args) {
    const TensorView& x = args.x;
    if ((args.chunks == nullptr && !kInRuns) || hash_chunks(x) < kFusedChunks) return 0;
    const bool whole_tiles = x.columns < kTileChannels || x.columns % kTileChannels == 0;
    const std::int64_t bytes = (x.columns < kTileChannels ? x.columns : kTileChannels) * storage_size(x.format);
    const bool aligned = x.stride == x.columns && reinterpret_cast<std::uintptr_t>(x.data) % 8 == 0;
    if (!aligned || !whole_tiles || bytes % kHashStep != 0 || kHashChunk % bytes != 0) return 0;
    return static_cast<int>(kHashChunk) / static_cast<int>(bytes);
  }

  /// How warps of a GPU share a large tensor, and which of Forms they run: the first `warps` take `together` whole
  /// chunks each; each chunk that they leave has a warp of its own. `warps` is 0 where there is no such form.
  struct LargeForm {
    int index = 0;
    int together = 0;
    std::int64_t warps = 0;
  };
#if defined(__CUDACC__)
  using Forms = FormList<HealthScan, HealthScanLarge<HealthTilesGpu<Format::f32>>,
                         HealthScanLarge<HealthTilesGpu<Format::f16>>, HealthScanLarge<HealthTilesGpu<Format::bf16>>,
                         HealthScanLarge<HealthCodeTilesGpu<E4m3Tile>>, HealthScanLarge<HealthCodeTilesGpu<Int8Tile>>>;

  template <class Tiles>
  NANSCOPE_HOST LargeForm large_form_of(const Args& args, int index) {
    const std::int64_t warps = HealthScanLarge<Tiles>::whole_warps(args.x);
    const std::int64_t least = args.several_from > 0 ? args.several_from : Tiles::kSeveralFrom;
    const bool few = hash_chunks(args.x) < kFusedChunks || warps < least;
    return {index, Tiles::kChunks, few ? 0 : warps};
  }
  NANSCOPE_HOST LargeForm large_form(const Args& args) {
    const TensorView& x = args.x;
    const auto addresses = reinterpret_cast<std::uintptr_t>(x.data) | reinterpret_cast<std::uintptr_t>(args.tiles);
    const bool whole_tiles = x.columns % kTileChannels == 0 && x.stride == x.columns;
    if (addresses % 16 != 0 || !whole_tiles || args.chunks == nullptr || args.source.given()) return {};
    switch (x.format) {
      case Format::f32:
        return large_form_of<HealthTilesGpu<Format::f32>>(args, 1);
      case Format::f16:
        return large_form_of<HealthTilesGpu<Format::f16>>(args, 2);
      case Format::bf16:
        return large_form_of<HealthTilesGpu<Format::bf16>>(args, 3);
      case Format::e4m3:
        return large_form_of<HealthCodeTilesGpu<E4m3Tile>>(args, 4);
      case Format::int8:
        return large_form_of<HealthCodeTilesGpu<Int8Tile>>(args, 5);
      default:
        return {};
    }
  }
  NANSCOPE_HOST int form(const Args& args) {
    const LargeForm large = large_form(args);
    return large.warps > 0 ? large.index : 0;
  }
#else
  NANSCOPE_HOST LargeForm large_form(const Args&) { return {}; }
#endif

  /// Warp = one chunk where tiles_per_chunk() says so, or several where large_form() does; else one tile and, after all
  /// tiles, one chunk.
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    const LargeForm form = large_form(args);
    if (form.warps > 0) {  // whole blocks, whose warps share memory
      constexpr std::int64_t kBlock = 4;
#if defined(__CUDACC__)
      static_assert(kBlock == kBlockWarps);
#endif
      return div_up(hash_chunks(args.x) - form.warps * (form.together - 1), kBlock) * kBlock;
    }
    if (tiles_per_chunk(args) > 0) return hash_chunks(args.x);
    return args.chunks == nullptr ? tiles(args) : tiles(args) + hash_chunks(args.x);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    const std::int64_t chunk = tiles_per_chunk(args) > 0 ? tiles_per_chunk(args) * kTileChannels : kTileChannels;
    const LargeForm form = large_form(args);
    return form.warps > 0 ? chunk * form.together : chunk;
  }

  /// Of the 32 columns from `column` on.
  NANSCOPE_LANE F32 scales_of(const Args& args, std::int64_t row, std::int64_t column) {
    const TensorView& scales = args.source_scales;
    if (!scales.given() || scales.columns == 1) return splat_f32(read_scale(scales, row));
    const std::int64_t width = args.x.columns / scales.columns;
    std::int64_t group = column / width;
    F32 all = splat_f32(*element_ptr<const float>(scales, 0, group));
    for (++group; group < scales.columns && group * width < column + kLanes; ++group) {
      const F32 next = splat_f32(*element_ptr<const float>(scales, 0, group));
      all = select(lanes_below(group * width - column), all, next);
    }
    return all;
  }

  /// Bits of a code that are 0 for a zero alone; 0 where the format has none.
  NANSCOPE_LANE std::uint32_t zero_bits(Format format) {
    std::uint32_t bits = 0;
    with_format(format, [&](auto constant) NANSCOPE_INLINE_LAMBDA {
      constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(decltype(constant)::value)];
      constexpr bool kTwoZeros = kInfo.exponent_bits > 0 && kInfo.specials != Specials::fnuz;
      constexpr std::uint32_t kAll = 0xffffffffU >> (32 - kInfo.bits);
      bits = kInfo.specials == Specials::e8m0 ? 0U : kTwoZeros ? kAll >> 1 : kAll;
    });
    return bits;
  }

  /// What the cast from `source` lost.
  NANSCOPE_SCAN void count_losses(const Args& args, const Tile& tile, Health* result) {
    const std::uint32_t zero_bits = HealthScan::zero_bits(args.x.format);
    const float largest = from_bits_uniform(HealthTiles::borders_of(args.x.format).largest);
    std::uint64_t flushed = 0;
    std::uint64_t clipped = 0;
    for (std::int64_t column = tile.first; column < tile.last; column += kLanes) {
      const Mask valid = lanes_below(tile.last - column);
      const F32 source = load(args.source, tile.row, column, 0.0F);
      const U32 code = load_code(args.x, tile.row, column);
      if (zero_bits != 0) {
        const Mask something = !((source == splat_f32(0.0F)) | is_nan(source));
        flushed += HealthTiles::number(valid & ((code & splat_u32(zero_bits)) == splat_u32(0U)) & something);
      }
      const F32 scaled = source / scales_of(args, tile.row, column);
      clipped += HealthTiles::number(valid & (abs(scaled) > splat_f32(largest)));
    }
    store_uniform(&result->flushed, flushed);
    store_uniform(&result->clipped, clipped);
  }

#if defined(NANSCOPE_CODE_REGISTERS)
  /// Tiles of a format of 8 bits that follow one another in memory; how many there are before one that scan_any() must
  /// see.
  NANSCOPE_LANE std::int64_t scan_tiles_of_codes(Format format, const void* first, std::int64_t columns,
                                                 std::int64_t tiles, Health* results) {
    using E4m3 = HealthCodes<CodeKind::e4m3>;
    using E5m2 = HealthCodes<CodeKind::e5m2>;
    const auto* codes = static_cast<const std::uint8_t*>(first);
    switch (format) {
      case Format::e4m3:
        return E4m3::scan_tiles({0x7e, 0x7f, false, 0x1p-9F, 0x1p120F}, codes, columns, tiles, results);
      case Format::e4m3fnuz:
        return E4m3::scan_tiles({0x7f, 0x80, true, 0x1p-10F, 0x1p119F}, codes, columns, tiles, results);
      case Format::e5m2:
        return E5m2::scan_tiles({0x7b, 0x7c, false, 0x1p-16F, 0x1p112F}, codes, columns, tiles, results);
      case Format::e5m2fnuz:
        return E5m2::scan_tiles({0x7f, 0x80, true, 0x1p-17F, 0x1p111F}, codes, columns, tiles, results);
      case Format::int8:
        return HealthInt8::scan_tiles(codes, columns, tiles, results);
      default:
        return 0;
    }
  }
  /// A tile of a format of 8 bits; false where scan_any() must see it.
  NANSCOPE_LANE bool scan_codes(const Args& args, const Tile& tile, Health* result) {
    const auto* codes = element_ptr<const std::uint8_t>(args.x, tile.row, tile.first);
    const std::int64_t columns = tile.last - tile.first;
    if (scan_tiles_of_codes(args.x.format, codes, columns, 1, result) == 0) return false;
    if (!args.sums) result->sum = result->sum_sq = NoSums::totals({}).sum;
    return true;
  }
#elif defined(__CUDACC__)
  template <Format F>
  NANSCOPE_LANE bool scan_codes_of(const Args& args, const Tile& tile, Health* result) {
    const auto* codes = element_ptr<const std::uint8_t>(args.x, tile.row, tile.first);
    const std::int64_t count = tile.last - tile.first;
    if (count % HealthCodesGpu<F>::kAtOnce != 0 || reinterpret_cast<std::uintptr_t>(codes) % 4 != 0) return false;
    return HealthCodesGpu<F>::scan(codes, count, args.sums, result);
  }
  NANSCOPE_LANE bool scan_codes(const Args& args, const Tile& tile, Health* result) {
    switch (args.x.format) {
      case Format::e4m3:
        return scan_codes_of<Format::e4m3>(args, tile, result);
      case Format::e4m3fnuz:
        return scan_codes_of<Format::e4m3fnuz>(args, tile, result);
      case Format::int8:
        return scan_codes_of<Format::int8>(args, tile, result);
      default:
        return false;
    }
  }
#else
  NANSCOPE_LANE bool scan_codes(const Args&, const Tile&, Health*) { return false; }
#endif

#if defined(NANSCOPE_WIDE_REGISTERS)
  template <Format F>
  NANSCOPE_LANE std::int64_t scan_tiles_of_floats(bool sums, const void* first, std::int64_t columns,
                                                  std::int64_t tiles, Health* results) {
    const auto* bytes = static_cast<const std::byte*>(first);
    return sums ? HealthWide<F, true>::scan_tiles(bytes, columns, tiles, results)
                : HealthWide<F, false>::scan_tiles(bytes, columns, tiles, results);
  }
#endif
  template <Format F>
  NANSCOPE_LANE bool scan_wide(const Args& args, const Tile& tile, Health* result) {
    if ((tile.last - tile.first) % kLanes != 0) return false;
#if defined(NANSCOPE_WIDE_REGISTERS)
    const auto* first = element_ptr<const std::byte>(args.x, 0, 0) +
                        (tile.row * args.x.stride + tile.first) * HealthWide<F, true>::kBytes;
    return scan_tiles_of_floats<F>(args.sums, first, tile.last - tile.first, 1, result) == 1;
#else
    return args.sums ? HealthTiles::scan_wide<F, true>(args, tile, result)
                     : HealthTiles::scan_wide<F, false>(args, tile, result);
#endif
  }

  NANSCOPE_LANE void scan_any(const Args& args, const Tile& tile, Health* result) {
#if defined(__CUDACC__)
    using Tiles = HealthTiles;
    if (args.x.format == Format::f32) return Tiles::scan_any<Tiles::Known<Format::f32>>(args, tile, result);
    if (args.x.format == Format::bf16) return Tiles::scan_any<Tiles::Known<Format::bf16>>(args, tile, result);
    if (args.x.format == Format::e4m3) return Tiles::scan_any<Tiles::Known<Format::e4m3>>(args, tile, result);
#endif
    HealthTiles::scan_any<HealthTiles::Unknown>(args, tile, result);
  }

  /// A tile without NaN and Inf; false where scan_any() must see it.
  NANSCOPE_LANE bool scan_good(const Args& args, const Tile& tile, Health* result) {
    switch (args.x.format) {
      case Format::f32:
        return scan_wide<Format::f32>(args, tile, result);
      case Format::f16:
        return scan_wide<Format::f16>(args, tile, result);
      case Format::bf16:
        return scan_wide<Format::bf16>(args, tile, result);
      default:
        return scan_codes(args, tile, result);
    }
  }

  /// `bad`: it is known to hold NaN or Inf.
  NANSCOPE_LANE void scan(const Args& args, const Tile& tile, bool bad, Health* result) {
    if (bad || !scan_good(args, tile, result)) scan_any(args, tile, result);
    if (args.source.given()) count_losses(args, tile, result);
  }

  /// Bytes of tiles that are hashed together, after their scan: a CPU brings the hash's state into registers for them.
  static constexpr std::int64_t kHashedTogether = 2048;

  /// The bytes of `count` tiles that were just scanned.
  NANSCOPE_LANE void add_tiles(ChunkHash& hash, const Args& args, std::int64_t first, std::int64_t count,
                               std::int64_t bytes) {
    const auto* words =
        reinterpret_cast<const std::uint64_t*>(static_cast<const std::byte*>(args.x.data) + first * bytes);
    ChunkHash::add_all(hash, words, count * bytes / 8);
  }

  /// Tiles [begin, end), those of a chunk if it is hashed, and of these only the ones that have a bit in `wanted`.
  struct Task {
    std::int64_t begin;
    std::int64_t end;
    std::uint64_t wanted;
  };

  /// Those of a chunk, of which one warp takes all.
  NANSCOPE_LANE Task task_of(const Args& args, std::int64_t chunk) {
    const std::int64_t fused = tiles_per_chunk(args);
    const std::int64_t begin = fused == 0 ? chunk : chunk * fused;
    const std::int64_t end = begin + (fused == 0 ? 1 : fused);
    return {begin, end < tiles(args) ? end : tiles(args), ~std::uint64_t{0}};
  }

  /// `chunk`: where their hash goes, if that is wanting; else below 0.
  NANSCOPE_LANE void scan_all(const Args& args, const Task& task, std::int64_t chunk) {
    // A division takes a GPU as long as a tenth of a tile: one a warp, not one a tile.
    const std::int64_t row = task.begin / tiles_per_row(args);
    const std::int64_t first = task.begin % tiles_per_row(args) * kTileChannels;
    const std::int64_t fused = tiles_per_chunk(args);
    const bool hashed = (!kInRuns || args.chunks != nullptr) && fused > 0 && chunk >= 0;
    const std::int64_t tile_bytes = kHashChunk / (fused == 0 ? 1 : fused);
    ChunkHash hash;
    Tile at{row, first, 0};
    std::uint64_t wanted = task.wanted;
    std::int64_t unhashed = 0;  // tiles
    for (std::int64_t tile = task.begin; tile < task.end; ++tile) {
      at.last = at.first + kTileChannels < args.x.columns ? at.first + kTileChannels : args.x.columns;
      if ((wanted & 1U) != 0) scan(args, at, chunk < 0, args.tiles + tile);
      if (hashed && (++unhashed * tile_bytes >= kHashedTogether || tile + 1 == task.end)) {
        add_tiles(hash, args, tile + 1 - unhashed, unhashed, tile_bytes);
        unhashed = 0;
      }
      wanted >>= 1;
      at.first = at.last;
      if (at.first < args.x.columns) continue;
      at.first = 0;
      ++at.row;
    }
    if (hashed) store_uniform(args.chunks + chunk, ChunkHash::folded(hash));
  }

#if defined(NANSCOPE_CODE_REGISTERS)
  /// Whether scan_tiles() knows the format.
  NANSCOPE_LANE bool in_runs(const Args& args) {
    switch (args.x.format) {
      case Format::e4m3:
      case Format::e4m3fnuz:
      case Format::e5m2:
      case Format::e5m2fnuz:
      case Format::int8:
        return args.sums;
      case Format::f32:
      case Format::f16:
      case Format::bf16:
        return NANSCOPE_VECTOR_BYTES == 32;
      default:
        return false;
    }
  }
  /// Whole tiles that follow one another in memory; how many there are before one that scan_any() must see.
  NANSCOPE_LANE std::int64_t scan_tiles(const Args& args, const void* first, std::int64_t columns, std::int64_t tiles,
                                        Health* results) {
#if defined(NANSCOPE_WIDE_REGISTERS)
    if (args.x.format == Format::f32) {
      return scan_tiles_of_floats<Format::f32>(args.sums, first, columns, tiles, results);
    }
    if (args.x.format == Format::f16) {
      return scan_tiles_of_floats<Format::f16>(args.sums, first, columns, tiles, results);
    }
    if (args.x.format == Format::bf16) {
      return scan_tiles_of_floats<Format::bf16>(args.sums, first, columns, tiles, results);
    }
#endif
    return scan_tiles_of_codes(args.x.format, first, columns, tiles, results);
  }
  /// A chunk of which tiles_per_chunk() are tiles, several to a call: what is asked for each tile else takes as long as
  /// a fifth of a tile of 8 bit codes.
  NANSCOPE_LANE void scan_chunk(const Args& args, std::int64_t chunk) {
    const Task task = task_of(args, chunk);
    const std::int64_t columns = args.x.columns < kTileChannels ? args.x.columns : kTileChannels;
    const std::int64_t bytes = columns * storage_size(args.x.format);
    const std::int64_t together = kHashedTogether / bytes;
    ChunkHash hash;
    for (std::int64_t first = task.begin; first < task.end; first += together) {
      const std::int64_t end = first + together < task.end ? first + together : task.end;
      for (std::int64_t tile = first; tile < end; ++tile) {
        const auto* from = static_cast<const std::byte*>(args.x.data) + tile * bytes;
        tile += scan_tiles(args, from, columns, end - tile, args.tiles + tile);
        if (tile < end) scan_any(args, tile_at(args, tile), args.tiles + tile);
      }
      for (std::int64_t tile = first; args.source.given() && tile < end; ++tile) {
        count_losses(args, tile_at(args, tile), args.tiles + tile);
      }
      if (args.chunks != nullptr) add_tiles(hash, args, first, end - first, bytes);
    }
    if (args.chunks != nullptr) store_uniform(args.chunks + chunk, ChunkHash::folded(hash));
  }
  NANSCOPE_LANE Tile tile_at(const Args& args, std::int64_t tile) {
    const std::int64_t first = tile % tiles_per_row(args) * kTileChannels;
    const std::int64_t last = first + kTileChannels < args.x.columns ? first + kTileChannels : args.x.columns;
    return {tile / tiles_per_row(args), first, last};
  }
#endif

  /// A warp of a chunk, or of a tile or chunk where both have warps of their own.
  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    if (tiles_per_chunk(args) == 0 && warp >= tiles(args)) {
      return ContentHash::run({args.x, args.chunks}, warp - tiles(args));
    }
#if defined(NANSCOPE_CODE_REGISTERS)
    if (tiles_per_chunk(args) > 0 && in_runs(args)) return scan_chunk(args, warp);
#endif
    scan_all(args, task_of(args, warp), warp);
  }
};

#if defined(__CUDACC__)
template <class Tiles>
struct HealthScanLarge {
  using Args = HealthScanArgs;
  static constexpr int kBlocksAtOnce = Tiles::kBlocksAtOnce;

  /// Warps of Tiles::kChunks whole chunks.
  NANSCOPE_HOST std::int64_t whole_warps(const TensorView& x) {
    constexpr std::int64_t kBytes = kFormatTable[static_cast<std::size_t>(Tiles::kFormat)].bits / 8;
    return x.rows * x.columns * kBytes / (Tiles::kChunks * kHashChunk);
  }

  /// What scan_all() needs, by value: of what it had the address of, each thread would make a copy in memory.
  struct Some {
    const void* data;
    std::int64_t rows;
    std::int64_t columns;
    Health* tiles;
    std::uint64_t* chunks;
    bool sums;
    HealthScan::Task task;
    std::int64_t chunk;
  };
  /// As HealthScan::scan_all(). Rarely wanted, so that it is a function of its own, out of the way of the loop's
  /// registers.
  NANSCOPE_CALLED void scan_all(Some some) {
    Args args;
    args.x = {const_cast<void*>(some.data), Tiles::kFormat, some.rows, some.columns, some.columns};
    args.tiles = some.tiles;
    args.chunks = some.chunks;
    args.sums = some.sums;
    HealthScan::scan_all(args, some.task, some.chunk);
  }
  NANSCOPE_LANE void scan_all(const Args& args, const HealthScan::Task& task, std::int64_t chunk) {
    scan_all({args.x.data, args.x.rows, args.x.columns, args.tiles, args.chunks, args.sums, task, chunk});
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    __shared__ __align__(kRingAlignment) uint4 memory[Tiles::Memory::kAll];
    const std::int64_t warps = whole_warps(args.x);
    const bool whole = warp < warps;
    typename Tiles::Ring ring;
    if (whole) ring = Tiles::begin(args, warp, memory);
    if (first_task(warp)) {
      make_secrets(memory);
      block_sync();
    }
    if (!whole) {
      const std::int64_t chunk = warp + warps * (Tiles::kChunks - 1);
      const std::int64_t begin = chunk * Tiles::kChunkTiles;
      const std::int64_t tiles = args.x.rows * args.x.columns / kTileChannels;
      const std::int64_t end = begin + Tiles::kChunkTiles;
      if (begin < tiles) scan_all(args, {begin, end < tiles ? end : tiles, ~std::uint64_t{0}}, chunk);
      return;
    }
    const std::uint64_t again = Tiles::run(args, warp, memory, ring);
    if (again == 0) return;
    warp_sync();  // what another lane has stored of these tiles is stored before
    scan_all(args, {warp * Tiles::kTiles, (warp + 1) * Tiles::kTiles, again}, -1);
  }
};
#endif

}  // namespace nanscope::kernels::NANSCOPE_ISA
#undef NANSCOPE_SCAN
#endif

#pragma once
/// Health: one pass over a tensor of any format, one Health per tile of one row by kTileChannels.
///
/// Counts, minimum, maximum and first_bad are exact. A zero minimum or maximum is reported as +0. Sums are
/// f64: lane l adds columns l, l + 32, ... of the tile ascending, then the butterfly 16 8 4 2 1; those of e4m3 are
/// exact, so their order does not exist. Non-finite elements take no part in sums, minimum and maximum.
/// A raw copy of any bits is fine: f32 NaN payloads, stale memory. Codes without NaN or Inf have none.
/// saturated counts |x| at or above the largest finite value, so int8's -128 too.
/// How it is fast: a first pass adds up as if every element were a finite normal number, with no test
/// inside the loop; what it finds (a range that reaches zero, the largest value or NaN) says whether it
/// was right. Else the tile is scanned again with every count. Half of its time are the two sums, which is why
/// who needs none can leave them out.
/// With `chunks` the content hash of the same bytes is made too, in the same launch; where tiles and chunks share
/// their borders each tile is hashed right after it was scanned, so that memory is read once.
/// Checked against plain loops over all codes of every format of 16 bits or fewer.
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
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

#if defined(__CUDACC__)
#define NANSCOPE_SCAN NANSCOPE_LANE
#else
// A function a format: what all of them make of one function takes g++ a minute.
#define NANSCOPE_SCAN NANSCOPE_CALLED
#endif

/// Borders between the classes of one format, and decoding without regard to them.
template <Format F>
struct HealthFormat {
  static constexpr FormatInfo kInfo = kFormatTable[static_cast<std::size_t>(F)];
  /// A sign-and-magnitude float: what decode_ordinary() can read.
  static constexpr bool kFloat = kInfo.exponent_bits > 0 && kInfo.has_sign;
  /// decode_ordinary() is right for every code: the format is the upper part of an f32.
  static constexpr bool kExact = F == Format::f32 || F == Format::bf16;
  static constexpr std::uint32_t kLargestBits = std::bit_cast<std::uint32_t>(kInfo.max_finite);
  static constexpr std::uint32_t kNormalBits = std::bit_cast<std::uint32_t>(kInfo.min_normal);

  /// f32 bits of a code as if it were a finite normal number. Every other code (but f32's and
  /// bf16's, which are right) gives a magnitude below min_normal or not below max_finite.
  NANSCOPE_LANE U32 decode_ordinary(const U32& code) {
    if constexpr (F == Format::f32) return code;
    if constexpr (F == Format::bf16) return code << 16;
    constexpr std::uint32_t kMagnitude = ((1U << ((kInfo.bits - 1) & 31)) - 1U) << (23 - kInfo.mantissa_bits);
    // An arithmetic shift leaves copies of the sign above the magnitude; one mask drops all but the first.
    const I32 spread = to_i32(code << (32 - kInfo.bits)) >> (8 - kInfo.exponent_bits);
    return (to_u32(spread) & splat_u32(0x80000000U | kMagnitude)) +
           splat_u32(static_cast<std::uint32_t>(127 - kInfo.bias) << 23);
  }
};

/// a * a + sum where a * a is exact, so that one and two roundings are the same bits; the baseline
/// instruction set has no fma.
template <class T>
NANSCOPE_FN T add_exact_square(const T& a, const T& sum) {
#if defined(NANSCOPE_VECTOR_BYTES) && NANSCOPE_VECTOR_BYTES == 16
  return a * a + sum;
#else
  return fma(a, a, sum);
#endif
}

/// The two sums of a tile, uniform.
struct Totals {
  double sum;
  double sum_sq;
};

/// The two sums in f64, as any format needs them.
struct WideSums {
  F64 sum = splat_f64(-0.0);
  F64 sum_sq = splat_f64(-0.0);

  NANSCOPE_LANE void add(WideSums& sums, const F64& x) {
    sums.sum = sums.sum + x;
    sums.sum_sq = add_exact_square(x, sums.sum_sq);
  }
  NANSCOPE_LANE Totals totals(const WideSums& sums) {
    return {kernels::NANSCOPE_ISA::sum(sums.sum), kernels::NANSCOPE_ISA::sum(sums.sum_sq)};
  }
};

/// The two sums of at most 16 e4m3 values a lane, exactly, in f32. Values come as x / 256: an e4m3
/// exponent then fits into an f32 one without a carry. x / 256 is a multiple of 2^-17 up to 1.875. A
/// square is split at 2^-16: `high` starts at 2^7, where adding rounds to multiples of that, and stays
/// below 2^8; `low` collects what that left, at most 2^-17 each in units of 2^-34. The sum of four lanes
/// of each still fits 24 bits. Exact, so that the order of these sums is nobody's business.
struct NarrowSums {
  static_assert(kTileChannels <= 16 * kLanes, "the sums are exact for 16 values a lane");
  static constexpr float kUnit = 256.0F;
  static constexpr float kBase = 0x1p7F;
  F32 sum = splat_f32(0.0F);
  F32 high = splat_f32(kBase);
  F32 low = splat_f32(0.0F);

  /// x / 256 of an ordinary code in the top bits of a lane; what lies below it is ignored.
  NANSCOPE_LANE F32 decode(const U32& code) {
    const U32 spread = to_u32(to_i32(code) >> 4);  // sign in bits 31 to 27, then the magnitude in 26 to 20
    return settled(from_bits((spread & splat_u32(0x87f00000U)) | splat_u32(112U << 23)));
  }
  NANSCOPE_LANE void add(NarrowSums& sums, const F32& x) {
    sums.sum = sums.sum + x;
    const F32 high = add_exact_square(x, sums.high);
    sums.low = sums.low + add_exact_square(x, sums.high - high);
    sums.high = high;
  }
  NANSCOPE_LANE F64 fold(F32 x) {
    x = x + xor_lane(x, 16);
    return to_f64(x + xor_lane(x, 8));
  }
  NANSCOPE_LANE double total(F64 x) {
    for (int m = 4; m > 0; m >>= 1) x = x + xor_lane(x, m);
    return broadcast(x, 0);
  }
  NANSCOPE_LANE Totals totals(const NarrowSums& sums) {
    const double squares = total(fold(sums.high - splat_f32(kBase)) + fold(sums.low));
    return {total(fold(sums.sum)) * 0x1p8, squares * 0x1p16};
  }
};

/// For who needs no sums.
struct NoSums {
  NANSCOPE_LANE void add(NoSums&, const F64&) {}
  NANSCOPE_LANE void add(NoSums&, const F32&) {}
  NANSCOPE_LANE Totals totals(const NoSums&) {
    constexpr double kNotTaken = std::numeric_limits<double>::quiet_NaN();
    return {kNotTaken, kNotTaken};
  }
};

struct HealthScan {
  using Args = HealthScanArgs;

  NANSCOPE_HOST std::int64_t tiles_per_row(const Args& args) { return div_up(args.x.columns, kTileChannels); }
  NANSCOPE_HOST std::int64_t tiles(const Args& args) { return args.x.rows * tiles_per_row(args); }

  /// Chunks from which on one warp scans and hashes the same bytes. Of fewer, a GPU would leave most of its
  /// processors idle, and a CPU has them in its cache for the second look.
  static constexpr std::int64_t kFusedChunks = 256;

  /// Tiles in a chunk where one warp both scans and hashes them; 0 where scans and hashes have warps of their own.
  NANSCOPE_HOST std::int64_t tiles_per_chunk(const Args& args) {
    const TensorView& x = args.x;
    if (args.chunks == nullptr || hash_chunks(x) < kFusedChunks) return 0;
    const bool whole_tiles = x.columns < kTileChannels || x.columns % kTileChannels == 0;
    const std::int64_t bytes = (x.columns < kTileChannels ? x.columns : kTileChannels) * storage_size(x.format);
    const bool aligned = x.stride == x.columns && reinterpret_cast<std::uintptr_t>(x.data) % 8 == 0;
    if (!aligned || !whole_tiles || bytes % kHashStep != 0 || kHashChunk % bytes != 0) return 0;
    return static_cast<int>(kHashChunk) / static_cast<int>(bytes);
  }

  /// Warp = one chunk where tiles_per_chunk() says so; else one tile and, after all tiles, one chunk.
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    if (args.chunks == nullptr) return tiles(args);
    return tiles_per_chunk(args) > 0 ? hash_chunks(args.x) : tiles(args) + hash_chunks(args.x);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return tiles_per_chunk(args) > 0 ? tiles_per_chunk(args) * kTileChannels : kTileChannels;
  }

  /// Columns [first, last) of a row.
  struct Tile {
    std::int64_t row;
    std::int64_t first;
    std::int64_t last;
  };
  static constexpr std::int32_t kInfinity = 0x7f800000;
  struct Range {
    F32 min = splat_f32(HUGE_VALF);
    F32 max = splat_f32(-HUGE_VALF);
  };

  /// `b` where a is NaN; b never is. Where zeros of both signs tie, either.
  NANSCOPE_LANE F32 lower(const F32& a, const F32& b) {
#if defined(__CUDA_ARCH__)
    return fminf(a, b);  // one instruction instead of two
#else
    return select(a < b, a, b);
#endif
  }
  NANSCOPE_LANE F32 higher(const F32& a, const F32& b) {
#if defined(__CUDA_ARCH__)
    return fmaxf(a, b);
#else
    return select(a > b, a, b);
#endif
  }

  NANSCOPE_LANE void widen(Range& range, const F32& x) {
    range.min = lower(x, range.min);
    range.max = higher(x, range.max);
  }

  /// body(column) for each `kWidth` columns of a tile that is a multiple of them wide. On a GPU a whole tile is
  /// unrolled, so that all its loads are on their way before the first is used.
  template <int kWidth, class Body>
  NANSCOPE_LANE void for_steps(const Tile& tile, const Body& body) {
#if defined(__CUDACC__)
    if (tile.last - tile.first == kTileChannels) {
      NANSCOPE_UNROLL for (int at = 0; at < kTileChannels; at += kWidth) body(tile.first + at);
      return;
    }
#endif
    for (std::int64_t column = tile.first; column < tile.last; column += kWidth) body(column);
  }

  /// A tile whose columns are a multiple of 32, as if all were finite normal numbers. The answer is
  /// whether some were zero or subnormal. Where no sum would show a NaN, the range reaches Inf for it.
  template <Format F, class Sums>
  NANSCOPE_LANE bool add_ordinary(const Args& args, const Tile& tile, Sums& sums, Range& range) {
    constexpr bool kSums = !std::is_same_v<Sums, NoSums>;
    constexpr int kBytes = (HealthFormat<F>::kInfo.bits + 7) / 8;
    I32 least = splat_i32(kInfinity);  // smallest magnitude, as bits
    I32 most = splat_i32(0);
    for_steps<kLanes>(tile, [&](std::int64_t column) NANSCOPE_INLINE_LAMBDA {
      const char* next = element_ptr<const char>(args.x, 0, 0) + (tile.row * args.x.stride + column) * kBytes;
      for (int line = 0; line < kLanes * kBytes; line += 64) prefetch_ahead(next + line);
      const U32 code = load_whole_codes<F>(args.x, tile.row, column);
      const F32 x = settled(from_bits(HealthFormat<F>::decode_ordinary(code)));
      if constexpr (kSums && F == Format::f32) {
        Sums::add(sums, load_wide(element_ptr<const float>(args.x, tile.row, column), x));
      } else if constexpr (kSums) {
        Sums::add(sums, to_f64(x));
      }
      widen(range, x);
      const I32 magnitude = to_i32(raw_bits(abs(x)));
      least = select(magnitude < least, magnitude, least);
      if constexpr (!kSums && HealthFormat<F>::kExact) most = select(most < magnitude, magnitude, most);
    });
    if constexpr (!kSums && HealthFormat<F>::kExact) {
      range.max = select(most < splat_i32(kInfinity), range.max, splat_f32(HUGE_VALF));
    }
    return any(least < splat_i32(static_cast<std::int32_t>(HealthFormat<F>::kNormalBits)));
  }

  /// The same for e4m3, four codes a lane at a time: 128 columns a step, in no particular order.
  template <class Sums>
  NANSCOPE_LANE bool add_e4m3(const Args& args, const Tile& tile, Sums& sums, Range& range) {
    constexpr std::uint32_t kNormal = 0x80808080U - 0x08080808U;  // carries into bit 7 from magnitude 8 on
    U32 normal = splat_u32(0xffffffffU);
    for_steps<4 * kLanes>(tile, [&](std::int64_t column) NANSCOPE_INLINE_LAMBDA {
      const auto* codes = element_ptr<const std::uint8_t>(args.x, tile.row, column);
      prefetch_ahead(codes);
      prefetch_ahead(codes + 64);
      const U32 four = load_u32(reinterpret_cast<const std::uint32_t*>(codes), kLanes);
      normal = normal & ((four & splat_u32(0x7f7f7f7fU)) + splat_u32(kNormal));
      for (int byte = 0; byte < 4; ++byte) {
        const F32 x = NarrowSums::decode(four << (24 - 8 * byte));
        Sums::add(sums, x);
        widen(range, x);
      }
    });
    range.min = range.min * splat_f32(NarrowSums::kUnit);
    range.max = range.max * splat_f32(NarrowSums::kUnit);
    return any((normal & splat_u32(0x80808080U)) != splat_u32(0x80808080U));
  }

  /// What a pass over a tile adds up, uniform. Zero is reported as +0, so that merging has no order.
  struct Summary {
    double sum;
    double sum_sq;
    float min;
    float max;
    float absmax;
  };
  NANSCOPE_LANE Summary summarise(const Totals& totals, const Range& range) {
    const float min = lowest_across(range.min) + 0.0F;
    const float max = highest_across(range.max) + 0.0F;
    const float absmax = -min > max ? -min : max;
    const auto positive = [](double zero) NANSCOPE_INLINE_LAMBDA { return zero == 0.0 ? 0.0 : zero; };
    return {positive(totals.sum), positive(totals.sum_sq), min, max, min > max ? 0.0F : absmax};
  }
  NANSCOPE_LANE void fill(Health& health, const Tile& tile, const Summary& summary) {
    health.count = static_cast<std::uint64_t>(tile.last - tile.first);
    health.sum = summary.sum;
    health.sum_sq = summary.sum_sq;
    health.min = summary.min;
    health.max = summary.max;
    health.absmax = summary.absmax;
  }

  enum class Found : std::uint8_t { ordinary, finite, special };

  /// The common tile, without special values: no test inside the loop. `special` when some element
  /// is, then `summary` means nothing; `finite` when it is right and counts are wanting. A NaN or Inf
  /// shows in the range or in the sum of squares, which no finite f32 can overflow.
  template <Format F, bool kSums>
  NANSCOPE_LANE Found scan_ordinary(const Args& args, const Tile& tile, Summary& summary) {
    using Taken = std::conditional_t<F == Format::e4m3, NarrowSums, WideSums>;
    using Sums = std::conditional_t<kSums, Taken, NoSums>;
    Sums sums;
    Range range;
    bool small;
    if constexpr (F == Format::e4m3) {
      small = add_e4m3(args, tile, sums, range);
    } else {
      small = add_ordinary<F>(args, tile, sums, range);
    }
    summary = summarise(Sums::totals(sums), range);
    const bool finite = summary.absmax < HUGE_VALF && (!kSums || summary.sum_sq < HUGE_VAL);
    if (finite && !small && summary.absmax < HealthFormat<F>::kInfo.max_finite) return Found::ordinary;
    return finite && HealthFormat<F>::kExact ? Found::finite : Found::special;
  }

  /// Whether scan_ordinary() can read the tile: whole steps, and for e4m3 whole aligned words.
  template <Format F>
  NANSCOPE_LANE bool fits(const Args& args, const Tile& tile) {
    const std::int64_t columns = tile.last - tile.first;
    if constexpr (F != Format::e4m3) return columns % kLanes == 0;
    const auto address =
        reinterpret_cast<std::uintptr_t>(element_ptr<const std::uint8_t>(args.x, tile.row, tile.first));
    return columns % (4 * kLanes) == 0 && address % 4 == 0;
  }

  NANSCOPE_LANE std::uint64_t number(const Mask& mask) { return static_cast<std::uint64_t>(count(mask)); }

  /// Counts of 32 elements, f32 bits.
  template <Format F>
  NANSCOPE_LANE void count_group(Health& health, const U32& value, const Mask& valid, std::int64_t index) {
    const U32 magnitude = value & splat_u32(0x7fffffffU);
    const Mask negative = !((value >> 31) == splat_u32(0U));
    const Mask finite = valid & (magnitude < splat_u32(0x7f800000U));
    const Mask nonzero = !(magnitude == splat_u32(0U));
    health.saturated += number(finite & (magnitude >= splat_u32(HealthFormat<F>::kLargestBits)));
    health.subnormal += number(finite & nonzero & (magnitude < splat_u32(HealthFormat<F>::kNormalBits)));
    health.zero += number(finite & !nonzero);
    const std::uint32_t bad = ballot(valid & !finite);
    if (bad == 0) return;
    const Mask infinite = valid & (magnitude == splat_u32(0x7f800000U));
    health.pos_inf += number(infinite & !negative);
    health.neg_inf += number(infinite & negative);
    health.nan += number(valid & (magnitude > splat_u32(0x7f800000U)));
    if (health.first_bad < 0) health.first_bad = index + first_lane(bad);
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

  /// What the cast from `source` lost.
  template <Format F>
  NANSCOPE_SCAN void count_losses(const Args& args, Health& health, const U32& value, const Mask& valid,
                                  const Tile& tile, std::int64_t column) {
    const F32 source = load(args.source, tile.row, column, 0.0F);
    const F32 scaled = source / scales_of(args, tile.row, column);
    const Mask zero = (value & splat_u32(0x7fffffffU)) == splat_u32(0U);
    const Mask something = !(source == splat_f32(0.0F)) & !is_nan(source);
    health.flushed += number(valid & zero & something);
    health.clipped += number(valid & (abs(scaled) > splat_f32(HealthFormat<F>::kInfo.max_finite)));
  }

  /// Any tile.
  template <Format F>
  NANSCOPE_SCAN void scan_special(const Args& args, const Tile& tile, Health& health) {
    WideSums sums;
    Range range;
    for (std::int64_t column = tile.first; column < tile.last; column += kLanes) {
      const Mask valid = lanes_below(tile.last - column);
      const U32 value = decode_bits<F>(load_code(args.x, tile.row, column));
      count_group<F>(health, value, valid, tile.row * args.x.columns + column);
      if (args.source.given()) count_losses<F>(args, health, value, valid, tile, column);
      const F32 x = from_bits(value);
      const Mask finite = valid & is_finite(x);
      if (args.sums) WideSums::add(sums, to_f64(select(finite, x, splat_f32(-0.0F))));
      range.min = lower(select(finite, x, splat_f32(HUGE_VALF)), range.min);
      range.max = higher(select(finite, x, splat_f32(-HUGE_VALF)), range.max);
    }
    fill(health, tile, summarise(args.sums ? WideSums::totals(sums) : NoSums::totals({}), range));
  }

  /// Zeros, subnormals and largest values of a tile without NaN or Inf.
  template <Format F>
  NANSCOPE_LANE void count_finite(const Args& args, const Tile& tile, Health& health) {
    for (std::int64_t column = tile.first; column < tile.last; column += kLanes) {
      const U32 value = HealthFormat<F>::decode_ordinary(load_whole_codes<F>(args.x, tile.row, column));
      const U32 magnitude = value & splat_u32(0x7fffffffU);
      const std::uint64_t zero = number(magnitude == splat_u32(0U));
      health.zero += zero;
      health.subnormal += number(magnitude < splat_u32(HealthFormat<F>::kNormalBits)) - zero;
      health.saturated += number(magnitude >= splat_u32(HealthFormat<F>::kLargestBits));
    }
  }

  template <Format F>
  NANSCOPE_SCAN void scan(const Args& args, const Tile& tile, Health* result) {
    if constexpr (HealthFormat<F>::kFloat) {
      if (!args.source.given() && fits<F>(args, tile)) {
        Summary summary;
        const Found found =
            args.sums ? scan_ordinary<F, true>(args, tile, summary) : scan_ordinary<F, false>(args, tile, summary);
        if (found != Found::special) {
          // A struct of its own, whose fields stay in registers until they are stored.
          Health health;
          if (found == Found::finite) count_finite<F>(args, tile, health);
          fill(health, tile, summary);
          return store_uniform(result, health);
        }
      }
    }
    Health health;
    scan_special<F>(args, tile, health);
    store_uniform(result, health);
  }

  /// The bytes of a tile that was just scanned.
  NANSCOPE_LANE void add_tile(ChunkHash& hash, const Args& args, std::int64_t tile, std::int64_t bytes) {
    const auto* words =
        reinterpret_cast<const std::uint64_t*>(static_cast<const std::byte*>(args.x.data) + tile * bytes);
    for (std::int64_t at = 0; at < bytes / 8; at += kLanes) ChunkHash::add(hash, load_u64(words + at, kLanes));
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const std::int64_t all = tiles(args);
    const std::int64_t fused = tiles_per_chunk(args);
    if (fused == 0 && warp >= all) return ContentHash::run({args.x, args.chunks}, warp - all);
    const std::int64_t begin = fused == 0 ? warp : warp * fused;
    const std::int64_t end = fused == 0 ? warp + 1 : begin + fused < all ? begin + fused : all;
    // A division takes a GPU as long as a tenth of a tile: one a warp, not one a tile.
    const std::int64_t row = begin / tiles_per_row(args);
    const std::int64_t first = begin % tiles_per_row(args) * kTileChannels;
    const std::int64_t tile_bytes = kHashChunk / (fused == 0 ? 1 : fused);
    with_format(args.x.format, [&](auto format) NANSCOPE_INLINE_LAMBDA {
      ChunkHash hash;
      Tile at{row, first, 0};
      for (std::int64_t tile = begin; tile < end; ++tile) {
        at.last = at.first + kTileChannels < args.x.columns ? at.first + kTileChannels : args.x.columns;
        scan<decltype(format)::value>(args, at, args.tiles + tile);
        if (fused > 0) add_tile(hash, args, tile, tile_bytes);
        at.first = at.last;
        if (at.first < args.x.columns) continue;
        at.first = 0;
        ++at.row;
      }
      if (fused > 0) store_uniform(args.chunks + warp, ChunkHash::folded(hash));
    });
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#undef NANSCOPE_SCAN
#endif

#pragma once
/// A matrix product of up to four rows on a GPU, as in a decode step: 32 columns of outputs a block, a warp for each
/// row and a lane for each output, one fma chain in a register, k ascending from +0. What takes time is the weight's
/// way from memory: of k, kFewDepth at a time lie in shared memory as f32, the next ones are there before they are
/// wanted, and those behind them are on their way. For product_tiles_gpu.h, which says what a Problem is and when.
///
/// Behind the end of k lie -0 in x and +0 in the weight, which changes no sum.
#include "kernels/ops/product_operands_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

inline constexpr int kFewRowsAtMost = kBlockWarps;
inline constexpr int kFewColumns = 32;
inline constexpr int kFewDepth = 128;
/// Quads of floats from a column's weights to the next in shared memory: eight of them lie in all banks.
inline constexpr int kFewPitch = kFewDepth / 4 + 1;
/// Of kFewDepth of k: x, then the weight.
inline constexpr int kFewStageQuads = kFewRowsAtMost * kFewDepth / 4 + kFewColumns * kFewPitch;

/// How quads of the weight lie in memory: a warp reads 512 or 256 bytes of a column at once, or 128 of each of four k.
enum class FewWeights : std::uint8_t {
  f32_along_k,
  halves_along_k,
  f32_along_columns,
  codes_along_columns,  ///< of a cache, four codes at once
  each,                 ///< in none of these ways: it is asked for every element
};

template <class Problem, FewWeights kWeights>
struct FewRowsTile {
  static constexpr bool kAlongK = kWeights == FewWeights::f32_along_k || kWeights == FewWeights::halves_along_k;
  static constexpr bool kCodes = kWeights == FewWeights::codes_along_columns;
  static constexpr bool kAlongColumns = kWeights == FewWeights::f32_along_columns || kCodes;
  static constexpr int kQuads = kFewDepth / 4;
  static constexpr int kAcross = kFewColumns / 4;         ///< quads of the columns of one k
  static constexpr int kOwn = kFewColumns / kBlockWarps;  ///< quads of the weight that a thread brings
  static constexpr int kOwnSteps = kFewDepth / kOwn;      ///< of k, from a thread's quad of columns to its next

  const Problem& of;
  std::int64_t depth;
  std::int64_t first_column;
  bool x_whole;
  const char* x;  ///< of the warp's row
  const char*
      weight[kOwn];  ///< along k, the columns that the warp brings; along columns, the thread's first quad alone

  /// On its way from memory; halves as codes, two in each of x and y; codes of a cache as load_code_quad() has them.
  struct Fetched {
    float4 x;
    float4 weight[kOwn];
    U32 present;  ///< a bit for each quad of a cache that is in its pool
  };

  NANSCOPE_FN int lane() { return static_cast<int>(lane_id()); }
  NANSCOPE_FN int warp() { return static_cast<int>(block_warp()); }
  NANSCOPE_FN int thread() { return warp() * kFewColumns + lane(); }

  /// Rows and columns beyond the last repeat it: no output is made of them.
  NANSCOPE_FN FewRowsTile begin(const Problem& of, std::int64_t index) {
    FewRowsTile tile{of, Problem::depth(of), index * kFewColumns, Problem::x_whole(of), nullptr, {}};
    const std::int64_t rows = Problem::rows(of);
    if (tile.x_whole) tile.x = Problem::x_row(of, warp() < rows ? warp() : rows - 1);
    const std::int64_t columns = Problem::columns(of);
    if constexpr (kAlongK) {
      NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) {
        const std::int64_t column = tile.first_column + warp() * kOwn + i;
        tile.weight[i] = Problem::weight_row(of, column < columns ? column : columns - 1);
      }
    } else if constexpr (kAlongColumns && !kCodes) {
      const std::int64_t column = own_column(tile);
      tile.weight[0] = Problem::weight_row(of, column < columns ? column : columns - 4) + own_k(0) * step(of);
    }
    return tile;
  }

  /// The first of the four columns that the thread brings of some k.
  NANSCOPE_FN std::int64_t own_column(const FewRowsTile& tile) { return tile.first_column + thread() % kAcross * 4; }
  NANSCOPE_FN std::int64_t step(const Problem& of) { return Problem::weight_step(of); }
  /// The k of the first quad of columns that the thread brings.
  NANSCOPE_FN std::int64_t own_k(std::int64_t first_k) { return first_k + thread() / kAcross; }

  NANSCOPE_FN float4 load_quad(bool halves, const char* row, std::int64_t k) {
    if (!halves) return *reinterpret_cast<const float4*>(row + k * 4);
    const float2 codes = *reinterpret_cast<const float2*>(row + k * 2);
    return make_float4(codes.x, codes.y, 0.0F, 0.0F);
  }

  NANSCOPE_FN void fetch(const FewRowsTile& tile, std::int64_t first_k, Fetched& next) {
    const std::int64_t k = first_k + lane() * 4;
    if (tile.x_whole && k + 4 <= tile.depth) {
      next.x = load_quad(Problem::x_format(tile.of) != Format::f32, tile.x, k);
    }
    if constexpr (kAlongK) {
      if (k >= tile.depth) return;
      NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) {
        next.weight[i] = load_quad(kWeights == FewWeights::halves_along_k, tile.weight[i], k);
      }
    } else if constexpr (kCodes) {
      fetch_codes(tile, first_k, next);
    } else if constexpr (kAlongColumns) {
      const std::int64_t next_quad = kOwnSteps * step(tile.of);
      const char* from = tile.weight[0] + first_k * step(tile.of);
      NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) {
        if (own_k(first_k) + i * kOwnSteps < tile.depth) next.weight[i] = *reinterpret_cast<const float4*>(from);
        from += next_quad;
      }
    }
  }

  /// All slots are asked for before the first code, which lies where its slot says.
  NANSCOPE_FN void fetch_codes(const FewRowsTile& tile, std::int64_t first_k, Fetched& next) {
    std::int64_t slots[kOwn];
    NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) {
      const std::int64_t k = own_k(first_k) + i * kOwnSteps;
      slots[i] = k < tile.depth ? Problem::slot_of(tile.of, k) : -1;
    }
    const std::int64_t columns = Problem::columns(tile.of);
    const std::int64_t column = own_column(tile) < columns ? own_column(tile) : columns - 4;
    next.present = 0;
    NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) {
      if (slots[i] < 0) continue;
      next.weight[i] = Problem::load_codes(tile.of, slots[i], column);
      next.present |= 1U << i;
    }
  }

  template <class At>
  NANSCOPE_FN void put_each(float4& quad, std::int64_t first_k, std::int64_t depth, float beyond, At at) {
    auto* values = reinterpret_cast<float*>(&quad);
    _Pragma("unroll 1") for (int i = 0; i < 4; ++i) values[i] = first_k + i < depth ? at(first_k + i) : beyond;
  }

  NANSCOPE_FN void put_x(const FewRowsTile& tile, std::int64_t first_k, const Fetched& from, float4* stage) {
    const Problem& of = tile.of;
    if (warp() >= Problem::rows(of)) return;
    const std::int64_t k = first_k + lane() * 4;
    float4& to = stage[thread()];
    if (tile.x_whole && k + 4 <= tile.depth) {
      const Format format = Problem::x_format(of);
      to = format == Format::f32 ? from.x : decode_quad(format, from.x);
    } else {
      put_each(to, k, tile.depth, -0.0F, [&](std::int64_t at) { return Problem::x_at(of, warp(), at); });
    }
  }

  NANSCOPE_FN void put_weight(const FewRowsTile& tile, std::int64_t first_k, const Fetched& from, float4* weights) {
    const Problem& of = tile.of;
    const float4 none = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    const std::int64_t k = first_k + lane() * 4;
    float4* to = weights + warp() * kOwn * kFewPitch + lane();
    if constexpr (kCodes) {
      NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) {
        const bool given = ((from.present >> i) & 1U) != 0;
        weights[thread() + i * kFewColumns * kBlockWarps] = given ? Problem::decode_codes(of, from.weight[i]) : none;
      }
    } else if constexpr (kAlongColumns) {
      NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) {
        const bool given = own_k(first_k) + i * kOwnSteps < tile.depth;
        weights[thread() + i * kFewColumns * kBlockWarps] = given ? from.weight[i] : none;
      }
    } else if (kAlongK && k >= tile.depth) {
      NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) to[i * kFewPitch] = none;
    } else if constexpr (kWeights == FewWeights::f32_along_k) {
      NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) to[i * kFewPitch] = from.weight[i];
    } else if constexpr (kWeights == FewWeights::halves_along_k) {
      const Format format = Problem::weight_format(of);
      if (format == Format::f16) {
        NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) to[i * kFewPitch] = decode_quad(Format::f16, from.weight[i]);
      } else {
        NANSCOPE_UNROLL for (int i = 0; i < kOwn; ++i) to[i * kFewPitch] = decode_quad(Format::bf16, from.weight[i]);
      }
    } else {
      _Pragma("unroll 1") for (int i = 0; i < kOwn; ++i) {
        const std::int64_t column = tile.first_column + warp() * kOwn + i;
        const std::int64_t end = column < Problem::columns(of) ? tile.depth : 0;
        put_each(to[i * kFewPitch], k, end, 0.0F, [&](std::int64_t at) { return Problem::weight_at(of, column, at); });
      }
    }
  }

  NANSCOPE_FN float chain(const float4& a, const float4& b, float total) {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, total))));
  }

  NANSCOPE_FN void add_stage(const FewRowsTile& tile, const float4* stage, float& total) {
    if (warp() >= Problem::rows(tile.of)) return;
    const float4* x = stage + warp() * kQuads;
    const float4* weights = stage + kBlockWarps * kQuads;
    if constexpr (kAlongColumns) {
      const float* from = reinterpret_cast<const float*>(weights) + lane();
      _Pragma("unroll 16") for (int quad = 0; quad < kQuads; ++quad) {
        const float* own = from + quad * 4 * kFewColumns;
        total = chain(x[quad], {own[0], own[kFewColumns], own[2 * kFewColumns], own[3 * kFewColumns]}, total);
      }
    } else {
      const float4* own = weights + lane() * kFewPitch;
      _Pragma("unroll 16") for (int quad = 0; quad < kQuads; ++quad) total = chain(x[quad], own[quad], total);
    }
  }

  NANSCOPE_FN void store_total(const FewRowsTile& tile, float total) {
    const Problem& of = tile.of;
    const std::int64_t column = tile.first_column + lane();
    if (warp() >= Problem::rows(of) || column >= Problem::columns(of)) return;
    Problem::store(of, Problem::out_row(of, warp()), column, Problem::summand(of, column), total);
  }

  /// One stage: puts what was fetched of it, fetches the one after the next into the same registers, and adds it.
  NANSCOPE_FN void run_stage(const FewRowsTile& tile, std::int64_t first_k, Fetched& fetched, float4* stage,
                             float& total) {
    // Nobody reads what lay here: who has come this far has passed the barrier behind it.
    put_x(tile, first_k, fetched, stage);
    put_weight(tile, first_k, fetched, stage + kBlockWarps * kQuads);
    block_sync();
    fetch(tile, first_k + 2 * kFewDepth, fetched);
    add_stage(tile, stage, total);
  }

  /// `memory` has room for two stages. Two of them a turn: to hand registers on from stage to stage would be to wait
  /// for what was just asked for.
  NANSCOPE_FN void run(const Problem& of, std::int64_t index, float4* memory) {
    const FewRowsTile tile = begin(of, index);
    Fetched even;
    Fetched odd;
    float total = 0.0F;
    fetch(tile, 0, even);
    fetch(tile, kFewDepth, odd);
    block_sync();  // the tile before has been read
    _Pragma("unroll 1") for (std::int64_t k = 0; k < tile.depth; k += 2 * kFewDepth) {
      run_stage(tile, k, even, memory, total);
      if (k + kFewDepth < tile.depth) run_stage(tile, k + kFewDepth, odd, memory + kFewStageQuads, total);
    }
    store_total(tile, total);
  }
};

/// Quads fill both k and the columns, or there are none.
template <class Problem>
NANSCOPE_HOST FewWeights few_weights(const Problem& of) {
  if constexpr (requires { Problem::codes_whole(of); }) {
    if (Problem::codes_whole(of)) return FewWeights::codes_along_columns;
  }
  if (!Problem::weight_whole(of)) return FewWeights::each;
  const std::int64_t step = Problem::weight_step(of);
  if (step == 0) {
    if (Problem::depth(of) % 4 != 0) return FewWeights::each;
    return Problem::weight_format(of) == Format::f32 ? FewWeights::f32_along_k : FewWeights::halves_along_k;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(Problem::weight_row(of, 0));
  const bool aligned = (address | static_cast<std::uintptr_t>(step)) % 16 == 0;
  return aligned && Problem::columns(of) % 4 == 0 ? FewWeights::f32_along_columns : FewWeights::each;
}

}  // namespace nanscope::kernels::NANSCOPE_ISA

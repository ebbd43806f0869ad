#pragma once
/// The product of gemm.h on a GPU, in tiles that the four warps of a block compute together. A tile is 16 `Rows` rows
/// of x by 64 of the weight: a thread has `Rows` x 8 outputs, each one chain in a register. Of k, kTileDepth at a time
/// lie in shared memory as f32; the next ones come from global memory meanwhile.
///
/// Behind the end of k lie -0 in x and +0 in the weight: fma(-0, +0, c) is c, whatever c is.
#include "kernels/ops/gemm_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

inline constexpr int kTileColumns = 64;
inline constexpr int kTileDepth = 16;
/// Quads of floats from a row to the next in shared memory: eight rows' quads lie in different banks.
inline constexpr int kTilePitch = kTileDepth / 4 + 1;
/// Rows that the threads of a block bring at once, four values each.
inline constexpr int kStagedRows = kBlockWarps * 8;
inline constexpr int kThreadColumns = kTileColumns / 8;

/// What this thread brings of x or the weight: a quad of each of `Count` rows, kStagedRows apart.
template <int Count>
struct StagedRows {
  const char* from[Count];
  float4 quads[Count];
  bool whole;  ///< quads lie in memory as they are read
};

NANSCOPE_FN int staged_row() { return static_cast<int>(block_warp() * 8 + lane_id() % 8); }
NANSCOPE_FN int staged_quad() { return static_cast<int>(lane_id() / 8); }
NANSCOPE_FN std::int64_t float_bytes(Format format) { return format == Format::f32 ? 4 : 2; }

/// Rows beyond the last repeat it: no output is made of them.
template <int Count>
NANSCOPE_FN void begin_rows(const TensorView& view, std::int64_t first_row, StagedRows<Count>& rows) {
  const std::int64_t bytes = float_bytes(view.format);
  NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
    const std::int64_t row = first_row + staged_row() + i * kStagedRows;
    rows.from[i] = static_cast<const char*>(view.data) +
                   ((row < view.rows ? row : view.rows - 1) * view.stride + staged_quad() * 4) * bytes;
  }
  rows.whole = view.stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(view.data) % (4 * bytes) == 0;
}

/// The quads of the next kTileDepth columns.
template <int Count>
NANSCOPE_FN void fetch(Format format, StagedRows<Count>& rows) {
  if (format == Format::f32) {
    NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
      rows.quads[i] = *reinterpret_cast<const float4*>(rows.from[i]);
      rows.from[i] += kTileDepth * 4;
    }
    return;
  }
  const bool is_half = format == Format::f16;
  NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
    const ushort4 codes = *reinterpret_cast<const ushort4*>(rows.from[i]);
    rows.quads[i] =
        is_half ? make_float4(decode_f16(codes.x), decode_f16(codes.y), decode_f16(codes.z), decode_f16(codes.w))
                : make_float4(decode_bf16(codes.x), decode_bf16(codes.y), decode_bf16(codes.z), decode_bf16(codes.w));
    rows.from[i] += kTileDepth * 2;
  }
}

template <int Count>
NANSCOPE_FN void put(const StagedRows<Count>& rows, float4* tile) {
  NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
    tile[(staged_row() + i * kStagedRows) * kTilePitch + staged_quad()] = rows.quads[i];
  }
}

/// What put() leaves, one value after the other: at(row of the tile, k), and `beyond` behind the end of k.
template <int Count, class At>
NANSCOPE_FN void put_each(float4* tile, std::int64_t first_k, std::int64_t depth, float beyond, At at) {
  auto* values = reinterpret_cast<float*>(tile);
  _Pragma("unroll 1") for (int i = 0; i < 4 * Count; ++i) {
    const int row = staged_row() + i / 4 * kStagedRows;
    const int k = staged_quad() * 4 + i % 4;
    values[row * kTilePitch * 4 + k] = first_k + k < depth ? at(row, first_k + k) : beyond;
  }
}

/// The code of f16 or bf16.
NANSCOPE_CALLED U32 half_code(bool is_half, float value) {
  return is_half ? encode_bits<Format::f16>(raw_bits(value), Overflow::overflow)
                 : encode_bits<Format::bf16>(raw_bits(value), Overflow::overflow);
}

/// In parts: every kPartialDepth of k is a chain of its own, rounded to f16 before it is added.
template <int Rows, bool kInParts>
struct GemmTile {
  static constexpr int kRows = 16 * Rows;
  static constexpr int kStageQuads = (kRows + kTileColumns) * kTilePitch;  ///< of kTileDepth columns in shared memory

  const GemmArgs& args;
  std::int64_t first_row;
  std::int64_t first_column;
  StagedRows<kRows / kStagedRows> x;
  StagedRows<kTileColumns / kStagedRows> weight;

  struct Totals {
    float of[Rows][kThreadColumns];
  };

  NANSCOPE_HOST std::int64_t row_tiles(const GemmArgs& args) { return (args.out.rows + kRows - 1) / kRows; }
  NANSCOPE_HOST std::int64_t count(const GemmArgs& args) {
    return row_tiles(args) * ((args.out.columns + kTileColumns - 1) / kTileColumns);
  }

  /// A warp is 8 by 4 threads; two warps lie beside each other along each side of the tile.
  NANSCOPE_FN int thread_row() { return static_cast<int>(block_warp() % 2 * 8 * Rows + lane_id() % 8); }
  NANSCOPE_FN int thread_column() { return static_cast<int>(block_warp() / 2 * (kTileColumns / 2) + lane_id() / 8); }

  NANSCOPE_FN void fetch_stage(GemmTile& tile, std::int64_t first_k) {
    if (first_k + kTileDepth > tile.args.x.columns) return;
    if (tile.x.whole) fetch(tile.args.x.format, tile.x);
    if (tile.weight.whole) fetch(tile.args.weight.format, tile.weight);
  }

  NANSCOPE_FN void put_stage(const GemmTile& tile, std::int64_t first_k, float4* stage) {
    const GemmArgs& args = tile.args;
    const std::int64_t depth = args.x.columns;
    const bool whole = first_k + kTileDepth <= depth;
    if (whole && tile.x.whole) {
      put(tile.x, stage);
    } else {
      put_each<kRows / kStagedRows>(stage, first_k, depth, -0.0F, [&](int row, std::int64_t k) {
        const std::int64_t t = tile.first_row + row;
        return load_x(args.x, t < args.out.rows ? t : args.out.rows - 1, k);
      });
    }
    float4* weights = stage + kRows * kTilePitch;
    if (whole && tile.weight.whole) return put(tile.weight, weights);
    put_each<kTileColumns / kStagedRows>(weights, first_k, depth, 0.0F, [&](int row, std::int64_t k) {
      const std::int64_t n = tile.first_column + row;
      return weight_at(args, n < args.out.columns ? n : args.out.columns - 1, k);
    });
  }

  NANSCOPE_FN void add_stage(const float4* stage, Totals& total) {
    const float4* x = stage + thread_row() * kTilePitch;
    const float4* weight = stage + (kRows + thread_column()) * kTilePitch;
    _Pragma("unroll 2") for (int quad = 0; quad < kTileDepth / 4; ++quad) {
      float4 a[Rows];
      NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) a[r] = x[r * 8 * kTilePitch + quad];
      NANSCOPE_UNROLL for (int c = 0; c < kThreadColumns; ++c) {
        const float4 b = weight[c * 4 * kTilePitch + quad];
        NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) total.of[r][c] = fma(a[r].x, b.x, total.of[r][c]);
        NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) total.of[r][c] = fma(a[r].y, b.y, total.of[r][c]);
        NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) total.of[r][c] = fma(a[r].z, b.z, total.of[r][c]);
        NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) total.of[r][c] = fma(a[r].w, b.w, total.of[r][c]);
      }
    }
  }

  NANSCOPE_FN void clear(Totals& total) {
    NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
      NANSCOPE_UNROLL for (int c = 0; c < kThreadColumns; ++c) total.of[r][c] = 0.0F;
    }
  }

  NANSCOPE_FN void add_part(Totals& total, Totals& parts) {
    NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
      NANSCOPE_UNROLL for (int c = 0; c < kThreadColumns; ++c) {
        parts.of[r][c] = parts.of[r][c] + decode_f16(half_code(true, total.of[r][c]));
      }
    }
    clear(total);
  }

  NANSCOPE_FN void store_totals(const GemmTile& tile, const Totals& total) {
    const TensorView& out = tile.args.out;
    NANSCOPE_UNROLL for (int c = 0; c < kThreadColumns; ++c) {
      const std::int64_t column = tile.first_column + thread_column() + c * 4;
      if (column >= out.columns) break;
      const float bias = tile.args.bias.given() ? load_x(tile.args.bias, 0, column) : -0.0F;  // -0: nothing is added
      NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
        const std::int64_t row = tile.first_row + thread_row() + r * 8;
        if (row >= out.rows) break;
        const float value = total.of[r][c] + bias;
        if (out.format == Format::f32) {
          *element_ptr<float>(out, row, column) = canonical(value);
        } else {
          *element_ptr<std::uint16_t>(out, row, column) =
              static_cast<std::uint16_t>(half_code(out.format == Format::f16, value));
        }
      }
    }
  }

  /// `memory` has room for two stages: while one is added, the other is filled.
  NANSCOPE_FN void run(const GemmArgs& args, std::int64_t index, float4* memory) {
    GemmTile tile{args, index % row_tiles(args) * kRows, index / row_tiles(args) * kTileColumns, {}, {}};
    begin_rows(args.x, tile.first_row, tile.x);
    tile.weight.whole = false;
    if (!args.packed.given() && !args.scaled.given()) begin_rows(args.weight, tile.first_column, tile.weight);
    Totals total;
    Totals parts;
    clear(total);
    clear(parts);
    block_sync();  // the tile before has been read
    fetch_stage(tile, 0);
    put_stage(tile, 0, memory);
    block_sync();
    int current = 0;
    for (std::int64_t k = 0; k < args.x.columns; k += kTileDepth) {
      const bool more = k + kTileDepth < args.x.columns;
      if (more) fetch_stage(tile, k + kTileDepth);
      add_stage(memory + current * kStageQuads, total);
      current ^= 1;
      if (more) put_stage(tile, k + kTileDepth, memory + current * kStageQuads);
      if (kInParts && ((k + kTileDepth) % kPartialDepth == 0 || !more)) add_part(total, parts);
      block_sync();
    }
    store_totals(tile, kInParts ? parts : total);
  }
};

struct Gemm {
  using Args = GemmArgs;
  using Large = GemmTile<8, false>;
  using Small = GemmTile<2, false>;
  using SmallInParts = GemmTile<2, true>;
  static constexpr std::int64_t kEnoughTiles = 64;  ///< for a GPU of a hundred multiprocessors

  NANSCOPE_HOST bool in_large_tiles(const Args& args) {
    return args.partial == Format::f32 && args.out.rows > Small::kRows && Large::count(args) >= kEnoughTiles;
  }

  /// kBlockWarps warps have a tile.
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return kBlockWarps * (in_large_tiles(args) ? Large::count(args) : Small::count(args));
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    const std::int64_t most = in_large_tiles(args) ? Large::kRows : Small::kRows;
    const std::int64_t rows = args.out.rows < most ? args.out.rows : most;
    return rows * kTileColumns / kBlockWarps * args.x.columns / 8;  // an fma is cheaper than an element of other ops
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    __shared__ float4 memory[2 * Large::kStageQuads];
    const std::int64_t tile = warp / kBlockWarps;
    if (args.partial != Format::f32) return SmallInParts::run(args, tile, memory);
    if (in_large_tiles(args)) return Large::run(args, tile, memory);
    Small::run(args, tile, memory);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

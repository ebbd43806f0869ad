#pragma once
/// A matrix product on a GPU, in tiles that the four warps of a block compute together: 16 `Rows` rows by 64 columns of
/// outputs. A thread has `Rows` x 8 of them, each one fma chain in a register, k ascending from +0. Of k, kTileDepth at
/// a time lie in shared memory as f32; the next ones come from global memory meanwhile.
///
/// Behind the end of k lie -0 in x and +0 in the weight: fma(-0, +0, c) is c, whatever c is.
///
/// The operands are a `Problem`'s, whose functions take it as their first argument. The host too asks columns(),
/// depth(), codes_whole() and all of the weight but weight_at(), of the first problem of a launch: what they say of how
/// memory lies holds for all.
///   rows(), columns(), depth()          of the outputs, and k
///   x_format(), weight_format()         f32, f16 or bf16 of operands that are whole
///   x_whole(), weight_whole()           whether four of k lie side by side, aligned as one; else every element is
///                                       asked for, of x_at() and weight_at(). weight_whole() with weight_step() only
///                                       says that the weight is f32 in memory
///   x_row(row), weight_row(column)      where k = 0 lies
///   weight_step()                       bytes from one k to the next; 0: side by side
///   x_at(row, k), weight_at(column, k)
///   out_row(row), summand(column)       what store() is told again; out_row() may be of a row beyond the last
///   store(out_row, column, summand, total)
/// and, where the weight may be codes of a cache, four columns of a k in one quad:
///   codes_whole()                       whether it is
///   slot_of(k)                          where it lies, below 0: nowhere, which is +0
///   load_codes(slot, column), decode_codes(quad)
#include "kernels/ops/few_rows_tiles_gpu.h"
#include "kernels/ops/product_operands_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

inline constexpr int kTileColumns = 64;
inline constexpr int kTileDepth = 16;
/// Quads of floats from a row to the next in shared memory: eight rows' quads lie in different banks.
inline constexpr int kTilePitch = kTileDepth / 4 + 1;
/// Rows that the threads of a block bring at once, four values each.
inline constexpr int kStagedRows = kBlockWarps * 8;
/// Inputs of one part of a sum in parts.
inline constexpr std::int64_t kPartDepth = 32;
inline constexpr int kThreadColumns = kTileColumns / 8;

/// Two stages of tiles whose threads have so many rows: while one is added, the other is filled.
NANSCOPE_HOST constexpr int tile_memory(int thread_rows) { return 2 * (16 * thread_rows + kTileColumns) * kTilePitch; }

/// What this thread brings of x or the weight: a quad of each of `Count` rows, kStagedRows apart.
template <int Count>
struct StagedRows {
  const char* from[Count];
  float4 quads[Count];
  std::int64_t step;  ///< bytes from one k to the next; 0: they lie side by side
  bool whole;
};

NANSCOPE_FN int staged_row() { return static_cast<int>(block_warp() * 8 + lane_id() % 8); }
NANSCOPE_FN int staged_quad() { return static_cast<int>(lane_id() / 8); }
/// Rows beyond the last repeat it, as here, or are 0: no output is made of them.
template <int Count, class RowAt>
NANSCOPE_FN void begin_rows(StagedRows<Count>& rows, Format format, std::int64_t first_row, std::int64_t count,
                            RowAt row_at) {
  const std::int64_t bytes = rows.step == 0 ? float_bytes(format) : rows.step;
  NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
    const std::int64_t row = first_row + staged_row() + i * kStagedRows;
    rows.from[i] = row_at(row < count ? row : count - 1) + staged_quad() * 4 * bytes;
  }
}

/// Moves on to the next kTileDepth columns.
template <int Count, class QuadAt>
NANSCOPE_FN void fetch_each(StagedRows<Count>& rows, std::int64_t bytes, QuadAt quad_at) {
  NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
    rows.quads[i] = quad_at(rows.from[i]);
    rows.from[i] += kTileDepth * bytes;
  }
}

/// The quads of the next kTileDepth columns. Halves stay codes, two in each of x and y, so that nothing waits for them
/// here.
template <int Count>
NANSCOPE_FN void fetch(Format format, StagedRows<Count>& rows) {
  const std::int64_t step = rows.step;
  if (step != 0) {
    return fetch_each(rows, step, [=](const char* from) {
      return make_float4(*reinterpret_cast<const float*>(from), *reinterpret_cast<const float*>(from + step),
                         *reinterpret_cast<const float*>(from + 2 * step),
                         *reinterpret_cast<const float*>(from + 3 * step));
    });
  }
  if (format == Format::f32) {
    return fetch_each(rows, 4, [](const char* from) { return *reinterpret_cast<const float4*>(from); });
  }
  fetch_each(rows, 2, [](const char* from) {
    const float2 codes = *reinterpret_cast<const float2*>(from);
    return make_float4(codes.x, codes.y, 0.0F, 0.0F);
  });
}

template <int Count>
NANSCOPE_FN void put(Format format, const StagedRows<Count>& rows, float4* tile) {
  float4* to = tile + staged_row() * kTilePitch + staged_quad();
  if (format == Format::f32) {
    NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) to[i * kStagedRows * kTilePitch] = rows.quads[i];
    return;
  }
  NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
    to[i * kStagedRows * kTilePitch] = decode_quad(format, rows.quads[i]);
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

/// In parts: every kPartDepth of k is a chain of its own, rounded to f16 before it is added.
template <class Problem, int Rows, bool kInParts>
struct ProductTile {
  static constexpr int kRows = 16 * Rows;
  static constexpr int kStageQuads = (kRows + kTileColumns) * kTilePitch;  ///< of kTileDepth columns in shared memory

  const Problem& of;
  std::int64_t first_row;
  std::int64_t first_column;
  StagedRows<kRows / kStagedRows> x;
  StagedRows<kTileColumns / kStagedRows> weight;

  struct Totals {
    float of[Rows][kThreadColumns];
  };

  /// A warp is 8 by 4 threads; two warps lie beside each other along each side of the tile.
  NANSCOPE_FN int thread_row() { return static_cast<int>(block_warp() % 2 * 8 * Rows + lane_id() % 8); }
  NANSCOPE_FN int thread_column() { return static_cast<int>(block_warp() / 2 * (kTileColumns / 2) + lane_id() / 8); }

  NANSCOPE_FN void fetch_stage(ProductTile& tile, std::int64_t first_k) {
    if (first_k + kTileDepth > Problem::depth(tile.of)) return;
    if (tile.x.whole) fetch(Problem::x_format(tile.of), tile.x);
    if (tile.weight.whole) fetch(Problem::weight_format(tile.of), tile.weight);
  }

  NANSCOPE_FN void put_stage(const ProductTile& tile, std::int64_t first_k, float4* stage) {
    const Problem& of = tile.of;
    const std::int64_t depth = Problem::depth(of);
    const bool whole = first_k + kTileDepth <= depth;
    if (whole && tile.x.whole) {
      put(Problem::x_format(of), tile.x, stage);
    } else {
      put_each<kRows / kStagedRows>(stage, first_k, depth, -0.0F, [&](int row, std::int64_t k) {
        return tile.first_row + row < Problem::rows(of) ? Problem::x_at(of, tile.first_row + row, k) : 0.0F;
      });
    }
    float4* weights = stage + kRows * kTilePitch;
    if (whole && tile.weight.whole) return put(Problem::weight_format(of), tile.weight, weights);
    put_each<kTileColumns / kStagedRows>(weights, first_k, depth, 0.0F, [&](int row, std::int64_t k) {
      const std::int64_t column = tile.first_column + row;
      return column < Problem::columns(of) ? Problem::weight_at(of, column, k) : 0.0F;
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

  NANSCOPE_FN void store_totals(const ProductTile& tile, const Totals& total) {
    const Problem& of = tile.of;
    std::int64_t out_rows[Rows];
    NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
      out_rows[r] = Problem::out_row(of, tile.first_row + thread_row() + r * 8);
    }
    NANSCOPE_UNROLL for (int c = 0; c < kThreadColumns; ++c) {
      const std::int64_t column = tile.first_column + thread_column() + c * 4;
      if (column >= Problem::columns(of)) break;
      const float summand = Problem::summand(of, column);
      NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
        const std::int64_t row = tile.first_row + thread_row() + r * 8;
        if (row >= Problem::rows(of)) break;
        Problem::store(of, out_rows[r], column, summand, total.of[r][c]);
      }
    }
  }

  NANSCOPE_FN ProductTile begin(const Problem& of, std::int64_t index) {
    const std::int64_t row_tiles = div_up(Problem::rows(of), kRows);
    ProductTile tile{of, index % row_tiles * kRows, index / row_tiles * kTileColumns, {}, {}};
    tile.x.step = 0;
    tile.x.whole = Problem::x_whole(of);
    if (tile.x.whole) {
      begin_rows(tile.x, Problem::x_format(of), tile.first_row, Problem::rows(of),
                 [&](std::int64_t row) { return Problem::x_row(of, row); });
    }
    tile.weight.step = Problem::weight_step(of);
    tile.weight.whole = Problem::weight_whole(of);
    if (tile.weight.whole) {
      begin_rows(tile.weight, Problem::weight_format(of), tile.first_column, Problem::columns(of),
                 [&](std::int64_t column) { return Problem::weight_row(of, column); });
    }
    return tile;
  }

  /// `memory` has room for tile_memory(Rows).
  NANSCOPE_FN void run(const Problem& of, std::int64_t index, float4* memory) {
    ProductTile tile = begin(of, index);
    const std::int64_t depth = Problem::depth(of);
    // Of the whole warp: some have none at the edges of the outputs.
    const bool has_outputs = tile.first_row + block_warp() % 2 * 8 * Rows < Problem::rows(of) &&
                             tile.first_column + block_warp() / 2 * (kTileColumns / 2) < Problem::columns(of);
    Totals total;
    Totals parts;
    clear(total);
    clear(parts);
    block_sync();  // the tile before has been read
    fetch_stage(tile, 0);
    put_stage(tile, 0, memory);
    block_sync();
    int current = 0;
    for (std::int64_t k = 0; k < depth; k += kTileDepth) {
      const bool more = k + kTileDepth < depth;
      if (more) fetch_stage(tile, k + kTileDepth);
      if (has_outputs) add_stage(memory + current * kStageQuads, total);
      current ^= 1;
      if (more) put_stage(tile, k + kTileDepth, memory + current * kStageQuads);
      if (kInParts && ((k + kTileDepth) % kPartDepth == 0 || !more)) add_part(total, parts);
      block_sync();
    }
    store_totals(tile, kInParts ? parts : total);
  }
};

/// `batches` products of one shape.
struct ProductShape {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  std::int64_t batches = 1;
};

inline constexpr int kLargeRows = 8;  ///< of a thread
inline constexpr int kSmallRows = 2;
inline constexpr std::int64_t kEnoughTiles = 64;  ///< for a GPU of a hundred multiprocessors

NANSCOPE_HOST bool has_few_rows(const ProductShape& shape) { return shape.rows > 0 && shape.rows <= kFewRowsAtMost; }
/// Tiles of one product whose threads have `thread_rows` rows.
NANSCOPE_HOST std::int64_t tile_count(const ProductShape& shape, int thread_rows) {
  return div_up(shape.rows, 16 * thread_rows) * div_up(shape.columns, kTileColumns);
}
/// Rows of a thread: many where there are tiles enough.
NANSCOPE_HOST int thread_rows(const ProductShape& shape) {
  const bool large = shape.rows > 16 * kSmallRows && tile_count(shape, kLargeRows) * shape.batches >= kEnoughTiles;
  return large ? kLargeRows : kSmallRows;
}
/// Tiles of one product.
NANSCOPE_HOST std::int64_t tile_count(const ProductShape& shape) {
  return has_few_rows(shape) ? div_up(shape.columns, kFewColumns) : tile_count(shape, thread_rows(shape));
}
/// kBlockWarps warps have a tile.
NANSCOPE_HOST std::int64_t tile_warps(const ProductShape& shape) {
  return kBlockWarps * tile_count(shape) * shape.batches;
}
NANSCOPE_HOST std::int64_t tile_work(const ProductShape& shape) {
  const std::int64_t most = 16 * thread_rows(shape);
  const std::int64_t rows = shape.rows < most ? shape.rows : most;
  const std::int64_t columns = has_few_rows(shape) ? kFewColumns : kTileColumns;
  return rows * columns / kBlockWarps * shape.depth / 8;  // an fma is cheaper than an element of other ops
}

/// Forms of a product, kernels of their own, as they want registers and shared memory of their own. Of a Source:
///   Args, shape(args), problem(args, batch)
template <class Source, class RunTile>
NANSCOPE_FN void run_tile_of(const typename Source::Args& args, std::int64_t warp, RunTile run_tile) {
  const std::int64_t tile = warp / kBlockWarps;
  const std::int64_t tiles = tile_count(Source::shape(args));
  run_tile(Source::problem(args, tile / tiles), tile % tiles);
}

template <class Source, int Rows>
struct ProductTilesForm {
  using Args = typename Source::Args;

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    __shared__ float4 memory[tile_memory(Rows)];
    run_tile_of<Source>(args, warp, [&](const auto& problem, std::int64_t tile) {
      ProductTile<std::remove_cvref_t<decltype(problem)>, Rows, false>::run(problem, tile, memory);
    });
  }
};

template <class Source, FewWeights kWeights>
struct FewRowsForm {
  using Args = typename Source::Args;

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    __shared__ float4 memory[2 * kFewStageQuads];
    run_tile_of<Source>(args, warp, [&](const auto& problem, std::int64_t tile) {
      FewRowsTile<std::remove_cvref_t<decltype(problem)>, kWeights>::run(problem, tile, memory);
    });
  }
};

/// The forms of a source whose weights may lie in the ways of `kWeights`, one of them FewWeights::each.
template <class Source, FewWeights... kWeights>
struct ProductForms {
  using List = FormList<ProductTilesForm<Source, kLargeRows>, ProductTilesForm<Source, kSmallRows>,
                        FewRowsForm<Source, kWeights>...>;
  static constexpr int kCount = 2 + sizeof...(kWeights);

  /// Its index in the list. All products of a launch lie in memory as the first does.
  NANSCOPE_HOST int form(const typename Source::Args& args) {
    const ProductShape shape = Source::shape(args);
    if (!has_few_rows(shape)) return thread_rows(shape) == kLargeRows ? 0 : 1;
    const FewWeights weights = few_weights(Source::problem(args, 0));
    int index = 2;
    for (const FewWeights known : {kWeights...}) {
      if (known == weights) return index;
      ++index;
    }
    return kCount - 1;
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

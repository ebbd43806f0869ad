#pragma once
/// The product of gemm.h, blocked for a CPU's registers and caches. The order of every sum is that of
/// the contract: a register holds one output's chain while k ascends through a block, and between blocks
/// the unfinished sum waits as raw f32 in `sums`.
///
/// One warp computes kBlockRows rows of a group of panels. For each block of k it copies the rows of x
/// as f32 (about 140 KiB, level 2), then takes panel after panel: a slice of kBlockK x 32 weights (32 KiB) stays
/// in level 1 while all rows pass over it. Few rows of x take the way of few_rows.h.
#include <type_traits>

#include "kernels/ops/few_rows.h"
#include "kernels/ops/few_scaled_rows.h"
#include "kernels/ops/weight_panels.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Rows whose sums the registers hold at once, with 32 columns each: as many as leave room for one row
/// of weights and one value of x.
#if NANSCOPE_VECTOR_BYTES == 64
inline constexpr int kTileRows = 12;
#elif NANSCOPE_VECTOR_BYTES == 32
inline constexpr int kTileRows = 3;
#else
inline constexpr int kTileRows = 1;
#endif
inline constexpr std::int64_t kBlockRows = 128;
inline constexpr std::int64_t kBlockK = 256;
/// Floats from one copied row of x to the next: no multiple of 4 KiB / 12, so that rows do not compete
/// for the same cache sets.
inline constexpr std::int64_t kCopyStride = kBlockK + 16;
inline constexpr std::int64_t kMaxGroup = 8;
inline constexpr std::int64_t kTableFloats = kBlockRows * kMaxGroup * kLanes;

/// Bytes of a panel's rows that come from memory while something else is computed; nothing when `panel` is null.
struct RowsAhead {
  const PanelRows* panel = nullptr;
  std::int64_t first = 0;
};
inline constexpr std::int64_t kLineBytes = 64;

/// Adds one block of k to `Rows` rows of `Panels` panels, starting from the raw sums of the blocks before.
/// x: rows kCopyStride apart; weights: Panels slices `panel_stride` floats apart; sums: (rows, kMaxGroup * 32). For
/// each k one line of `ahead` is asked for: more at a time would wait for one another.
template <int Rows, int Panels>
NANSCOPE_FN void add_tile(const float* x, const float* weights, std::int64_t panel_stride, std::int64_t depth,
                          float* sums, const RowsAhead& ahead) {
  F32 total[Rows][Panels];
  NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
    NANSCOPE_UNROLL for (int p = 0; p < Panels; ++p) {
      total[r][p] = load_f32(sums + r * kMaxGroup * kLanes + p * kLanes, kLanes, 0.0F);
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    if (ahead.panel != nullptr) {
      // The last byte of 64: the line of the first one came with the block before.
      __builtin_prefetch(ahead.panel->from[k % kLanes] + ahead.first + (k / kLanes + 1) * kLineBytes - 1, 0, 2);
    }
    F32 row[Panels];
    NANSCOPE_UNROLL for (int p = 0; p < Panels; ++p) {
      row[p] = load_f32(weights + p * panel_stride + k * kLanes, kLanes, 0.0F);
    }
    NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
      const F32 value = splat_f32(x[r * kCopyStride + k]);
      NANSCOPE_UNROLL for (int p = 0; p < Panels; ++p) total[r][p] = fma(value, row[p], total[r][p]);
    }
  }
  NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
    NANSCOPE_UNROLL for (int p = 0; p < Panels; ++p) {
      store_raw_f32(sums + r * kMaxGroup * kLanes + p * kLanes, total[r][p], kLanes);
    }
  }
}

NANSCOPE_FN std::int64_t element_bytes(const TensorView& weight) { return weight.format == Format::f32 ? 4 : 2; }

/// Rows of x as f32, k from first_k on, `stride` floats apart.
NANSCOPE_CALLED void copy_rows(const TensorView& x, std::int64_t first_row, std::int64_t rows, std::int64_t first_k,
                               std::int64_t depth, float* copy, std::int64_t stride) {
  const std::int64_t bytes = element_bytes(x);
  constexpr std::int64_t kRowsAhead = 4;  // whose pieces are too short for a CPU's own prefetchers
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* ahead = static_cast<const char*>(x.data) +
                        ((first_row + (r + kRowsAhead < rows ? r + kRowsAhead : r)) * x.stride + first_k) * bytes;
    for (std::int64_t k = 0; k < depth; k += kLanes) {
      __builtin_prefetch(ahead + k * bytes);
      const F32 value = load_range(x, first_row + r, first_k + k, depth - k, 0.0F);
      store_raw_f32(copy + r * stride + k, value, kLanes);
    }
  }
}

/// Rows of a panel that are not packed. Lanes beyond N get the last row: no output is made of them.
NANSCOPE_FN PanelRows panel_rows(const GemmArgs& args, std::int64_t panel) {
  PanelRows rows;
  for (int n = 0; n < kLanes; ++n) {
    const std::int64_t row = panel * kLanes + n;
    const std::int64_t inside = row < args.out.columns ? row : args.out.columns - 1;
    rows.from[n] =
        static_cast<const char*>(args.weight.data) + inside * args.weight.stride * element_bytes(args.weight);
  }
  return rows;
}

/// Weights that fill no square of words, k in [first_k, first_k + depth), one by one.
NANSCOPE_CALLED void gather_rest(const TensorView& weight, const PanelRows& rows, std::int64_t first_k,
                                 std::int64_t depth, float* slice) {
  for (int n = 0; n < kLanes; ++n) {
    TensorView row = weight;
    row.data = const_cast<char*>(rows.from[n]);
    for (std::int64_t k = 0; k < depth; k += kLanes) {
      alignas(64) float part[kLanes];
      store_raw_f32(part, load_range(row, 0, first_k + k, depth - k, 0.0F), kLanes);
      const std::int64_t count = depth - k < kLanes ? depth - k : kLanes;
      for (std::int64_t i = 0; i < count; ++i) slice[(k + i) * kLanes + n] = part[i];
    }
  }
}

/// Weights as they are stored, k in [first_k, first_k + depth), as (depth, 32) f32 at `slice`; depth is kBlockK at
/// most.
template <Format F>
NANSCOPE_FN void decode_stored(const TensorView& weight, const PanelRows& rows, std::int64_t first_k,
                               std::int64_t depth, float* slice) {
  const std::int64_t words = depth / kPerWord<F> / kWords * kWords;
  const std::int64_t whole = words * kPerWord<F>;
  decode_panel<F>(rows, first_k * element_bytes(weight), words, slice);
  if (whole < depth) gather_rest(weight, rows, first_k + whole, depth - whole, slice + whole * kLanes);
}

/// The same of codes and scales; first_k is a multiple of 32.
template <Format F>
NANSCOPE_CALLED void decode_scaled(const ScaledWeight& weight, std::int64_t rows, std::int64_t panel,
                                   std::int64_t first_k, std::int64_t depth, float* slice) {
  const ScaledColumns columns = scaled_columns<F>(weight);
  const std::int64_t first_word = first_k / kPerWord<F>;
  const std::int64_t words = columns.words ? depth / kPerWord<F> / kWords * kWords : 0;
  const std::int64_t whole = words * kPerWord<F>;
  const PanelRows from = scaled_panel_rows(weight, rows, panel, columns.bytes);
  alignas(64) float values[kScaleFloats];
  for (std::int64_t word = 0; word < words;) {
    const ScaledPiece piece(columns, first_word + word, words - word, kMostBlocks);
    const float* scales = fill_scales(weight, rows, panel, weight.first_column / weight.block.columns + piece.block,
                                      piece.blocks, values);
    decode_panel<F>(from, (first_word + word) * 4, piece.words, slice + word * kPerWord<F> * kLanes,
                    PanelScales{scales, columns.shift, piece.begun});
    word += piece.words;
  }
  if (whole < depth) {
    gather_scaled(weight, rows, panel, first_k + whole, depth - whole, slice + whole * kLanes);
  }
}

/// The weights of one panel, k in [first_k, first_k + depth), as (depth, 32) f32: where they lie packed, or at `slice`.
NANSCOPE_CALLED const float* panel_weights(const GemmArgs& args, std::int64_t panel, std::int64_t first_k,
                                           std::int64_t depth, float* slice) {
  if (args.packed.given()) {
    return static_cast<const float*>(args.packed.data) + (panel * args.x.columns + first_k) * kLanes;
  }
  if (args.scaled.given()) {
    with_code_format(
        args.scaled.codes.format, [&]<Format F>(std::integral_constant<Format, F>) __attribute__((always_inline)) {
          decode_scaled<F>(args.scaled, args.out.columns, panel, first_k, depth, slice);
        });
    return slice;
  }
  const PanelRows rows = panel_rows(args, panel);
  switch (args.weight.format) {
    case Format::f16:
      decode_stored<Format::f16>(args.weight, rows, first_k, depth, slice);
      break;
    case Format::bf16:
      decode_stored<Format::bf16>(args.weight, rows, first_k, depth, slice);
      break;
    default:
      decode_stored<Format::f32>(args.weight, rows, first_k, depth, slice);
  }
  return slice;
}

/// Adds the sums of a block of inputs, rounded to f16, to the totals, and starts them anew.
NANSCOPE_CALLED void add_partial(float* totals, float* sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const F32 sum = load_f32(sums + i, kLanes, 0.0F);
    const F32 rounded = decode_f16(encode_bits<Format::f16>(raw_bits(sum), Overflow::overflow));
    store_raw_f32(totals + i, load_f32(totals + i, kLanes, 0.0F) + rounded, kLanes);
    store_raw_f32(sums + i, splat_f32(0.0F), kLanes);
  }
}

struct GemmBlock {
  const GemmArgs& args;
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t first_panel;
  std::int64_t panels;

  /// All rows of the block over `Panels` panels side by side.
  template <int Panels>
  NANSCOPE_CALLED void add_panels(const GemmBlock& block, const float* copy, const float* weights,
                                  std::int64_t panel_stride, std::int64_t depth, float* sums, RowsAhead ahead = {}) {
    std::int64_t r = 0;
    const auto add = [&]<int Rows>(std::integral_constant<int, Rows>) __attribute__((always_inline)) {
      for (; r + Rows <= block.rows; r += Rows) {
        add_tile<Rows, Panels>(copy + r * kCopyStride, weights, panel_stride, depth, sums + r * kMaxGroup * kLanes,
                               ahead);
        ahead = {};
      }
    };
    if constexpr (Panels == 1) add(std::integral_constant<int, kTileRows>{});
    if constexpr (kTileRows > 4) add(std::integral_constant<int, 4>{});
    add(std::integral_constant<int, 1>{});
  }

  NANSCOPE_FN void add_depth(const GemmBlock& block, std::int64_t first_k, std::int64_t depth, float* copy,
                             float* slice, float* sums) {
    copy_rows(block.args.x, block.first_row, block.rows, first_k, depth, copy, kCopyStride);
    const std::int64_t panel_stride = block.args.x.columns * kLanes;
    std::int64_t p = 0;
    if (block.args.packed.given()) {
      const auto* packed = static_cast<const float*>(block.args.packed.data) + first_k * kLanes;
      // Few rows: two panels side by side, for more chains than an fma takes cycles.
      if (block.rows <= kTileRows / 2 || kTileRows == 1) {
        for (; p + 2 <= block.panels; p += 2) {
          add_panels<2>(block, copy, packed + (block.first_panel + p) * panel_stride, panel_stride, depth,
                        sums + p * kLanes);
        }
      }
      for (; p < block.panels; ++p) {
        add_panels<1>(block, copy, packed + (block.first_panel + p) * panel_stride, panel_stride, depth,
                      sums + p * kLanes);
      }
      return;
    }
    if (block.args.scaled.given()) {
      return with_code_format(
          block.args.scaled.codes.format, [&]<Format F>(std::integral_constant<Format, F>)
                                              __attribute__((always_inline)) {
                                                add_scaled<F>(block, first_k, depth, copy, slice, sums);
                                              });
    }
    switch (block.args.weight.format) {
      case Format::f16:
        return add_stored<Format::f16>(block, first_k, depth, copy, slice, sums);
      case Format::bf16:
        return add_stored<Format::bf16>(block, first_k, depth, copy, slice, sums);
      default:
        return add_stored<Format::f32>(block, first_k, depth, copy, slice, sums);
    }
  }

  /// Panels of weights as they are stored, decoded once for all rows of the block.
  template <Format F>
  NANSCOPE_FN void add_stored(const GemmBlock& block, std::int64_t first_k, std::int64_t depth, const float* copy,
                              float* slice, float* sums) {
    const std::int64_t first_byte = first_k * element_bytes(block.args.weight);
    PanelRows rows[kMaxGroup];
    for (std::int64_t p = 0; p < block.panels; ++p) rows[p] = panel_rows(block.args, block.first_panel + p);
    for (std::int64_t p = 0; p < block.panels; ++p) {
      // Next comes the next panel, or the first one's next k.
      const bool last = p + 1 == block.panels;
      const RowsAhead ahead{last ? rows : rows + p + 1,
                            last ? first_byte + depth * element_bytes(block.args.weight) : first_byte};
      decode_stored<F>(block.args.weight, rows[p], first_k, depth, slice);
      add_panels<1>(block, copy, slice, 0, depth, sums + p * kLanes, ahead);
    }
  }

  /// Panels of codes and scales, decoded once for all rows of the block.
  template <Format F>
  NANSCOPE_CALLED void add_scaled(const GemmBlock& block, std::int64_t first_k, std::int64_t depth, const float* copy,
                                  float* slice, float* sums) {
    for (std::int64_t p = 0; p < block.panels; ++p) {
      decode_scaled<F>(block.args.scaled, block.args.out.columns, block.first_panel + p, first_k, depth, slice);
      add_panels<1>(block, copy, slice, 0, depth, sums + p * kLanes);
    }
  }

  /// At most `Rows` rows of x over panels of codes and scales, as add_few() below. `table` has room for kTableFloats.
  template <Format F, int Rows>
  NANSCOPE_CALLED void add_few_scaled(const GemmBlock& block, float* copy, float* slice, float* table, float* sums) {
    const GemmArgs& args = block.args;
    const ScaledWeight& weight = args.scaled;
    const std::int64_t all = args.x.columns;
    const ScaledColumns columns = scaled_columns<F>(weight);
    const std::int64_t words = columns.words ? all / kPerWord<F> / kWords * kWords : 0;
    const std::int64_t most = kTableFloats / block.panels / kLanes / kScaleBlocks * kScaleBlocks;
    PanelRows panels[kMaxGroup];
    for (std::int64_t p = 0; p < block.panels; ++p) {
      panels[p] = scaled_panel_rows(weight, args.out.columns, block.first_panel + p, columns.bytes);
    }
    const std::int64_t stride = panels[0].from[1] - panels[0].from[0];
    for (std::int64_t word = 0; word < words;) {
      const std::int64_t room = (kBlockRows * kCopyStride) / Rows / kPerWord<F> / kWords * kWords;
      const ScaledPiece piece(columns, word, words - word < room ? words - word : room, most);
      const std::int64_t depth = piece.words * kPerWord<F>;
      copy_rows(args.x, block.first_row, block.rows, word * kPerWord<F>, depth, copy, depth);
      for (std::int64_t r = block.rows; r < Rows; ++r) {  // whose sums nobody reads
        std::memcpy(copy + r * depth, copy, static_cast<std::size_t>(depth) * sizeof(float));
      }
      const float* scales = nullptr;  // of the first panel
      for (std::int64_t p = block.panels - 1; p >= 0; --p) {
        scales = fill_scales(weight, args.out.columns, block.first_panel + p,
                             weight.first_column / weight.block.columns + piece.block, piece.blocks,
                             table + p * most * kLanes);
      }
      const std::int64_t end = all / kPerWord<F> * 4;
      const std::int64_t behind = word + piece.words < words ? 0 : stride * kLanes - end;
      add_few_rows<F, Rows>({panels, block.panels, word * 4, piece.words, end, behind, copy, depth, sums,
                             kMaxGroup * kLanes, PanelScales{scales, columns.shift, piece.begun}, most * kLanes});
      word += piece.words;
    }
    add_rest(block, words * kPerWord<F>, copy, slice, sums);
  }

  /// Codes and scales that fill no square of words, from column `first_k` on, in pieces that the slice has room for.
  NANSCOPE_CALLED void add_rest(const GemmBlock& block, std::int64_t first_k, float* copy, float* slice, float* sums) {
    const std::int64_t all = block.args.x.columns;
    for (std::int64_t k = first_k; k < all; k += kBlockK) {
      const std::int64_t depth = all - k < kBlockK ? all - k : kBlockK;
      copy_rows(block.args.x, block.first_row, block.rows, k, depth, copy, kCopyStride);
      for (std::int64_t p = 0; p < block.panels; ++p) {
        gather_scaled(block.args.scaled, block.args.out.columns, block.first_panel + p, k, depth, slice);
        add_panels<1>(block, copy, slice, 0, depth, sums + p * kLanes);
      }
    }
  }

  /// One row of x over panels of codes and scales, in the way of few_scaled_rows.h.
  template <Format F>
  NANSCOPE_CALLED void add_one_scaled(const GemmBlock& block, float* copy, float* slice, float* sums) {
    const GemmArgs& args = block.args;
    const ScaledWeight& weight = args.scaled;
    const std::int64_t all = args.x.columns;
    const ScaledColumns columns = scaled_columns<F>(weight);
    const std::int64_t words = columns.words ? all / kPerWord<F> / kWords * kWords : 0;
    const std::int64_t groups = (block.panels + kSidePanels - 1) / kSidePanels;
    PanelRows panels[kMaxGroup];
    for (std::int64_t p = 0; p < groups * kSidePanels; ++p) {  // where they are too many, nobody reads the sums
      panels[p] = scaled_panel_rows(weight, args.out.columns, block.first_panel + p, columns.bytes);
    }
    const std::int64_t stride = row_bytes(weight);
    const char* end = static_cast<const char*>(weight.codes.data) + weight.codes.rows * stride;
    constexpr std::int64_t kRoom = kBlockRows * kCopyStride / kPerWord<F> / kWords * kWords;
    for (std::int64_t word = 0; word < words; word += kRoom) {
      const SideRows rows{panels, groups, word * 4, words - word < kRoom ? words - word : kRoom, stride, end};
      const float* x = copy;
      if (args.x.format == Format::f32) {
        x = element_ptr<const float>(args.x, block.first_row, word * kPerWord<F>);
      } else {
        copy_rows(args.x, block.first_row, 1, word * kPerWord<F>, rows.words * kPerWord<F>, copy, 0);
      }
      MadeSquares made;
      begin_squares<F>(rows, made);
      for (std::int64_t group = 0; group < groups; ++group) {
        const std::int64_t panel = group * kSidePanels;
        add_group<F>(block, panel, word, rows, columns, x, slice, sums + panel * kLanes, made);
      }
    }
    add_rest(block, words * kPerWord<F>, copy, slice, sums);
  }

  /// The group that begins with panel `panel` of the block, from word `first` on; piece by piece, as there is room for
  /// scales in `table`.
  template <Format F>
  NANSCOPE_FN void add_group(const GemmBlock& block, std::int64_t panel, std::int64_t first, const SideRows& rows,
                             const ScaledColumns& columns, const float* x, float* table, float* sums,
                             MadeSquares& made) {
    const ScaledWeight& weight = block.args.scaled;
    const std::int64_t first_block = weight.first_column / weight.block.columns;
    const std::int64_t first_row = weight.first_row + (block.first_panel + panel) * kLanes;
    for (std::int64_t word = 0; word < rows.words;) {
      const ScaledPiece piece(columns, first + word, rows.words - word, kMostBlocks);
      const float* scales = nullptr;  // of the first panel
      for (int p = kSidePanels - 1; p >= 0; --p) {
        scales = fill_scales(weight, block.args.out.columns, block.first_panel + panel + p, first_block + piece.block,
                             piece.blocks, table + p * kScaleFloats);
      }
      const bool last = word + piece.words == rows.words;  // the next group's first scales come next
      ask_for_scales(weight, first_row + (last ? kSidePanels * kLanes : 0), kSidePanels * kLanes,
                     last ? first_block : first_block + piece.block + piece.blocks, kMostBlocks);
      add_scaled_row<F>(rows, x + word * kPerWord<F>, {scales, columns.shift, piece.begun}, piece.words, made, sums);
      word += piece.words;
    }
  }

  /// At most `Rows` rows of x over panels of weights as they are stored, which are decoded as they are used.
  template <Format F, int Rows>
  NANSCOPE_CALLED void add_few(const GemmBlock& block, float* copy, float* slice, float* sums) {
    // Of the room for copied rows, most is for long rows, and the rest for what fills no square of words.
    constexpr std::int64_t kFewDepth = (kBlockRows - kFewRows) * kCopyStride / Rows / kLanes * kLanes;
    float* rest = copy + (kBlockRows - kFewRows) * kCopyStride;
    const GemmArgs& args = block.args;
    const std::int64_t bytes = element_bytes(args.weight);
    const std::int64_t all = args.x.columns;
    for (std::int64_t first_k = 0; first_k < all; first_k += kFewDepth) {
      const std::int64_t depth = all - first_k < kFewDepth ? all - first_k : kFewDepth;
      const std::int64_t words = depth / kPerWord<F> / kWords * kWords;
      const std::int64_t whole = words * kPerWord<F>;
      copy_rows(args.x, block.first_row, block.rows, first_k, depth, copy, kFewDepth);
      for (std::int64_t r = block.rows; r < Rows; ++r) {  // whose sums nobody reads
        std::memcpy(copy + r * kFewDepth, copy, static_cast<std::size_t>(depth) * sizeof(float));
      }
      copy_rows(args.x, block.first_row, block.rows, first_k + whole, depth - whole, rest, kCopyStride);
      PanelRows panels[kMaxGroup];
      for (std::int64_t p = 0; p < block.panels; ++p) panels[p] = panel_rows(args, block.first_panel + p);
      const std::int64_t behind = first_k + depth < all ? 0 : (kLanes * args.weight.stride - all) * bytes;
      add_few_rows<F, Rows>({panels, block.panels, first_k * bytes, words, all * bytes, behind, copy, kFewDepth, sums,
                             kMaxGroup * kLanes});
      for (std::int64_t p = 0; p < block.panels && whole < depth; ++p) {
        gather_rest(args.weight, panels[p], first_k + whole, depth - whole, slice);
        add_panels<1>(block, rest, slice, 0, depth - whole, sums + p * kLanes);
      }
    }
  }
  /// Two numbers of rows are compiled: one, and as many as there may be.
  template <int Most>
  NANSCOPE_FN void add_few(const GemmBlock& block, float* copy, float* slice, [[maybe_unused]] float* table,
                           float* sums) {
    if constexpr (Most > 0) {
      const bool one = block.rows == 1;
      if (block.args.scaled.given()) {
        return with_code_format(
            block.args.scaled.codes.format, [&]<Format F>(std::integral_constant<Format, F>)
                                                __attribute__((always_inline)) {
                                                  one ? add_one_scaled<F>(block, copy, slice, sums)
                                                      : add_few_scaled<F, Most>(block, copy, slice, table, sums);
                                                });
      }
      switch (block.args.weight.format) {
        case Format::f16:
          return one ? add_few<Format::f16, 1>(block, copy, slice, sums)
                     : add_few<Format::f16, Most>(block, copy, slice, sums);
        case Format::bf16:
          return one ? add_few<Format::bf16, 1>(block, copy, slice, sums)
                     : add_few<Format::bf16, Most>(block, copy, slice, sums);
        default:  // so long in coming from memory that sums nobody asked for take no time
          return add_few<Format::f32, Most>(block, copy, slice, sums);
      }
    }
  }

  NANSCOPE_FN void run(const GemmBlock& block) {
    alignas(64) float sums[kBlockRows * kMaxGroup * kLanes];
    alignas(64) float copy[kBlockRows * kCopyStride];
    alignas(64) float slice[kBlockK * kLanes];
    alignas(64) float totals[kBlockRows * kMaxGroup * kLanes];
    const bool in_parts = block.args.partial != Format::f32;
    const std::int64_t count = block.rows * kMaxGroup * kLanes;
    for (std::int64_t i = 0; i < count; i += kLanes) {
      store_raw_f32(sums + i, splat_f32(0.0F), kLanes);
      if (in_parts) store_raw_f32(totals + i, splat_f32(0.0F), kLanes);
    }
    const std::int64_t all = block.args.x.columns;
    const std::int64_t depth = in_parts ? kPartialDepth : kBlockK;
    const bool few = block.rows <= kFewRows && !in_parts && !block.args.packed.given();
    if (few) add_few<kFewRows>(block, copy, slice, totals, sums);
    for (std::int64_t k = 0; k < all && !few; k += depth) {
      add_depth(block, k, all - k < depth ? all - k : depth, copy, slice, sums);
      if (in_parts) add_partial(totals, sums, count);
    }
    const float* products = in_parts ? totals : sums;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      for (std::int64_t p = 0; p < block.panels; ++p) {
        F32 total = load_f32(products + (r * kMaxGroup + p) * kLanes, kLanes, 0.0F);
        const std::int64_t column = (block.first_panel + p) * kLanes;
        if (block.args.bias.given()) total = total + load(block.args.bias, 0, column, 0.0F);
        store(block.args.out, block.first_row + r, column, total);
      }
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

#pragma once
/// The product of gemm.h, blocked for a CPU's registers and caches. The order of every sum is that of
/// the contract: a register holds one output's chain while k ascends through a block, and between blocks
/// the unfinished sum waits as raw f32 in `sums`.
///
/// One warp computes kBlockRows rows of a group of panels. For each block of k it copies the rows of x
/// as f32 (about 140 KiB, level 2), then takes panel after panel: a slice of kBlockK x 32 weights (32 KiB) stays
/// in level 1 while all rows pass over it.
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

/// Adds one block of k to `Rows` rows of `Panels` panels, starting from the raw sums of the blocks before.
/// x: rows kCopyStride apart; weights: Panels slices `panel_stride` floats apart; sums: (rows, kMaxGroup * 32).
template <int Rows, int Panels>
NANSCOPE_FN void add_tile(const float* x, const float* weights, std::int64_t panel_stride, std::int64_t depth,
                          float* sums) {
  F32 total[Rows][Panels];
  NANSCOPE_UNROLL for (int r = 0; r < Rows; ++r) {
    NANSCOPE_UNROLL for (int p = 0; p < Panels; ++p) {
      total[r][p] = load_f32(sums + r * kMaxGroup * kLanes + p * kLanes, kLanes, 0.0F);
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
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

/// Rows of x as f32, k from first_k on.
NANSCOPE_CALLED void copy_rows(const TensorView& x, std::int64_t first_row, std::int64_t rows, std::int64_t first_k,
                               std::int64_t depth, float* copy) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < depth; k += kLanes) {
      const F32 value = load_range(x, first_row + r, first_k + k, depth - k, 0.0F);
      store_raw_f32(copy + r * kCopyStride + k, value, kLanes);
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
  NANSCOPE_FN void add_panels(const GemmBlock& block, const float* copy, const float* weights,
                              std::int64_t panel_stride, std::int64_t depth, float* sums) {
    std::int64_t r = 0;
    constexpr std::int64_t kSumsStride = kMaxGroup * kLanes;
    if constexpr (Panels == 1) {
      for (; r + kTileRows <= block.rows; r += kTileRows) {
        add_tile<kTileRows, 1>(copy + r * kCopyStride, weights, panel_stride, depth, sums + r * kSumsStride);
      }
    }
    if constexpr (kTileRows > 4) {
      for (; r + 4 <= block.rows; r += 4) {
        add_tile<4, Panels>(copy + r * kCopyStride, weights, panel_stride, depth, sums + r * kSumsStride);
      }
    }
    for (; r < block.rows; ++r) {
      add_tile<1, Panels>(copy + r * kCopyStride, weights, panel_stride, depth, sums + r * kSumsStride);
    }
  }

  NANSCOPE_FN void add_depth(const GemmBlock& block, std::int64_t first_k, std::int64_t depth, float* copy,
                             float* slice, float* sums) {
    copy_rows(block.args.x, block.first_row, block.rows, first_k, depth, copy);
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
    const std::int64_t words = depth / kPerWord<F> / kWords * kWords;
    const std::int64_t whole = words * kPerWord<F>;
    const std::int64_t first_byte = first_k * element_bytes(block.args.weight);
    for (std::int64_t p = 0; p < block.panels; ++p) {
      const PanelRows rows = panel_rows(block.args, block.first_panel + p);
      float* into = sums + p * kLanes;
      std::int64_t done = 0;
      if (block.rows == 1) {
        add_row<F>(rows, first_byte, words, copy, into);
        done = whole;
      } else {
        decode_panel<F>(rows, first_byte, words, slice);
      }
      if (whole < depth) gather_rest(block.args.weight, rows, first_k + whole, depth - whole, slice + whole * kLanes);
      if (done < depth) add_panels<1>(block, copy + done, slice + done * kLanes, 0, depth - done, into);
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
    for (std::int64_t k = 0; k < all; k += depth) {
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

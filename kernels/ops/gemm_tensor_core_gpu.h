#pragma once
/// The product of gemm_tensor_core.h on a GPU, in tiles that the four warps of a block compute together. Of k,
/// kMmaStage at a time lie in shared memory as codes of 16 bits, two in a word; the next ones come from global memory
/// meanwhile. Behind the end of k lie zeros.
#include "kernels/ops/product_tiles_gpu.h"

namespace nanscope::kernels::NANSCOPE_ISA {

inline constexpr int kMmaStage = 32;
inline constexpr int kMmaQuads = kMmaStage / 4;  ///< four codes, two words, of a row of a stage
/// Words from a row to the next in shared memory: the 32 words that a warp reads of eight rows lie in different banks.
inline constexpr int kMmaPitch = kMmaStage / 2 + 4;
/// Of which a block brings a quad each at once.
inline constexpr int kMmaStagedRows = kBlockWarps * kLanes / kMmaQuads;

/// Two codes of bf16, the first in the lower half.
NANSCOPE_CALLED std::uint32_t bf16_pair(float first, float second) {
  return encode_bits<Format::bf16>(raw_bits(first), Overflow::overflow) |
         encode_bits<Format::bf16>(raw_bits(second), Overflow::overflow) << 16;
}

/// Four codes that lie in no quad, as 64 bits, the first lowest; 0 behind the `left` that there are. `codes`: as they
/// are, else rounded to bf16.
NANSCOPE_CALLED std::uint64_t codes_one_by_one(const char* from, Format format, bool codes, std::int64_t left) {
  std::uint64_t all = 0;
  _Pragma("unroll 1") for (int i = 0; i < 4 && i < left; ++i) {
    const TensorView one{const_cast<char*>(from) + i * float_bytes(format), format, 1, 1, 1};
    const std::uint32_t code =
        codes ? load_scalar(element_ptr<const std::uint16_t>(one, 0, 0)) : bf16_pair(load_float(one, 0, 0), 0.0F);
    all |= static_cast<std::uint64_t>(code) << (16 * i);
  }
  return all;
}

/// What this thread brings of a matrix: a quad of each of `Count` rows, kMmaStagedRows apart, and of every stage of k.
/// Rows beyond the last repeat it: no output is made of them.
template <int Count>
struct MmaRows {
  const char* from[Count];
  uint2 quads[Count];
  Format format;
  bool codes;  ///< as they are, else rounded to bf16
  bool whole;  ///< four of a row lie aligned as one

  NANSCOPE_FN int row() { return static_cast<int>(block_warp() * kLanes + lane_id()) / kMmaQuads; }
  NANSCOPE_FN int quad() { return static_cast<int>(lane_id() % kMmaQuads); }

  NANSCOPE_FN void begin(MmaRows& rows, const TensorView& view, Format operand, std::int64_t first_row) {
    rows.format = view.format;
    rows.codes = view.format == operand;
    rows.whole = has_quads(view);
    NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
      const std::int64_t at = first_row + row() + i * kMmaStagedRows;
      rows.from[i] = address_of(view, at < view.rows ? at : view.rows - 1, quad() * 4);
    }
  }

  /// The next stage; `left`: of k from where it begins.
  NANSCOPE_FN void fetch(MmaRows& rows, std::int64_t left) {
    const std::int64_t step = kMmaStage * float_bytes(rows.format);
    if (rows.whole && rows.codes && left >= kMmaStage) {
      NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
        rows.quads[i] = *reinterpret_cast<const uint2*>(rows.from[i]);
        rows.from[i] += step;
      }
      return;
    }
    if (rows.whole && rows.format == Format::f32 && left >= kMmaStage) {
      NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
        const float4 values = *reinterpret_cast<const float4*>(rows.from[i]);
        rows.quads[i] = make_uint2(bf16_pair(values.x, values.y), bf16_pair(values.z, values.w));
        rows.from[i] += step;
      }
      return;
    }
    NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
      const std::uint64_t all = codes_one_by_one(rows.from[i], rows.format, rows.codes, left - quad() * 4);
      rows.quads[i] = make_uint2(low_u32(all), high_u32(all));
      rows.from[i] += step;
    }
  }

  NANSCOPE_FN void put(const MmaRows& rows, std::uint32_t* stage) {
    std::uint32_t* to = stage + row() * kMmaPitch + quad() * 2;
    NANSCOPE_UNROLL for (int i = 0; i < Count; ++i) {
      *reinterpret_cast<uint2*>(to + i * kMmaStagedRows * kMmaPitch) = rows.quads[i];
    }
  }
};

/// 16 `RowTiles` rows by 8 `ColumnTiles` columns a warp, of which `RowWarps` lie below one another.
template <bool kHalf, int RowTiles, int ColumnTiles, int RowWarps>
struct MmaTile {
  static constexpr int kRows = 16 * RowTiles * RowWarps;
  static constexpr int kColumns = 8 * ColumnTiles * (kBlockWarps / RowWarps);
  static constexpr int kStageWords = (kRows + kColumns) * kMmaPitch;

  struct Sums {
    float of[RowTiles][ColumnTiles][4];
  };
  struct Place {
    std::int64_t row, column;  ///< first of the tile
  };

  NANSCOPE_FN int warp_row() { return static_cast<int>(block_warp()) % RowWarps * 16 * RowTiles; }
  NANSCOPE_FN int warp_column() { return static_cast<int>(block_warp()) / RowWarps * 8 * ColumnTiles; }

  /// The next 16 of k; `stage` begins at them.
  NANSCOPE_FN void add_step(const std::uint32_t* stage, Sums& sums) {
    const int group = static_cast<int>(lane_id()) / 4;
    const int in_group = static_cast<int>(lane_id()) % 4;
    const std::uint32_t* weights = stage + (kRows + warp_column() + group) * kMmaPitch + in_group;
    U32 b[ColumnTiles][2];
    NANSCOPE_UNROLL for (int c = 0; c < ColumnTiles; ++c) {
      b[c][0] = weights[c * 8 * kMmaPitch];
      b[c][1] = weights[c * 8 * kMmaPitch + 4];
    }
    const std::uint32_t* rows = stage + (warp_row() + group) * kMmaPitch + in_group;
    NANSCOPE_UNROLL for (int r = 0; r < RowTiles; ++r) {
      const std::uint32_t* upper = rows + r * 16 * kMmaPitch;
      const std::uint32_t* lower = upper + 8 * kMmaPitch;
      const U32 a[4] = {upper[0], lower[0], upper[4], lower[4]};
      NANSCOPE_UNROLL for (int c = 0; c < ColumnTiles; ++c) {
        if constexpr (kHalf) {
          mma_m16n8k16_f16(sums.of[r][c], a, b[c]);
        } else {
          mma_m16n8k16_bf16(sums.of[r][c], a, b[c]);
        }
      }
    }
  }

  NANSCOPE_FN void store_sums(const GemmTensorCoreArgs& args, const Place& place, const Sums& sums) {
    const std::int64_t first_row = place.row + warp_row() + lane_id() / 4;
    const std::int64_t first_column = place.column + warp_column() + lane_id() % 4 * 2;
    NANSCOPE_UNROLL for (int c = 0; c < ColumnTiles; ++c) {
      NANSCOPE_UNROLL for (int i = 0; i < 2; ++i) {
        const std::int64_t column = first_column + c * 8 + i;
        if (column >= args.out.columns) break;
        const float bias = args.bias.given() ? load_float(args.bias, 0, column) : -0.0F;  // -0: nothing is added
        NANSCOPE_UNROLL for (int r = 0; r < RowTiles; ++r) {
          NANSCOPE_UNROLL for (int half = 0; half < 2; ++half) {
            const std::int64_t row = first_row + r * 16 + half * 8;
            if (row < args.out.rows) store_element(args.out, row, column, sums.of[r][c][half * 2 + i] + bias);
          }
        }
      }
    }
  }

  /// `memory` has room for two stages.
  NANSCOPE_FN void run(const GemmTensorCoreArgs& args, std::int64_t index, std::uint32_t* memory) {
    constexpr Format kOperand = kHalf ? Format::f16 : Format::bf16;
    const std::int64_t row_tiles = div_up(args.out.rows, kRows);
    const Place place{index % row_tiles * kRows, index / row_tiles * kColumns};
    const std::int64_t depth = args.x.columns;
    // Of the whole warp: some have none at the edges of the outputs.
    const bool has_outputs = place.row + warp_row() < args.out.rows && place.column + warp_column() < args.out.columns;
    Sums sums;
    NANSCOPE_UNROLL for (int r = 0; r < RowTiles; ++r) {
      NANSCOPE_UNROLL for (int c = 0; c < ColumnTiles; ++c) {
        NANSCOPE_UNROLL for (int i = 0; i < 4; ++i) sums.of[r][c][i] = 0.0F;
      }
    }
    MmaRows<kRows / kMmaStagedRows> x;
    MmaRows<kColumns / kMmaStagedRows> weight;
    x.begin(x, args.x, kOperand, place.row);
    weight.begin(weight, args.weight, kOperand, place.column);
    x.fetch(x, depth);
    weight.fetch(weight, depth);
    block_sync();  // the tile before has been read
    x.put(x, memory);
    weight.put(weight, memory + kRows * kMmaPitch);
    block_sync();
    int current = 0;
    for (std::int64_t k = 0; k < depth; k += kMmaStage) {
      const bool more = k + kMmaStage < depth;
      if (more) {
        x.fetch(x, depth - k - kMmaStage);
        weight.fetch(weight, depth - k - kMmaStage);
      }
      const std::uint32_t* stage = memory + current * kStageWords;
      for (int step = 0; has_outputs && step < kMmaStage / 16 && k + step * 16 < depth; ++step) {
        add_step(stage + step * 8, sums);
      }
      current ^= 1;
      if (more) {
        x.put(x, memory + current * kStageWords);
        weight.put(weight, memory + current * kStageWords + kRows * kMmaPitch);
      }
      block_sync();
    }
    store_sums(args, place, sums);
  }
};

struct GemmTensorCore {
  using Args = GemmTensorCoreArgs;

  template <bool kHalf>
  using Large = MmaTile<kHalf, 4, 4, 2>;
  template <bool kHalf>
  using Small = MmaTile<kHalf, 1, 2, 1>;

  /// Words of two stages of the larger tile.
  static constexpr int kMemory = 2 * Large<false>::kStageWords;

  NANSCOPE_HOST std::int64_t tiles(const Args& args, int rows) {
    return div_up(args.out.rows, rows) * div_up(args.out.columns, Large<false>::kColumns);
  }
  /// Where there are rows for them, and tiles enough.
  NANSCOPE_HOST bool large(const Args& args) {
    return args.out.rows > Small<false>::kRows && tiles(args, Large<false>::kRows) >= kEnoughTiles;
  }
  NANSCOPE_HOST std::int64_t warps(const Args& args) {
    return kBlockWarps * tiles(args, large(args) ? Large<false>::kRows : Small<false>::kRows);
  }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) {
    return (large(args) ? Large<false>::kRows : Small<false>::kRows) * args.x.columns;
  }

  template <bool kHalf>
  NANSCOPE_FN void run_operand(const Args& args, std::int64_t tile, std::uint32_t* memory) {
    if (large(args)) return Large<kHalf>::run(args, tile, memory);
    Small<kHalf>::run(args, tile, memory);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    __shared__ uint2 memory[kMemory / 2];
    auto* words = reinterpret_cast<std::uint32_t*>(memory);
    const std::int64_t tile = warp / kBlockWarps;
    if (tensor_core_operand(args.x.format, args.weight.format) == Format::f16) {
      return run_operand<true>(args, tile, words);
    }
    run_operand<false>(args, tile, words);
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA

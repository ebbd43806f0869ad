#pragma once
/// Embedding lookup: row t of the output is row tokens[t] of the table, or, where tokens[t] is -1
/// (an image token), the next row of `patches` given by patch_rows[t].
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: tokens (T, 1) i32, patch_rows (T, 1) i32 or not given, table (V, D), patches (P, D) or
/// not given, positions (max, D) learned position table or not given (added at first_position + t), out (T, D).
struct EmbeddingArgs {
  TensorView tokens;
  TensorView patch_rows;
  TensorView table;
  TensorView patches;
  TensorView positions;
  TensorView out;
  std::int64_t first_position = 0;
};

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Embedding {
  using Args = EmbeddingArgs;

  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.out.columns; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    const std::int64_t token = read_index(args.tokens, row);
    const bool is_patch = token == -1 && args.patches.given() && args.patch_rows.given();
    const TensorView& from = is_patch ? args.patches : args.table;
    const std::int64_t source = is_patch ? read_index(args.patch_rows, row) : token;
    const bool known = source >= 0 && source < from.rows;
    const std::int64_t position = args.first_position + row;
    const bool placed = args.positions.given() && position >= 0 && position < args.positions.rows;
    for (std::int64_t column = 0; column < args.out.columns; column += kLanes) {
      F32 value = known ? load(from, source, column, 0.0F) : splat_f32(0.0F);
      if (placed) value = value + load(args.positions, position, column, -0.0F);
      store(args.out, row, column, value);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

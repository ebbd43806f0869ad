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

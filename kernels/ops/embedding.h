#pragma once
/// Embedding lookup: row t of the output is row tokens[t] of the table, or, where tokens[t] is -1
/// (an image token), the next row of `patches` given by patch_rows[t]. A row of the table is multiplied by `scale`
/// (Gemma: the root of D), a patch is not.
///
/// Rounding: one f32 product where scale is not 1, one f32 add where positions are given, one to out's format. NaN in
/// the table becomes the canonical NaN; -0 stays without positions. An index outside its table reads nothing and gives
/// a row of +0, a position outside adds nothing: indices come from a sampler that may answer -1.
/// Trap: a row of zeros is a healthy-looking answer to a wrong index.
#include "kernels/check.h"
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
  float scale = 1.0F;
};

inline Status check(const EmbeddingArgs& args) {
  ArgsCheck check("embedding");
  check.floats("out", args.out).format("tokens", args.tokens, {Format::i32});
  check.shape("tokens", args.tokens, args.out.rows, 1).given("table", args.table);
  check.shape("table", args.table, args.table.rows, args.out.columns);
  if (args.patch_rows.given()) {
    check.format("patch_rows", args.patch_rows, {Format::i32}).shape("patch_rows", args.patch_rows, args.out.rows, 1);
  }
  if (args.patches.given()) check.shape("patches", args.patches, args.patches.rows, args.out.columns);
  if (args.positions.given()) check.shape("positions", args.positions, args.positions.rows, args.out.columns);
  return check.done();
}

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
      if (args.scale != 1.0F && !is_patch) value = value * splat_f32(args.scale);
      if (placed) value = value + load(args.positions, position, column, -0.0F);
      store(args.out, row, column, value);
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

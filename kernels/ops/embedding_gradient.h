#pragma once
/// Gradient of a table that rows are looked up in: out[v] = scale * sum of dout[t] over the t with tokens[t] == v
/// (transpose of the lookup's 0/1 matrix). With positions in the place of tokens, that of a learned position table.
///
/// Order: t ascending from +0, one f32 rounding a term; then one product. A row that nobody names is scale * +0, which
/// is +0 of a scale that is not negative. An index outside of the table, as -1 for an image token, adds nothing.
/// NaN, Inf: IEEE's, and in the row of their token alone. Rows that nobody names are written too.
#include "kernels/check.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: tokens (T, 1) i32, dout (T, D) f32, f16 or bf16, out (V, D) f32.
struct EmbeddingGradientArgs {
  TensorView tokens;
  TensorView dout;
  TensorView out;
  float scale = 1.0F;
};

inline Status check(const EmbeddingGradientArgs& args) {
  ArgsCheck check("embedding_gradient");
  check.format("tokens", args.tokens, {Format::i32}).floats("dout", args.dout);
  check.format("out", args.out, {Format::f32});
  check.shape("tokens", args.tokens, args.dout.rows, 1).shape("out", args.out, args.out.rows, args.dout.columns);
  check.that(args.tokens.stride <= 0x7fffffff / 32, "tokens at most 67108863 elements apart");
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct EmbeddingGradient {
  using Args = EmbeddingGradientArgs;

  /// Warp = one row of the table: it looks at every token, 32 at a time.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.tokens.rows + args.out.columns; }

  /// The lanes of rows [first, first + 32) that name the row of the table.
  NANSCOPE_LANE std::uint32_t named(const Args& args, std::int64_t first, std::int64_t table_row) {
    const Mask valid = lanes_below(args.tokens.rows - first);
    const I32 at = to_i32(lane_id()) * splat_i32(static_cast<std::int32_t>(args.tokens.stride));
    const U32 token = gather_code(element_ptr<const std::uint32_t>(args.tokens, first, 0), at, valid);
    return ballot((token == splat_u32(static_cast<std::uint32_t>(table_row))) & valid);
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t table_row) {
    const TensorView& out = args.out;
    for (std::int64_t i = 0; i < out.columns; i += kLanes) store(out, table_row, i, splat_f32(0.0F));
    for (std::int64_t first = 0; first < args.tokens.rows; first += kLanes) {
      for (std::uint32_t lanes = named(args, first, table_row); lanes != 0; lanes &= lanes - 1) {
        const std::int64_t row = first + first_lane(lanes);
        for (std::int64_t i = 0; i < out.columns; i += kLanes) {
          store(out, table_row, i, load(out, table_row, i, 0.0F) + load(args.dout, row, i, 0.0F));
        }
      }
    }
    for (std::int64_t i = 0; i < out.columns; i += kLanes) {
      store(out, table_row, i, load(out, table_row, i, 0.0F) * splat_f32(args.scale));
    }
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

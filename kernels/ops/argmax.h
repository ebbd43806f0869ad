#pragma once
/// Argmax per row, and what it does when it meets NaN.
///
/// Order: none; ties go to the lowest index, -0 and +0 tie. Inf: an ordinary largest or smallest value.
/// Traps: a row of NaN answers 0 under first_greater, which is a perfectly legal token ("!" in GPT-2's
/// vocabulary): an answer of token 0 is no evidence that the logits were finite. Under first_greater
/// a NaN anywhere but in column 0 is passed over without a trace; a NaN in column 0 wins the row.
#include "kernels/check.h"
#include "kernels/choices.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, V), V >= 1, of any format, out (T, 1) i32. Ties: the lowest index.
struct ArgmaxArgs {
  TensorView x;
  TensorView out;
  ArgmaxNan nan = ArgmaxNan::first_greater;
};

inline Status check(const ArgmaxArgs& args) {
  ArgsCheck check("argmax");
  check.given("x", args.x).that(args.x.columns >= 1, "rows of at least one column");
  check.format("out", args.out, {Format::i32}).shape("out", args.out, args.x.rows, 1);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include <cmath>

#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Argmax {
  using Args = ArgmaxArgs;

  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.x.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.columns; }

  /// Lowest column whose lane satisfies `test`, -1 when none does.
  template <class Test>
  NANSCOPE_LANE std::int64_t first_column(const TensorView& x, std::int64_t row, const Test& test) {
    for (std::int64_t column = 0; column < x.columns; column += kLanes) {
      const Mask hit = test(load(x, row, column, 0.0F)) & lanes_below(x.columns - column);
      const std::uint32_t lanes = ballot(hit);
      if (lanes != 0) return column + first_lane(lanes);
    }
    return -1;
  }

  NANSCOPE_LANE std::int64_t best(const Args& args, std::int64_t row) {
    const std::int64_t nan = first_column(args.x, row, [](const F32& x) NANSCOPE_INLINE_LAMBDA { return is_nan(x); });
    if (nan >= 0 && args.nan == ArgmaxNan::refuse) return -1;
    if (nan >= 0 && args.nan == ArgmaxNan::propagate) return nan;
    if (nan == 0) return 0;  // nothing is greater than the NaN that stands first
    F32 lanes = splat_f32(-HUGE_VALF);
    for (std::int64_t column = 0; column < args.x.columns; column += kLanes) {
      lanes = max_ignore(lanes, load(args.x, row, column, -HUGE_VALF));
    }
    const F32 top = splat_f32(max_ignore_across(lanes));
    const std::int64_t found = first_column(args.x, row, [&](const F32& x) NANSCOPE_INLINE_LAMBDA { return x == top; });
    return found < 0 ? 0 : found;
  }

  NANSCOPE_LANE void run(const Args& args, std::int64_t row) {
    store_uniform(static_cast<std::int32_t*>(args.out.data) + row * args.out.stride,
                  static_cast<std::int32_t>(best(args, row)));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

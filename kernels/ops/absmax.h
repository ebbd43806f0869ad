#pragma once
/// Largest magnitude, for calibration: per tensor (out (1,1)) or per row (out (T,1)).
///
/// Order: none, a maximum has none. Starts at +0, so an empty or all-NaN row (rule ignore) gives 0.
/// NaN: by `nan`; propagate stores the canonical NaN. Inf: counts as the largest. -0: |-0| is +0.
/// Traps: PTX max and C's fmax drop NaN, x86's maxps answers its second operand, torch.amax
/// propagates: a scale calibrated by one rule and checked by another hides the fault.
/// One warp walks the whole tensor when out is (1,1): a maximum across warps would need an atomic.
#include "kernels/check.h"
#include "kernels/ops/softmax.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, D) of any format, out (T, 1) or (1, 1) f32. `nan` says whether a NaN shows in the result.
struct AbsmaxArgs {
  TensorView x;
  TensorView out;
  NanRule nan = NanRule::propagate;
};

inline Status check(const AbsmaxArgs& args) {
  ArgsCheck check("absmax");
  check.given("x", args.x).format("out", args.out, {Format::f32});
  check.shape("out", args.out, args.out.rows == 1 ? 1 : args.x.rows, 1);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct Absmax {
  using Args = AbsmaxArgs;

  /// Warp = one row, or the whole tensor when the result is one number: a maximum across warps
  /// would need an atomic.
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return args.out.rows; }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return args.x.elements() / args.out.rows; }

  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) {
    const bool propagate = args.nan == NanRule::propagate;
    const std::int64_t first = args.out.rows == 1 ? 0 : warp;
    const std::int64_t last = args.out.rows == 1 ? args.x.rows : warp + 1;
    F32 lanes = splat_f32(0.0F);
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t column = 0; column < args.x.columns; column += kLanes) {
        const F32 x = abs(load(args.x, row, column, 0.0F));
        lanes = propagate ? max_propagate(lanes, x) : max_ignore(lanes, x);
      }
    }
    const float top = propagate ? max_propagate_across(lanes) : max_ignore_across(lanes);
    store_range(args.out, warp, 0, 1, splat_f32(top));
  }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

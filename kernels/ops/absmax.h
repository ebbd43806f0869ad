#pragma once
/// Largest magnitude, for calibration: per tensor (out (1,1)) or per row (out (T,1)).
#include "kernels/tensor_view.h"
#include "kernels/ops/softmax.h"

namespace nanscope::kernels {

/// Shapes: x (T, D), out (T, 1) or (1, 1) f32. `nan` says whether a NaN shows in the result.
struct AbsmaxArgs {
  TensorView x;
  TensorView out;
  NanRule nan = NanRule::propagate;
};

}  // namespace nanscope::kernels

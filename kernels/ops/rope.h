#pragma once
/// Rotary position embedding (Su et al. 2021), half-split pairing as in GPT-NeoX and Llama:
/// channel i of a head is rotated with channel i + d/2 by angle position * base^(-2i/d).
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, heads * D); row t stands at first_position + t.
/// The angle is computed in f64 from own exp/log, reduced, its sine and cosine rounded to f32; the
/// rotation is x1*cos - x2*sin and x2*cos + x1*sin with one rounding an operation.
struct RopeArgs {
  TensorView x;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t first_position = 0;
  double base = 10000.0;
};

}  // namespace nanscope::kernels

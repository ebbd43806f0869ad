#pragma once
/// Cast between formats: out = encode(out.format, decode(x) / scale), or decode(x) * scale when `dequantise`.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, D), any formats.
struct CastArgs {
  TensorView x;
  TensorView out;
  float scale = 1.0F;
  bool dequantise = false;
  Overflow overflow = Overflow::saturate;
};

}  // namespace nanscope::kernels

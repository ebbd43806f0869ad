#pragma once
/// Matrix product with PyTorch's Linear layout: out[t, n] = sum_k x[t, k] * weight[n, k] (+ bias[n]).
/// Order contract: one fma chain an output, k ascending from +0, then one add for the bias, then
/// one rounding to out's format. Tiling never changes it.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, K) f32/f16/bf16; weight (N, K) f32/f16/bf16, or f32 panels made by pack_weight when
/// `packed` is given; bias (1, N) or not given; out (T, N).
/// packed: ceil(N/32) panels of (K, 32) f32, zero-padded: panel p holds weight[32p..32p+31, k] at row k.
struct GemmArgs {
  TensorView x;
  TensorView weight;
  TensorView packed;
  TensorView bias;
  TensorView out;
};

}  // namespace nanscope::kernels

#pragma once
/// Attention scores: out[t, h * S + s] = (sum_i q[t, h, i] * k[s, g, i]) * factor with g = h / (heads / kv_heads).
/// One fma chain over i ascending, then one multiply. Unmasked: the mask belongs to softmax.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: q (T, heads * D), k (S, kv_heads * D) f32, out (T, heads * S).
struct AttentionScoresArgs {
  TensorView q;
  TensorView k;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  float factor = 1.0F;
};

}  // namespace nanscope::kernels

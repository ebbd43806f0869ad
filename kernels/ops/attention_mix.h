#pragma once
/// Attention mix: out[t, h * D + i] = sum_s p[t, h * S + s] * v[s, g, i], one fma chain over s ascending from +0.
/// A probability of zero does not shield a NaN value: 0 * NaN is NaN.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: p (T, heads * S), v (S, kv_heads * D) f32, out (T, heads * D).
/// visible_only: the chain of row t runs over keys [first_key, first_position + t] alone (mask mode
/// select in kernels that skip masked values); else over all S keys.
struct AttentionMixArgs {
  TensorView p;
  TensorView v;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  bool visible_only = false;
};

}  // namespace nanscope::kernels

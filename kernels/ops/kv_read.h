#pragma once
/// KV read: gathers K or V of a context from the paged pool and dequantises: out = decode(code) * scale
/// in f32. What attention sees of the cache, stale slots included when the tail is read.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: pool as in kv_store; blocks (B, 1) i32: the request's block table; slot_scales as in kv_store, or
/// not given and `scale` is used for every slot; out (S, C) f32 with S = context rounded up to whole blocks
/// when the tail is read, else the context.
struct KvReadArgs {
  TensorView pool;
  TensorView blocks;
  TensorView slot_scales;
  TensorView out;
  std::int64_t block_size = 16;
  float scale = 1.0F;
};

}  // namespace nanscope::kernels

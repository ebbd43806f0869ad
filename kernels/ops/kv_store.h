#pragma once
/// KV store: quantises the new rows of K or V into their slots of the paged pool.
/// code = encode(format, x / scale); the division is correctly rounded f32.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x (T, C) with C = kv_heads * head_dim; pool: bytes of one layer's K or V, block-major:
/// slot s of block b starts at element (b * block_size + s) * C; slots (T, 1) i32: block * block_size + slot,
/// -1 is not written; scales (T, 1) f32 of each row's scale (per token policies) or (1, 1) for all rows;
/// slot_scales (blocks * block_size, 1) f32 or not given: the scale each slot was written with, kept for reading;
/// codes (T, C) in pool format or not given: a copy of what was stored, for the recording.
struct KvStoreArgs {
  TensorView x;
  TensorView pool;
  TensorView slots;
  TensorView scales;
  TensorView slot_scales;
  TensorView codes;
  Overflow overflow = Overflow::saturate;
};

}  // namespace nanscope::kernels

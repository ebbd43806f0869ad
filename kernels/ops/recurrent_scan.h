#pragma once
/// Gated linear recurrence, the state of a hybrid model's recurrent layer (a diagonal SSM):
/// h = decay * h + (1 - decay) * x[t], out[t] = h, t ascending; state is f32 in a block of the KV pool's memory.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: x, out (T, D); decay (1, D); state (1, D) f32, read when `resume`, written at the end.
struct RecurrentScanArgs {
  TensorView x;
  TensorView decay;
  TensorView state;
  TensorView out;
  bool resume = false;
};

}  // namespace nanscope::kernels

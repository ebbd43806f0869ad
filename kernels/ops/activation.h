#pragma once
/// Activations: silu x*sigmoid(x), gelu 0.5x(1+erf(x/sqrt 2)) (Hendrycks and Gimpel 2016), gelu_tanh
/// (their tanh form), swiglu silu(gate)*up (Shazeer 2020).
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

enum class ActivationKind : std::uint8_t { silu, gelu, gelu_tanh, swiglu };

/// Shapes: x (gate for swiglu), up (swiglu only), out: (T, D).
struct ActivationArgs {
  TensorView x;
  TensorView up;
  TensorView out;
  ActivationKind kind = ActivationKind::silu;
};

}  // namespace nanscope::kernels

#pragma once
/// Argmax per row, and what it does when it meets NaN.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// first_greater: best = 0, then strictly greater wins: an all-NaN row gives 0. propagate: the first
/// NaN wins (torch.argmax). refuse: -1 for a row that holds a NaN.
enum class ArgmaxNan : std::uint8_t { first_greater, propagate, refuse };

/// Shapes: x (T, V), out (T, 1) i32. Ties: the lowest index.
struct ArgmaxArgs {
  TensorView x;
  TensorView out;
  ArgmaxNan nan = ArgmaxNan::first_greater;
};

}  // namespace nanscope::kernels

#pragma once
/// Patch embedding (ViT, Dosovitskiy et al. 2021, eq. 1): out = patches * weight' + bias.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: patches (P, 3*p*p) f32, weight (D, 3*p*p), bias (1, D) or not given, out (P, D).
/// One fma chain an output in input order, then the bias with one rounding: as gemm.
struct PatchEmbeddingArgs {
  TensorView patches;
  TensorView weight;
  TensorView bias;
  TensorView out;
};

}  // namespace nanscope::kernels

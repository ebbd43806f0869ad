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

#ifdef NANSCOPE_ISA
#include "kernels/ops/gemm.h"
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

struct PatchEmbedding {
  using Args = PatchEmbeddingArgs;

  /// The same product as gemm, so that the order contract has one home.
  NANSCOPE_HOST GemmArgs product(const Args& args) {
    GemmArgs gemm;
    gemm.x = args.patches;
    gemm.weight = args.weight;
    gemm.bias = args.bias;
    gemm.out = args.out;
    return gemm;
  }
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return Gemm::warps(product(args)); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return Gemm::work_per_warp(product(args)); }
  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) { Gemm::run(product(args), warp); }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

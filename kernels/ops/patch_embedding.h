#pragma once
/// Patch embedding (ViT, Dosovitskiy et al. 2021, eq. 1): out = patches * weight' + bias.
///
/// Order, NaN, Inf: gemm's, whose source it runs: one fma chain an output in input order from +0, then the
/// bias, then one rounding to out's format.
#include "kernels/check.h"
#include "kernels/ops/gemm.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Shapes: patches (P, 3*p*p) f32, weight (D, 3*p*p), bias (1, D) or not given, out (P, D).
struct PatchEmbeddingArgs {
  TensorView patches;
  TensorView weight;
  TensorView bias;
  TensorView out;
};

/// The same product as a gemm, so that the order contract has one home.
constexpr GemmArgs as_gemm(const PatchEmbeddingArgs& args) {
  return {args.patches, args.weight, {}, args.bias, args.out};
}

inline Status check(const PatchEmbeddingArgs& args) {
  ArgsCheck check("patch_embedding");
  check.floats("patches", args.patches).floats("weight", args.weight).floats("out", args.out);
  check.shape("patches", args.patches, args.out.rows, args.weight.columns);
  check.shape("weight", args.weight, args.out.columns, args.patches.columns);
  if (args.bias.given()) check.floats("bias", args.bias).shape("bias", args.bias, 1, args.out.columns);
  return check.done();
}

}  // namespace nanscope::kernels

#ifdef NANSCOPE_ISA
namespace nanscope::kernels::NANSCOPE_ISA {

struct PatchEmbedding {
  using Args = PatchEmbeddingArgs;

#if defined(__CUDACC__)
  using Products = ProductForms<PatchEmbedding, FewWeights::f32_along_k, FewWeights::halves_along_k, FewWeights::each>;
  using Forms = Products::List;
  NANSCOPE_HOST ProductShape shape(const Args& args) { return Gemm::shape(as_gemm(args)); }
  NANSCOPE_HOST GemmProblem problem(const Args& args, std::int64_t batch) {
    return Gemm::problem(as_gemm(args), batch);
  }
  NANSCOPE_HOST int form(const Args& args) { return Products::form(args); }
#else
  NANSCOPE_LANE void run(const Args& args, std::int64_t warp) { Gemm::run(as_gemm(args), warp); }
#endif
  NANSCOPE_HOST std::int64_t warps(const Args& args) { return Gemm::warps(as_gemm(args)); }
  NANSCOPE_HOST std::int64_t work_per_warp(const Args& args) { return Gemm::work_per_warp(as_gemm(args)); }
};

}  // namespace nanscope::kernels::NANSCOPE_ISA
#endif

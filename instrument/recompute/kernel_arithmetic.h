#pragma once
#include <memory>

#include "instrument/recompute/arithmetic.h"

namespace nanscope {

/// Products by kernels of the engine on the CPU, with all its cores, sums in f32. Weights of f32, f16 and bf16 are read
/// once, where they lie (kernels/ops/dot_products.h); other formats, and weights that lie (in, out), are widened some
/// outputs at a time, the latter for kernels/ops/gemm.h. Where the machine cannot run kernels, plain loops do it.
class KernelArithmetic final : public Arithmetic {
 public:
  KernelArithmetic();
  ~KernelArithmetic() override;

  bool product(std::span<const float> x, std::int64_t rows, const MatrixView& weight, bool transposed,
               std::span<float> out, std::span<float> squares) override;

 private:
  struct Kernels;
  std::unique_ptr<Kernels> kernels_;  ///< none: the machine cannot run them
};

}  // namespace nanscope

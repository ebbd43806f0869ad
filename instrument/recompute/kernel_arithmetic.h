#pragma once
#include <memory>

#include "instrument/recompute/arithmetic.h"

namespace nanscope {

/// Products by the engine's own kernels on the CPU, with all its cores: f32 chains, k ascending (kernels/ops/gemm.h).
/// Weights of f32, f16 and bf16 are read where they lie; other formats, and weights that lie (in, out), are widened
/// some outputs at a time. Where the machine cannot run kernels, plain loops do it.
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

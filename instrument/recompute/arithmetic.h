#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/numbers/format.h"

namespace nanscope {

/// A matrix where it lies: rows by columns of one format, row-major, `stride` elements from one row to the next.
struct MatrixView {
  std::span<const std::byte> bytes;
  Format format = Format::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};

/// Products as the engine makes them. The recomputation does not know the kernels: whoever diagnoses hands them in
/// (kernel_arithmetic.h), tests may hand in plain loops. Everything else that is done again costs little and is done
/// in f32 and f64 right here, which keeps the bounds those of the dumped op alone.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;
  /// out[t, n] = sum over k of x[t, k] * weight[n, k], or weight[k, n] where it is transposed, with sums in f32 or
  /// wider; squares[n] = sum over k of the weights' squares. False when it cannot be done (out of memory).
  virtual bool product(std::span<const float> x, std::int64_t rows, const MatrixView& weight, bool transposed,
                       std::span<float> out, std::span<float> squares) = 0;
};

/// The same in plain loops, sums in f64.
class PlainArithmetic final : public Arithmetic {
 public:
  bool product(std::span<const float> x, std::int64_t rows, const MatrixView& weight, bool transposed,
               std::span<float> out, std::span<float> squares) override;
};

}  // namespace nanscope

#pragma once
#include <cstdint>
#include <span>

#include "core/result.h"
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// Floats that the panels of a weight (N, K) take: ceil(N/32) * K * 32.
constexpr std::int64_t packed_floats(std::int64_t n, std::int64_t k) { return (n + 31) / 32 * k * 32; }

/// The view of packed weights for GemmArgs::packed.
constexpr TensorView packed_view(float* panels, std::int64_t n, std::int64_t k) {
  return {panels, Format::f32, (n + 31) / 32 * k, 32, 32};
}

/// Reorders a weight (N, K) of any format, in host memory, into the f32 panels of GemmArgs::packed, also
/// in host memory. Fails when `panels` has another size than packed_floats(N, K).
Status pack_weight(const TensorView& weight, std::span<float> panels);

}  // namespace nanscope::kernels

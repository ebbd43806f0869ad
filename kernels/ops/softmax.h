#pragma once
/// Masked softmax over keys: p = exp(s - max) / sum, rows summed warp-strided with the butterfly.
#include "kernels/tensor_view.h"

namespace nanscope::kernels {

/// additive: s + 0 or s + (-Inf): a NaN score stays NaN under the mask. select: masked scores are
/// replaced by -Inf. multiply: exp of the raw score times 1 or 0, the row maximum runs over all keys.
enum class MaskMode : std::uint8_t { additive, select, multiply };
/// What a maximum does with NaN. propagate: any NaN gives NaN (torch). ignore: NaN is passed over
/// (fmax, PTX max): a NaN in the row then hides until the sum.
enum class NanRule : std::uint8_t { propagate, ignore };

/// Shapes: scores, out (T, heads * S). Row t may see keys [first_key, first_position + t].
/// A row with no visible key is computed like any other: -Inf - -Inf is NaN, 0/0 is NaN.
struct SoftmaxArgs {
  TensorView scores;
  TensorView out;
  std::int64_t heads = 1;
  std::int64_t first_position = 0;
  std::int64_t first_key = 0;
  MaskMode mask = MaskMode::additive;
  NanRule max_nan = NanRule::propagate;
};

}  // namespace nanscope::kernels

#pragma once

namespace nanscope {

/// A score at or below this value stands for a key that a mask hides. Additive masks in use hide by -1e4 (BERT and
/// older transformers), by the lowest number of f16 (-65504) or of f32, by -1e9 or by -Inf, and a score is added to
/// them; half of the weakest is below every sum of it with a score, and e^-5000 is 0 in every format.
inline constexpr double kHiddenScore = -5e3;

/// Whether a score that a mask was added to is hidden by it. NaN is not.
inline bool hidden_by_mask(double score) { return score <= kHiddenScore; }

}  // namespace nanscope

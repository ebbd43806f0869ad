#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

namespace nanscope {

/// A score at or below this value stands for a key that a mask hides. Additive masks in use hide by -1e4 (BERT and
/// older transformers), by the lowest number of f16 (-65504) or of f32, by -1e9 or by -Inf, and a score is added to
/// them; half of the weakest is below every sum of it with a score, and e^-5000 is 0 in every format.
inline constexpr double kHiddenScore = -5e3;

/// Whether a score that a mask was added to is hidden by it. NaN is not.
inline bool hidden_by_mask(double score) { return score <= kHiddenScore; }

/// Whether the ones of a mask of zeros and ones hide, as MPT's do. Its rows are the queries of sequences of `length`
/// tokens, of `width` keys each, the last of them their own: each query sees its own key, and one of padding may see
/// none.
template <class Number>
bool ones_hide(std::span<const Number> mask, std::int64_t width, std::int64_t length) {
  if (length <= 0 || length > width) return false;
  const std::int64_t rows = static_cast<std::int64_t>(mask.size()) / width;
  bool hide = false;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto line = mask.subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width));
    const std::int64_t ones = std::count_if(line.begin(), line.end(), [](Number one) { return one != 0; });
    const bool sees_itself = line[static_cast<std::size_t>(width - length + row % length)] == 0;
    if (!sees_itself && ones < width) return false;
    hide = hide || (sees_itself && ones > 0);
  }
  return hide;
}

}  // namespace nanscope

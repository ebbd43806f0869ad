#include "core/dump/recompute.h"

#include <algorithm>
#include <cmath>

namespace nanscope {

std::optional<LinearElement> linear_element(DumpFacts& facts, TensorIndex output, std::int64_t row,
                                            std::int64_t channel) {
  const std::optional<TensorIndex> input = facts.input_of(output);
  const std::optional<TensorIndex> weight = facts.of_module(output, "weight");
  if (!input || !weight) return std::nullopt;
  const std::int64_t width = facts.tensor(*input).channels();
  const std::int64_t channels = facts.tensor(output).channels();
  const DumpTensor& w = facts.tensor(*weight);
  const bool transposed = w.rows() == width && w.channels() == channels && w.rows() != w.channels();  // GPT-2's Conv1D
  if (!transposed && (w.rows() != channels || w.channels() != width)) return std::nullopt;
  const auto x = facts.values(*input);
  const auto weights = facts.values(*weight);
  if (!x || !weights || row >= facts.tensor(*input).rows()) return std::nullopt;
  LinearElement element;
  for (std::int64_t k = 0; k < width; ++k) {
    const auto at = static_cast<std::size_t>(transposed ? k * channels + channel : channel * width + k);
    const double term = double{(*x)[static_cast<std::size_t>(row * width + k)]} * double{(*weights)[at]};
    element.value += term;
    element.largest_term = std::max(element.largest_term, std::abs(term));
  }
  if (const auto bias = facts.of_module(output, "bias"); bias && facts.tensor(*bias).count() == channels) {
    if (const auto values = facts.values(*bias)) element.value += double{(*values)[static_cast<std::size_t>(channel)]};
  }
  return element;
}

}  // namespace nanscope

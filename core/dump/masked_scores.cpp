#include "core/dump/masked_scores.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>

namespace nanscope {
namespace {

/// Finite elements up to this part of a format's largest do not say that its neighbours overflowed: of numbers with a
/// variance, P(|x| > c) falls faster than c^-2, and the largest three are all 16 times as large as what the others stay
/// below in (16^-2)^3 = 6e-8 of all cases.
constexpr float kFarFromLargest = 1.0F / 16;
/// A single -Inf lies at a row's edge by chance. The smallest causal mask with two rows that it hides a part of is of 3
/// tokens, and hides 2 and 1.
constexpr std::int64_t kLeastHidden = 3;

/// How many elements of a row are -Inf; none where what is finite is not one range.
std::optional<std::int64_t> hidden_around_one_range(std::span<const float> row) {
  const auto hidden = [](float value) { return std::isinf(value); };
  const auto first = std::find_if_not(row.begin(), row.end(), hidden);
  const auto last = std::find_if_not(row.rbegin(), std::make_reverse_iterator(first), hidden).base();
  if (std::any_of(first, last, hidden)) return std::nullopt;
  return std::ssize(row) - (last - first);
}

}  // namespace

bool looks_masked(RunView& run, const Tensor& tensor) {
  const Health& health = tensor.health;
  const std::int64_t width = tensor.width();
  const bool whole_heads = width * std::max<std::int64_t>(1, tensor.heads) == tensor.channels;
  if (!tensor.known || tensor.stated || width < 2 || !whole_heads || health.neg_inf == 0 || health.nan > 0 ||
      health.pos_inf > 0)
    return false;
  if (health.absmax > info(tensor.format).max_finite * kFarFromLargest) return false;
  std::int64_t in_part = 0;  // rows of which some elements are hidden
  std::int64_t hidden = 0;
  bool masked = true;
  const bool read = run.each_block(tensor, [&](std::int64_t, std::span<const float> values) {
    for (; masked && !values.empty(); values = values.subspan(static_cast<std::size_t>(width))) {
      const auto count = hidden_around_one_range(values.first(static_cast<std::size_t>(width)));
      masked = count.has_value();
      hidden += count.value_or(0);
      in_part += masked && *count > 0 && *count < width ? 1 : 0;
    }
    return masked;
  });
  return read && masked && in_part > 1 && hidden >= kLeastHidden;
}

}  // namespace nanscope

#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace nanscope {

/// What a router makes of the logits of a token: softmax, sigmoids or the logits themselves (variants.h, Routing).
std::vector<double> scores_of(const float* logits, std::int64_t experts, int variant);

/// The first `top` by rank. Nothing where the last of them and the next are as good as equal: either may be chosen.
std::optional<std::vector<std::size_t>> chosen_by(const std::vector<double>& ranks, std::int64_t top, double rounding);

}  // namespace nanscope

#pragma once
#include <cstddef>
#include <optional>
#include <utility>

#include "instrument/diff/partners.h"

/// A few rows of two groups, to see whether they hold the same and how ranks are joined.
namespace nanscope::align {

/// Rows are the same tensor's where they are no further apart than this, relative to their size: of two unrelated
/// tensors, random vectors, it is near the square root of 2.
inline constexpr double kSameContent = 0.1;

/// How far some rows that meet are apart, relative to A's: the median of the rank where it is largest, of integers the
/// most. Infinite when none do.
double distance(Side& a, std::size_t in_a, const Part& part_a, Side& b, std::size_t in_b, const Part& part_b);

/// How the ranks of two groups are joined so that they have the same columns, by their shapes and, where these leave a
/// choice, by their values. Nothing when they cannot be. `stated`: what the user says of whichever has ranks.
std::optional<std::pair<Part, Part>> join_of(Side& a, std::size_t in_a, Side& b, std::size_t in_b,
                                             std::optional<Join> stated);

}  // namespace nanscope::align

#pragma once
#include <cstddef>

/// What tells a difference of log probabilities from noise; docs/thresholds.md says where each comes from.
namespace nanscope::server_probe {

inline constexpr double kTimesTypical = 32;
inline constexpr double kTimesLargest = 8;
inline constexpr double kLeastGap = 1e-2;
inline constexpr double kLeastLeak = 1e-3;
inline constexpr double kMostGap = 1.0;
inline constexpr double kUnmeasured = 0.25;
inline constexpr double kGlobalGap = 0.25;
inline constexpr std::size_t kFewestGaps = 8;
inline constexpr std::size_t kBlock = 32;
inline constexpr double kMostMass = 1 + 1e-3;

}  // namespace nanscope::server_probe

#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/health.h"

namespace nanscope::kernels {

/// What the tiles of one health scan say about the tensor and about each of its rows.
struct HealthSummary {
  Health tensor;
  std::vector<Health> rows;
};

/// Merges tiles (row-major, rows * tiles_per_row of them, host memory) in ascending order: a row's
/// sums are those of its tiles from the left, the tensor's those of all tiles. An empty tensor gives
/// empty_health().
HealthSummary summarize(std::span<const Health> tiles, std::int64_t rows, std::int64_t tiles_per_row);

}  // namespace nanscope::kernels

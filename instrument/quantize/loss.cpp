#include "instrument/quantize/loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "instrument/quantize/weight_loops.h"

namespace nanscope {
namespace {

constexpr auto kLanes = static_cast<std::int64_t>(kLossLanes);
constexpr float kOwns = 4;  ///< times every other element of the block

/// The largest and the second largest magnitude of a block.
struct Largest {
  float first = 0;
  float second = 0;
};

}  // namespace

void add_loss(std::span<const float> values, std::span<const float> stored, QuantizedWeight& to) {
  LossSums sums;
  std::size_t i = values.size() / kLossLanes * kLossLanes;
  weight_loops().loss(values.data(), stored.data(), i, sums);
  for (; i < values.size(); ++i) {
    const double off = double{values[i]} - stored[i];
    sums.signal[0] += double{values[i]} * values[i];
    sums.noise[0] += off * off;
    sums.flushed += values[i] != 0 && stored[i] == 0 ? 1 : 0;
  }
  for (std::size_t lane = 0; lane < kLossLanes; ++lane) {
    to.signal += sums.signal[lane];
    to.noise += sums.noise[lane];
  }
  to.flushed += sums.flushed;
}

void add_blocks(std::span<const float> values, std::int64_t columns, std::int64_t block_columns,
                std::span<const float> limits, QuantizedWeight& to) {
  to.blocks += static_cast<std::int64_t>(limits.size());
  if (columns % kLanes == 0 && block_columns % kLanes == 0) {
    BlockCounts counts;
    const auto rows = static_cast<std::int64_t>(values.size()) / columns;
    weight_loops().blocks(values.data(), rows, columns, block_columns, limits.data(), kOwns, counts);
    to.clipped += counts.clipped;
    to.owned += counts.owned;
    return;
  }
  std::vector<Largest> largest(limits.size());
  std::int64_t clipped = 0;
  const auto width = static_cast<std::size_t>(columns);
  const auto block = static_cast<std::size_t>(block_columns);
  for (std::size_t row = 0; row < values.size(); row += width) {
    for (std::size_t b = 0; b < limits.size(); ++b) {
      const std::size_t end = row + std::min(width, (b + 1) * block);
      Largest two = largest[b];
      for (std::size_t i = row + b * block; i < end; ++i) {
        const float size = std::abs(values[i]);
        clipped += size > limits[b] ? 1 : 0;
        two.second = std::max(two.second, std::min(two.first, size));
        two.first = std::max(two.first, size);
      }
      largest[b] = two;
    }
  }
  to.clipped += clipped;
  to.owned += std::count_if(largest.begin(), largest.end(),
                            [](const Largest& one) { return one.first > 0 && one.first >= kOwns * one.second; });
}

}  // namespace nanscope

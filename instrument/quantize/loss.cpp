#include "instrument/quantize/loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace nanscope {
namespace {

constexpr std::size_t kLanes = 16;
constexpr float kOwns = 4;  ///< times every other element of the block

/// The largest and the second largest magnitude of a block.
struct Largest {
  float first = 0;
  float second = 0;
};

}  // namespace

void add_loss(std::span<const float> values, std::span<const float> stored, QuantizedWeight& to) {
  double signal[kLanes] = {};
  double noise[kLanes] = {};
  std::int64_t flushed = 0;
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      const double off = value - stored[i + lane];
      signal[lane] += value * value;
      noise[lane] += off * off;
      flushed += values[i + lane] != 0 && stored[i + lane] == 0 ? 1 : 0;
    }
  }
  for (; i < values.size(); ++i) {
    const double off = double{values[i]} - stored[i];
    signal[0] += double{values[i]} * values[i];
    noise[0] += off * off;
    flushed += values[i] != 0 && stored[i] == 0 ? 1 : 0;
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    to.signal += signal[lane];
    to.noise += noise[lane];
  }
  to.flushed += flushed;
}

void add_blocks(std::span<const float> values, std::int64_t columns, std::int64_t block_columns,
                std::span<const float> limits, QuantizedWeight& to) {
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
  to.blocks += static_cast<std::int64_t>(limits.size());
  to.owned += std::count_if(largest.begin(), largest.end(),
                            [](const Largest& one) { return one.first > 0 && one.first >= kOwns * one.second; });
}

}  // namespace nanscope

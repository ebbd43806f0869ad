#pragma once
#include <cstdint>
#include <vector>

#include "instrument/spectral/interaction.h"

namespace nanscope {

/// The generator of oracle.py: values in [-1, 1), exact in f32.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}

  float next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<float>(state_ >> 40) * 0x1p-23F - 1;
  }

  /// rows x columns drawn row by row, as columns x rows.
  std::vector<float> transposed(std::int64_t rows, std::int64_t columns, float scale = 1) {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        values[static_cast<std::size_t>(column * rows + row)] = next() * scale;
      }
    }
    return values;
  }

 private:
  std::uint64_t state_;
};

}  // namespace nanscope

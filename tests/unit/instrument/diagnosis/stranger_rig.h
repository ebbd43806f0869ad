#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/unit/core/dump/memory_dump.h"
#include "tests/unit/instrument/diagnosis/found.h"

/// What tests of strangers' dumps share: matrices of f32 numbers, row by row.
namespace nanscope::testing {

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kWidth = 16;

using Matrix = std::vector<double>;

inline Matrix random(std::uint32_t seed, std::size_t count, double size = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, size);
  Matrix made(count);
  for (double& one : made) one = double{static_cast<float>(normal(engine))};
  return made;
}

/// Element by element, as f32 has it.
inline Matrix sum(const Matrix& a, const Matrix& b) {
  Matrix made(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) made[i] = double{static_cast<float>(a[i] + b[i])};
  return made;
}

}  // namespace nanscope::testing

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

/// x W', with the sums in double.
inline Matrix product(const Matrix& x, const Matrix& w, std::int64_t rows) {
  const auto inputs = static_cast<std::int64_t>(x.size()) / rows;
  const auto outputs = static_cast<std::int64_t>(w.size()) / inputs;
  Matrix made;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t n = 0; n < outputs; ++n) {
      double all = 0;
      for (std::int64_t k = 0; k < inputs; ++k)
        all += x[static_cast<std::size_t>(r * inputs + k)] * w[static_cast<std::size_t>(n * inputs + k)];
      made.push_back(all);
    }
  }
  return made;
}

}  // namespace nanscope::testing

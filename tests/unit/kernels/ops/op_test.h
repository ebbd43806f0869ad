#pragma once
/// Host matrices as views, for tests on the CPU device, and the double-precision helpers they share.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "kernels/tensor_view.h"
#include "tests/unit/kernels/ops/case_data.h"

namespace nanscope::kernels::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr std::uint32_t kCanonical = 0x7fffffffU;

template <class T>
constexpr Format format_of() {
  if constexpr (std::is_same_v<T, float>) return Format::f32;
  if constexpr (std::is_same_v<T, std::int32_t>) return Format::i32;
  if constexpr (std::is_same_v<T, std::uint16_t>) return Format::bf16;
  return Format::e4m3;
}

template <class T>
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<T> data;
  Format format = format_of<T>();

  Matrix(std::int64_t r, std::int64_t c, T value = T{})
      : rows(r), columns(c), data(static_cast<std::size_t>(r * c), value) {}
  Matrix(std::int64_t r, std::int64_t c, std::vector<T> values) : rows(r), columns(c), data(std::move(values)) {}

  T& at(std::int64_t row, std::int64_t column) { return data[static_cast<std::size_t>(row * columns + column)]; }
  const T& at(std::int64_t row, std::int64_t column) const {
    return data[static_cast<std::size_t>(row * columns + column)];
  }
  TensorView view() { return {data.data(), format, rows, columns, columns}; }
};
using Floats = Matrix<float>;
using Indices = Matrix<std::int32_t>;

/// Uniform values in (-amplitude, amplitude).
inline Floats random_floats(std::int64_t rows, std::int64_t columns, std::uint64_t seed, float amplitude = 1.0F) {
  Floats matrix(rows, columns);
  cases::Sequence sequence(seed);
  for (float& value : matrix.data) value = sequence.next() * amplitude;
  return matrix;
}

/// The fastest CPU build with two threads; the case table shows that the choice does not matter.
inline Device& cpu() {
  static const std::unique_ptr<Device> device = [] {
    auto made = make_cpu_device(Isa::best, 2);
    return made ? *std::move(made) : nullptr;
  }();
  return *device;
}

template <class Args>
void launch(const Args& args) {
  const Status status = cpu().launch(args);
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_TRUE(cpu().synchronize());
}

inline std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float from_bits(std::uint32_t value) { return std::bit_cast<float>(value); }

}  // namespace nanscope::kernels::test

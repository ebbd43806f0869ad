#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/numbers/codec.h"
#include "core/numbers/format.h"

/// The few numbers that the corpus' server computes with: rows of f32 that are rounded where a server stores them.
namespace nanscope::corpus {

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}

  float& at(std::int64_t row, std::int64_t col) { return values[static_cast<std::size_t>(row * cols + col)]; }
  float at(std::int64_t row, std::int64_t col) const { return values[static_cast<std::size_t>(row * cols + col)]; }
  std::span<float> row(std::int64_t r) {
    return std::span(values).subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols));
  }
  std::span<const float> row(std::int64_t r) const {
    return std::span(values).subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols));
  }
};

/// What remains of a value that a server keeps in `format`: too large becomes Inf or NaN.
inline float stored(Format format, float value) { return decode(format, encode(format, value, Overflow::overflow)); }

/// Largest magnitude; NaN is passed over, as the absmax kernels of servers do.
float absmax(std::span<const float> values);

/// `rows` x `cols` standard normals times `scale`, rounded to `format`. Every name has numbers of its own.
Matrix normal(std::uint64_t seed, std::string_view name, std::int64_t rows, std::int64_t cols, double scale,
              Format format);
/// One number in [0, below).
std::int64_t draw(std::uint64_t seed, std::string_view name, std::int64_t below);

}  // namespace nanscope::corpus

#include "tests/corpus/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace nanscope::corpus {
namespace {

std::size_t scale_count(const Quantized& q) {
  switch (q.cast.sharing) {
    case Sharing::tensor:
      return 1;
    case Sharing::row:
      return static_cast<std::size_t>(q.rows);
    case Sharing::channel:
      return static_cast<std::size_t>(q.cols);
    case Sharing::block:
      return static_cast<std::size_t>(q.rows * ((q.cols + q.cast.block - 1) / q.cast.block));
  }
  return 1;
}

void compute_scales(Quantized& q, const Matrix& values) {
  if (q.cast.given) {
    q.scales = {*q.cast.given};
    return;
  }
  q.scales.assign(scale_count(q), 0.0F);
  for (std::int64_t r = 0; r < q.rows; ++r) {
    for (std::int64_t c = 0; c < q.cols; ++c) {
      const float magnitude = std::abs(values.at(r, c));
      float& largest = q.scales[q.scale_of(r, c)];
      if (magnitude > largest) largest = magnitude;
    }
  }
  for (float& scale : q.scales) {
    scale /= q.cast.divisor;
    if (q.cast.power_of_two && scale > 0) scale = std::exp2(std::ceil(std::log2(scale)));
  }
}

}  // namespace

std::size_t Quantized::scale_of(std::int64_t row, std::int64_t col) const {
  switch (cast.sharing) {
    case Sharing::tensor:
      return 0;
    case Sharing::row:
      return static_cast<std::size_t>(row);
    case Sharing::channel:
      return static_cast<std::size_t>(col);
    case Sharing::block:
      return static_cast<std::size_t>(row * ((cols + cast.block - 1) / cast.block) + col / cast.block);
  }
  return 0;
}

std::vector<std::int64_t> Quantized::scale_shape() const {
  switch (cast.sharing) {
    case Sharing::tensor:
      return {1};
    case Sharing::row:
      return {rows, 1};
    case Sharing::channel:
      return {1, cols};
    case Sharing::block:
      return {rows, (cols + cast.block - 1) / cast.block};
  }
  return {1};
}

Quantized quantize(const Matrix& values, const Cast& cast) {
  Quantized q{values.rows, values.cols, cast, {}, {}, 0};
  compute_scales(q, values);
  const double largest = info(cast.format).max_finite;
  q.codes.reserve(values.values.size());
  for (std::int64_t r = 0; r < q.rows; ++r) {
    for (std::int64_t c = 0; c < q.cols; ++c) {
      const float scale = q.scales[q.scale_of(r, c)];
      // Quantizers guard blocks of zeros; a scale that somebody else computed is divided by as it is.
      const bool zeros = scale == 0 && !cast.given;
      const float scaled = zeros ? 0.0F : values.at(r, c) / scale;
      if (std::isfinite(values.at(r, c)) && std::abs(double{scaled}) > 1.04 * largest) ++q.clipped;
      q.codes.push_back(encode(cast.format, scaled, cast.overflow));
    }
  }
  return q;
}

float applied(float scale, int power) {
  float out = 1;
  for (int i = 0; i < std::abs(power); ++i) out = power > 0 ? out * scale : out / scale;
  return out;
}

Matrix dequantize(const Quantized& held, Format format, int power) {
  Matrix out(held.rows, held.cols);
  for (std::int64_t r = 0; r < held.rows; ++r) {
    for (std::int64_t c = 0; c < held.cols; ++c) {
      const std::uint32_t code = held.codes[static_cast<std::size_t>(r * held.cols + c)];
      out.at(r, c) = decode(format, code) * applied(held.scales[held.scale_of(r, c)], power);
    }
  }
  return out;
}

}  // namespace nanscope::corpus

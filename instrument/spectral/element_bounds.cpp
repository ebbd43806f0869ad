#include "instrument/spectral/element_bounds.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace nanscope {
namespace {

/// In four sums, none of which waits for another.
double dot(const float* a, const float* b, std::int64_t width) {
  std::array<double, 4> sums{};
  std::int64_t i = 0;
  for (; i + 4 <= width; i += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane) {
      const std::size_t at = static_cast<std::size_t>(i) + lane;
      sums[lane] += double{a[at]} * double{b[at]};
    }
  }
  for (; i < width; ++i) sums[0] += double{a[i]} * double{b[i]};
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// Spectral norm of two rows with these products.
double norm_of_pair(double aa, double bb, double ab) {
  return std::sqrt((aa + bb) / 2 + std::hypot((aa - bb) / 2, ab));
}

/// What bounds one channel, two that are turned into each other, or all: w and b of w . x + b.
struct Channel {
  double norm = 0;
  double bias = 0;
};

class HeadRows {
 public:
  HeadRows(std::span<const float> rows, std::span<const float> bias, std::int64_t width, std::int64_t first)
      : rows_(rows), bias_(bias), width_(width), first_(first) {}

  Channel one(std::int64_t i) const { return {std::sqrt(product(i, i)), std::abs(bias(i))}; }
  Channel pair(std::int64_t i, std::int64_t j) const {
    return {norm_of_pair(product(i, i), product(j, j), product(i, j)), std::hypot(bias(i), bias(j))};
  }
  Channel all(std::int64_t count) const {
    double squares = 0;
    double biases = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      squares += product(i, i);
      biases += bias(i) * bias(i);
    }
    return {std::sqrt(squares), std::sqrt(biases)};
  }

 private:
  const float* row(std::int64_t i) const { return rows_.data() + (first_ + i) * width_; }
  double product(std::int64_t i, std::int64_t j) const { return dot(row(i), row(j), width_); }
  double bias(std::int64_t i) const { return bias_.empty() ? 0 : double{bias_[static_cast<std::size_t>(first_ + i)]}; }

  std::span<const float> rows_;
  std::span<const float> bias_;
  std::int64_t width_;
  std::int64_t first_;
};

}  // namespace

std::vector<ElementBounds> element_bounds(std::span<const float> rows, std::span<const float> bias, std::int64_t width,
                                          const ElementForm& form, double alpha) {
  const double length = std::sqrt(static_cast<double>(width));
  const auto heads = static_cast<std::int64_t>(rows.size()) / (width * form.head_dim);
  std::vector<ElementBounds> bounds(static_cast<std::size_t>(heads));
  for (std::int64_t head = 0; head < heads; ++head) {
    const HeadRows channels(rows, bias, width, head * form.head_dim);
    ElementBounds& bound = bounds[static_cast<std::size_t>(head)];
    const auto take = [&](const Channel& channel, double amplitude) {
      bound.worst_case = std::max(bound.worst_case, amplitude * (channel.norm * length + channel.bias));
      bound.calibrated = std::max(bound.calibrated, amplitude * (alpha * channel.norm * length + channel.bias));
    };
    if (form.all_mixed) {
      take(channels.all(form.head_dim), std::max(1.0, form.amplitude));
      continue;
    }
    for (std::int64_t i = 0; i < form.pairs; ++i) take(channels.pair(i, i + form.pairs), form.amplitude);
    for (std::int64_t i = 2 * form.pairs; i < form.head_dim; ++i) take(channels.one(i), 1);
  }
  return bounds;
}

std::vector<ElementBounds> element_bounds_of_norm(std::span<const float> gain, std::int64_t heads,
                                                  const ElementForm& form) {
  const double length = std::sqrt(static_cast<double>(gain.size()));
  const bool each = std::ssize(gain) == form.head_dim;
  std::vector<ElementBounds> bounds(static_cast<std::size_t>(heads));
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto own = gain.subspan(static_cast<std::size_t>(each ? 0 : head * form.head_dim),
                                  static_cast<std::size_t>(form.head_dim));
    double largest = 0;
    for (std::int64_t i = 0; i < form.head_dim; ++i) {
      const bool turned = i < 2 * form.pairs || form.all_mixed;
      const double amplitude = form.all_mixed ? std::max(1.0, form.amplitude) : turned ? form.amplitude : 1;
      largest = std::max(largest, amplitude * std::abs(double{own[static_cast<std::size_t>(i)]}));
    }
    bounds[static_cast<std::size_t>(head)] = {largest * length, largest * length, 0};
  }
  return bounds;
}

}  // namespace nanscope

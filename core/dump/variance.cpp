#include "core/dump/variance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace nanscope {
namespace {

using Sum = float (*)(std::span<const float>);

float sequential(std::span<const float> terms) {
  float sum = 0;
  for (const float term : terms) sum += term;
  return sum;
}

float pairwise(std::span<const float> terms) {
  if (terms.size() == 1) return terms.front();
  if (terms.empty()) return 0;
  const std::size_t half = terms.size() / 2;
  return pairwise(terms.first(half)) + pairwise(terms.subspan(half));
}

/// As a GPU's warp does: a strided sum a lane, then a butterfly.
float over_lanes(std::span<const float> terms) {
  std::array<float, 32> lanes{};
  for (std::size_t i = 0; i < terms.size(); ++i) lanes[i % 32] += terms[i];
  for (std::size_t step = 16; step > 0; step /= 2) {
    for (std::size_t lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
  }
  return lanes[0];
}

struct Order {
  std::string_view plain;
  std::string_view reciprocal;
  std::string_view fused;
  Sum sum;
};

constexpr std::array kOrders = {
    Order{"one pass, summed in sequence", "one pass, summed in sequence, times 1/n",
          "one pass, summed in sequence, fused", sequential},
    Order{"one pass, summed pairwise", "one pass, summed pairwise, times 1/n", "one pass, summed pairwise, fused",
          pairwise},
    Order{"one pass, summed over 32 lanes", "one pass, summed over 32 lanes, times 1/n",
          "one pass, summed over 32 lanes, fused", over_lanes},
};

}  // namespace

double two_pass_variance(std::span<const float> row) {
  if (row.empty()) return 0;
  double mean = 0;
  for (const float x : row) mean += double{x};
  mean /= static_cast<double>(row.size());
  double sum = 0;
  for (const float x : row) sum += (double{x} - mean) * (double{x} - mean);
  return sum / static_cast<double>(row.size());
}

OnePassVariances one_pass_variances(std::span<const float> row) {
  std::vector<float> squares(row.size());
  std::transform(row.begin(), row.end(), squares.begin(), [](float x) { return x * x; });
  const auto n = static_cast<float>(row.size());
  OnePassVariances out{{"", std::numeric_limits<float>::infinity()}, {"", -std::numeric_limits<float>::infinity()}};
  const auto offer = [&](std::string_view name, float value) {
    if (value < out.lowest.value) out.lowest = {name, value};
    if (value > out.highest.value) out.highest = {name, value};
  };
  for (const Order& order : kOrders) {
    const float sum = order.sum(row);
    const float sum_of_squares = order.sum(squares);
    const float mean = sum / n;
    offer(order.plain, sum_of_squares / n - mean * mean);
    offer(order.fused, std::fma(-mean, mean, sum_of_squares / n));
    const float reciprocal_mean = sum * (1 / n);
    offer(order.reciprocal, sum_of_squares * (1 / n) - reciprocal_mean * reciprocal_mean);
  }
  return out;
}

double one_pass_error(std::span<const float> row) {
  double squares = 0;
  for (const float x : row) squares += double{x} * double{x};
  // A sequential sum of n equal terms is off by up to n/2 half units in the last place of the sum.
  constexpr double kHalfUlp = std::numeric_limits<float>::epsilon() / 2;
  return kHalfUlp * squares;
}

}  // namespace nanscope

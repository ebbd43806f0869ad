#include "instrument/spectral/concentration.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace nanscope {
namespace {

/// The tail's exponent of a projection that is `gamma` times as long as expected; 0 at 1, and growing from there.
double exponent(double gamma) { return gamma - 1 - std::log(gamma); }

double log_of(double count, double delta) { return std::log(count) - std::log(delta); }

double real(std::int64_t value) { return static_cast<double>(value); }

/// ln of N T1 (10) and of N T2 (11): nothing underflows.
double log_atypical(const TailShape& shape, double gamma) {
  return std::log(real(shape.heads)) + std::log(real(shape.length)) - real(shape.head_dim) / 2 * exponent(gamma);
}
double log_beyond(const TailShape& shape, double alpha, double gamma) {
  const double reach = real(shape.width) * alpha;
  return std::log(2 * real(shape.heads)) + 2 * std::log(real(shape.length)) -
         reach * reach / (2 * gamma * real(shape.head_dim));
}

constexpr std::array kPublished = {
    PublishedShape{"gpt2-xl", 48, 25, {1600, 64, 1200, 1024}, 2.98, 0.074, 0.08, 83.1, 483.9, 55.8},
    PublishedShape{"mistral-7b", 32, 32, {4096, 128, 1024, 1024}, 2.26, 0.035, 0.04, 4.9, 46.8, 2.4},
    PublishedShape{"llama-2-13b", 40, 40, {5120, 128, 1600, 1024}, 2.28, 0.028, 0.03, 198.4, 463.5, 134.4},
    PublishedShape{"llama-2-70b", 80, 64, {8192, 128, 5120, 1024}, 2.32, 0.018, 0.02, 584.2, 1786.1, 264.6},
};

}  // namespace

double typicality(const TailShape& shape, double delta) {
  const double wanted = 2 / real(shape.head_dim) * log_of(2 * real(shape.heads) * real(shape.length), delta);
  double low = 1;
  double high = 2;
  while (exponent(high) < wanted) high *= 2;
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    (exponent(middle) < wanted ? low : high) = middle;
  }
}

double smallest_alpha(const TailShape& shape, double delta) {
  const double pairs = log_of(4 * real(shape.heads) * real(shape.length) * real(shape.length), delta);
  return std::sqrt(2 * typicality(shape, delta) * real(shape.head_dim) * pairs) / real(shape.width);
}

double smallest_element_alpha(const TailShape& shape, double delta) {
  const double elements = log_of(4 * real(shape.heads) * real(shape.head_dim) * real(shape.length), delta);
  return std::sqrt(2 * elements / real(shape.width));
}

double overflow_chance(const TailShape& shape, double alpha) {
  const auto balance = [&](double gamma) { return log_atypical(shape, gamma) - log_beyond(shape, alpha, gamma); };
  double low = 1;
  double high = 2;
  while (balance(high) > 0 && high < 1e9) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = low + (high - low) / 2;
    (balance(middle) > 0 ? low : high) = middle;
  }
  return std::min(1.0, std::exp(log_atypical(shape, high)) + std::exp(log_beyond(shape, alpha, high)));
}

std::span<const PublishedShape> published_shapes() { return kPublished; }

}  // namespace nanscope

#include "instrument/diff/chances.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace nanscope::align {
namespace {

constexpr double kMadOfNormal = 1.4826;  ///< 1 / 0.6745, the third quartile of a normal distribution
constexpr double kMadEfficiency = 0.37;  ///< against the standard deviation
constexpr double kFar = 60;
constexpr int kPieces = 500;  ///< of an integral

double median_of(std::vector<double>& numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace

double student_tail(double t, double freedom) {
  if (!(t > 0)) return 1;
  // With t = sqrt(freedom) tan(a), the density is cos(a)^(freedom - 1) up to a factor.
  const double begin = std::atan(t / std::sqrt(freedom));
  // Beyond so many deviations there is nothing left.
  const double end = std::min(std::numbers::pi / 2, begin + kFar / std::sqrt(freedom));
  const double log_factor = std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2) - std::log(std::numbers::pi) / 2;
  const double width = (end - begin) / kPieces;
  double sum = 0;
  for (int i = 0; i < kPieces; ++i) {
    sum += std::exp(log_factor + (freedom - 1) * std::log(std::cos(begin + (i + 0.5) * width)));
  }
  return std::min(1.0, sum * width);
}

Robust robust(std::vector<double> numbers) {
  Robust made;
  made.freedom = std::max(1.0, kMadEfficiency * (static_cast<double>(numbers.size()) - 1));
  made.median = median_of(numbers);
  for (double& number : numbers) number = std::abs(number - made.median);
  made.deviation = kMadOfNormal * median_of(numbers);
  return made;
}

}  // namespace nanscope::align

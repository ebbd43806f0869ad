#pragma once
#include <cmath>
#include <cstdint>

#include "core/numbers/format.h"

/// How far rounding can move a result: the bounds within which a recomputed element counts as explained.
///
/// A value stored in a format of precision p is off by at most u = 2^-p of itself (Higham, Accuracy and Stability of
/// Numerical Algorithms, 2nd ed., theorem 2.2). A sum of n products in f32 is off by at most gamma_n = n u / (1 - n u)
/// times the sum of magnitudes (ibid., 3.5), and with high probability by lambda sqrt(n) u times it (Higham and Mary, A
/// New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4); the sum of
/// magnitudes is at most the product of the two vectors' norms. Real kernels keep to the second, whatever the order of
/// their sums. It is used where the output's own rounding is wider. Where the output is f32, the variance of the
/// roundings is used (sum_deviation), which needs the squares of the products.
namespace nanscope {

inline constexpr double kF32 = 0x1p-24;

/// Relative error of one rounding to a format, 0 for integers.
inline double roundoff(Format format) {
  if (format == Format::i32 || format == Format::int8) return 0;
  return std::ldexp(1.0, -info(format).mantissa_bits - 1);
}

/// Relative error of a sum of `terms` products in a format of unit roundoff `u`, to be taken of the product of norms.
inline double sum_error(std::int64_t terms, double u) {
  constexpr double kLambda = 4;
  return kLambda * std::sqrt(static_cast<double>(terms) + 1) * u;
}

/// Standard deviation, at most, of the rounding of a sum of products in f32, whatever the order of its terms: rounding
/// k is uniform within u of the partial sum s_k, so that the variance is u^2 / 3 times the sum of all s_k^2. Of terms
/// in random order, s_k^2 is on average at most k / n times the squares of the terms (a walk) plus (k / n)^2 times the
/// square of the sum (its drift). `squares`: the sum of the squares of the products.
inline double sum_deviation(std::int64_t terms, double squares, double sum) {
  const auto n = static_cast<double>(terms);
  return kF32 * std::sqrt((n * squares / 2 + n * sum * sum / 3) / 3);
}

/// Standard deviations within which rounding stays: 2 of 10^9 numbers of a normal distribution lie outside.
inline constexpr double kDeviations = 6;

/// The largest mean square of `count` independent errors in units of their standard deviation: that of chi-square at as
/// many deviations (Wilson and Hilferty, The Distribution of Chi-Square, PNAS 17, 1931).
inline double largest_mean_square(std::int64_t count) {
  const double variance = 2.0 / (9.0 * static_cast<double>(count));
  return std::pow(1 - variance + kDeviations * std::sqrt(variance), 3);
}

/// By how much two runs of one model may differ in a tensor that `depth` ops lead to, of the largest element of a row:
/// each op rounds its result once, with unit roundoff `u`, and sums up to `terms` products in f32, in each run, and
/// errors of independent roundings grow as the root of their number (Higham and Mary, theorem 2.4).
inline double rounding_between_runs(double u, std::int64_t depth, std::int64_t terms) {
  return 2 * std::sqrt(static_cast<double>(depth) + 1) * (u + sum_error(terms, kF32));
}

/// Absolute error of one rounding near zero: half of the smallest number that a format has.
inline double least_error(Format format) {
  const FormatInfo& row = info(format);
  return double{row.min_subnormal > 0 ? row.min_subnormal : row.min_normal} / 2;
}

/// The same of a sum of products in f32, each of which may fall between two subnormal numbers.
inline double least_error_of_sum(Format format, std::int64_t products) {
  return least_error(format) + static_cast<double>(products) * 0x1p-149;
}

}  // namespace nanscope

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
/// magnitudes is at most the product of the two vectors' norms. The second is used: it is what real kernels keep to,
/// whatever their order of sums.
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

/// By how much two runs of one model may differ in a tensor that `depth` ops lead to, of the largest element of a row:
/// each op rounds its result once to the format and sums up to `terms` products in f32, in each run, and errors of
/// independent roundings grow as the root of their number (Higham and Mary, theorem 2.4).
inline double rounding_between_runs(Format format, std::int64_t depth, std::int64_t terms) {
  return 2 * std::sqrt(static_cast<double>(depth) + 1) * (roundoff(format) + sum_error(terms, kF32));
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

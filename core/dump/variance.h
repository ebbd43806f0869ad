#pragma once
#include <optional>
#include <span>
#include <string_view>

/// The variance of one row, in the forms and orders in which norms compute it.
namespace nanscope {

struct VarianceForm {
  std::string_view name;  ///< "one pass, sequential"
  float value = 0;
};

/// Mean of squared distances from the mean, in double: never negative.
double two_pass_variance(std::span<const float> row);
/// E[x^2] - E[x]^2 in f32: sums in sequence, pairwise, over 32 lanes; with and without a fused multiply-add of the last
/// step, and dividing or multiplying by 1/n. The smallest is first.
struct OnePassVariances {
  VarianceForm lowest;
  VarianceForm highest;
};
OnePassVariances one_pass_variances(std::span<const float> row);

/// How large the rounding of a one-pass variance can be in f32: n additions of squares of the mean's size.
double one_pass_error(std::span<const float> row);

}  // namespace nanscope

#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"

/// Least squares in closed form, in double and in one fixed order of operations: the same bits on
/// every machine, which a linear-algebra library does not promise.
namespace nanscope {

/// Solves (X'X + lambda I) W = X'Y for a one-hot Y: the linear map from features to classes that
/// minimises the squared error plus lambda times the squared norm of W (Hoerl and Kennard, "Ridge
/// regression", Technometrics 12(1), 1970). Cholesky factorisation in double, sums in row order.
///
/// features: n x d, row-major f32, finite. classes: n, each in [0, class_count). lambda > 0.
/// Returns W, d x class_count, row-major f32: scores = x W. A head laid out as out x in is its
/// transpose. Errors: sizes that do not fit, a class out of range, a value that is not finite, a
/// matrix that is not positive definite.
Result<std::vector<float>> ridge_classes(std::span<const float> features, std::int64_t dimensions,
                                         std::span<const std::int32_t> classes, std::int64_t class_count,
                                         double lambda);

/// Replaces the lower triangle of the symmetric positive definite `matrix` (n x n, row-major) by its
/// Cholesky factor L, matrix = L L'; the part above the diagonal is neither read nor written.
Status cholesky(std::span<double> matrix, std::int64_t n);

/// Solves L L' X = B in place, for the factor that cholesky() made and B of n x columns, row-major.
void cholesky_solve(std::span<const double> factor, std::int64_t n, std::span<double> right_side, std::int64_t columns);

}  // namespace nanscope

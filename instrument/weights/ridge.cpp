#include "instrument/weights/ridge.h"

#include <cmath>
#include <cstddef>
#include <string>

namespace nanscope {
namespace {

/// y -= a x, element by element: no sum is reordered when the compiler makes vectors of it.
void subtract_scaled(std::span<double> y, double a, std::span<const double> x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] -= a * x[i];
}

Status check_problem(std::span<const float> features, std::int64_t dimensions, std::span<const std::int32_t> classes,
                     std::int64_t class_count, double lambda) {
  if (dimensions < 1 || class_count < 1) return fail("ridge: dimensions and class count must be positive");
  if (!(lambda > 0) || !std::isfinite(lambda)) return fail("ridge: lambda must be positive and finite");
  const auto d = static_cast<std::size_t>(dimensions);
  if (features.size() % d != 0 || features.size() / d != classes.size()) {
    return fail("ridge: " + std::to_string(features.size()) + " features for " + std::to_string(classes.size()) +
                " rows of " + std::to_string(d));
  }
  for (std::size_t row = 0; row < classes.size(); ++row) {
    if (classes[row] < 0 || classes[row] >= class_count) {
      return fail("ridge: class " + std::to_string(classes[row]) + " in row " + std::to_string(row) +
                  ", expected less than " + std::to_string(class_count));
    }
  }
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (!std::isfinite(features[i])) {
      return fail("ridge: feature [" + std::to_string(i / d) + "," + std::to_string(i % d) + "] is not finite");
    }
  }
  return {};
}

}  // namespace

Status cholesky(std::span<double> matrix, std::int64_t size) {
  const auto n = static_cast<std::size_t>(size);
  // Right-looking: column j is finished, then subtracted from the rows below. `column` holds it
  // contiguously, because the matrix is stored by rows.
  std::vector<double> column(n);
  for (std::size_t j = 0; j < n; ++j) {
    const double pivot = matrix[j * n + j];
    if (!(pivot > 0) || !std::isfinite(pivot)) {
      return fail("cholesky: not positive definite at row " + std::to_string(j));
    }
    const double root = std::sqrt(pivot);
    matrix[j * n + j] = root;
    for (std::size_t i = j + 1; i < n; ++i) column[i] = matrix[i * n + j] /= root;
    for (std::size_t i = j + 1; i < n; ++i) {
      subtract_scaled(matrix.subspan(i * n + j + 1, i - j), column[i], std::span(column).subspan(j + 1, i - j));
    }
  }
  return {};
}

void cholesky_solve(std::span<const double> factor, std::int64_t size, std::span<double> right_side,
                    std::int64_t column_count) {
  const auto n = static_cast<std::size_t>(size);
  const auto columns = static_cast<std::size_t>(column_count);
  const auto row = [&](std::size_t i) { return right_side.subspan(i * columns, columns); };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) subtract_scaled(row(i), factor[i * n + k], row(k));
    for (double& value : row(i)) value /= factor[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) subtract_scaled(row(i), factor[k * n + i], row(k));
    for (double& value : row(i)) value /= factor[i * n + i];
  }
}

Result<std::vector<float>> ridge_classes(std::span<const float> features, std::int64_t dimensions,
                                         std::span<const std::int32_t> classes, std::int64_t class_count,
                                         double lambda) {
  const auto checked = check_problem(features, dimensions, classes, class_count, lambda);
  if (!checked) return tl::unexpected(checked.error());
  const auto d = static_cast<std::size_t>(dimensions);
  const auto v = static_cast<std::size_t>(class_count);
  std::vector<double> gram(d * d, 0.0);
  std::vector<double> target(d * v, 0.0);
  std::vector<double> x(d);
  for (std::size_t row = 0; row < classes.size(); ++row) {
    for (std::size_t i = 0; i < d; ++i) x[i] = features[row * d + i];
    for (std::size_t i = 0; i < d; ++i) {
      const auto lower = std::span(gram).subspan(i * d, i + 1);
      for (std::size_t j = 0; j < lower.size(); ++j) lower[j] += x[i] * x[j];
      target[i * v + static_cast<std::size_t>(classes[row])] += x[i];
    }
  }
  for (std::size_t i = 0; i < d; ++i) gram[i * d + i] += lambda;
  const auto factored = cholesky(gram, dimensions);
  if (!factored) return tl::unexpected(factored.error());
  cholesky_solve(gram, dimensions, target, class_count);
  std::vector<float> weights(d * v);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(target[i]);
  return weights;
}

}  // namespace nanscope

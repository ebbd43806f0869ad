#include "instrument/recompute/product_rounding.h"

#include <cmath>

namespace nanscope {

void put_products(const Block& x, const Products& made, std::span<const double> biases, const Rounding& rounding,
                  Prediction& into) {
  const bool by_deviation = rounding.by_deviation();
  const double sums = sum_error(x.columns, rounding.inner);
  std::vector<double> w_norms(made.squares.begin(), made.squares.end());
  for (double& norm : w_norms) norm = std::sqrt(norm);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    double x_norm = 0;
    double x_off = 0;
    for (std::int64_t k = 0; k < x.columns; ++k) {
      x_norm += double{x.row(t)[k]} * double{x.row(t)[k]};
      x_off += double{x.off(t, k)} * double{x.off(t, k)};
    }
    x_norm = std::sqrt(x_norm);
    x_off = std::sqrt(x_off);
    for (std::int64_t n = 0; n < into.columns; ++n) {
      const auto at = static_cast<std::size_t>(t * into.columns + n);
      const double w_norm = w_norms[static_cast<std::size_t>(n)];
      const double sum = double{made.sums[at]};
      const double value = biases.empty() ? sum : sum + biases[static_cast<std::size_t>(n)];
      into.value[at] = static_cast<float>(value);
      // Beside a large bias, what is expected is rounded too, and not always the same way.
      const double offset = biases.empty() ? 0 : rounding.output * std::abs(sum) + kF32 * std::abs(value);
      const double own = rounding.output * std::abs(value) + offset + least_error(rounding.kept);
      const double inherited = w_norm * (x_norm * rounding.operand + x_off);
      if (!by_deviation) {
        into.bound[at] = static_cast<float>(1.01 * own + w_norm * x_norm * sums + inherited);
        continue;
      }
      const double deviation = sum_deviation(x.columns, made.squared[at], sum);
      into.bound[at] = static_cast<float>(1.01 * own + kDeviations * deviation + inherited);
      // The output is rounded once, and so is the number that it is compared with.
      if (inherited == 0) into.deviation[at] = static_cast<float>(std::hypot(deviation, own * std::sqrt(2.0 / 3)));
    }
  }
}

}  // namespace nanscope

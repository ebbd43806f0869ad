#include "kernels/tensor_core_bound.h"

#include <algorithm>
#include <cmath>

namespace nanscope::kernels {
namespace {

constexpr double kStep = 22 * 0x1p-24;  ///< of the sum of magnitudes, an instruction

/// |x|+ of the header's formula.
double at_least_normal(Format format, float value) {
  const double least = format == Format::f16 ? 0x1p-14 : 0x1p-126;
  const double magnitude = std::abs(double{value});
  return magnitude == 0 ? 0 : std::max(magnitude, least);
}

/// By how much of the sum of magnitudes a sum of `depth` products may be off.
double relative_error(std::int64_t depth) {
  const auto instructions = static_cast<double>((depth + 15) / 16);
  return std::expm1(instructions * std::log1p(kStep));
}

double unit_roundoff(Format format) {
  return format == Format::f32 ? 0x1p-24 : format == Format::f16 ? 0x1p-11 : 0x1p-8;
}
double least_subnormal(Format format) {
  return format == Format::f32 ? 0x1p-149 : format == Format::f16 ? 0x1p-24 : 0x1p-133;
}

}  // namespace

double tensor_core_magnitude(Format operand, std::span<const float> x, std::span<const float> weight) {
  double sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const double product = at_least_normal(operand, x[k]) * at_least_normal(operand, weight[k]);
    if (std::isfinite(product)) sum += product;
  }
  return sum;
}

double tensor_core_bound(Format out, std::int64_t depth, double magnitude, float a, float b) {
  const auto instructions = static_cast<double>((depth + 15) / 16);
  const double sums = relative_error(depth) * magnitude + instructions * 0x1p-148;
  // 1.01: magnitudes are sums of doubles themselves, and what is rounded is not what is stored.
  const double rounded =
      (unit_roundoff(Format::f32) + unit_roundoff(out)) * (std::abs(double{a}) + std::abs(double{b}));
  return 1.01 * (2 * sums + rounded) + least_subnormal(out);
}

bool within_tensor_core_bound(Format out, std::int64_t depth, double magnitude, float a, float b, double& share) {
  share = 0;
  const bool finite = std::isfinite(a) && std::isfinite(b);
  const bool may_overflow = magnitude * (1 + relative_error(depth)) >= 0x1p128;
  if (!finite && may_overflow) return true;
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) && std::isinf(b)) return a == b;
  if (!finite) {
    const float other = std::isinf(a) ? b : a;
    const bool same_side = std::signbit(a) == std::signbit(b);
    const double bound = tensor_core_bound(out, depth, magnitude, other, other);
    return same_side && std::abs(double{other}) + bound >= double{info(out).max_finite};
  }
  const double apart = std::abs(double{a} - double{b});
  if (apart == 0) return true;
  share = apart / tensor_core_bound(out, depth, magnitude, a, b);
  return share <= 1;
}

}  // namespace nanscope::kernels

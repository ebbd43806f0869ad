/// How likely an explanation fits by chance.
#include <algorithm>
#include <cmath>

#include "instrument/recompute/bounds.h"
#include "instrument/recompute/recompute.h"

namespace nanscope {

/// What explains wrong elements may do so by chance: where its bound is as wide as they are off, any number near them
/// does. An element that is off by d on average lies within w of a number that has nothing to do with it in about w / d
/// of the cases. w is the bound or, where the elements lie far nearer to the form than its bound, three times their
/// mean distance from it. Elements are taken to be independent, and each form that was tried had its chance.
void measure_chances(const Recomputed& healthy, std::span<Recomputed> tried, std::size_t tried_in_all) {
  if (healthy.elements == 0) return;
  const double off = healthy.distance / static_cast<double>(healthy.elements);
  for (Recomputed& one : tried) {
    if (one.elements == 0) continue;
    const double within = std::min(one.bounds, 3 * one.distance) / static_cast<double>(one.elements);
    const double each = off > 0 ? std::clamp(within / off, 1e-12, 1.0) : 1.0;
    one.log10_chance = static_cast<double>(one.explained) * std::log10(each) +
                       std::log10(static_cast<double>(std::max<std::size_t>(1, tried_in_all)));
    one.log10_chance = std::min(0.0, one.log10_chance);
  }
}

double squares_left(const Prediction& prediction, Format format) {
  const double u = roundoff(format);
  double sum = 0;
  for (std::size_t i = 0; i < prediction.value.size(); ++i) {
    const double bound = double{prediction.bound[i]};
    const double value = std::abs(double{prediction.value[i]});
    if (!(bound > 0) || !std::isfinite(bound) || !std::isfinite(value)) continue;
    const double half = value > 0 ? std::min(bound, u * std::ldexp(1.0, std::ilogb(value))) : 0.0;
    const double rest = std::max(0.0, bound - u * value);
    sum += (half * half / 3 + rest * rest * kLargestMeanSquare) / (bound * bound);
  }
  return sum;
}

}  // namespace nanscope

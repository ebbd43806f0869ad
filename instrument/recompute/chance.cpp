/// How likely an explanation fits by chance.
#include <algorithm>
#include <cmath>

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

}  // namespace nanscope

#include "instrument/live/format_guess.h"

#include <cmath>

namespace nanscope::live {
namespace {

struct Limits {
  Format format;
  int bits;
  double spread;  ///< between that of tensors and that of bytes that are something else
  int highest;    ///< biased exponent, 0: any
};

constexpr int kBeyondMean = 40;
constexpr double kZerosOfParts = 0.4;

/// As Reading counts them.
constexpr std::array<Limits, kReadings> kLimits = {{{Format::f32, 32, 10, 127 + 90},
                                                    {Format::f16, 16, 5, 0},
                                                    {Format::bf16, 16, 10, 127 + 90},
                                                    {Format::e4m3, 8, 2.8, 0},
                                                    {Format::e5m2, 8, 2.9, 0}}};

FormatView view(const FormatCounts& counts, const Limits& limits) {
  FormatView result;
  result.format = limits.format;
  result.bad = counts.nan + counts.pos_inf;
  const std::uint64_t counted = counts.elements - counts.nan - counts.pos_inf - counts.neg_inf - counts.zero;
  double mean = 0;
  if (counted > 0) {
    mean = static_cast<double>(counts.exponents) / static_cast<double>(counted);
    const double square = static_cast<double>(counts.exponent_squares) / static_cast<double>(counted);
    result.spread = std::sqrt(std::max(0.0, square - mean * mean));
  }
  const auto highest = static_cast<double>(counts.highest);
  result.plausible = counts.elements > 0 && result.spread <= limits.spread &&
                     (counted == 0 || highest - mean <= kBeyondMean) &&
                     (limits.highest == 0 || highest <= limits.highest);
  return result;
}

bool mostly_zero(const FormatCounts& counts) {
  return static_cast<double>(counts.zero) >= kZerosOfParts * static_cast<double>(counts.elements);
}

}  // namespace

FormatViews view_formats(const ScanCounts& counts) {
  FormatViews views;
  for (std::size_t i = 0; i < kLimits.size(); ++i) views.at(i) = view(counts.as[i], kLimits.at(i));
  const FormatViews alone = views;
  for (std::size_t narrow = 0; narrow < kLimits.size(); ++narrow) {
    if (!alone.at(narrow).plausible || mostly_zero(counts.as[narrow])) continue;
    for (std::size_t wide = 0; wide < kLimits.size(); ++wide) {
      if (kLimits.at(wide).bits > kLimits.at(narrow).bits) views.at(wide).plausible = false;
    }
  }
  return views;
}

Sickness sickness(const FormatViews& views) {
  int plausible = 0;
  int bad = 0;
  for (const FormatView& one : views) {
    if (!one.plausible) continue;
    ++plausible;
    bad += one.bad > 0 ? 1 : 0;
  }
  if (bad == 0) return Sickness::none;
  return bad == plausible ? Sickness::certain : Sickness::possible;
}

std::optional<Format> best_format(const FormatViews& views) {
  const FormatView* best = nullptr;
  for (const FormatView& one : views) {
    if (!one.plausible) continue;
    const bool better = best == nullptr || (one.bad > 0) > (best->bad > 0) ||
                        ((one.bad > 0) == (best->bad > 0) && one.spread > best->spread);
    if (better) best = &one;
  }
  return best == nullptr ? std::nullopt : std::optional(best->format);
}

}  // namespace nanscope::live

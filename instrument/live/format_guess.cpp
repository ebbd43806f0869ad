#include "instrument/live/format_guess.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace nanscope::live {
namespace {

struct Limits {
  Format format;
  int bits;
  double exponents;  ///< how many there are
  double spread;     ///< between that of tensors and that of bytes that are something else
  double lowest;     ///< of the means of biased exponents that tensors have: integers are below
  double most;       ///< and integers and scales of one byte above
  int highest;       ///< biased exponent, 0: any
  double made;       ///< share of all codes that are +Inf or a NaN as arithmetic makes it
};

constexpr int kBeyondMean = 40;
/// Bits of evidence against chance that make what is bad certain: of 10^7 looks at other things one may be taken for
/// it.
constexpr double kCertain = 24;
/// And those that exclude a wider format.
constexpr double kExcludes = 8;
/// Bits of evidence that choosing the mean and the spread to fit takes.
constexpr double kFitted = 8;
/// How far the exponents at even and at odd places may be apart, and their spreads, in formats of one byte.
constexpr double kApart = 1;
/// Of the elements at one half of the places, how many are not zero when half of the other ones are not.
constexpr double kAlike = 0.5;

/// As Reading counts them. In f32 23 NaN of leading ones, of either sign, and +Inf; in f16 and bf16 two NaN, one of
/// them of either sign, and +Inf.
constexpr std::array<Limits, kReadings> kLimits = {{{Format::f32, 32, 256, 10, 17, 255, 127 + 90, 0x1p-26},
                                                    {Format::f16, 16, 32, 5, 0, 31, 0, 0x1p-14},
                                                    {Format::bf16, 16, 256, 10, 17, 255, 127 + 90, 0x1p-14},
                                                    {Format::e4m3, 8, 16, 2.5, 0, 13.5, 0, 0x1p-8},
                                                    {Format::e5m2, 8, 32, 2.9, 0, 27.5, 0, 0x1p-6}}};

double number(std::uint64_t count) { return static_cast<double>(count); }

std::uint64_t made_in(const LaneCounts& lane) { return lane.nan - lane.payload_nan + lane.pos_inf; }

struct Moments {
  double mean = 0;
  double spread = 0;
};

Moments moments(const LaneCounts& lane) {
  if (lane.finite == 0) return {};
  const double mean = number(lane.exponents) / number(lane.finite);
  const double square = number(lane.exponent_squares) / number(lane.finite);
  return {mean, std::sqrt(std::max(0.0, square - mean * mean))};
}

LaneCounts together(const FormatCounts& counts) {
  LaneCounts sum = counts.lanes[0];
  sum.finite += counts.lanes[1].finite;
  sum.exponents += counts.lanes[1].exponents;
  sum.exponent_squares += counts.lanes[1].exponent_squares;
  return sum;
}

/// How much better exponents fit a normal distribution than chance, in bits: log2 of the ratio of likelihoods.
double narrowness(const LaneCounts& lane, const Limits& limits) {
  const double spread = moments(lane).spread;
  // The entropy of a normal distribution is log2(sqrt(2 pi e) spread); 1/12 is the variance within a whole number.
  const double width = 4.13 * std::sqrt(spread * spread + 1.0 / 12);
  return number(lane.finite) * std::log2(limits.exponents / width);
}

double narrowness(const FormatCounts& counts, const Limits& limits) {
  return narrowness(counts.lanes[0], limits) + narrowness(counts.lanes[1], limits);
}

/// How many bits of evidence there are that chance did not make what is bad at one half of the places.
double evidence(const LaneCounts& lane, std::uint64_t places, const Limits& limits) {
  const double bad = number(made_in(lane));
  if (bad == 0) return 0;
  const double expected = number(places) * limits.made;
  // Chernoff's bound of a Poisson distribution. Bytes are often constants, or repeat.
  const bool repeats = limits.bits == 8 || bad <= expected;
  const double rare = repeats ? 0 : bad * std::log2(bad / expected) - (bad - expected) * std::log2(std::exp(1.0));
  return rare + std::max(0.0, narrowness(lane, limits) - kFitted);
}

/// Of one byte, hardly a code is rare: structured bytes, as of pointers, are told by their places.
bool same_places(const FormatCounts& counts) {
  const Moments even = moments(counts.lanes[0]);
  const Moments odd = moments(counts.lanes[1]);
  const double fewer = number(std::min(counts.lanes[0].finite, counts.lanes[1].finite));
  const double chance = fewer == 0 ? 0 : 3 * std::max(even.spread, odd.spread) / std::sqrt(fewer);
  return fewer == 0 ||
         (std::abs(even.mean - odd.mean) <= kApart + chance && std::abs(even.spread - odd.spread) <= kApart + chance);
}

FormatView view(const FormatCounts& counts, std::uint64_t words, const Limits& limits) {
  FormatView result;
  result.format = limits.format;
  result.bad = counts.nan() + counts.pos_inf();
  result.made = result.bad - counts.payload_nan();
  const LaneCounts both = together(counts);
  const Moments all = moments(both);
  result.spread = all.spread;
  const double highest = number(counts.highest);
  result.plausible =
      words > 0 && (result.bad == 0 || result.made > counts.payload_nan()) &&
      std::max({all.spread, moments(counts.lanes[0]).spread, moments(counts.lanes[1]).spread}) <= limits.spread &&
      (limits.bits > 8 || same_places(counts)) && (both.finite == 0 || highest - all.mean <= kBeyondMean) &&
      (limits.highest == 0 || highest <= limits.highest);
  result.integers = both.finite > 0 && (all.mean < limits.lowest || all.mean > limits.most);
  if (result.integers) result.bad = result.made = 0;
  const std::uint64_t places = words * (limits.bits == 8 ? 2 : 1);
  result.certain = result.made > 0 &&
                   evidence(counts.lanes[0], places, limits) + evidence(counts.lanes[1], places, limits) >= kCertain;
  return result;
}

/// Whether even and odd places hold zeros about as often.
bool alike(const FormatCounts& counts) {
  const auto used = [](const LaneCounts& lane) { return number(lane.finite + lane.nan + lane.pos_inf); };
  const auto [fewer, more] = std::minmax({used(counts.lanes[0]), used(counts.lanes[1])});
  return fewer >= kAlike * more;
}

}  // namespace

FormatViews view_formats(const ScanCounts& counts) {
  FormatViews views;
  for (std::size_t i = 0; i < kLimits.size(); ++i) views.at(i) = view(counts.as[i], counts.words, kLimits.at(i));
  const FormatViews alone = views;
  for (std::size_t narrow = 0; narrow < kLimits.size(); ++narrow) {
    if (!alone.at(narrow).plausible) continue;
    const bool one = alike(counts.as[narrow]);
    for (std::size_t wide = 0; wide < kLimits.size(); ++wide) {
      if (kLimits.at(wide).bits <= kLimits.at(narrow).bits || !alone.at(wide).plausible) continue;
      const double better =
          narrowness(counts.as[narrow], kLimits.at(narrow)) - narrowness(counts.as[wide], kLimits.at(wide));
      if (!one) views.at(narrow).plausible = false;
      if (one && better >= kExcludes) views.at(wide).plausible = false;
    }
  }
  return views;
}

Sickness sickness(const FormatViews& views) {
  int plausible = 0;
  int bad = 0;
  int certain = 0;
  for (const FormatView& one : views) {
    if (!one.plausible) continue;
    ++plausible;
    bad += one.bad > 0 ? 1 : 0;
    certain += one.certain ? 1 : 0;
  }
  if (bad == 0) return Sickness::none;
  return certain == plausible ? Sickness::certain : Sickness::possible;
}

std::optional<Format> best_format(const FormatViews& views) {
  const FormatView* best = nullptr;
  const auto rank = [](const FormatView& one) { return std::tuple(one.certain, one.bad > 0, one.spread); };
  for (const FormatView& one : views) {
    if (one.plausible && (best == nullptr || rank(one) > rank(*best))) best = &one;
  }
  return best == nullptr ? std::nullopt : std::optional(best->format);
}

}  // namespace nanscope::live

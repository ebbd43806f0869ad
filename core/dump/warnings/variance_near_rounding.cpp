#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/dump/variance.h"
#include "core/dump/warnings/warning.h"

namespace nanscope::dump_warnings {
namespace {

constexpr double kNear = 4;                                    ///< times what the rounding of one pass can amount to
constexpr std::int64_t kMostElements = std::int64_t{1} << 22;  ///< looked at, of all tensors

/// Whether a norm subtracts the mean: of a row that is nearly flat, only then do both signs come out.
bool subtracts_mean(std::span<const float> out) {
  const auto negative = std::count_if(out.begin(), out.end(), [](float y) { return y < 0; });
  const auto positive = std::count_if(out.begin(), out.end(), [](float y) { return y > 0; });
  return 10 * std::min(negative, positive) >= static_cast<std::ptrdiff_t>(out.size());
}

struct Flat {
  std::int64_t row = -1;
  std::int64_t rows = 0;
  double variance = 0;
  double rounding = 0;
  double lowest = 0;
};

Flat flattest(std::span<const float> in, std::span<const float> out, std::size_t channels) {
  Flat found;
  for (std::size_t begin = 0; begin + channels <= in.size(); begin += channels) {
    const auto x = in.subspan(begin, channels);
    if (!std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); })) continue;
    const double variance = two_pass_variance(x);
    const double rounding = one_pass_error(x);
    if (variance > kNear * rounding || rounding == 0 || !subtracts_mean(out.subspan(begin, channels))) continue;
    ++found.rows;
    if (found.row >= 0 && variance / rounding >= found.variance / found.rounding) continue;
    found.row = static_cast<std::int64_t>(begin / channels);
    found.variance = variance;
    found.rounding = rounding;
    found.lowest = double{one_pass_variances(x).lowest.value};
  }
  return found;
}

}  // namespace

/// A norm that came out well, of a row whose E[x^2] - E[x]^2 is mostly rounding: other values of that kind make it zero
/// or less.
std::vector<Watched> find_variance_near_rounding(DumpFacts& facts, const IsWatched& watched) {
  std::vector<Watched> found;
  std::int64_t looked_at = 0;
  for (TensorIndex i = 0; i < facts.size() && looked_at < kMostElements; ++i) {
    const DumpTensor& out = facts.tensor(i);
    if (out.at.kind != ModuleKind::norm || out.at.port != Port::output || !watched(i) || out.stated || out.bad())
      continue;
    const auto input = facts.input_of(i);
    if (!input || facts.tensor(*input).count() != out.count() || out.channels() < 2) continue;
    const auto x = facts.values(*input);
    const auto y = facts.values(i);
    if (!x || !y) continue;
    looked_at += out.count();
    const Flat flat = flattest(*x, *y, static_cast<std::size_t>(out.channels()));
    if (flat.row < 0) continue;
    Watched warning{.tensor = *input,
                    .severity = flat.rounding / (flat.variance + 1e-300),
                    .evidence = {},
                    .summary = {},
                    .advice = {}};
    warning.evidence = {{"row", flat.row},
                        {"rows", flat.rows},
                        {"variance_two_pass", flat.variance},
                        {"rounding_of_one_pass", flat.rounding},
                        {"variance_one_pass_lowest", flat.lowest}};
    warning.summary = fmt::format(
        "row {} of {} has a variance of {:.3g}, and the rounding of one pass can amount to {:.3g}: E[x^2] - E[x]^2 "
        "is as low as {:.3g} in one order of summing",
        flat.row, facts.tensor(*input).name, flat.variance, flat.rounding, flat.lowest);
    warning.advice = "compute the variance in two passes or with Welford's form, or clamp it at 0 before eps";
    found.push_back(std::move(warning));
  }
  return found;
}

}  // namespace nanscope::dump_warnings

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "instrument/diagnosis/warnings/warning.h"

namespace nanscope::early {
namespace {

constexpr double kNearRounding = 4;  ///< times what the rounding of one pass can amount to
constexpr std::int64_t kMostNormElements = std::int64_t{1} << 22;  ///< looked at, of all tensors

/// Mean of squared distances from the mean, in double: never negative.
double two_pass_variance(std::span<const float> row) {
  double mean = 0;
  for (const float x : row) mean += double{x};
  mean /= static_cast<double>(row.size());
  double sum = 0;
  for (const float x : row) sum += (double{x} - mean) * (double{x} - mean);
  return sum / static_cast<double>(row.size());
}

/// How large the rounding of E[x^2] - E[x]^2 can be in f32: a sum of n terms of one sign, one after the other, is off
/// by up to n/2 half units in the last place of the sum.
double one_pass_error(std::span<const float> row) {
  double squares = 0;
  for (const float x : row) squares += double{x} * double{x};
  return std::numeric_limits<float>::epsilon() / 2 * squares;
}

/// E[x^2] - E[x]^2 summed in sequence in f32, as it would come out.
double one_pass_variance(std::span<const float> row) {
  float sum = 0;
  float squares = 0;
  for (const float x : row) {
    sum += x;
    squares += x * x;
  }
  const auto n = static_cast<float>(row.size());
  const float mean = sum / n;
  return double{squares / n - mean * mean};
}

/// Whether a norm subtracts the mean: of a row that is nearly flat, only then do both signs come out.
bool has_no_mean(std::span<const float> out) {
  const auto negative = std::count_if(out.begin(), out.end(), [](float y) { return y < 0; });
  const auto positive = std::count_if(out.begin(), out.end(), [](float y) { return y > 0; });
  return 10 * std::min(negative, positive) >= static_cast<std::ptrdiff_t>(out.size());
}

/// In two passes or with Welford's form nothing cancels.
bool may_cancel(const Op& op) {
  const auto* stated = op.get<NormAttributes>();
  if (stated == nullptr) return true;
  return stated->norm.value_or("layer") == "layer" && stated->variance.value_or("one_pass") == "one_pass";
}

struct Flat {
  std::int64_t row = -1;
  std::int64_t rows = 0;
  double variance = 0;
  double rounding = 0;
  double one_pass = 0;
};

Flat flattest(Survey& survey, const Tensor& tensor, std::span<const float> in, std::span<const float> out) {
  Flat found;
  const auto width = static_cast<std::size_t>(tensor.channels);
  for (std::size_t begin = 0; begin + width <= in.size(); begin += width) {
    const auto x = in.subspan(begin, width);
    const auto row = static_cast<std::int64_t>(begin / width);
    if (!survey.facts.live(tensor, row)) continue;
    if (!std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); })) continue;
    const double variance = two_pass_variance(x);
    const double rounding = one_pass_error(x);
    if (variance > kNearRounding * rounding || rounding == 0 || !has_no_mean(out.subspan(begin, width))) continue;
    ++found.rows;
    if (found.row >= 0 && variance / rounding >= found.variance / found.rounding) continue;
    found.row = row;
    found.variance = variance;
    found.rounding = rounding;
    found.one_pass = one_pass_variance(x);
  }
  return found;
}

}  // namespace

/// A norm that came out well, of a row whose E[x^2] - E[x]^2 is mostly rounding: other values of that kind make it zero
/// or less.
std::vector<Watched> find_variance_near_rounding(Survey& survey, const IsWatched& watched) {
  std::vector<Watched> found;
  std::int64_t looked_at = 0;
  for (const Op* op : survey.ops(OpKind::layer_norm)) {
    const Tensor* input = survey.run().input(*op, "x");
    const Tensor* out = survey.run().result(*op);
    if (input == nullptr || out == nullptr || !input->known || !out->known || out->stated || !may_cancel(*op)) continue;
    const bool alike = input->tokens == out->tokens && input->channels == out->channels && out->channels > 1;
    if (!alike || !watched(*out) || out->health.bad() > 0 || looked_at >= kMostNormElements) continue;
    const auto x = survey.run().values(*input);
    const auto y = survey.run().values(*out);
    if (!x || !y) continue;
    looked_at += out->count();
    const Flat flat = flattest(survey, *input, *x, *y);
    if (flat.row < 0) continue;
    Watched warning;
    warning.tensor = input->id;
    warning.severity = flat.rounding / (flat.variance + std::numeric_limits<double>::min());
    warning.evidence = {{"row", flat.row},
                        {"rows", flat.rows},
                        {"variance", flat.variance},
                        {"lost_by_rounding", flat.rounding},
                        {"variance_one_pass", flat.one_pass}};
    warning.summary = fmt::format(
        "row {} of {} has a variance of {:.3g}, and the rounding of one pass can amount to {:.3g}: E[x^2] - E[x]^2 "
        "summed in sequence is {:.3g}",
        flat.row, survey.facts.name_of(*input), flat.variance, flat.rounding, flat.one_pass);
    warning.advice = "compute the variance in two passes or with Welford's form, or clamp it at 0 before eps";
    found.push_back(std::move(warning));
  }
  return found;
}

}  // namespace nanscope::early

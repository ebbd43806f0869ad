#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

constexpr double kHalfUlp = 0x1p-24;  ///< of f32, relative

struct Moments {
  double mean = 0;
  double variance = 0;
};

/// Of a group of channels, in double precision.
std::optional<Moments> moments_of(const std::vector<double>& row, std::int64_t first, std::int64_t width) {
  if (width <= 0 || first > static_cast<std::int64_t>(row.size()) - width) return std::nullopt;
  const std::span<const double> group =
      std::span(row).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(width));
  Moments found;
  for (const double x : group) found.mean += x;
  found.mean /= static_cast<double>(width);
  for (const double x : group) found.variance += (x - found.mean) * (x - found.mean);
  found.variance /= static_cast<double>(width);
  return found;
}

/// Where statistics were not kept, what they should have been.
void recompute(const Subject& subject, const Operand& x, std::int64_t first, std::int64_t width, Explanation& found) {
  const std::vector<double> row = made_row(subject.facts, *x.tensor, *x.row);
  const auto moments = moments_of(row, first, width > 0 ? width : static_cast<std::int64_t>(row.size()));
  if (!moments) return;
  found.numbers.push_back({"mean", moments->mean});
  found.numbers.push_back({"variance", moments->variance});
  const double square = moments->mean * moments->mean;
  const auto count = static_cast<double>(row.size());
  if (square + moments->variance == 0) {
    found.text += "; it is all zero: without an epsilon that is 0/0";
  } else if (moments->variance <= square * kHalfUlp * count) {
    found.text += fmt::format("; its variance is {:.3g} at a mean of {:.6g}: E[x^2] - E[x]^2 can fall below 0 in f32",
                              moments->variance, moments->mean);
  }
}

/// Adds the row's mean, variance and reciprocal root, and says whether variance + eps has no root.
bool add_statistics(const Subject& subject, std::int64_t group, Explanation& found) {
  const Tensor* stats = subject.facts.run.output(subject.op, "stats");
  const std::int64_t row = subject.element.row;
  if (stats == nullptr || group >= stats->channels / 3) return false;
  const auto& form = attributes<NormAttributes>(subject.op);
  const double eps = form.eps.value_or(0);
  const std::optional<float> mean = value_at(subject.facts, *stats, row, 3 * group);
  const std::optional<float> variance = value_at(subject.facts, *stats, row, 3 * group + 1);
  const std::optional<float> root = value_at(subject.facts, *stats, row, 3 * group + 2);
  if (!mean || !variance || !root) return false;
  const float used = (form.clamp.value_or(false) ? std::max(*variance, 0.0F) : *variance) + static_cast<float>(eps);
  const std::uint32_t bits = code_at(subject.facts, *stats, row, 3 * group + 1).value_or(0);
  found.numbers.insert(found.numbers.end(), {{"mean", double{*mean}},
                                             {"variance", double{*variance}},
                                             {"variance bits", code_text(stats->format, bits)},
                                             {"eps", eps},
                                             {"variance + eps", double{used}},
                                             {"1/sqrt(variance + eps)", double{*root}}});
  return std::isfinite(*mean) && !(used > 0);
}

/// How many parts of a row are normalised by themselves. A dump does not say it; the weight's width does.
std::int64_t groups_of(const Subject& subject, const Tensor& x) {
  const auto& form = attributes<NormAttributes>(subject.op);
  const Tensor* weight = subject.facts.run.input(subject.op, "weight");
  const bool by_head = x.heads > 1 && weight != nullptr && weight->channels == x.width();
  return std::max<std::int64_t>(1, count(form.groups, by_head ? x.heads : 1));
}

}  // namespace

/// out = (x - mean) / sqrt(variance + eps) * weight + bias over a group of channels: one bad x makes the
/// group bad; with a healthy x only the statistics can.
Explanation explain_layer_norm(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  if (!x) return explain_by_inputs(subject);
  if (!x->row) return follow_unplaced(subject, *x);
  Facts& facts = subject.facts;
  if (!x->tensor->known) {
    Explanation unseen = follow_row(subject, *x, "normalised");
    if (unseen.origin) recompute(subject, *x, 0, 0, unseen);
    return unseen;
  }
  const std::int64_t groups = groups_of(subject, *x->tensor);
  const std::int64_t width = std::max<std::int64_t>(x->tensor->channels / groups, 1);
  const bool of_statistics = subject.tensor.role == "stats";
  const std::int64_t group = std::clamp<std::int64_t>(
      of_statistics ? subject.element.channel / 3 : subject.element.channel / width, 0, groups - 1);
  const std::int64_t row = *x->row;
  Explanation found;
  if (const auto bad = bad_channel(facts, *x->tensor, row, group * width, width)) {
    found.element = Element{x->tensor->id, row, *bad};
    found.text = fmt::format("normalised over a row in which {}", said_of(facts, *x->tensor, row, *bad));
    return found;
  }
  const bool no_root = add_statistics(subject, group, found);
  const std::vector<Health>& rows = facts.run.rows(*x->tensor);
  const auto at = static_cast<std::size_t>(row);
  const bool constant = groups == 1 && is_constant(facts, *x->tensor, row);
  if (at < rows.size()) {
    found.numbers.push_back({"row minimum", double{rows[at].min}});
    found.numbers.push_back({"row maximum", double{rows[at].max}});
  }
  found.origin = subject.bad;
  found.danger = constant || subject.bad;
  const std::int64_t channel =
      of_statistics ? group * width : largest_channel(facts, *x->tensor, row, group * width, width);
  found.element = Element{x->tensor->id, row, channel};
  if (subject.bad && no_root) {
    found.text = fmt::format("the row of x is finite but variance + eps = {} has no square root",
                             to_string(*find(found.numbers, "variance + eps")));
  } else if (subject.bad) {
    found.text = "the row of x is finite, the statistics are not";
  } else {
    found.text = "normalised over a healthy row";
  }
  if (constant) {
    found.text += fmt::format("; all {} channels of the row are the same number {}", width,
                              value_text(facts, *x->tensor, row, channel));
  }
  const bool kept = facts.run.output(subject.op, "stats") != nullptr;
  if (subject.bad && !kept) recompute(subject, *x, group * width, width, found);
  if (subject.bad && !kept) blame_bad_weight(subject, "the row of x is finite", found);
  return found;
}

}  // namespace nanscope

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// Adds the row's mean, variance and reciprocal root, and says whether variance + eps has no root.
bool add_statistics(const Subject& subject, std::int64_t group, Explanation& found) {
  const std::optional<TensorRow> stats = subject.facts.run.output(subject.op.id, "stats");
  const std::shared_ptr<const TensorData> data = stats ? subject.facts.elements(*stats) : nullptr;
  const double eps = number_attribute(subject.op, "eps").value_or(0);
  if (!data || subject.element.row >= data->tokens || 3 * group + 2 >= data->channels) return false;
  const float mean = data->value(subject.element.row, 3 * group);
  const float variance = data->value(subject.element.row, 3 * group + 1);
  const float root = data->value(subject.element.row, 3 * group + 2);
  const bool clamp = number_attribute(subject.op, "clamp").value_or(0) != 0;
  const float used = (clamp ? std::max(variance, 0.0F) : variance) + static_cast<float>(eps);
  found.numbers.insert(found.numbers.end(),
                       {{"mean", double{mean}},
                        {"variance", double{variance}},
                        {"variance bits", code_text(Format::f32, data->code(subject.element.row, 3 * group + 1))},
                        {"eps", eps},
                        {"variance + eps", double{used}},
                        {"1/sqrt(variance + eps)", double{root}}});
  return std::isfinite(mean) && !(used > 0);
}

}  // namespace

/// out = (x - mean) / sqrt(variance + eps) * weight + bias over a group of channels: one bad x makes the
/// group bad; with a healthy x only the statistics can.
Explanation explain_layer_norm(const Subject& subject) {
  const std::optional<InputTensor> x = input_tensor(subject, {"x"});
  if (!x) return {};
  const std::int64_t groups = std::max<std::int64_t>(1, count_attribute(subject.op, "groups", 1));
  const std::int64_t width = std::max<std::int64_t>(x->tensor.channels / groups, 1);
  const bool of_statistics = subject.tensor.role == "stats";
  const std::int64_t group = std::clamp<std::int64_t>(
      of_statistics ? subject.element.channel / 3 : subject.element.channel / width, 0, groups - 1);
  const std::int64_t row = x->row_of(subject);
  Explanation found;
  if (const auto bad = bad_channel(subject.facts, *x, row, group * width, width)) {
    found.element = Element{x->tensor.id, row, *bad};
    found.text = fmt::format("normalised over a row in which {} is {}",
                             element_text(subject.facts, x->tensor, row, *bad), value_text(x->data.get(), row, *bad));
    return found;
  }
  const bool no_root = add_statistics(subject, group, found);
  const std::vector<Health>& rows = subject.facts.rows(x->tensor);
  const auto at = static_cast<std::size_t>(row);
  const bool constant = at < rows.size() && groups == 1 && rows[at].count > 1 && rows[at].min == rows[at].max;
  if (at < rows.size()) {
    found.numbers.push_back({"row minimum", double{rows[at].min}});
    found.numbers.push_back({"row maximum", double{rows[at].max}});
  }
  found.origin = subject.bad;
  found.danger = constant || subject.bad;
  const std::int64_t channel = of_statistics ? group * width : largest_channel(*x, row, group * width, width);
  found.element = Element{x->tensor.id, row, channel};
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
                              value_text(x->data.get(), row, channel));
  }
  return found;
}

}  // namespace nanscope

#include <fmt/format.h>

#include "core/numbers/codec.h"
#include "instrument/diagnosis/provenance/rule.h"

/// The backward pass of training, and what the optimizer does with it: what made an element of a gradient.
namespace nanscope {
namespace {

/// The first bad row of `input` whose element in the column is bad.
std::optional<Element> bad_in_column(Facts& facts, const Tensor& input, std::int64_t column) {
  for (const std::int64_t row : facts.run.bad_rows(input)) {
    if (bad_channel(facts, input, row, column, 1)) return Element{input.id, row, column};
  }
  return std::nullopt;
}

/// Of a gradient that is a sum over rows: the column of an input that it is a sum over.
std::optional<Explanation> follow_column(const Subject& subject, std::string_view role, std::int64_t column) {
  const std::optional<Operand> input = operand(subject, {role});
  if (!input || column >= input->tensor->channels) return std::nullopt;
  const std::optional<Element> bad = bad_in_column(subject.facts, *input->tensor, column);
  if (!bad) return std::nullopt;
  Explanation found;
  found.element = bad;
  found.text = fmt::format("one sum over the rows of {}: {}", role,
                           said_of(subject.facts, *input->tensor, bad->row, bad->channel));
  return found;
}

}  // namespace

/// loss = log sum exp(logits) - logits[target] of each row.
Explanation explain_cross_entropy(const Subject& subject) {
  const std::optional<Operand> logits = operand(subject, {"logits"});
  return logits ? follow_row(subject, *logits, "the loss of the row's logits") : explain_by_inputs(subject);
}

/// scale / targets * (softmax - 1 at the target) of each row.
Explanation explain_cross_entropy_gradient(const Subject& subject) {
  const std::optional<Operand> logits = operand(subject, {"logits"});
  if (!logits) return explain_by_inputs(subject);
  Explanation found = follow_row(subject, *logits, "the gradient of the row's loss");
  const auto& form = attributes<LossAttributes>(subject.op);
  const std::int64_t targets = count(form.targets, 1);
  found.numbers.push_back({"targets", targets});
  if (form.loss_scale) found.numbers.push_back({"loss scale", *form.loss_scale});
  if (found.origin && targets == 0) found.text += "; no token of the batch is a target, so that its mean is 0 / 0";
  return found;
}

/// dx = dout W; dweight[n, k] = sum over t of dout[t, n] * x[t, k]; dbias[n] = sum of dout[t, n].
Explanation explain_gemm_gradient(const Subject& subject) {
  if (subject.tensor.role == "dx") {
    const std::optional<Operand> dout = operand(subject, {"dout"});
    if (!dout) return explain_by_inputs(subject);
    Explanation found = follow_row(subject, *dout, "one sum over the row");
    if (found.origin) blame_bad_weight(subject, "the row of dout is healthy", found);
    return found;
  }
  const bool bias = subject.tensor.role == "dbias";
  const std::int64_t output = bias ? subject.element.channel : subject.element.row;
  if (auto found = follow_column(subject, "dout", output)) return *found;
  if (!bias) {
    if (auto found = follow_column(subject, "x", subject.element.channel)) return *found;
  }
  return explain_by_inputs(subject);
}

Explanation explain_layer_norm_gradient(const Subject& subject) {
  if (subject.tensor.role != "dx") {
    for (const std::string_view role : {"dout", "x"}) {
      if (auto found = follow_column(subject, role, subject.element.channel)) return *found;
    }
  }
  return explain_by_inputs(subject);
}

/// The same element of the gradient, else of what the step began with.
Explanation explain_adamw(const Subject& subject) {
  const std::optional<Operand> gradient = operand(subject, {"gradient"});
  if (!gradient) return explain_by_inputs(subject);
  const Element at = subject.element;
  Operand same = *gradient;
  same.row = at.row;
  Explanation found = follow_element(subject, same, at.channel, "AdamW's step of the element");
  if (!found.origin) return found;
  const auto& form = attributes<AdamWAttributes>(subject.op);
  if (form.eps) found.numbers.push_back({"eps", *form.eps});
  if (form.learning_rate) found.numbers.push_back({"learning rate", *form.learning_rate});
  const std::optional<Format> state = form.state ? format_from_name(*form.state) : std::nullopt;
  if (form.eps && state && decode(*state, encode(*state, static_cast<float>(*form.eps), Overflow::overflow)) == 0) {
    found.text += fmt::format("; eps = {:g} is 0 in {}, in which the second moment of a small gradient is 0 too: m / 0",
                              *form.eps, *form.state);
  }
  blame_bad_weight(subject, "the gradient is healthy", found);
  return found;
}

}  // namespace nanscope

/// Another factor on the scores of attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/verify/alternative.h"

namespace nanscope {

std::vector<OpForm> propose_score_factor(const TriedOp& subject);

std::vector<OpForm> propose_score_factor(const TriedOp& subject) {
  Proposals made(subject);
  const bool scores = subject.op.kind == OpKind::attention_scores && subject.op.input("scores") == 0;
  if (!scores && subject.op.kind != OpKind::attention) return {};
  const ModelConfig& model = subject.config();
  std::vector<double> tried;
  const auto add = [&](double factor, std::string text) {
    const auto same = [&](double other) { return std::abs(factor / other - 1) < 1e-6; };
    if (same(subject.form.number) || std::any_of(tried.begin(), tried.end(), same)) return;
    tried.push_back(factor);
    made.add(std::move(text), [&](OpForm& form) { form.number = factor; });
  };
  const auto root = [](std::int64_t width) { return 1 / std::sqrt(static_cast<double>(width)); };
  add(root(model.head_dim), "scores over the root of the width of a head");
  add(1, "scores without a factor");
  add(root(model.width / std::max<std::int64_t>(1, model.heads)), "scores over the root of width / heads");
  add(root(model.width), "scores over the root of the model's width");
  add(1 / static_cast<double>(model.head_dim), "scores over the width of a head, not its root");
  add(subject.form.number * subject.form.number, "scores scaled twice");
  if (subject.op.layer) {
    const double number = static_cast<double>(*subject.op.layer) + 1;
    add(subject.form.number * number, "scores that are not divided by the layer's number");
    add(subject.form.number / number, "scores divided by the layer's number");
  }
  // What the dumped scores or probabilities show.
  const std::vector<OpForm> shown =
      scores ? recipe_of(subject.op.kind)->forms(subject.values, subject.op, subject.out) : std::vector<OpForm>{};
  for (const OpForm& one : shown) {
    if (one.variant == kAlike && one.cap == subject.form.cap)
      add(one.number, fmt::format("scores times {:.6g}", one.number));
  }
  return made.take();
}

}  // namespace nanscope

#include <fmt/format.h>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// The row of the image's patches that stands at `position`; each image of a step has its own op.
std::optional<Element> patch_element(const Subject& subject, std::int64_t position) {
  OpFilter filter;
  filter.step = subject.step.id;
  filter.kind = "patch_embedding";
  for (const OpRow& op : subject.facts.run.ops(filter)) {
    for (const TensorRow& patches : subject.facts.run.tensors_of(op.id)) {
      const std::int64_t row = position - patches.first_token;
      if (row >= 0 && row < patches.tokens && subject.element.channel < patches.channels) {
        return Element{patches.id, row, subject.element.channel};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

/// Row t is the table's row of the token, or the next patch where the token is an image.
Explanation explain_embedding(const Subject& subject) {
  Explanation found;
  const std::int64_t position = subject.tensor.first_token + subject.element.row;
  for (const TokenRow& token : subject.facts.run.tokens(subject.step.request)) {
    if (token.position != position) continue;
    found.numbers.push_back({"token", std::int64_t{token.token}});
    found.text =
        token.token < 0 ? "the embedding of an image patch" : fmt::format("the embedding of token {}", token.token);
    if (token.token >= 0) break;
    found.element = patch_element(subject, position);
    break;
  }
  if (found.text.empty()) found.text = "the embedding of the token";
  found.origin = subject.bad && !found.element;
  for (const InputRow& input : subject.facts.run.inputs_of(subject.op.id)) {
    const WeightRow* weight = input.weight.empty() ? nullptr : subject.facts.run.weight(input.weight);
    if (!found.origin || weight == nullptr || weight->health.bad() == 0) continue;
    found.weight = weight->name;
    found.danger = true;
    found.text += ", whose row of " + weight->name + " holds NaN or Inf";
  }
  return found;
}

}  // namespace nanscope

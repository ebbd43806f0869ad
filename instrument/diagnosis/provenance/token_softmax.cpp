#include <fmt/format.h>

#include "instrument/diagnosis/provenance/scale.h"

namespace nanscope {
namespace {

/// logits / temperature, element by element.
Explanation explain_temperature(const Subject& subject, const Operand& logits) {
  const std::int64_t channel = subject.element.channel;
  Explanation found = follow_element(subject, logits, channel, "divided by the temperature");
  if (!found.origin || !found.element) return found;
  const auto temperature = used_scale(subject, "temperature", {}, *logits.tensor, found.element->row, channel);
  if (!temperature) {
    found.text += "; the temperature was not dumped";
    return found;
  }
  found.numbers.push_back({"temperature", temperature->value});
  found.text = fmt::format("{} divided by the temperature {}",
                           value_text(subject.facts, *logits.tensor, found.element->row, channel), temperature->text);
  if (temperature->value == 0) {
    found.element = temperature->parameter;
    found.danger = true;
  }
  return found;
}

}  // namespace

/// p = exp(s - max) / sum over the tokens that a grammar allows: a row of which it allows none is -Inf alone.
Explanation explain_token_softmax(const Subject& subject) {
  const std::optional<Operand> logits = operand(subject, {"logits", "x"});
  if (!logits) return explain_by_inputs(subject);
  if (!logits->row) return follow_unplaced(subject, *logits);
  if (subject.op.input("temperature") != 0 || subject.tensor.role == "scaled_logits")
    return explain_temperature(subject, *logits);
  if (!logits->tensor->known) return follow_row(subject, *logits, "a softmax over the row");
  const std::int64_t row = *logits->row;
  const std::int64_t width = logits->tensor->channels;
  const std::int64_t legal = count(attributes<TokenSoftmaxAttributes>(subject.op).legal, width);
  Explanation found;
  found.numbers = {{"legal tokens", legal}, {"vocabulary", width}};
  if (subject.bad && legal == 0) {
    found.origin = true;
    found.text = fmt::format("the grammar allows none of {} tokens: the row is -Inf alone, -Inf - -Inf is NaN", width);
    return found;
  }
  if (const auto bad = bad_channel(subject.facts, *logits->tensor, row, 0, kWholeRow)) {
    found.element = Element{logits->tensor->id, row, *bad};
    const bool laundered = of_dump(subject.tensor) && !subject.bad;
    found.text =
        fmt::format("logit {} of the row is bad, {}", *bad,
                    laundered ? "and what came out is not: it was laundered" : "the sum makes the whole row bad");
    return found;
  }
  found.origin = subject.bad;
  found.element = Element{logits->tensor->id, row, subject.element.channel};
  found.text = fmt::format("{} legal tokens, all logits of the row are finite", legal);
  return found;
}

}  // namespace nanscope

#include <fmt/format.h>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

std::vector<Operand> experts_of(const Subject& subject) {
  std::vector<Operand> found;
  for (const Operand& input : operands(subject)) {
    if (input.role == "expert") found.push_back(input);
  }
  return found;
}

/// The expert that the router wrote down as choice `choice`; nothing where that is none of them.
const Operand* chosen(Facts& facts, const Operand& ids, std::int64_t choice, const std::vector<Operand>& experts) {
  const auto expert = ids.row ? code_at(facts, *ids.tensor, *ids.row, choice) : std::nullopt;
  return expert && *expert < experts.size() ? &experts[*expert] : nullptr;
}

/// Of the experts that the router chose, the bad one, else the one that weighs most.
Explanation explain_chosen(const Subject& subject, const Operand& weights, const Operand& ids) {
  Facts& facts = subject.facts;
  const std::vector<Operand> experts = experts_of(subject);
  const std::int64_t channel = subject.element.channel;
  const Operand* best = nullptr;
  std::optional<float> most;
  for (std::int64_t j = 0; j < ids.tensor->channels; ++j) {
    const Operand* expert = chosen(facts, ids, j, experts);
    if (expert == nullptr) continue;
    const auto number = expert - experts.data();
    if (subject.bad && expert->row && bad_channel(facts, *expert->tensor, *expert->row, channel, 1))
      return follow_element(subject, *expert, channel, fmt::format("the output of expert {}", number));
    const std::optional<float> weight = value_at(facts, *weights.tensor, *weights.row, j);
    if (best != nullptr && !(weight > most)) continue;
    best = expert;
    most = weight;
  }
  if (best == nullptr) return {};
  return follow_element(subject, *best, channel,
                        fmt::format("a mix of experts, most of expert {}", best - experts.data()));
}

/// Which experts served the row was not dumped: any that is bad there, else what went into all of them.
Explanation explain_any(const Subject& subject, const Operand& weights) {
  Facts& facts = subject.facts;
  for (const Operand& expert : experts_of(subject)) {
    const std::int64_t channel = subject.element.channel;
    if (expert.row && bad_channel(facts, *expert.tensor, *expert.row, channel, 1))
      return follow_element(subject, expert, channel, "the output of an expert");
    if (!expert.row && subject.bad && RunView::symptomatic(*expert.tensor)) return follow_unplaced(subject, expert);
  }
  if (const auto x = operand(subject, {"x"})) {
    Explanation found = follow_row(subject, *x, "the experts' outputs are healthy or were not dumped, what went in");
    if (found.origin) blame_bad_weight(subject, "the row of x is healthy", found);
    return found;
  }
  return follow_row(subject, weights, "a mix of experts by their weights");
}

}  // namespace

/// out[t] = sum over j of weights[t, j] * expert ids[t, j]'s output: a bad weight, a bad element of a chosen expert,
/// else the expert that weighs most.
Explanation explain_expert_mix(const Subject& subject) {
  const std::optional<Operand> weights = operand(subject, {"weights"});
  if (!weights) return explain_by_inputs(subject);
  if (!weights->row) return follow_unplaced(subject, *weights);
  Facts& facts = subject.facts;
  const std::int64_t row = *weights->row;
  if (const auto bad = bad_channel(facts, *weights->tensor, row, 0, kWholeRow)) {
    Explanation found;
    found.element = Element{weights->tensor->id, row, *bad};
    found.text =
        weights->tensor->known
            ? fmt::format("the weight of choice {} is {}", *bad, value_text(facts, *weights->tensor, row, *bad))
            : fmt::format("{}, and what it is made of is bad", said_of(facts, *weights->tensor, row, *bad));
    return found;
  }
  const std::optional<Operand> ids = operand(subject, {"ids"});
  const bool by_choice = ids && ids->tensor->known && !experts_of(subject).empty();
  return by_choice ? explain_chosen(subject, *weights, *ids) : explain_any(subject, *weights);
}

}  // namespace nanscope

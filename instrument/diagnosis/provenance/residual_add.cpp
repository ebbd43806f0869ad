#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// Of a sum that was not dumped, what its sides add up to.
std::optional<double> side_at(Facts& facts, const Operand& side, std::int64_t channel) {
  if (side.tensor->known) return value_at(facts, *side.tensor, *side.row, channel);
  const std::vector<double> row = made_row(facts, *side.tensor, *side.row);
  if (channel >= static_cast<std::int64_t>(row.size())) return std::nullopt;
  return row[static_cast<std::size_t>(channel)];
}

std::string number_text(const Operand& side, double value) {
  return side.tensor->known ? fmt::format("{:.9g}", value) : fmt::format("{:.9g} (a sum that was not dumped)", value);
}

/// Of two healthy sides: whether their sum left the range.
void explain_overflow(const Subject& subject, const Operand& one, const Operand& other, Explanation& found) {
  if (!one.row || !other.row) return;
  const std::int64_t channel = subject.element.channel;
  const std::optional<double> a = side_at(subject.facts, one, channel);
  const std::optional<double> b = side_at(subject.facts, other, channel);
  const double limit = double{info(subject.tensor.format).max_finite};
  if (!a || !b || !(std::abs(*a + *b) > limit)) return;
  found.numbers = {{"a", *a}, {"b", *b}, {"a + b", *a + *b}, {"largest finite", limit}};
  found.text = fmt::format("{} + {} = {:.9g} is beyond the largest finite {} {:.9g}", number_text(one, *a),
                           number_text(other, *b), *a + *b, name(subject.tensor.format), limit);
  found.danger = true;
}

}  // namespace

/// out = a + b in f32, rounded to out's format: which side is bad, or which one brought it over the limit.
Explanation explain_residual_add(const Subject& subject) {
  const std::vector<Operand> sides = operands(subject);
  const std::int64_t channel = subject.element.channel;
  Facts& facts = subject.facts;
  const Operand* best = nullptr;
  const auto size = [&](const Operand& side) { return size_at(facts, side, channel); };
  // What was dumped says more than what stands for it.
  for (const bool known : {true, false}) {
    for (const Operand& side : sides) {
      if (side.tensor->known != known || !side.row) continue;
      if (bad_channel(facts, *side.tensor, *side.row, channel, 1))
        return follow_element(subject, side, channel, fmt::format("the sum's side '{}'", side.role));
      if (best == nullptr || size(side) > size(*best)) best = &side;
    }
  }
  if (best == nullptr) return explain_by_inputs(subject);
  const bool all_known =
      std::all_of(sides.begin(), sides.end(), [](const Operand& side) { return side.tensor->known; });
  Explanation found =
      follow_element(subject, *best, channel, all_known ? "the larger side of the sum" : "a side of the sum");
  if (!subject.bad || sides.size() != 2) return found;
  if (!all_known && best->tensor->known) {
    found.text += "; the other side was not dumped";
    found.text += kBornBetween;
  }
  explain_overflow(subject, sides[0], sides[1], found);
  return found;
}

}  // namespace nanscope

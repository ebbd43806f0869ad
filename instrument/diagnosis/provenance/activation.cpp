#include <fmt/format.h>

#include <cmath>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// One channel of one input that an element is made of.
struct Side {
  const Operand* input = nullptr;
  std::int64_t channel = 0;
};

/// A fused gate and up is twice as wide: the element has a channel in each half.
std::vector<Side> sides_of(const Subject& subject, const std::vector<Operand>& inputs) {
  std::vector<Side> sides;
  const std::int64_t channel = subject.element.channel;
  const std::int64_t width = subject.tensor.channels;
  for (const Operand& input : inputs) {
    // Of what may be an input, only what explains something says that it is one.
    if (input.role == "maybe_up" && !subject.bad) continue;
    const bool halves = input.tensor->known && input.tensor->channels == 2 * width;
    // Beside a product that has the gate in it stands the other half.
    if (!halves || input.role != "half_of" || subject.op.input("product") == 0) sides.push_back({&input, channel});
    if (halves) sides.push_back({&input, channel + width});
  }
  return sides;
}

/// Where nothing says which activation it is, its gate times up is an upper bound that large gates reach.
void say_product(const Subject& subject, const std::vector<Side>& sides, Explanation& found) {
  if (!found.origin || sides.size() != 2 || attributes<ActivationAttributes>(subject.op).activation) return;
  const auto value = [&](const Side& side) -> std::optional<double> {
    if (!side.input->row) return std::nullopt;
    return value_at(subject.facts, *side.input->tensor, *side.input->row, side.channel);
  };
  const std::optional<double> a = value(sides[0]);
  const std::optional<double> b = value(sides[1]);
  if (!a || !b) return;
  const double limit = double{info(subject.tensor.format).max_finite};
  const bool gated = sides[0].input->role == "product" || *a > 0;
  if (!gated || !(std::abs(*a * *b) > limit)) return;
  found.numbers = {{"a", *a}, {"b", *b}, {"a * b", *a * *b}, {"largest finite", limit}};
  found.text = fmt::format("element by element: {:.9g} times {:.9g} = {:.9g} is beyond the largest finite {} {:.9g}",
                           *a, *b, *a * *b, name(subject.tensor.format), limit);
}

}  // namespace

/// Element by element; swiglu is silu(x) * up: the bad side, else the larger one.
Explanation explain_activation(const Subject& subject) {
  const std::vector<Operand> inputs = operands(subject);
  const std::vector<Side> sides = sides_of(subject, inputs);
  if (sides.empty()) return {};
  Facts& facts = subject.facts;
  const Side* best = nullptr;
  const auto size = [&](const Side& side) { return size_at(facts, *side.input, side.channel); };
  for (const Side& side : sides) {
    const Operand& input = *side.input;
    if (input.row && bad_channel(facts, *input.tensor, *input.row, side.channel, 1))
      return follow_element(subject, input, side.channel, "element by element");
    if (best == nullptr || size(side) > size(*best)) best = &side;
  }
  Explanation found = follow_element(subject, *best->input, best->channel, "element by element, the larger side");
  found.danger = subject.bad;
  say_product(subject, sides, found);
  return found;
}

}  // namespace nanscope

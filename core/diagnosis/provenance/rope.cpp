#include <fmt/format.h>

#include <algorithm>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

namespace {

/// Dynamic NTK scaling with less served than trained for: a negative number has no power of a fraction.
void blame_stretch(const OpRow& op, double stretch, Explanation& found) {
  const auto number = [&](const char* name) { return number_attribute(op, name).value_or(0); };
  found.danger = true;
  for (const char* name : {"base", "factor", "trained", "served"}) found.numbers.push_back({name, number(name)});
  found.numbers.push_back({"stretch", stretch});
  found.text = fmt::format(
      "x is healthy; its rotary base {:g} is stretched by {:g} * {:g} / {:g} - {:g} = {:g}, which has no real power: "
      "the angles are no numbers",
      number("base"), number("factor"), number("served"), number("trained"), number("factor") - 1, stretch);
}

}  // namespace

/// Half-split rotation: channel i of a head is made of channels i and i + D/2, or i - D/2.
Explanation explain_rope(const Subject& subject) {
  const std::optional<InputTensor> x = input_tensor(subject, {"x"});
  if (!x) return {};
  const std::int64_t heads = std::max<std::int64_t>(subject.tensor.heads, 1);
  const std::int64_t width = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t channel = subject.element.channel;
  const std::int64_t inside = channel % width;
  const std::int64_t partner = inside < width / 2 ? channel + width / 2 : channel - width / 2;
  const std::int64_t row = x->row_of(subject);
  const bool partner_bad =
      !bad_channel(subject.facts, *x, row, channel, 1) && bad_channel(subject.facts, *x, row, partner, 1);
  Explanation found = follow_element(subject, *x, partner_bad ? partner : channel,
                                     fmt::format("rotated with channel {}", partner_bad ? channel : partner));
  const std::optional<double> stretch = number_attribute(subject.op, "stretch");
  if (found.origin && stretch && !(*stretch > 0)) blame_stretch(subject.op, *stretch, found);
  return found;
}

}  // namespace nanscope

#include <fmt/format.h>

#include <algorithm>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

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
  return follow_element(subject, *x, partner_bad ? partner : channel,
                        fmt::format("rotated with channel {}", partner_bad ? channel : partner));
}

}  // namespace nanscope

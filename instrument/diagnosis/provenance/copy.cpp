#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/diagnosis/provenance/scale.h"

namespace nanscope {

/// The same element again, perhaps in another format.
Explanation explain_copy(const Subject& subject) {
  const std::vector<Operand> inputs = operands(subject);
  if (inputs.empty()) return {};
  // Of several that are joined, the one that has the row.
  const auto placed =
      std::find_if(inputs.begin(), inputs.end(), [](const Operand& one) { return one.row.has_value(); });
  const Operand& x = placed != inputs.end() ? *placed : inputs.front();
  const std::int64_t channel = subject.element.channel;
  const bool same = x.tensor->format == subject.tensor.format || !x.tensor->known;
  const std::string how = same ? std::string("the same again") : fmt::format("cast to {}", name(subject.tensor.format));
  Explanation found = follow_element(subject, x, channel, how);
  const bool bad = x.row && x.tensor->known && bad_channel(subject.facts, *x.tensor, *x.row, channel, 1);
  if (bad && !subject.bad) found.text += ", and here it is a number: it was laundered";
  if (!found.origin || !x.tensor->known || !x.row) return found;
  const std::optional<float> value = value_at(subject.facts, *x.tensor, *x.row, channel);
  const double limit = double{info(subject.tensor.format).max_finite};
  if (value && double{std::abs(*value)} > limit) {
    found.numbers = {{"x", double{*value}}, {"largest finite", limit}};
    found.text += fmt::format(", beyond the largest finite {} {:g}", name(subject.tensor.format), limit);
  } else {
    found.text += "; by its name it should be the same here, and is not";
  }
  return found;
}

/// Columns of a fused projection.
Explanation explain_split(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  if (!x) return explain_by_inputs(subject);
  const auto& split = attributes<SplitAttributes>(subject.op);
  const std::int64_t first = count(split.first_channel, 0);
  const std::int64_t channel =
      whole_channel(split, subject.element.channel, subject.tensor.channels, x->tensor->channels);
  if (x->tensor->known && channel >= x->tensor->channels)
    return follow_row(subject, *x, "columns of a fused projection that are not where its width says");
  return follow_element(subject, *x, channel, fmt::format("columns from {} on of a fused projection", first));
}

/// Each head's own first columns, and behind them those that all heads share.
Explanation explain_join(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  const std::optional<Operand> shared = operand(subject, {"shared"});
  const std::int64_t heads = count(attributes<JoinAttributes>(subject.op).heads, 0);
  if (!x || !shared || heads == 0 || subject.tensor.channels % heads != 0) return explain_by_inputs(subject);
  const std::int64_t width = subject.tensor.channels / heads;
  const std::int64_t own = width - shared->tensor->channels;
  const std::int64_t inside = subject.element.channel % width;
  if (inside >= own) return follow_element(subject, *shared, inside - own, "the part that all heads share");
  const std::int64_t head = subject.element.channel / width;
  return follow_element(subject, *x, head * (x->tensor->channels / heads) + inside, "the head's own part");
}

/// code = encode(x / scale).
Explanation explain_quantise(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  if (!x) return explain_by_inputs(subject);
  const std::int64_t channel = subject.element.channel;
  if (!x->row) return follow_unplaced(subject, *x);
  if (x->tensor->known && channel >= x->tensor->channels) return explain_by_inputs(subject);
  return explain_stored(subject, *x->tensor, *x->row, channel,
                        used_scale(subject, "scale", "x", subject.tensor, subject.element.row, channel));
}

/// out = code x scale.
Explanation explain_dequantise(const Subject& subject) {
  const std::optional<Operand> codes = operand(subject, {"codes", "x"});
  if (!codes) return explain_by_inputs(subject);
  const std::int64_t channel = subject.element.channel;
  if (!codes->row) return follow_unplaced(subject, *codes);
  if (codes->tensor->known && channel >= codes->tensor->channels) return explain_by_inputs(subject);
  return explain_read_back(subject, *codes->tensor, *codes->row, channel,
                           used_scale(subject, "scale", {}, *codes->tensor, *codes->row, channel));
}

}  // namespace nanscope

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

struct ColumnBlock {
  std::int64_t number = 0;
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int64_t owner = 0;  ///< of the largest magnitude, or the first that is bad
  bool bad = false;
};

ColumnBlock block_at(Facts& facts, const Tensor& x, std::int64_t number, std::int64_t size, std::int64_t channel) {
  ColumnBlock block;
  block.number = number;
  block.first = std::min(number * size, std::max<std::int64_t>(x.tokens - 1, 0));
  block.end = std::min(block.first + size, x.tokens);
  block.owner = block.first;
  float largest = -1;
  for (std::int64_t row = block.first; row < block.end; ++row) {
    const std::optional<float> value = value_at(facts, x, row, channel);
    if (!value) continue;
    if (is_bad(x, *value)) {
      block.owner = row;
      block.bad = true;
      return block;
    }
    if (std::abs(*value) <= largest) continue;
    largest = std::abs(*value);
    block.owner = row;
  }
  return block;
}

}  // namespace

/// scale = rule(largest of the block's rows in this column); code = x / scale. A code is explained by the block's scale
/// where a later row decides on it, else by its own x.
Explanation explain_quantise_columns(const Subject& subject) {
  const Tensor* x = subject.facts.run.input(subject.op, "x");
  if (x == nullptr || !x->known) return explain_by_inputs(subject);
  Facts& facts = subject.facts;
  const std::int64_t size = std::max<std::int64_t>(count(attributes<BlockAttributes>(subject.op).block, 32), 1);
  const std::int64_t channel = subject.element.channel;
  const bool of_scale = subject.tensor.role == "scales";
  const std::int64_t number = of_scale ? subject.element.row : subject.element.row / size;
  const ColumnBlock block = block_at(facts, *x, number, size, channel);
  Explanation found;
  found.numbers = {{"block", block.number}, {"first row", block.first}, {"rows", block.end - block.first}};
  if (of_scale) {
    found.element = Element{x->id, block.owner, channel};
    found.origin = subject.bad && !block.bad;
    found.text = fmt::format("the scale of rows {} to {} of this channel is that of row {}, the {}: {}", block.first,
                             block.end - 1, block.owner, block.bad ? "bad one" : "largest",
                             said_of(facts, *x, block.owner, channel));
    return found;
  }
  const Tensor* scales = facts.run.output(subject.op, "scales");
  const std::int64_t own = subject.element.row;
  if (scales != nullptr && block.owner > own && number < scales->tokens) {
    found.element = Element{scales->id, number, channel};
    found.text =
        fmt::format("rounded under the scale {} of rows {} to {}, on which row {} decides, a later one than {}",
                    value_text(facts, *scales, number, channel), block.first, block.end - 1, block.owner, own);
    return found;
  }
  found.element = Element{x->id, std::min(own, x->tokens - 1), channel};
  found.origin = subject.bad && !block.bad;
  found.text = fmt::format("stored as {}: {}", name(subject.tensor.format), said_of(facts, *x, own, channel));
  return found;
}

/// out = code x scale of its block.
Explanation explain_block_dequantise(const Subject& subject) {
  const Tensor* codes = subject.facts.run.input(subject.op, "codes");
  const Tensor* scales = subject.facts.run.input(subject.op, "scales");
  if (codes == nullptr || scales == nullptr || !codes->known || !scales->known) return explain_by_inputs(subject);
  Facts& facts = subject.facts;
  const std::int64_t size = std::max<std::int64_t>(count(attributes<BlockAttributes>(subject.op).block, 32), 1);
  const Op* maker = facts.run.maker(*codes);
  const bool down = maker != nullptr && maker->kind == OpKind::quantise_columns;
  const std::int64_t row = subject.element.row;
  const std::int64_t channel = subject.element.channel;
  const Element scale{scales->id, down ? row / size : row, down ? channel : channel / size};
  Explanation found;
  const bool bad_scale = bad_channel(facts, *scales, scale.row, scale.channel, 1).has_value();
  found.element = bad_scale ? scale : Element{codes->id, row, channel};
  found.text = fmt::format("code {} under scale {} of {} {}", value_text(facts, *codes, row, channel),
                           value_text(facts, *scales, scale.row, scale.channel), down ? "rows" : "channels",
                           down ? fmt::format("{} to {}", scale.row * size, scale.row * size + size - 1)
                                : fmt::format("{} to {}", scale.channel * size, scale.channel * size + size - 1));
  return found;
}

}  // namespace nanscope

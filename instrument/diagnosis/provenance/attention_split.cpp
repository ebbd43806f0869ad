/// Attention by blocks of keys: a softmax's statistics of each, and the sum of what each gave.
#include <fmt/format.h>

#include <algorithm>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// max and sum of a block of a row's scores: one NaN score of the block makes both NaN.
Explanation explain_softmax_partials(const Subject& subject) {
  const std::optional<Operand> scores = operand(subject, {"scores"});
  if (!scores) return explain_by_inputs(subject);
  if (!scores->row || !scores->tensor->known) return follow_unplaced(subject, *scores);
  Facts& facts = subject.facts;
  const auto& form = attributes<SoftmaxAttributes>(subject.op);
  const std::int64_t heads = std::max<std::int64_t>(1, count(form.heads, subject.tensor.heads));
  const std::int64_t keys = std::max<std::int64_t>(scores->tensor->channels / heads, 1);
  const std::int64_t blocks = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t head = std::min(subject.element.channel / blocks, heads - 1);
  const std::int64_t block = subject.element.channel % blocks;
  const std::int64_t split = std::max<std::int64_t>(1, count(form.split, keys));
  std::int64_t begin = std::min(keys, block * split);
  std::int64_t end = std::min(keys, begin + split);
  // A selecting mask replaces the scores of hidden keys: those cannot have decided anything.
  if (form.mask.value_or("") == "select" && form.first_key && form.first_position) {
    const std::int64_t last = count(form.first_position, 0) + subject.element.row;
    const std::int64_t behind = form.window ? last - count(form.window, 0) + 1 : 0;
    begin = std::max({begin, count(form.first_key, 0), behind});
    end = std::min(end, last + 1);
  }
  Explanation found;
  found.numbers = {{"head", head}, {"block", block}};
  const std::int64_t first = head * keys + std::min(begin, keys - 1);
  const std::int64_t seen = std::max<std::int64_t>(end - begin, 0);
  if (seen == 0) {
    found.element = Element{scores->tensor->id, *scores->row, first};
    found.origin = subject.bad;
    found.text = fmt::format("head {}: the row sees no key of block {}", head, block);
    return found;
  }
  if (const auto bad = bad_channel(facts, *scores->tensor, *scores->row, first, seen)) {
    found.element = Element{scores->tensor->id, *scores->row, *bad};
    found.text = fmt::format("head {}: of the scores of block {} one is bad: {}", head, block,
                             said_of(facts, *scores->tensor, *scores->row, *bad));
    return found;
  }
  const std::int64_t largest = largest_channel(facts, *scores->tensor, *scores->row, first, seen);
  found.element = Element{scores->tensor->id, *scores->row, largest};
  found.origin = subject.bad;
  found.text = fmt::format("head {}: of the scores of block {} none is bad; {}", head, block,
                           said_of(facts, *scores->tensor, *scores->row, largest));
  return found;
}

/// out[t, h*D + i] = sum over b of partials[t, (h*B + b)*D + i].
Explanation explain_combine_partials(const Subject& subject) {
  const std::optional<Operand> partials = operand(subject, {"partials"});
  if (!partials) return explain_by_inputs(subject);
  if (!partials->row || !partials->tensor->known) return follow_unplaced(subject, *partials);
  Facts& facts = subject.facts;
  const std::int64_t heads =
      std::max<std::int64_t>(1, count(attributes<MixAttributes>(subject.op).heads, subject.tensor.heads));
  const std::int64_t width = std::max<std::int64_t>(subject.tensor.channels / heads, 1);
  const std::int64_t blocks = std::max<std::int64_t>(partials->tensor->channels / heads / width, 1);
  const std::int64_t head = subject.element.channel / width;
  const std::int64_t first = head * blocks * width + subject.element.channel % width;
  std::int64_t largest = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto bad = bad_channel(facts, *partials->tensor, *partials->row, first + block * width, 1);
    if (bad) {
      Explanation found = follow_element(subject, *partials, *bad, fmt::format("head {}: block {}", head, block));
      found.numbers.push_back({"block", block});
      return found;
    }
    const auto size = size_at(facts, *partials, first + block * width);
    const auto most = size_at(facts, *partials, first + largest * width);
    if (size && most && *size > *most) largest = block;
  }
  Explanation found =
      follow_element(subject, *partials, first + largest * width,
                     fmt::format("head {}: the sum of {} blocks, most of block {}", head, blocks, largest));
  found.numbers.push_back({"block", largest});
  return found;
}

}  // namespace nanscope

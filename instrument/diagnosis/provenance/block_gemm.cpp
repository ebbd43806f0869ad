#include <fmt/format.h>

#include <algorithm>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {

/// out[t, n] = sum over blocks b of scale[t, b] * (sum over k in b of code[t, k] * weight[n, k]) + bias[n]: one bad
/// scale that is read, or one bad code, makes the whole row bad, one bad weight row makes a column bad.
Explanation explain_block_gemm(const Subject& subject) {
  const std::optional<Operand> codes = operand(subject, {"codes"});
  const std::optional<Operand> scales = operand(subject, {"scales"});
  if (!codes || !scales) return explain_by_inputs(subject);
  if (!scales->row) return follow_unplaced(subject, *scales);
  Facts& facts = subject.facts;
  const auto& form = attributes<BlockAttributes>(subject.op);
  const std::int64_t width = scales->tensor->channels;
  const std::int64_t blocks = count(form.blocks, width);
  const std::int64_t read = form.read_padding.value_or(false) ? width : std::min(blocks, width);
  if (const auto bad = bad_channel(facts, *scales->tensor, *scales->row, 0, read)) {
    Explanation found;
    found.element = Element{scales->tensor->id, *scales->row, *bad};
    found.numbers = {{"scale", *bad}, {"scales read", read}, {"blocks", blocks}};
    found.text = fmt::format("a sum over {} scales: {}", read, said_of(facts, *scales->tensor, *scales->row, *bad));
    if (*bad >= blocks) found.text += fmt::format("; the row has {} blocks, and 0 * NaN is NaN", blocks);
    return found;
  }
  Explanation found = follow_row(subject, *codes, "one sum over the row's blocks");
  if (found.origin) blame_bad_weight(subject, "codes and scales are healthy", found);
  return found;
}

}  // namespace nanscope

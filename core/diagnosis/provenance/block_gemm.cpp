#include <fmt/format.h>

#include <algorithm>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {

/// out[t, n] = sum over blocks b of scale[t, b] * (sum over k in b of code[t, k] * weight[n, k]) + bias[n]: one bad
/// scale that is read, or one bad code, makes the whole row bad, one bad weight row makes a column bad.
Explanation explain_block_gemm(const Subject& subject) {
  const std::optional<InputTensor> codes = input_tensor(subject, {"codes"});
  const std::optional<InputTensor> scales = input_tensor(subject, {"scales"}, 1);
  if (!codes || !scales) return {};
  const std::int64_t blocks = count_attribute(subject.op, "blocks", scales->tensor.channels);
  const bool padding = number_attribute(subject.op, "read_padding").value_or(0) != 0;
  const std::int64_t read = padding ? scales->tensor.channels : std::min(blocks, scales->tensor.channels);
  const std::int64_t row = scales->row_of(subject);
  if (const auto bad = bad_channel(subject.facts, *scales, row, 0, read)) {
    Explanation found;
    found.element = Element{scales->tensor.id, row, *bad};
    found.numbers = {{"scale", *bad}, {"scales read", read}, {"blocks", blocks}};
    found.text =
        fmt::format("a sum over {} scales: {} is {}", read, element_text(subject.facts, scales->tensor, row, *bad),
                    value_text(scales->data.get(), row, *bad));
    if (*bad >= blocks) found.text += fmt::format("; the row has {} blocks, and 0 * NaN is NaN", blocks);
    return found;
  }
  Explanation found = follow_row(subject, *codes, "one sum over the row's blocks");
  if (found.origin) blame_bad_weight(subject, "codes and scales are healthy", found);
  return found;
}

}  // namespace nanscope

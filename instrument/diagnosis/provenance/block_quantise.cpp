#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "instrument/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

/// Why a block's scale is what it is, of the block's largest value.
std::string scale_text(const Subject& subject, double amax, double wanted) {
  const FormatInfo& stored = info(subject.tensor.format);
  const std::string code = value_text(subject.facts, subject.tensor, subject.element.row, subject.element.channel);
  std::string text =
      fmt::format("the block's largest is {:.6g}: a scale of {:.6g} was stored as {}", amax, wanted, code);
  if (wanted > static_cast<double>(stored.max_finite)) {
    return text + fmt::format("; the largest finite {} is {:.6g}", stored.name, stored.max_finite);
  }
  if (attributes<BlockAttributes>(subject.op).packing.value_or("") == "unmasked") {
    text += "; it was packed with its mantissa, and those of the scales after it ran into its exponent";
  }
  return text;
}

Explanation explain_code(const Subject& subject, const Operand& x, std::int64_t block) {
  const Tensor* scales = subject.facts.run.output(subject.op, "scales");
  const std::int64_t channel = subject.element.channel;
  Explanation found = follow_element(subject, x, channel, fmt::format("stored as {}", name(subject.tensor.format)));
  if (!found.origin || scales == nullptr || channel / block >= scales->channels) return found;
  found.element = Element{scales->id, subject.element.row, channel / block};
  found.origin = false;
  found.text += fmt::format(", under scale {} of the row", channel / block);
  return found;
}

}  // namespace

/// scale = largest of the block / largest code / tensor_scale, rounded to 8 bits; code = x / (scale * tensor_scale).
/// A bad x, a cast or a packing that fails, or padding that nobody writes.
Explanation explain_block_quantise(const Subject& subject) {
  const std::optional<Operand> x = operand(subject, {"x"});
  if (!x) return explain_by_inputs(subject);
  if (!x->row) return follow_unplaced(subject, *x);
  Facts& facts = subject.facts;
  const auto& form = attributes<BlockAttributes>(subject.op);
  const std::int64_t block = std::max<std::int64_t>(count(form.block, 32), 1);
  if (subject.tensor.role != "scales") return explain_code(subject, *x, block);
  Explanation found;
  found.numbers = {{"block", subject.element.channel}, {"channels of a block", block}};
  const std::int64_t blocks = x->tensor->channels / block + (x->tensor->channels % block != 0 ? 1 : 0);
  if (x->tensor->known && subject.element.channel >= blocks) {
    found.origin = subject.bad;
    found.text =
        fmt::format("no block stands behind scale {}: it is unwritten padding and holds {}", subject.element.channel,
                    value_text(facts, subject.tensor, subject.element.row, subject.element.channel));
    return found;
  }
  const std::int64_t channel = x->tensor->known ? subject.element.channel * block : 0;
  const std::optional<std::int64_t> bad = bad_channel(facts, *x->tensor, *x->row, channel, block);
  const std::int64_t at = bad ? *bad : largest_channel(facts, *x->tensor, *x->row, channel, block);
  found.element = Element{x->tensor->id, *x->row, at};
  if (bad) {
    found.text = fmt::format("the scale of a block in which {}", said_of(facts, *x->tensor, *x->row, at));
    return found;
  }
  found.origin = subject.bad;
  const Tensor* codes = facts.run.output(subject.op, "codes");
  const double largest = codes != nullptr ? static_cast<double>(info(codes->format).max_finite) : 1;
  const std::optional<float> source = value_at(facts, *x->tensor, *x->row, at);
  if (!source) {
    found.text = fmt::format("the scale of a block in which {}", said_of(facts, *x->tensor, *x->row, at));
    return found;
  }
  const double amax = std::abs(double{*source});
  const double wanted = amax / largest / form.tensor_scale.value_or(1);
  found.numbers.push_back({"largest of the block", amax});
  found.numbers.push_back({"scale before it was stored", wanted});
  found.text = scale_text(subject, amax, wanted);
  return found;
}

}  // namespace nanscope

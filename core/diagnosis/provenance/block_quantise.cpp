#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/diagnosis/provenance/rule.h"

namespace nanscope {
namespace {

double largest_code(const std::optional<TensorRow>& codes) {
  return codes ? static_cast<double>(info(codes->format).max_finite) : 1;
}

/// Why a block's scale is what it is, of the block's largest value.
std::string scale_text(const Subject& subject, double amax, double wanted) {
  const FormatInfo& stored = info(subject.tensor.format);
  const std::string code = value_text(subject.data.get(), subject.element.row, subject.element.channel);
  std::string text =
      fmt::format("the block's largest is {:.6g}: a scale of {:.6g} was stored as {}", amax, wanted, code);
  if (wanted > static_cast<double>(stored.max_finite)) {
    return text + fmt::format("; the largest finite {} is {:.6g}", stored.name, stored.max_finite);
  }
  if (text_attribute(subject.op, "packing").value_or("") == "unmasked") {
    text += "; it was packed with its mantissa, and those of the scales after it ran into its exponent";
  }
  return text;
}

}  // namespace

/// scale = largest of the block / largest code / tensor_scale, rounded to 8 bits; code = x / (scale * tensor_scale).
/// A bad x, a cast or a packing that fails, or padding that nobody writes.
Explanation explain_block_quantise(const Subject& subject) {
  const std::optional<InputTensor> x = input_tensor(subject, {"x"});
  if (!x) return {};
  const std::int64_t block = std::max<std::int64_t>(count_attribute(subject.op, "block", 32), 1);
  const std::optional<TensorRow> codes = subject.facts.run.output(subject.op.id, "codes");
  const bool is_scale = subject.tensor.role == "scales";
  const std::int64_t channel = is_scale ? subject.element.channel * block : subject.element.channel;
  const std::int64_t row = x->row_of(subject);
  if (!is_scale) {
    const std::optional<TensorRow> scales = subject.facts.run.output(subject.op.id, "scales");
    Explanation found = follow_element(subject, *x, channel, fmt::format("stored as {}", name(subject.tensor.format)));
    if (!found.origin || !scales || channel / block >= scales->channels) return found;
    found.element = Element{scales->id, subject.element.row, channel / block};
    found.origin = false;
    found.text += fmt::format(", under scale {} of the row", channel / block);
    return found;
  }
  Explanation found;
  found.numbers = {{"block", subject.element.channel}, {"channels of a block", block}};
  if (channel >= x->tensor.channels) {
    found.origin = subject.bad;
    found.text = fmt::format("no block stands behind scale {}: it is padding, nobody wrote it, and it holds {}",
                             subject.element.channel,
                             value_text(subject.data.get(), subject.element.row, subject.element.channel));
    return found;
  }
  const std::optional<std::int64_t> bad = bad_channel(subject.facts, *x, row, channel, block);
  const std::int64_t at = bad ? *bad : largest_channel(*x, row, channel, block);
  found.element = Element{x->tensor.id, row, at};
  if (bad) {
    found.text = fmt::format("the scale of a block in which {} is {}", element_text(subject.facts, x->tensor, row, at),
                             value_text(x->data.get(), row, at));
    return found;
  }
  found.origin = subject.bad;
  const double amax = std::abs(double{x->value(row, at)});
  const double tensor_scale = number_attribute(subject.op, "tensor_scale").value_or(1);
  const double wanted = amax / largest_code(codes) / tensor_scale;
  found.numbers.push_back({"largest of the block", amax});
  found.numbers.push_back({"scale before it was stored", wanted});
  found.text = scale_text(subject, amax, wanted);
  return found;
}

}  // namespace nanscope

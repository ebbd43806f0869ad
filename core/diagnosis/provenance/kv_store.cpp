#include <fmt/format.h>

#include <cmath>

#include "core/diagnosis/provenance/rule.h"
#include "core/diagnosis/scales.h"

namespace nanscope {
namespace {

void add_scale(const ScaleRow& scale, Explanation& found) {
  found.numbers.push_back({"scale", scale.scale});
  found.numbers.push_back({"headroom", scale.headroom});
}

}  // namespace

/// code = encode(x / scale): a bad x, a clip, an overflow of a cast that does not saturate, or a bad scale.
Explanation explain_kv_store(const Subject& subject) {
  const std::string target = subject.tensor.role.substr(0, 1);
  const std::optional<InputTensor> x = input_tensor(subject, {target}, target == "v" ? 1 : 0);
  const ScaleRow* scale = subject.facts.scale_of(subject.op.id, target);
  const std::int64_t channel = subject.element.channel;
  if (!x) return {};
  const std::int64_t row = x->row_of(subject);
  Explanation found;
  if (bad_channel(subject.facts, *x, row, channel, 1)) {
    return follow_element(subject, *x, channel, fmt::format("stored as {}", name(subject.tensor.format)));
  }
  const double largest = info(subject.tensor.format).max_finite;
  const std::string value = value_text(x->data.get(), row, channel);
  const std::string code = value_text(subject.data.get(), subject.element.row, channel);
  if (scale != nullptr) add_scale(*scale, found);
  found.origin = subject.bad;
  const bool scale_bad = scale != nullptr && !scale_complaint(scale->scale).empty();
  if (scale_bad) {
    found.scale = *scale;
    found.danger = true;
    found.text = fmt::format("{} / scale {} became {}", value, to_string(EvidenceValue{scale->scale}), code);
    return found;
  }
  const float source = x->value(row, channel);
  const double quotient = scale != nullptr ? static_cast<double>(source) / scale->scale : std::nan("");
  const bool beyond = std::abs(quotient) > largest;
  const bool clip_unknown = !x->data && scale != nullptr && scale->headroom < 1;
  if (scale != nullptr && (beyond || clip_unknown || subject.bad)) {
    found.scale = *scale;
    found.danger = true;
    found.numbers.push_back({"x", double{source}});
    found.numbers.push_back({"x / scale", quotient});
    found.numbers.push_back({"largest finite", largest});
    found.text =
        fmt::format("{} / scale {:.6g} = {:.6g} is beyond the largest finite {} {:g}: {} as {}", value, scale->scale,
                    quotient, name(subject.tensor.format), largest, subject.bad ? "overflowed" : "clipped", code);
    return found;
  }
  found.element = Element{x->tensor.id, row, channel};
  found.text = fmt::format("{} stored as {}", value, code);
  return found;
}

}  // namespace nanscope

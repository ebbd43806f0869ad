#include "core/diagnosis/provenance/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace nanscope {

#define NANSCOPE_PROVENANCE(kind) Explanation explain_##kind(const Subject& subject);
#include "core/diagnosis/provenance/provenance.def"
#undef NANSCOPE_PROVENANCE

Rule provenance_rule(std::string_view kind) {
#define NANSCOPE_PROVENANCE(name) \
  if (kind == #name) return explain_##name;
#include "core/diagnosis/provenance/provenance.def"
#undef NANSCOPE_PROVENANCE
  return nullptr;
}

std::int64_t InputTensor::row_of(const Subject& subject) const {
  const std::int64_t row = subject.element.row + subject.tensor.first_token - tensor.first_token;
  if (row >= 0 && row < tensor.tokens) return row;
  return std::clamp<std::int64_t>(subject.element.row, 0, std::max<std::int64_t>(tensor.tokens - 1, 0));
}

float InputTensor::value(std::int64_t row, std::int64_t channel) const {
  if (!data || row < 0 || row >= tensor.tokens || channel < 0 || channel >= tensor.channels) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return data->value(row, channel);
}

std::vector<InputTensor> input_tensors(const Subject& subject) {
  std::vector<InputTensor> found;
  for (const InputRow& input : subject.facts.run.inputs_of(subject.op.id)) {
    if (input.tensor == 0) continue;
    std::optional<TensorRow> tensor = subject.facts.run.tensor(input.tensor);
    if (!tensor) continue;
    std::shared_ptr<const TensorData> data = subject.facts.elements(*tensor);
    found.push_back({input.role, std::move(*tensor), std::move(data)});
  }
  return found;
}

std::optional<InputTensor> input_tensor(const Subject& subject, std::initializer_list<std::string_view> roles,
                                        std::size_t position) {
  std::vector<InputTensor> inputs = input_tensors(subject);
  for (InputTensor& input : inputs) {
    if (std::find(roles.begin(), roles.end(), input.role) != roles.end()) return std::move(input);
  }
  if (position < inputs.size()) return std::move(inputs[position]);
  return std::nullopt;
}

bool is_bad(float value) { return !std::isfinite(value); }

std::optional<std::int64_t> bad_channel(Facts& facts, const InputTensor& input, std::int64_t row, std::int64_t first,
                                        std::int64_t count) {
  if (!facts.row_bad(input.tensor, row)) return std::nullopt;
  if (!input.data) return first;
  std::optional<std::int64_t> infinite;
  for (std::int64_t i = first; i < std::min(first + count, input.tensor.channels); ++i) {
    const float value = input.data->value(row, i);
    if (std::isnan(value)) return i;
    if (std::isinf(value) && !infinite) infinite = i;
  }
  return infinite;
}

std::optional<std::int64_t> count_bad(const InputTensor& input, std::int64_t row, std::int64_t first,
                                      std::int64_t count) {
  if (!input.data) return std::nullopt;
  std::int64_t bad = 0;
  for (std::int64_t i = first; i < std::min(first + count, input.tensor.channels); ++i) {
    if (is_bad(input.data->value(row, i))) ++bad;
  }
  return bad;
}

std::int64_t largest_channel(const InputTensor& input, std::int64_t row, std::int64_t first, std::int64_t count) {
  std::int64_t best = first;
  float largest = -1;
  for (std::int64_t i = first; input.data && i < std::min(first + count, input.tensor.channels); ++i) {
    const float magnitude = std::abs(input.data->value(row, i));
    if (magnitude > largest) {
      largest = magnitude;
      best = i;
    }
  }
  return best;
}

std::string element_text(Facts& facts, const TensorRow& tensor, std::int64_t row, std::int64_t channel) {
  const std::optional<OpRow> op = facts.run.op(tensor.op);
  return fmt::format("{}.{}[{},{}]", op ? op->name : "?", tensor.role, tensor.first_token + row, channel);
}

std::string value_text(const TensorData* data, std::int64_t row, std::int64_t channel) {
  if (data == nullptr || row < 0 || row >= data->tokens || channel < 0 || channel >= data->channels) return "?";
  const float value = data->value(row, channel);
  const std::string bits = code_text(data->format, data->code(row, channel));
  if (std::isnan(value)) return fmt::format("NaN ({})", bits);
  if (std::isinf(value)) return fmt::format("{} ({})", value > 0 ? "+Inf" : "-Inf", bits);
  return fmt::format("{:.9g} ({})", value, bits);
}

Explanation follow_row(const Subject& subject, const InputTensor& input, std::string_view how) {
  Explanation found;
  const std::int64_t row = input.row_of(subject);
  const std::int64_t width = input.tensor.channels;
  const std::optional<std::int64_t> bad = bad_channel(subject.facts, input, row, 0, width);
  const std::int64_t channel = bad ? *bad : largest_channel(input, row, 0, width);
  found.element = Element{input.tensor.id, row, channel};
  const std::string source = element_text(subject.facts, input.tensor, row, channel);
  const std::string value = value_text(input.data.get(), row, channel);
  if (bad) {
    const std::optional<std::int64_t> many = count_bad(input, row, 0, width);
    if (many) found.numbers.push_back({"bad inputs", *many});
    found.numbers.push_back({"inputs", width});
    found.text = fmt::format("{}: {} is {}", how, source, value);
  } else {
    found.origin = subject.bad;
    found.text =
        fmt::format("{}: all {} inputs of the row are finite, the largest is {} = {}", how, width, source, value);
  }
  return found;
}

Explanation follow_element(const Subject& subject, const InputTensor& input, std::int64_t channel,
                           std::string_view how) {
  Explanation found;
  const std::int64_t row = input.row_of(subject);
  const std::int64_t at = std::clamp<std::int64_t>(channel, 0, std::max<std::int64_t>(input.tensor.channels - 1, 0));
  const bool bad = bad_channel(subject.facts, input, row, at, 1).has_value();
  found.element = Element{input.tensor.id, row, at};
  found.origin = subject.bad && !bad;
  found.text = fmt::format("{}: {} is {}", how, element_text(subject.facts, input.tensor, row, at),
                           value_text(input.data.get(), row, at));
  return found;
}

void blame_bad_weight(const Subject& subject, std::string_view healthy, Explanation& found) {
  for (const InputRow& input : subject.facts.run.inputs_of(subject.op.id)) {
    const WeightRow* weight = input.weight.empty() ? nullptr : subject.facts.run.weight(input.weight);
    if (weight == nullptr || weight->health.bad() == 0) continue;
    found.element.reset();
    found.weight = weight->name;
    found.danger = true;
    found.text = fmt::format("{}, the weight {} holds NaN or Inf", healthy, weight->name);
  }
}

}  // namespace nanscope

#include "gui/prepare/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/numbers/codec.h"
#include "core/tensor/health_of.h"

namespace nanscope::gui {

double Reference::distance(std::int64_t row, std::int64_t channel, double value) const {
  if (!made[static_cast<std::size_t>(row)]) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t at = index(row, channel);
  return distance_in_bounds(value, double{expected[at]}, double{bound[at]}, format, hides);
}

std::size_t Findings::off() const {
  return static_cast<std::size_t>(
      std::count_if(checked.begin(), checked.end(), [](const auto& one) { return one->off; }));
}

const VerifiedOutput* Findings::first() const {
  const auto found = std::find_if(checked.begin(), checked.end(), [](const auto& one) { return one->off; });
  return found == checked.end() ? nullptr : found->get();
}

ReferenceView::ReferenceView(RunView& served, ReferenceSource& source, TensorId tensor)
    : served_(served), tensor_(tensor) {
  const Tensor* out = served_.tensor(tensor);
  const Op* op = out != nullptr ? served_.maker(*out) : nullptr;
  if (op == nullptr || out->name.empty()) {
    asked_.problem = "nothing says which of the model's outputs it is";
  } else {
    asked_ = source.reference({out->name, op->name, out->role}, *out);
  }
}

const StepContent& ReferenceView::content(StepId step) {
  const auto known = contents_.find(step);
  if (known != contents_.end()) return known->second;
  StepContent content = served_.content(step);
  for (Tensor& tensor : content.tensors) {
    tensor.hash.reset();
    tensor.health = empty_health();
  }
  StepContent& kept = contents_.emplace(step, std::move(content)).first->second;
  const auto own =
      std::find_if(kept.tensors.begin(), kept.tensors.end(), [&](const Tensor& t) { return t.id == tensor_; });
  if (own != kept.tensors.end() && asked_.made) {
    for (const Health& row : read_rows(*own)) merge(own->health, row);
  }
  return kept;
}

std::vector<Health> ReferenceView::read_rows(const Tensor& tensor) {
  const Fact<TensorData> data = read_elements(tensor, 0, tensor.tokens);
  std::vector<Health> rows;
  if (!data) return rows;
  std::vector<float> values;
  data->decode_into(values);
  const auto width = static_cast<std::size_t>(tensor.channels);
  for (std::int64_t row = 0; row < tensor.tokens; ++row) {
    const std::int64_t first = row * tensor.channels;
    rows.push_back(health_of(std::span(values).subspan(static_cast<std::size_t>(first), width), first,
                             nanscope::info(tensor.format).max_finite));
  }
  return rows;
}

Fact<TensorData> ReferenceView::read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  if (tensor.id != tensor_) return absent("only the selected tensor is recomputed");
  if (!asked_.problem.empty()) return absent(asked_.problem);
  if (!asked_.made) return absent("it is being recomputed");
  TensorData data;
  data.format = tensor.format;
  data.tokens = count;
  data.channels = tensor.channels;
  const std::size_t width = nanscope::info(tensor.format).storage_bytes();
  data.bytes.resize(static_cast<std::size_t>(count * tensor.channels) * width);
  std::byte* to = data.bytes.data();
  const float* from = asked_.made->expected.data() + asked_.made->index(first, 0);
  for (std::int64_t i = 0; i < data.count(); ++i, to += width) {
    const std::uint32_t code = encode(tensor.format, from[i], Overflow::overflow);
    for (std::size_t byte = 0; byte < width; ++byte) to[byte] = static_cast<std::byte>(code >> (8 * byte));
  }
  return data;
}

}  // namespace nanscope::gui

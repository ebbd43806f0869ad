#include "instrument/diagnosis/provenance/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

using Row = std::shared_ptr<const std::vector<float>>;

/// The values of a row that lies in the tensor; null when they cannot be had.
Row values_of(Facts& facts, const Tensor& tensor, std::int64_t row) {
  if (!tensor.known || tensor.stated || row < 0 || row >= tensor.tokens) return nullptr;
  Row values = facts.run.row_values(tensor, row);
  return values && static_cast<std::int64_t>(values->size()) == tensor.channels ? values : nullptr;
}

/// One past the last of `count` channels from `first` on that the tensor has.
std::int64_t end_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  return count > tensor.channels - first ? tensor.channels : first + count;
}

constexpr int kSumsDeep = 4;

std::vector<double> sum_of_sides(Facts& facts, const Tensor& tensor, std::int64_t row, int depth) {
  if (const Row values = values_of(facts, tensor, row)) return {values->begin(), values->end()};
  const Op* op = facts.run.maker(tensor);
  if (tensor.known || op == nullptr || op->kind != OpKind::residual_add || depth > kSumsDeep) return {};
  std::vector<double> sum;
  for (const Input& input : op->inputs) {
    const Tensor* side = facts.run.tensor(input.tensor);
    const auto at = side != nullptr ? row_in(facts, tensor, row, *side) : std::nullopt;
    const std::vector<double> values = at ? sum_of_sides(facts, *side, *at, depth + 1) : std::vector<double>{};
    if (values.empty() || (!sum.empty() && values.size() != sum.size())) return {};
    sum.resize(values.size());
    std::transform(values.begin(), values.end(), sum.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

}  // namespace

std::vector<double> made_row(Facts& facts, const Tensor& tensor, std::int64_t row) {
  return sum_of_sides(facts, tensor, row, 0);
}

bool of_dump(const Tensor& tensor) { return !tensor.known || !tensor.name.empty(); }

bool is_bad(const Tensor& tensor, float value) {
  if (std::isnan(value)) return true;
  return std::isinf(value) && (value > 0 || !may_hide(tensor.role));
}

std::optional<float> value_at(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel) {
  const Row values = channel >= 0 && channel < tensor.channels ? values_of(facts, tensor, row) : nullptr;
  return values ? std::optional((*values)[static_cast<std::size_t>(channel)]) : std::nullopt;
}

bool has_values(Facts& facts, const Tensor& tensor, std::int64_t row) {
  return values_of(facts, tensor, row) != nullptr;
}

std::optional<std::uint32_t> code_at(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel) {
  if (!tensor.known || tensor.stated || row < 0 || row >= tensor.tokens) return std::nullopt;
  if (channel < 0 || channel >= tensor.channels) return std::nullopt;
  const Fact<TensorData> data = facts.run.read(tensor, row, 1);
  return data && channel < data->count() ? std::optional(data->code(channel)) : std::nullopt;
}

std::optional<std::int64_t> bad_channel(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t first,
                                        std::int64_t count) {
  if (!tensor.known) {
    const bool one = count == 1;
    return bad_behind(facts, tensor, row, one ? std::optional(first) : std::nullopt) ? std::optional(first)
                                                                                     : std::nullopt;
  }
  if (row < 0 || row >= tensor.tokens || first < 0 || !facts.row_bad(tensor, row)) return std::nullopt;
  const Row values = values_of(facts, tensor, row);
  if (!values) return first;
  std::optional<std::int64_t> infinite;
  for (std::int64_t i = first; i < end_of(tensor, first, count); ++i) {
    const float value = (*values)[static_cast<std::size_t>(i)];
    if (std::isnan(value)) return i;
    if (is_bad(tensor, value) && !infinite) infinite = i;
  }
  return infinite;
}

std::optional<std::int64_t> count_bad(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t first,
                                      std::int64_t count) {
  const Row values = values_of(facts, tensor, row);
  if (!values || first < 0) return std::nullopt;
  std::int64_t bad = 0;
  for (std::int64_t i = first; i < end_of(tensor, first, count); ++i) {
    if (is_bad(tensor, (*values)[static_cast<std::size_t>(i)])) ++bad;
  }
  return bad;
}

std::int64_t largest_channel(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t first,
                             std::int64_t count) {
  const Row values = values_of(facts, tensor, row);
  std::int64_t best = first;
  float largest = -1;
  for (std::int64_t i = first; values && i >= 0 && i < end_of(tensor, first, count); ++i) {
    const float magnitude = std::abs((*values)[static_cast<std::size_t>(i)]);
    if (std::isfinite(magnitude) && magnitude > largest) {
      largest = magnitude;
      best = i;
    }
  }
  return best;
}

bool is_constant(Facts& facts, const Tensor& tensor, std::int64_t row) {
  const std::vector<Health>& rows = facts.run.rows(tensor);
  if (row < 0 || row >= static_cast<std::int64_t>(rows.size())) return false;
  const Health& health = rows[static_cast<std::size_t>(row)];
  return health.count > 1 && health.min == health.max;
}

std::optional<std::int64_t> row_in(Facts& facts, const Tensor& from, std::int64_t row, const Tensor& to) {
  const std::optional<std::int64_t> same = facts.run.same_row(from, row, to);
  if (same && *same >= 0 && *same < to.tokens) return same;
  // Of a tensor whose rows nobody knows, equally many are taken for the same, and one for all.
  const bool unknown = from.axis == Axis::none || to.axis == Axis::none;
  if (unknown && from.tokens == to.tokens && row < to.tokens) return row;
  if (to.tokens == 1 && (to.axis == Axis::none || from.tokens == 1)) return 0;
  return std::nullopt;
}

std::string element_text(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel) {
  const Op* op = facts.run.maker(tensor);
  const RowToken token = facts.run.token_of(tensor, row);
  const std::int64_t position = token.span != nullptr ? token.position : row;
  std::string name =
      tensor.name.empty() ? fmt::format("{}.{}", op != nullptr ? op->name : "?", tensor.role) : tensor.name;
  // Of what was not dumped, the layer is in no name.
  if (!tensor.known && op != nullptr && op->layer) name = fmt::format("{}/{}", *op->layer, name);
  const Step* step = facts.run.step(tensor.step);
  std::string whose;
  if (step != nullptr && !step->spans.empty() && tensor.axis == Axis::rows && token.span == nullptr) {
    whose = " (padding)";
  } else if (step != nullptr && step->spans.size() > 1 && token.span != nullptr) {
    whose = fmt::format(" of request {}", token.span->request);
  }
  return fmt::format("{}[{},{}]{}", name, position, channel, whose);
}

std::string value_text(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel) {
  const std::optional<std::uint32_t> code = code_at(facts, tensor, row, channel);
  if (!code) return "?";
  const float value = decode(tensor.format, *code);
  const std::string bits = code_text(tensor.format, *code);
  if (std::isnan(value)) return fmt::format("NaN ({})", bits);
  if (std::isinf(value)) return fmt::format("{} ({})", value > 0 ? "+Inf" : "-Inf", bits);
  return fmt::format("{:.9g} ({})", value, bits);
}

std::string said_of(Facts& facts, const Tensor& tensor, std::int64_t row, std::int64_t channel) {
  const std::string element = element_text(facts, tensor, row, channel);
  if (!tensor.known) return element + " was not dumped";
  return fmt::format("{} is {}", element, value_text(facts, tensor, row, channel));
}

}  // namespace nanscope

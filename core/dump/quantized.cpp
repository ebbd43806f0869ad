#include "core/dump/quantized.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/dump/clipping.h"

namespace nanscope {
namespace {

/// The last tensor of a role in the pass and layer that executes before `beside` and has as many elements.
std::optional<TensorIndex> last_before(const DumpFacts& facts, TensorIndex beside, std::string_view role) {
  std::optional<TensorIndex> found;
  const TensorName& at = facts.tensor(beside).at;
  for (const TensorIndex i : facts.members(facts.pass_of(beside))) {
    const TensorName& other = facts.tensor(i).at;
    if (other.layer != at.layer || other.tower != at.tower || other.role != role || i == beside) continue;
    if (facts.tensor(i).count() == facts.tensor(beside).count()) found = i;
  }
  return found;
}

/// The last activation before that is as large and of a wider format: what a cast without a name was made of.
std::optional<TensorIndex> wider_before(const DumpFacts& facts, TensorIndex codes) {
  const DumpTensor& tensor = facts.tensor(codes);
  const auto pass = facts.members(facts.pass_of(codes));
  for (auto before = std::lower_bound(pass.begin(), pass.end(), codes); before != pass.begin();) {
    const DumpTensor& other = facts.tensor(*--before);
    if (!is_activation(other) || other.at.layer != tensor.at.layer || !other.format) continue;
    if (other.count() != tensor.count()) continue;
    return info(*other.format).bits > info(*tensor.format).bits ? std::optional(*before) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<TensorIndex> either(std::optional<TensorIndex> first, std::optional<TensorIndex> second) {
  return first ? first : second;
}

Quantized relatives_of(const DumpFacts& facts, TensorIndex codes) {
  const TensorName& at = facts.tensor(codes).at;
  Quantized out{codes, {}, {}, {}};
  if (at.role == "k_cache" || at.role == "v_cache") {
    const std::string name = at.role.substr(0, 1);
    out.source = last_before(facts, codes, name);
    out.scale = either(facts.in_layer(codes, name + "_scale"), facts.in_layer(codes, "kv_scale"));
    out.readback = last_before(facts, codes, name + "_read");
  } else if (at.role == "x_codes") {
    out.source = either(facts.input_of(codes), wider_before(facts, codes));
    out.scale = facts.of_module(codes, "input_scale");
  } else if (at.role == "scores_codes") {
    out.source = last_before(facts, codes, "scores");
    out.scale = facts.in_layer(codes, "score_scale");
  } else if (at.role == "weight") {
    out.scale = facts.of_module(codes, "weight_scale");
    out.readback = facts.of_module(codes, "weight_dequant");
  } else {
    out.source = wider_before(facts, codes);
    out.scale = either(facts.of_module(codes, "input_scale"), facts.of_module(codes, "output_scale"));
  }
  if (out.source && facts.tensor(*out.source).count() != facts.tensor(codes).count()) out.source.reset();
  return out;
}

}  // namespace

std::vector<Quantized> quantized_tensors(DumpFacts& facts) {
  std::vector<Quantized> found;
  for (TensorIndex i = 0; i < facts.size(); ++i) {
    const DumpTensor& tensor = facts.tensor(i);
    const bool weight = tensor.at.role == "weight" && tensor.format && info(*tensor.format).bits <= 8;
    if (holds_codes(tensor) || weight) found.push_back(relatives_of(facts, i));
  }
  return found;
}

std::optional<ScaleGrid> ScaleGrid::of(DumpFacts& facts, TensorIndex scale, TensorIndex scaled) {
  ScaleGrid grid;
  grid.values_ = facts.values(scale);
  if (!grid.values_ || grid.values_->empty()) return std::nullopt;
  const auto count = static_cast<std::int64_t>(grid.values_->size());
  const DumpTensor& tensor = facts.tensor(scaled);
  const std::int64_t rows = tensor.rows();
  const std::int64_t channels = tensor.channels();
  if (count == 1) return grid;
  const DumpTensor& of = facts.tensor(scale);
  const bool heads_are_rows = tensor.shape.size() >= 3 && tensor.shape[tensor.shape.size() - 2] == count;
  if (of.shape.size() == 2 && of.shape[0] > 0 && of.shape[1] > 0 && of.shape[0] <= rows && of.shape[1] <= channels) {
    grid.rows_ = of.shape[0];
    grid.columns_ = of.shape[1];
  } else if (count == rows || (tensor.shape.size() >= 3 && count == tensor.shape.front())) {
    grid.rows_ = count;  // a token, whose heads are rows of their own
  } else if (heads_are_rows) {
    grid.rows_ = count;
    grid.row_period_ = count;
    return grid;
  } else if (count <= channels && channels % count == 0) {
    grid.columns_ = count;
  } else if (rows > 0 && count % rows == 0 && count / rows <= channels) {
    grid.rows_ = rows;
    grid.columns_ = count / rows;
  } else {
    return std::nullopt;
  }
  grid.rows_a_cell_ = (rows + grid.rows_ - 1) / grid.rows_;
  grid.channels_a_cell_ = (channels + grid.columns_ - 1) / grid.columns_;
  return grid;
}

float ScaleGrid::at(std::int64_t row, std::int64_t channel) const {
  if (row_period_ > 0) return (*values_)[static_cast<std::size_t>(row % row_period_)];
  const std::int64_t r = std::min(rows_ - 1, row / rows_a_cell_);
  const std::int64_t c = std::min(columns_ - 1, channel / channels_a_cell_);
  return values_->size() == 1 ? values_->front() : (*values_)[static_cast<std::size_t>(r * columns_ + c)];
}

std::optional<QuantizedElements> elements_of(DumpFacts& facts, const Quantized& quantized) {
  if (!quantized.source || !quantized.scale) return std::nullopt;
  const std::optional<ScaleGrid> scale = ScaleGrid::of(facts, *quantized.scale, quantized.codes);
  const auto codes = facts.values(quantized.codes);
  const auto source = facts.values(*quantized.source);
  if (!scale || !codes || !source || codes->size() != source->size()) return std::nullopt;
  return QuantizedElements{codes, source, facts.tensor(quantized.codes).channels(), *scale};
}

std::optional<ImpliedScale> implied_scale(DumpFacts& facts, const Quantized& quantized) {
  if (!quantized.source) return std::nullopt;
  const auto codes = facts.values(quantized.codes);
  const auto source = facts.values(*quantized.source);
  if (!codes || !source || codes->size() != source->size()) return std::nullopt;
  const FormatInfo& format = info(*facts.tensor(quantized.codes).format);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < codes->size(); ++i) {
    const float code = std::abs((*codes)[i]);
    // Neither clipped nor so small that rounding is most of it.
    if (!(code < format.max_finite) || !(code >= 8 * format.min_normal) || !std::isfinite((*source)[i])) continue;
    ratios.push_back(double{(*source)[i]} / double{(*codes)[i]});
  }
  if (ratios.size() < 8) return std::nullopt;
  auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  ImpliedScale implied{*middle, 0};
  const double rounding = std::ldexp(1.0, -format.mantissa_bits) * 1.05;
  const auto agreeing = std::count_if(ratios.begin(), ratios.end(), [&](double ratio) {
    return std::abs(ratio - implied.scale) <= rounding * std::abs(implied.scale);
  });
  implied.agreeing = static_cast<double>(agreeing) / static_cast<double>(ratios.size());
  return implied;
}

}  // namespace nanscope

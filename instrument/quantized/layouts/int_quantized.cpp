#include <fmt/format.h>

#include "core/numbers/decode_span.h"
#include "core/text/safe_text.h"
#include "instrument/quantized/packed_weight.h"

/// Integers of 8 bits, one a byte, that have more than a scale: compressed-tensors' int-quantized with a
/// `weight_zero_point` I8 [rows, groups] (0.20.1, compressors/naive_quantized), and bitsandbytes' LLM.int8 with the
/// largest magnitude of a row in `SCB` (0.50.2, bitsandbytes/_ops.py).
namespace nanscope {
namespace {

constexpr std::size_t kCodes = 256;

/// What the 256 codes of int8 stand for.
std::vector<float> numbers() {
  std::vector<float> all;
  for (std::size_t code = 0; code < kCodes; ++code) all.push_back(code_values(Format::int8)[code]);
  return all;
}

}  // namespace

Fact<PackedWeight> layout_int_quantized(const StoredModule& module, const QuantizationConfig&) {
  const CheckpointFiles::Tensor codes = module.find("weight");
  const bool by_rows = module.has("SCB");
  const CheckpointFiles::Tensor scale = module.find(by_rows ? "SCB" : "weight_scale");
  if (codes.entry == nullptr || codes.entry->dtype != "I8" || codes.entry->shape.size() != 2 || scale.entry == nullptr)
    return absent("not of this layout");
  if (!by_rows && !module.has("weight_zero_point")) return absent("not of this layout");
  PackedWeight weight;
  weight.rows = codes.entry->shape[0];
  weight.columns = codes.entry->shape[1];
  if (weight.rows < 1 || weight.columns < 1)
    return unreadable(fmt::format("'{}' is empty", one_line(codes.entry->name)));
  weight.codes = {.bytes = codes.bytes(), .bits = 8, .word_bits = 8, .next_line = weight.columns};
  weight.levels = numbers();
  const std::int64_t count = scale.entry->count();
  weight.groups = count == 1 ? 1 : count / weight.rows;
  if (weight.groups < 1 || weight.columns % weight.groups != 0 || (by_rows && count != weight.rows)) {
    return unreadable(fmt::format("'{}' has shape [{}] beside a weight of [{}]", one_line(scale.entry->name),
                                  fmt::join(scale.entry->shape, ","), fmt::join(codes.entry->shape, ",")));
  }
  if (Status set = weight.set_scales(scale); !set) return unreadable(set.error().message);
  for (float& one : weight.scales) one *= by_rows ? 1.0F / 127 : 1.0F;
  if (!by_rows) {
    const auto zeros = part_of(module, "weight_zero_point", scale.entry->shape);
    if (!zeros) return unreadable(zeros.error().message);
    if (zeros->entry->dtype != "I8")
      return unreadable(
          fmt::format("'{}' is {}, expected I8", one_line(zeros->entry->name), one_line(zeros->entry->dtype)));
    weight.zero_points.resize(static_cast<std::size_t>(count));
    decode(Format::int8, zeros->bytes(), weight.zero_points);
    if (count == 1) weight.zero_points.resize(weight.scales.size(), weight.zero_points.front());
  }
  auto groups = groups_of_columns(module, {}, weight.columns, weight.groups, weight.columns / weight.groups);
  if (!groups) return unreadable(groups.error().message);
  weight.group_of = std::move(*groups);
  return weight;
}

}  // namespace nanscope

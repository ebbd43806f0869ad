#include <fmt/format.h>

#include "core/text/safe_text.h"
#include "instrument/quantized/packed_weight.h"

/// AWQ's layout "gemm" (AutoAWQ 0.2.9, awq/modules/linear/gemm.py): `qweight` I32 [columns, rows / 8] and `qzeros` I32
/// [groups, rows / 8], both packed along the rows in turns, `scales` [groups, rows].
namespace nanscope {

Fact<PackedWeight> layout_awq(const StoredModule& module, const QuantizationConfig& config) {
  const CheckpointFiles::Tensor packed = module.find("qweight");
  if (config.method != QuantMethod::awq || packed.entry == nullptr) return absent("not of this layout");
  const QuantGroup group = config.groups.empty() ? QuantGroup{} : config.groups.front();
  if (config.format != "gemm" || group.bits != 4) {
    return not_understood(fmt::format("AWQ's version '{}' with {} bits is not decoded, only 'gemm' with 4",
                                      one_line(config.format), group.bits));
  }
  const SafetensorsEntry& entry = *packed.entry;
  if (entry.dtype != "I32" || entry.shape.size() != 2 || entry.shape[0] < 1 || entry.shape[1] < 1) {
    return unreadable(fmt::format("'{}' is {} [{}], expected I32 [columns,rows / 8]", one_line(entry.name),
                                  one_line(entry.dtype), fmt::join(entry.shape, ",")));
  }
  PackedWeight weight;
  weight.columns = entry.shape[0];
  weight.rows = entry.shape[1] * 8;
  weight.along_columns = false;
  weight.codes = {.bytes = packed.bytes(), .bits = 4, .interleaved = true, .next_line = entry.shape[1]};
  const std::int64_t size = group.group_size > 0 ? group.group_size : weight.columns;
  if (weight.columns % size != 0) {
    return unreadable(fmt::format("'{}' has {} columns, which are no multiple of its groups of {}",
                                  one_line(entry.name), weight.columns, size));
  }
  weight.groups = weight.columns / size;
  const auto scales = part_of(module, "scales", {weight.groups, weight.rows});
  if (!scales) return unreadable(scales.error().message);
  if (Status set = weight.set_scales(*scales); !set) return unreadable(set.error().message);
  weight.scales = turned(weight.scales, weight.groups, weight.rows);
  const auto zeros = part_of(module, "qzeros", {weight.groups, entry.shape[1]});
  if (!zeros) return unreadable(zeros.error().message);
  PackedCodes points = weight.codes;
  points.bytes = zeros->bytes();
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    for (std::int64_t g = 0; g < weight.groups; ++g)
      weight.zero_points.push_back(static_cast<float>(points.at(g, row)));
  }
  auto groups = groups_of_columns(module, {}, weight.columns, weight.groups, size);
  if (!groups) return unreadable(groups.error().message);
  weight.group_of = std::move(*groups);
  return weight;
}

}  // namespace nanscope

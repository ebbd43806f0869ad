#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/text/safe_text.h"
#include "instrument/quantized/packed_weight.h"

/// compressed-tensors' pack-quantized (0.20.1, compressors/pack_quantized): `weight_packed` I32 packed along the
/// columns, each code 2^(bits - 1) more than its integer, `weight_scale` [rows, groups], `weight_shape` [2], and, where
/// they are asymmetric, `weight_zero_point` I32 packed along the rows. Before 0.13 a code of 3, 5, 6 or 7 bits crossed
/// no words.
namespace nanscope {
namespace {

/// Rows and columns by weight_shape, I64 or I32.
Result<std::vector<std::int64_t>> shape_of(const StoredModule& module) {
  const auto tensor = part_of(module, "weight_shape", {2});
  if (!tensor) return tl::unexpected(tensor.error());
  const bool wide = tensor->entry->dtype == "I64";
  if (!wide && tensor->entry->dtype != "I32")
    return fail(fmt::format("'{}' is {}, expected I64", one_line(tensor->entry->name), one_line(tensor->entry->dtype)));
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < 2; ++i) {
    std::int64_t size = 0;
    std::memcpy(&size, tensor->bytes().data() + i * (wide ? 8 : 4), wide ? 8 : 4);
    shape.push_back(wide ? size : std::int64_t{static_cast<std::int32_t>(size)});
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 1 || size > kMost; }))
    return fail(
        fmt::format("'{}' holds [{}], which is no shape", one_line(tensor->entry->name), fmt::join(shape, ",")));
  return shape;
}

/// Sets bits and groups by the config's first group that fits the tensors' shapes.
bool fits(const QuantGroup& group, const SafetensorsEntry& packed, const SafetensorsEntry& scale,
          PackedWeight& weight) {
  if (group.type != "int" || group.bits < 1 || group.bits > 8) return false;
  const std::int64_t size = group.group_size > 0 ? group.group_size : weight.columns;
  const std::vector<std::int64_t> grid{weight.rows, (weight.columns + size - 1) / size};
  if (scale.shape != grid && !(grid[1] == 1 && scale.count() == 1)) return false;
  weight.groups = grid[1];
  weight.codes.bits = static_cast<int>(group.bits);
  for (const bool dense : {true, false}) {
    weight.codes.dense = dense;
    weight.codes.next_line = weight.codes.words(weight.columns);
    if (packed.shape == std::vector<std::int64_t>{weight.rows, weight.codes.next_line}) return true;
  }
  return false;
}

Result<std::vector<float>> zero_points(const StoredModule& module, const PackedWeight& weight) {
  PackedCodes points = weight.codes;
  points.next_word = weight.groups;
  points.next_line = 1;
  const auto zeros = part_of(module, "weight_zero_point", {points.words(weight.rows), weight.groups});
  if (!zeros) return tl::unexpected(zeros.error());
  if (zeros->entry->dtype != "I32")
    return fail(fmt::format("'{}' is {}, expected I32", one_line(zeros->entry->name), one_line(zeros->entry->dtype)));
  points.bytes = zeros->bytes();
  std::vector<float> values;
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    for (std::int64_t group = 0; group < weight.groups; ++group)
      values.push_back(static_cast<float>(points.at(group, row)));
  }
  return values;
}

/// `weight_g_idx` of -1 alone means that the columns are in order.
bool states_groups(const StoredModule& module) {
  const CheckpointFiles::Tensor tensor = module.find("weight_g_idx");
  if (tensor.entry == nullptr) return false;
  const std::span<const std::byte> bytes = tensor.bytes();
  return !std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0xff}; });
}

}  // namespace

Fact<PackedWeight> layout_pack_quantized(const StoredModule& module, const QuantizationConfig& config) {
  const CheckpointFiles::Tensor packed = module.find("weight_packed");
  if (packed.entry == nullptr || packed.entry->dtype != "I32") return absent("not of this layout");
  const CheckpointFiles::Tensor scale = module.find("weight_scale");
  if (scale.entry == nullptr)
    return unreadable(fmt::format("'{}' is packed and has no scale beside it", one_line(packed.entry->name)));
  const auto shape = shape_of(module);
  if (!shape) return unreadable(shape.error().message);
  PackedWeight weight;
  weight.rows = shape->front();
  weight.columns = shape->back();
  const auto group = std::find_if(config.groups.begin(), config.groups.end(), [&](const QuantGroup& one) {
    return fits(one, *packed.entry, *scale.entry, weight);
  });
  if (group == config.groups.end()) {
    return unreadable(
        fmt::format("'{}' has shape [{}] and its scale [{}], which fit a weight of [{}] by none of the config's "
                    "groups",
                    one_line(packed.entry->name), fmt::join(packed.entry->shape, ","),
                    fmt::join(scale.entry->shape, ","), fmt::join(*shape, ",")));
  }
  weight.codes.bytes = packed.bytes();
  weight.zero = static_cast<float>(1 << (weight.codes.bits - 1));
  if (Status set = weight.set_scales(scale); !set) return unreadable(set.error().message);
  if (module.has("weight_zero_point")) {
    auto zeros = zero_points(module, weight);
    if (!zeros) return unreadable(zeros.error().message);
    weight.zero_points = std::move(*zeros);
  }
  const std::int64_t size = group->group_size > 0 ? group->group_size : weight.columns;
  auto groups =
      groups_of_columns(module, states_groups(module) ? "weight_g_idx" : "", weight.columns, weight.groups, size);
  if (!groups) return unreadable(groups.error().message);
  weight.group_of = std::move(*groups);
  return weight;
}

}  // namespace nanscope

#include "instrument/quantized/packed_weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/text/safe_text.h"
#include "instrument/quantized/stored_matrix.h"

namespace nanscope {
namespace {

/// The eighth that holds each of 8 codes where AWQ packs them: AutoAWQ, awq/modules/linear/gemm.py, order_map.
constexpr std::array<std::int64_t, 8> kInterleaved = {0, 4, 1, 5, 2, 6, 3, 7};

std::uint32_t word_at(std::span<const std::byte> bytes, std::int64_t number, int bits) {
  if (bits == 8) return std::to_integer<std::uint32_t>(bytes[static_cast<std::size_t>(number)]);
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + number * 4, sizeof(word));
  return word;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

}  // namespace

std::int64_t PackedCodes::words(std::int64_t count) const {
  if (dense) return (count * bits + word_bits - 1) / word_bits;
  const std::int64_t in_a_word = word_bits / bits;
  return (count + in_a_word - 1) / in_a_word;
}

unsigned PackedCodes::at(std::int64_t line, std::int64_t number) const {
  if (interleaved) number = (number & ~7) + kInterleaved[static_cast<std::size_t>(number & 7)];
  if (upper_first) number ^= 1;
  std::int64_t bit = number * bits;
  if (!dense) {
    const int in_a_word = word_bits / bits;
    bit = number / in_a_word * word_bits + number % in_a_word * bits;
  }
  const int shift = word_bits == 32 ? 5 : 3;  // divisions would take most of the time
  const std::int64_t word = line * next_line + (bit >> shift) * next_word;
  const int within = static_cast<int>(bit & (word_bits - 1));
  std::uint64_t code = word_at(bytes, word, word_bits) >> within;
  if (within + bits > word_bits)
    code |= std::uint64_t{word_at(bytes, word + next_word, word_bits)} << (word_bits - within);
  return static_cast<unsigned>(code) & ((1U << bits) - 1);
}

void PackedWeight::codes_of_row(std::int64_t row, std::span<float> values) const {
  for (std::size_t k = 0; k < values.size(); ++k) {
    const auto column = static_cast<std::int64_t>(k);
    const unsigned code = along_columns ? codes.at(row, column) : codes.at(column, row);
    values[k] = levels.empty() ? static_cast<float>(code) : levels[code];
    values[k] -= zero_points.empty() ? zero : zero_points[static_cast<std::size_t>(row * groups + group_of[k])];
  }
}

Status PackedWeight::set_scales(const CheckpointFiles::Tensor& tensor) {
  auto values = scale_values(tensor);
  if (!values) return tl::unexpected(values.error());
  const auto count = static_cast<std::size_t>(rows * groups);
  if (values->size() == 1) values->resize(count, values->front());
  if (values->size() != count) {
    return fail(fmt::format("'{}' has shape {}, expected a scale for each of {} groups in {} rows",
                            one_line(tensor.entry->name), shape_text(tensor.entry->shape), groups, rows));
  }
  scales = std::move(*values);
  scale_format = tensor.entry->format.value_or(Format::f32);
  return {};
}

std::string PackedWeight::text() const {
  std::string out = fmt::format("{}-bit {}", codes.bits, levels.size() == 16 ? "codes of a table" : "integers");
  if (!zero_points.empty()) out += " with zero points";
  out += fmt::format(", {} scales of ", name(scale_format));
  if (groups == 1) return out + "rows";
  out += fmt::format("groups of {}", (columns + groups - 1) / groups);
  const bool in_order = std::is_sorted(group_of.begin(), group_of.end());
  return in_order ? out : out + " in another order";
}

Result<CheckpointFiles::Tensor> part_of(const StoredModule& module, std::string_view part,
                                        const std::vector<std::int64_t>& shape) {
  const CheckpointFiles::Tensor tensor = module.find(part);
  if (tensor.entry == nullptr) return fail(fmt::format("'{}' has no {}", one_line(module.path), part));
  if (tensor.entry->shape != shape) {
    return fail(fmt::format("'{}' has shape {}, expected {}", one_line(tensor.entry->name),
                            shape_text(tensor.entry->shape), shape_text(shape)));
  }
  return tensor;
}

Result<std::vector<std::int32_t>> groups_of_columns(const StoredModule& module, std::string_view part,
                                                    std::int64_t columns, std::int64_t groups, std::int64_t size) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(columns));
  const CheckpointFiles::Tensor tensor = module.find(part);
  if (tensor.entry == nullptr) {
    for (std::size_t k = 0; k < all.size(); ++k)
      all[k] = static_cast<std::int32_t>(std::min<std::int64_t>(static_cast<std::int64_t>(k) / size, groups - 1));
    return all;
  }
  if (tensor.entry->dtype != "I32" || tensor.entry->shape != std::vector<std::int64_t>{columns}) {
    return fail(fmt::format("'{}' is {} {}, expected I32 [{}]", one_line(tensor.entry->name),
                            one_line(tensor.entry->dtype), shape_text(tensor.entry->shape), columns));
  }
  std::memcpy(all.data(), tensor.bytes().data(), all.size() * sizeof(all.front()));
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (all[k] < 0 || all[k] >= groups) {
      return fail(fmt::format("'{}' has group {} for column {}, and there are {} groups", one_line(tensor.entry->name),
                              all[k], k, groups));
    }
  }
  return all;
}

std::vector<float> turned(const std::vector<float>& values, std::int64_t groups, std::int64_t rows) {
  std::vector<float> out(values.size());
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t row = 0; row < rows; ++row)
      out[static_cast<std::size_t>(row * groups + group)] = values[static_cast<std::size_t>(group * rows + row)];
  }
  return out;
}

Fact<PackedWeight> packed_weight(const StoredModule& module, const QuantizationConfig& config) {
  static constexpr std::array layouts = {
#define NANSCOPE_LAYOUT(name) PackedLayout{&layout_##name},
#include "instrument/quantized/layouts.def"
#undef NANSCOPE_LAYOUT
  };
  for (const PackedLayout layout : layouts) {
    auto weight = layout(module, config);
    if (weight || weight.error().why != Unknown::absent) return weight;
  }
  return absent("its codes are not packed");
}

}  // namespace nanscope

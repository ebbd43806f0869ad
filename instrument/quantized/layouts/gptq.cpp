#include <fmt/format.h>

#include <cstring>

#include "core/text/safe_text.h"
#include "instrument/quantized/packed_weight.h"

/// GPTQ as AutoGPTQ and GPTQModel store it: `qweight` I32 [columns x bits / 32, rows] packed along the columns,
/// `qzeros` I32 [groups, rows x bits / 32] packed along the rows, `scales` [groups, rows], `g_idx` I32 [columns]
/// (GPTQModel 7.7, gptqmodel/nn_modules/qlinear/__init__.py). The first checkpoint format stores each zero point
/// less 1.
namespace nanscope {
namespace {

/// A word of ones, one in each code.
std::uint32_t ones_of(int bits) {
  std::uint32_t ones = 0;
  for (int at = 0; at < 32; at += bits) ones |= 1U << at;
  return ones;
}

/// Rows x groups. GPTQModel adds 1 to all codes of a word at once, with carries, since it subtracts them so (its
/// utils/model.py, convert_gptq_v1_to_v2_format_module); where codes cross words, to each code alone.
std::vector<float> zero_points(const CheckpointFiles::Tensor& packed, const PackedWeight& weight, bool less_one) {
  const int bits = weight.codes.bits;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(packed.entry->count()));
  std::memcpy(words.data(), packed.bytes().data(), words.size() * sizeof(words.front()));
  const bool whole_words = less_one && 32 % bits == 0;
  for (std::uint32_t& word : words) word += whole_words ? ones_of(bits) : 0;
  const unsigned more = less_one && !whole_words ? 1 : 0;
  PackedCodes codes{.bytes = std::as_bytes(std::span(words)), .bits = bits};
  codes.next_line = codes.words(weight.rows);
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(weight.rows * weight.groups));
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    for (std::int64_t group = 0; group < weight.groups; ++group)
      values.push_back(static_cast<float>((codes.at(group, row) + more) & ((1U << bits) - 1)));
  }
  return values;
}

/// Why the layout is not decoded; empty where it is.
std::string unknown_kind(const QuantizationConfig& config) {
  const std::int64_t bits = config.groups.empty() ? 0 : config.groups.front().bits;
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    return fmt::format("codes of {} bits in GPTQ's layout are not decoded, only of 2, 3, 4 and 8", bits);
  if (config.format != "gptq" && config.format != "gptq_v2")
    return fmt::format("GPTQ's checkpoint_format '{}' is not decoded", one_line(config.format));
  return {};
}

}  // namespace

Fact<PackedWeight> layout_gptq(const StoredModule& module, const QuantizationConfig& config) {
  const CheckpointFiles::Tensor packed = module.find("qweight");
  if (config.method != QuantMethod::gptq || packed.entry == nullptr) return absent("not of this layout");
  if (std::string unknown = unknown_kind(config); !unknown.empty()) return not_understood(std::move(unknown));
  const QuantGroup& group = config.groups.front();
  const SafetensorsEntry& entry = *packed.entry;
  if (entry.dtype != "I32" || entry.shape.size() != 2 || entry.shape[0] < 1 || entry.shape[1] < 1 ||
      entry.shape[0] * 32 % group.bits != 0) {
    return unreadable(fmt::format("'{}' is {} [{}], expected I32 of whole codes of {} bits", one_line(entry.name),
                                  one_line(entry.dtype), fmt::join(entry.shape, ","), group.bits));
  }
  PackedWeight weight;
  weight.codes = {.bytes = packed.bytes(), .bits = static_cast<int>(group.bits)};
  weight.rows = entry.shape[1];
  weight.columns = entry.shape[0] * 32 / group.bits;
  weight.codes.next_word = weight.rows;
  weight.codes.next_line = 1;
  const std::int64_t size = group.group_size > 0 ? group.group_size : weight.columns;
  weight.groups = (weight.columns + size - 1) / size;
  const auto scales = part_of(module, "scales", {weight.groups, weight.rows});
  if (!scales) return unreadable(scales.error().message);
  if (Status set = weight.set_scales(*scales); !set) return unreadable(set.error().message);
  weight.scales = turned(weight.scales, weight.groups, weight.rows);
  const auto zeros = part_of(module, "qzeros", {weight.groups, weight.codes.words(weight.rows)});
  if (!zeros) return unreadable(zeros.error().message);
  if (zeros->entry->dtype != "I32")
    return unreadable(
        fmt::format("'{}' is {}, expected I32", one_line(zeros->entry->name), one_line(zeros->entry->dtype)));
  weight.zero_points = zero_points(*zeros, weight, config.format == "gptq");
  auto groups = groups_of_columns(module, "g_idx", weight.columns, weight.groups, size);
  if (!groups) return unreadable(groups.error().message);
  weight.group_of = std::move(*groups);
  return weight;
}

}  // namespace nanscope

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/parse_json.h"
#include "core/text/safe_text.h"
#include "instrument/model/config_reader.h"
#include "instrument/quantized/packed_weight.h"
#include "instrument/quantized/stored_matrix.h"

/// bitsandbytes' 4 bits (0.50.2, bitsandbytes/functional.py): `weight` holds the bytes of the codes, row after row, the
/// upper half of a byte first; `weight.quant_map` what the 16 codes stand for; `weight.absmax` the scale of each block
/// of them, itself codes of 8 bits where `weight.nested_absmax` is there; `weight.quant_state.bitsandbytes__nf4` (or
/// __fp4) JSON with shape and block sizes.
namespace nanscope {
namespace {

constexpr std::int64_t kMostSide = std::int64_t{1} << 31;

struct QuantState {
  std::vector<std::int64_t> shape;
  std::int64_t block = 0;
  std::int64_t nested_block = 0;  ///< 0: the scales of blocks are no codes
  float nested_offset = 0;
};

std::string_view text_of(const CheckpointFiles::Tensor& tensor) {
  const std::span<const std::byte> bytes = tensor.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<QuantState> read_state(const CheckpointFiles::Tensor& tensor) {
  const std::string where = fmt::format("'{}'", one_line(tensor.entry->name));
  auto json = parse_json(text_of(tensor));
  if (!json) return fail(where + ": " + json.error().message);
  ConfigReader reader(*json, where);
  QuantState state;
  state.shape = reader.integers("shape");
  state.block = reader.integer("blocksize", 0, 1, 1 << 20);
  if (reader.has("nested_blocksize")) {
    state.nested_block = reader.integer("nested_blocksize", 0, 1, 1 << 20);
    state.nested_offset = static_cast<float>(reader.number("nested_offset", 0));
  }
  if (!reader.status()) return tl::unexpected(reader.status().error());
  if (state.shape.size() != 2 || state.block == 0 ||
      std::any_of(state.shape.begin(), state.shape.end(), [](auto side) { return side < 1 || side > kMostSide; }))
    return fail(where + ": expected a shape of rows and columns, and a blocksize");
  return state;
}

/// Scales of blocks: absmax, or nested_quant_map[absmax] x nested_absmax + nested_offset, each rounded to f32.
Result<std::vector<float>> scales_of(const StoredModule& module, const QuantState& state, std::int64_t blocks) {
  const auto absmax = part_of(module, "weight.absmax", {blocks});
  if (!absmax) return tl::unexpected(absmax.error());
  if (state.nested_block == 0) return scale_values(*absmax);
  const auto map = part_of(module, "weight.nested_quant_map", {256});
  if (!map) return tl::unexpected(map.error());
  const auto outer = part_of(module, "weight.nested_absmax", {(blocks + state.nested_block - 1) / state.nested_block});
  if (!outer) return tl::unexpected(outer.error());
  const auto levels = scale_values(*map);
  const auto factors = scale_values(*outer);
  if (!levels) return tl::unexpected(levels.error());
  if (!factors) return tl::unexpected(factors.error());
  if (absmax->entry->dtype != "U8")
    return fail(fmt::format("'{}' is {}, expected U8", one_line(absmax->entry->name), one_line(absmax->entry->dtype)));
  std::vector<float> scales;
  const std::span<const std::byte> codes = absmax->bytes();
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float product = (*levels)[std::to_integer<std::size_t>(codes[i])] *
                          (*factors)[i / static_cast<std::size_t>(state.nested_block)];
    scales.push_back(product + state.nested_offset);
  }
  return scales;
}

CheckpointFiles::Tensor state_of(const StoredModule& module) {
  for (const char* part : {"weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"}) {
    if (module.has(part)) return module.find(part);
  }
  return {};
}

}  // namespace

Fact<PackedWeight> layout_bitsandbytes(const StoredModule& module, const QuantizationConfig&) {
  const CheckpointFiles::Tensor stated = state_of(module);
  const CheckpointFiles::Tensor packed = module.find("weight");
  if (stated.entry == nullptr || packed.entry == nullptr) return absent("not of this layout");
  const auto state = read_state(stated);
  if (!state) return unreadable(state.error().message);
  PackedWeight weight;
  weight.rows = state->shape[0];
  weight.columns = state->shape[1];
  const std::string name = one_line(packed.entry->name);
  if (static_cast<std::int64_t>(packed.bytes().size()) != weight.rows * weight.columns / 2)
    return unreadable(fmt::format("'{}' has {} bytes, expected {} for [{}]", name, packed.bytes().size(),
                                  weight.rows * weight.columns / 2, fmt::join(state->shape, ",")));
  // Blocks run on from row to row: where they cross rows, a group is what divides both.
  const std::int64_t size = std::gcd(weight.columns, state->block);
  weight.groups = weight.columns / size;
  weight.codes = {
      .bytes = packed.bytes(), .bits = 4, .word_bits = 8, .upper_first = true, .next_line = weight.columns / 2};
  const auto map = part_of(module, "weight.quant_map", {16});
  if (!map) return unreadable(map.error().message);
  auto levels = scale_values(*map);
  if (!levels) return unreadable(levels.error().message);
  weight.levels = std::move(*levels);
  const std::int64_t blocks = (weight.rows * weight.columns + state->block - 1) / state->block;
  const auto scales = scales_of(module, *state, blocks);
  if (!scales) return unreadable(scales.error().message);
  for (std::int64_t group = 0; group < weight.rows * weight.groups; ++group)
    weight.scales.push_back((*scales)[static_cast<std::size_t>(group * size / state->block)]);
  auto groups = groups_of_columns(module, {}, weight.columns, weight.groups, size);
  if (!groups) return unreadable(groups.error().message);
  weight.group_of = std::move(*groups);
  return weight;
}

}  // namespace nanscope

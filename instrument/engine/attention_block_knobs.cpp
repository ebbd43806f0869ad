#include <vector>

#include "instrument/engine/knob_entry.h"
#include "instrument/engine/knob_groups.h"

/// Knobs of attention on block-scaled operands.
namespace nanscope {

namespace knob_entry {

template <>
struct Texts<BlockAxis> {
  static constexpr std::array<std::string_view, 2> names{"channels", "tokens"};
};
template <>
struct Texts<kernels::Diagonal> {
  static constexpr std::array<std::string_view, 3> names{"quantized", "exact", "past"};
};

}  // namespace knob_entry

using knob_entry::knob;

std::vector<Knob> attention_block_knobs() {
  return {
      knob(
          "attention.blocks_q", "name",
          "block format that queries are quantized to, along the channels of a head (`nanscope bits --block list`); "
          "empty: they are not",
          [](auto& c) -> auto& { return c.attention.blocks.q; }),
      knob(
          "attention.blocks_k", "name",
          "block format of the keys that attention reads; empty: they are as the cache has them",
          [](auto& c) -> auto& { return c.attention.blocks.k; }),
      knob(
          "attention.blocks_v", "name",
          "block format of the values that attention reads; empty: they are as the cache has them",
          [](auto& c) -> auto& { return c.attention.blocks.v; }),
      knob(
          "attention.blocks_p", "name",
          "block format of the softmax's probabilities, along the keys; empty: they are not quantized",
          [](auto& c) -> auto& { return c.attention.blocks.p; }),
      knob(
          "attention.blocks_axis_k", "channels|tokens",
          "along what a block of keys lies; along tokens, a later one decides on the scale of an earlier one",
          [](auto& c) -> auto& { return c.attention.blocks.k_axis; }),
      knob(
          "attention.blocks_axis_v", "channels|tokens",
          "along what a block of values lies; matrix units want tokens, whose later ones then decide on the scale of "
          "earlier ones",
          [](auto& c) -> auto& { return c.attention.blocks.v_axis; }),
      knob(
          "attention.diagonal", "quantized|exact|past",
          "what a token reads in the tile that it lies in itself: what it reads elsewhere, everything unquantized, or "
          "values that are quantized again from the tokens up to it alone",
          [](auto& c) -> auto& { return c.attention.blocks.diagonal; }),
      knob(
          "attention.tile", "1..4096", "keys of a tile, a multiple of 32 and of the blocks",
          [](auto& c) -> auto& { return c.attention.blocks.tile; }),
      knob(
          "attention.online", "true|false",
          "the softmax's maximum runs with the tiles and the sum divides at the end, as in flash attention; else "
          "probabilities are divided before they are quantized",
          [](auto& c) -> auto& { return c.attention.blocks.online; }),
  };
}

}  // namespace nanscope

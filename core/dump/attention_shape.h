#pragma once
#include <cstdint>
#include <optional>

#include "core/dump/facts.h"

/// How the tensors of one attention are laid out, found from their shapes.
namespace nanscope {

/// Scores or probabilities: heads x queries x keys.
struct ScoresShape {
  std::int64_t heads = 1;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
};
/// Of (heads, queries, keys) or (1, heads, queries, keys). Nothing for others.
std::optional<ScoresShape> scores_shape(const DumpTensor& tensor);

/// A tensor of q, k or v: element (position, head, channel) whether positions or heads come first.
struct HeadsLayout {
  std::int64_t positions = 0;
  std::int64_t heads = 1;
  std::int64_t width = 0;  ///< of a head
  bool heads_first = false;

  std::size_t at(std::int64_t position, std::int64_t head, std::int64_t channel) const {
    const std::int64_t outer = heads_first ? head * positions + position : position * heads + head;
    return static_cast<std::size_t>(outer * width + channel);
  }
};
/// `positions` and, where it is known, the width of a head tell how the elements divide. Nothing when they do not.
std::optional<HeadsLayout> heads_layout(const DumpTensor& tensor, std::int64_t positions, std::int64_t heads_or_zero,
                                        std::int64_t width_or_zero);

}  // namespace nanscope

#include "core/dump/attention_shape.h"

namespace nanscope {

std::optional<ScoresShape> scores_shape(const DumpTensor& tensor) {
  const auto& shape = tensor.shape;
  if (shape.size() == 3) return ScoresShape{shape[0], shape[1], shape[2]};
  if (shape.size() == 4 && shape[0] == 1) return ScoresShape{shape[1], shape[2], shape[3]};
  return std::nullopt;
}

std::optional<HeadsLayout> heads_layout(const DumpTensor& tensor, std::int64_t positions, std::int64_t heads_or_zero,
                                        std::int64_t width_or_zero) {
  if (positions <= 0 || tensor.count() == 0 || tensor.count() % positions != 0) return std::nullopt;
  const std::int64_t all = tensor.count() / positions;
  HeadsLayout layout{positions, heads_or_zero, width_or_zero, false};
  if (layout.heads == 0 && layout.width > 0) layout.heads = all / layout.width;
  if (layout.width == 0 && layout.heads > 0) layout.width = all / layout.heads;
  if (layout.heads <= 0 || layout.width <= 0 || layout.heads * layout.width != all) return std::nullopt;
  const auto& shape = tensor.shape;
  const std::size_t n = shape.size();
  layout.heads_first = n >= 3 && shape[n - 1] == layout.width && shape[n - 2] == positions &&
                       shape[n - 3] == layout.heads && !(layout.heads == positions && n == 3);
  return layout;
}

}  // namespace nanscope

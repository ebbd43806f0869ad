#include "kernels/ops/rope.h"

#include <array>

#include "instrument/engine/workspace.h"
#include "instrument/train/gradients.h"

namespace nanscope::train {

/// A rotation's gradient is turned back by the same angle.
void rope_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const EngineConfig& config = backward.config();
  const bool local = window_of(config.model, op.layer) > 0;
  const std::int64_t heads = op.outputs.front().heads;
  const auto* form = std::get_if<RopeAttributes>(&op.attributes);
  const kernels::TensorView dx = backward.memory(dout.view.format, dout.view.rows, dout.view.columns);
  for (const Span& span : backward.parts().spans) {
    backward.launch(
        kernels::RopeArgs{.x = slice(dout.view, span.row, span.rows),
                          .out = slice(dx, span.row, span.rows),
                          .frequencies = local ? backward.parts().local_rope : backward.parts().rope,
                          .heads = heads,
                          .first_position = 0,
                          .first_channel = form != nullptr ? form->rotated_from.value_or(0) : 0,
                          .base = config.model.rope_base,
                          .stretch = rope_stretch(config.rope),
                          .amplitude = local ? backward.parts().local_rope_amplitude : backward.parts().rope_amplitude,
                          .inverse = true,
                          .neighbours = config.model.rope_pairs == RopePairs::neighbours});
  }
  backward.at_rows();
  const ProbeTensor out = backward.output("dx", dx, heads);
  const std::array inputs{ProbeInput{"dout", dout.id, {}}};
  backward.emit(op, OpKind::rope_gradient, inputs, std::span(&out, 1), op.attributes);
  backward.add(op.input("x"), {dx, out.id});
}

}  // namespace nanscope::train

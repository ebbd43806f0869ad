#include <array>
#include <vector>

#include "instrument/train/gradients.h"
#include "kernels/ops/embedding_gradient.h"

namespace nanscope::train {

/// The gradient of each row of the table is the sum over the rows that looked it up.
void embedding_gradient(Backward& backward, const TapedOp& op) {
  using kernels::TensorView;
  const Live dout = backward.gradient(op.outputs.front());
  const auto scale = static_cast<float>(backward.config().model.embedding_scale);
  std::vector<ProbeTensor> outputs;
  std::vector<std::pair<std::string_view, Live>> found;
  backward.at_parameter();
  const auto look_back = [&](std::string_view role, std::string_view output, const TensorView& rows, float factor) {
    const Weight* table = backward.weight(op.weight(role));
    if (table == nullptr) return;
    const TensorView out = backward.memory(Format::f32, table->view.rows, table->view.columns);
    backward.launch(kernels::EmbeddingGradientArgs{.tokens = rows, .dout = dout.view, .out = out, .scale = factor});
    outputs.push_back(backward.output(output, out));
    found.emplace_back(op.weight(role), Live{out, outputs.back().id});
  };
  look_back("weight", "dweight", backward.parts().tokens, scale);
  look_back("positions", "dpositions", backward.parts().positions, 1.0F);
  const std::array inputs{ProbeInput{"dout", dout.id, {}}};
  backward.emit(op, OpKind::embedding_gradient, inputs, outputs, op.attributes);
  for (const auto& [name, gradient] : found) backward.add_to_weight(name, gradient);
}

}  // namespace nanscope::train

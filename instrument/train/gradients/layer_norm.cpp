#include "kernels/ops/layer_norm.h"

#include <array>
#include <vector>

#include "instrument/train/gradients.h"
#include "kernels/ops/layer_norm_gradient.h"
#include "kernels/ops/layer_norm_weight_gradient.h"

namespace nanscope::train {

void layer_norm_gradient(Backward& backward, const TapedOp& op) {
  using kernels::TensorView;
  const Live dout = backward.gradient(op.outputs.front());
  const auto* told = std::get_if<NormAttributes>(&op.attributes);
  const std::int64_t x = op.input("x");
  const TensorView x_value = backward.value(x);
  if (op.outputs.size() < 2) return backward.fail_with("op " + op.name + " has no statistics to train with");
  const TensorView stats = backward.value(op.outputs[1].id);
  if (!backward.ok()) return;
  const kernels::NormKind kind = backward.config().model.norm;
  const std::int64_t groups = told != nullptr ? told->groups.value_or(1) : 1;
  const Weight* weight = backward.weight(op.weight("weight"));
  const TensorView scale = weight != nullptr ? weight->view : TensorView{};
  const TensorView dx = backward.memory(backward.config().train.gradient_format, x_value.rows, x_value.columns);
  backward.launch(kernels::LayerNormGradientArgs{
      .x = x_value, .weight = scale, .stats = stats, .dout = dout.view, .out = dx, .groups = groups, .kind = kind});
  backward.at_rows();
  std::vector<ProbeTensor> outputs{backward.output("dx", dx)};
  TensorView dweight;
  TensorView dbias;
  const std::string_view bias = op.weight("bias");
  backward.at_parameter();
  if (weight != nullptr) {
    dweight = backward.memory(Format::f32, 1, x_value.columns / groups);
    if (!bias.empty()) dbias = backward.memory(Format::f32, 1, x_value.columns / groups);
    backward.launch(kernels::LayerNormWeightGradientArgs{.x = x_value,
                                                         .stats = stats,
                                                         .dout = dout.view,
                                                         .weight_out = dweight,
                                                         .bias_out = dbias,
                                                         .groups = groups,
                                                         .kind = kind});
    outputs.push_back(backward.output("dweight", dweight));
    if (dbias.given()) outputs.push_back(backward.output("dbias", dbias));
  }
  const std::array inputs{ProbeInput{"dout", dout.id, {}}, ProbeInput{"x", x, {}},
                          ProbeInput{"stats", op.outputs[1].id, {}}, ProbeInput{"weight", 0, op.weight("weight")}};
  backward.emit(op, OpKind::layer_norm_gradient, std::span(inputs).first(weight != nullptr ? 4 : 3), outputs,
                op.attributes);
  backward.add(x, {dx, outputs[0].id});
  if (weight != nullptr) backward.add_to_weight(op.weight("weight"), {dweight, outputs[1].id});
  if (dbias.given()) backward.add_to_weight(bias, {dbias, outputs[2].id});
}

}  // namespace nanscope::train

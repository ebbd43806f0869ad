#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "instrument/train/gradients.h"
#include "instrument/train/row_selection.h"
#include "kernels/ops/activation_gradient.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/softcap_gradient.h"

namespace nanscope::train {

void activation_gradient(Backward& backward, const TapedOp& op) {
  using kernels::TensorView;
  const RowSelection* rows = backward.rows_of(op.outputs.front());
  const Live dout = backward.gradient(op.outputs.front());
  const ModelConfig& model = backward.config().model;
  const bool gated = kernels::is_gated(model.mlp);
  const std::int64_t x = op.input(gated ? "gate" : "x");
  const TensorView x_value = backward.value(x);
  const TensorView up = gated ? backward.value(op.input("up")) : TensorView{};
  if (!backward.ok()) return;
  const Format format = backward.config().train.gradient_format;
  const TensorView part = memory_of(backward, rows, format, x_value.rows, x_value.columns);
  const TensorView up_part = gated ? memory_of(backward, rows, format, x_value.rows, x_value.columns) : TensorView{};
  if (part.rows > 0) {
    backward.launch(kernels::ActivationGradientArgs{.x = selected(backward, rows, x_value),
                                                    .up = selected(backward, rows, up),
                                                    .dout = selected(backward, rows, dout.view),
                                                    .out = part,
                                                    .up_out = up_part,
                                                    .kind = model.mlp,
                                                    .alpha = static_cast<float>(model.swiglu_alpha),
                                                    .limit = static_cast<float>(model.swiglu_limit)});
  }
  const TensorView dx = put_back(backward, rows, part);
  const TensorView dup = put_back(backward, rows, up_part);
  backward.at_rows();
  std::vector<ProbeTensor> outputs{backward.output("dx", dx)};
  std::vector<ProbeInput> inputs{{"dout", dout.id, {}}, {gated ? "gate" : "x", x, {}}};
  if (gated) {
    outputs.push_back(backward.output("dup", dup));
    inputs.push_back({"up", op.input("up"), {}});
  }
  backward.emit(op, OpKind::activation_gradient, inputs, outputs, op.attributes);
  backward.add(x, {dx, outputs[0].id}, rows);
  if (gated) backward.add(op.input("up"), {dup, outputs[1].id}, rows);
}

namespace {

/// The gradient of what an op multiplied by a number. The lookup of embeddings multiplies rows.
Live times(Backward& backward, const TapedOp& op, const Live& dout, double factor) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(dout.view.rows));
  std::iota(rows.begin(), rows.end(), 0);
  const kernels::TensorView dx = backward.memory(dout.view.format, dout.view.rows, dout.view.columns);
  backward.launch(kernels::EmbeddingArgs{.tokens = uploaded(backward, rows),
                                         .patch_rows = {},
                                         .table = dout.view,
                                         .patches = {},
                                         .positions = {},
                                         .out = dx,
                                         .scale = static_cast<float>(factor)});
  backward.at_rows();
  const ProbeTensor out = backward.output("dx", dx);
  const std::array inputs{ProbeInput{"dout", dout.id, {}}};
  backward.emit(op, OpKind::scale_gradient, inputs, std::span(&out, 1), ScaleAttributes{factor});
  return {dx, out.id};
}

}  // namespace

/// Both summands have the gradient of the sum, b times the factor on it.
void residual_add_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const auto* stated = std::get_if<ResidualAttributes>(&op.attributes);
  const double factor = stated != nullptr ? stated->factor.value_or(1) : 1;
  for (const TapedInput& input : op.inputs) {
    const bool scaled = factor != 1 && input.role == "b";
    backward.add(input.tensor, scaled ? times(backward, op, dout, factor) : dout);
  }
}

void scale_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const auto* stated = std::get_if<ScaleAttributes>(&op.attributes);
  if (stated == nullptr || !stated->factor) return backward.fail_with("op " + op.name + " does not say its factor");
  backward.add(op.inputs.front().tensor, times(backward, op, dout, *stated->factor));
}

void softcap_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const kernels::TensorView y = backward.value(op.outputs.front().id);
  if (!backward.ok()) return;
  const auto* told = std::get_if<SoftcapAttributes>(&op.attributes);
  const double cap = told != nullptr ? told->cap.value_or(0) : 0;
  const kernels::TensorView dx = backward.memory(dout.view.format, y.rows, y.columns);
  backward.launch(kernels::SoftcapGradientArgs{.y = y, .dout = dout.view, .out = dx, .cap = static_cast<float>(cap)});
  backward.at_rows();
  const ProbeTensor out = backward.output("dx", dx);
  const std::array inputs{ProbeInput{"dout", dout.id, {}}, ProbeInput{"y", op.outputs.front().id, {}}};
  backward.emit(op, OpKind::softcap_gradient, inputs, std::span(&out, 1), op.attributes);
  backward.add(op.inputs.front().tensor, {dx, out.id});
}

}  // namespace nanscope::train

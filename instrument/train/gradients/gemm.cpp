#include "kernels/ops/gemm.h"

#include <array>
#include <span>
#include <string>
#include <vector>

#include "core/blocks/presets.h"
#include "instrument/train/gradients.h"
#include "instrument/train/row_selection.h"
#include "kernels/ops/block_dequantise.h"
#include "kernels/ops/block_quantise.h"
#include "kernels/ops/column_sum.h"
#include "kernels/ops/hadamard.h"
#include "kernels/ops/transpose.h"

namespace nanscope::train {
namespace {

using kernels::TensorView;

TensorView transposed(Backward& backward, const TensorView& x) {
  const TensorView out = backward.scratch(x.format, x.columns, x.rows);
  backward.launch(kernels::TransposeArgs{.x = x, .out = out});
  return out;
}

/// What a backward product reads of an operand whose rows it sums along: train.blocks says in what blocks, and whether
/// pieces of rows as long as a block are rotated before, which both operands are, so that their product is the same.
TensorView operand(Backward& backward, const TensorView& x, bool is_gradient) {
  const TrainConfig& train = backward.config().train;
  const std::string& name = is_gradient && !train.gradient_blocks.empty() ? train.gradient_blocks : train.blocks;
  if (name.empty()) return x;
  BlockFormat format = find_block_preset(name)->format;
  const std::int64_t width = format.block.columns;
  TensorView read = x;
  if (train.hadamard && x.columns % width == 0) {
    read = backward.scratch(Format::f32, x.rows, x.columns);
    backward.launch(kernels::HadamardArgs{.x = x, .out = read, .heads = x.columns / width});
  }
  if (train.stochastic && is_gradient) format.ties = Ties::stochastic;
  const std::int64_t blocks = (x.columns + width - 1) / width;
  const TensorView codes = backward.scratch(format.element, x.rows, x.columns);
  const TensorView scales = backward.scratch(format.scale, x.rows, blocks);
  const TensorView out = backward.scratch(Format::f32, x.rows, x.columns);
  backward.launch(kernels::BlockQuantiseArgs{
      .x = read, .codes = codes, .scales = scales, .format = format, .seed = backward.next_seed()});
  backward.launch(kernels::BlockDequantiseArgs{.codes = codes, .scales = scales, .out = out, .format = format});
  return out;
}

/// out = a b^T, both as the backward products read them.
void product(Backward& backward, const TensorView& a, const TensorView& b, const TensorView& out) {
  backward.launch(kernels::GemmArgs{.x = a, .weight = b, .packed = {}, .bias = {}, .out = out});
}

/// dW = dy^T x; zeros where no row came to it.
TensorView weight_gradient(Backward& backward, const TensorView& dy, const TensorView& x) {
  if (dy.rows == 0) return zeros(backward, dy.columns, x.columns);
  const TensorView dweight = backward.memory(Format::f32, dy.columns, x.columns);
  product(backward, operand(backward, transposed(backward, dy), true),
          operand(backward, transposed(backward, x), false), dweight);
  return dweight;
}

TensorView bias_gradient(Backward& backward, const TensorView& dy) {
  if (dy.rows == 0) return zeros(backward, 1, dy.columns);
  const TensorView dbias = backward.memory(Format::f32, 1, dy.columns);
  backward.launch(kernels::ColumnSumArgs{.x = dy, .out = dbias});
  return dbias;
}

/// What a block-scaled product read: the codes of its input times their scales, which the tape does not keep.
TensorView read_of_codes(Backward& backward, const TapedOp& op, std::int64_t codes) {
  Live& remade = backward.remade(codes);
  if (remade.view.given()) return remade.view;
  const TapedOp* quantise = backward.maker(codes);
  if (quantise == nullptr) {
    backward.fail_with("op " + op.name + " reads codes that no op of the step made");
    return {};
  }
  const TensorView x = backward.value(quantise->input("x"));
  const BlockConfig& blocks = backward.config().blocks;
  const BlockFormat& format = block_format(blocks);
  const TensorView out = backward.memory(Format::f32, x.rows, x.columns);
  const TensorView made = backward.scratch(format.element, x.rows, x.columns);
  const std::int64_t count = (x.columns + format.block.columns - 1) / format.block.columns;
  const TensorView scales = backward.scratch(format.scale, x.rows, count);
  const auto* attributes = std::get_if<BlockAttributes>(&quantise->attributes);
  const double second = attributes == nullptr ? 1.0 : attributes->tensor_scale.value_or(1.0);
  if (!backward.ok()) return {};
  backward.launch(kernels::BlockQuantiseArgs{.x = x,
                                             .codes = made,
                                             .scales = scales,
                                             .format = format,
                                             .second = static_cast<float>(second),
                                             .scale_overflow = blocks.overflow});
  backward.launch(kernels::BlockDequantiseArgs{
      .codes = made, .scales = scales, .out = out, .format = format, .second = static_cast<float>(second)});
  remade.view = out;
  return out;
}

/// y = x W^T + b: dx = dy W, dW = dy^T x, db the sums of dy's columns. `x` is the tensor that has dx, `x_value` what
/// the product read of it, `read` how the recording names it.
void affine_gradient(Backward& backward, const TapedOp& op, std::int64_t x, const TensorView& x_value,
                     std::span<const ProbeInput> read) {
  const RowSelection* rows = backward.rows_of(op.outputs.front());
  const Live dout = backward.gradient(op.outputs.front());
  const Weight* weight = backward.weight(op.weight("weight"));
  if (weight == nullptr) return backward.fail_with("op " + op.name + ": its weight is not of the model");
  if (!backward.ok()) return;
  const TensorView dy = selected(backward, rows, dout.view);
  std::vector<ProbeTensor> outputs;
  const TensorView part = memory_of(backward, rows, backward.config().train.gradient_format, dy.rows, x_value.columns);
  if (dy.rows > 0) {
    product(backward, operand(backward, dy, true), operand(backward, transposed(backward, weight->view), false), part);
  }
  const TensorView dx = put_back(backward, rows, part);
  backward.at_rows();
  outputs.push_back(backward.output("dx", dx));
  const TensorView dweight = weight_gradient(backward, dy, selected(backward, rows, x_value));
  backward.at_parameter();
  outputs.push_back(backward.output("dweight", dweight));
  const std::string_view bias = op.weight("bias");
  TensorView dbias;
  if (!bias.empty()) {
    dbias = bias_gradient(backward, dy);
    outputs.push_back(backward.output("dbias", dbias));
  }
  const TrainConfig& train = backward.config().train;
  BackwardAttributes attributes;
  if (!train.blocks.empty()) attributes = {train.blocks, train.stochastic, train.hadamard, {}};
  if (!train.gradient_blocks.empty()) attributes.gradient_blocks = train.gradient_blocks;
  std::vector<ProbeInput> inputs{{"dout", dout.id, {}}};
  inputs.insert(inputs.end(), read.begin(), read.end());
  inputs.push_back({"weight", 0, op.weight("weight")});
  backward.emit(op, OpKind::gemm_gradient, inputs, outputs, attributes);
  backward.add(x, {dx, outputs[0].id}, rows);
  backward.add_to_weight(op.weight("weight"), {dweight, outputs[1].id});
  if (!bias.empty()) backward.add_to_weight(bias, {dbias, outputs[2].id});
}

}  // namespace

void gemm_gradient(Backward& backward, const TapedOp& op) {
  const std::int64_t x = op.input("x");
  const TensorView value = backward.value(x);
  if (backward.ok()) affine_gradient(backward, op, x, value, std::array{ProbeInput{"x", x, {}}});
}

/// Straight-through: the codes have the gradient of their input.
void block_gemm_gradient(Backward& backward, const TapedOp& op) {
  const std::int64_t codes = op.input("codes");
  const TensorView value = read_of_codes(backward, op, codes);
  if (!backward.ok()) return;
  affine_gradient(backward, op, codes, value,
                  std::array{ProbeInput{"codes", codes, {}}, ProbeInput{"scales", op.input("scales"), {}}});
}

}  // namespace nanscope::train

#include "instrument/train/attention_operands.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops/attention_mix.h"
#include "kernels/ops/block_dequantise.h"
#include "kernels/ops/block_quantise.h"
#include "kernels/ops/quantise_columns.h"
#include "kernels/ops/softmax.h"
#include "kernels/ops/tile_mix.h"

namespace nanscope::train {

using kernels::TensorView;

namespace {

bool on_blocks(const EngineConfig& config) { return config.attention.blocks.any() && config.train.attention_blocks; }

/// The format of the operands of attention's gradient: that of the first of P, V, K and Q which has one.
const std::string& gradient_preset(const AttentionBlocks& blocks) {
  for (const std::string* one : {&blocks.p, &blocks.v, &blocks.k}) {
    if (!one->empty()) return *one;
  }
  return blocks.q;
}

/// What an operand is and where it stands.
struct Operand {
  std::string_view name;
  BlockAxis axis;
  Axis rows;
  std::int64_t heads;
  bool is_gradient;
};

/// What a product reads of `x`: quantized and back, both told.
Live in_blocks(Backward& backward, const TapedOp& op, std::size_t index, const Operand& operand, const Live& x) {
  const EngineConfig& config = backward.config();
  const std::string& preset = gradient_preset(config.attention.blocks);
  BlockFormat format = attention_block(preset, operand.axis);
  if (config.train.stochastic && operand.is_gradient) format.ties = Ties::stochastic;
  const std::int64_t block_rows = (x.view.rows + format.block.rows - 1) / format.block.rows;
  const std::int64_t blocks = (x.view.columns + format.block.columns - 1) / format.block.columns;
  const TensorView codes = backward.scratch(format.element, x.view.rows, x.view.columns);
  const TensorView scales = backward.scratch(format.scale, block_rows, blocks);
  const std::uint32_t seed = backward.next_seed();
  const bool along_tokens = operand.axis == BlockAxis::tokens;
  if (along_tokens) {
    backward.launch(
        kernels::QuantiseColumnsArgs{.x = x.view, .codes = codes, .scales = scales, .format = format, .seed = seed});
  } else {
    backward.launch(
        kernels::BlockQuantiseArgs{.x = x.view, .codes = codes, .scales = scales, .format = format, .seed = seed});
  }
  BlockAttributes attributes;
  attributes.format = preset;
  attributes.block = along_tokens ? format.block.rows : format.block.columns;
  attributes.blocks = along_tokens ? block_rows : blocks;
  if (format.ties == Ties::stochastic) attributes.stochastic = true;
  TapedOp own = of_sequence(backward, op, index);
  own.name += fmt::format("_{}", operand.name);
  const TapedOp named = own;
  backward.at_sequence(index, operand.rows);
  const ProbeTensor stored = backward.output("codes", codes, operand.heads);
  backward.at_parameter();
  const ProbeTensor told = backward.output("scales", scales);
  const std::array outputs{stored, told};
  const ProbeInput in{"x", x.id, {}};
  own.name += "_quantise";
  backward.emit(own, along_tokens ? OpKind::quantise_columns : OpKind::block_quantise, std::span(&in, 1), outputs,
                attributes);
  const TensorView read = backward.scratch(Format::f32, x.view.rows, x.view.columns);
  backward.launch(kernels::BlockDequantiseArgs{.codes = codes, .scales = scales, .out = read, .format = format});
  backward.at_sequence(index, operand.rows);
  const ProbeTensor out = backward.output("out", read, operand.heads);
  const std::array inputs{ProbeInput{"codes", stored.id, {}}, ProbeInput{"scales", told.id, {}}};
  own.name = named.name + "_dequantise";
  backward.emit(own, OpKind::block_dequantise, inputs, std::span(&out, 1), attributes);
  return {read, out.id};
}

bool exact_diagonal(const EngineConfig& config) {
  return on_blocks(config) && config.attention.blocks.diagonal != kernels::Diagonal::quantized;
}

/// A row-major matrix of one value.
TensorView filled(Backward& backward, std::int64_t rows, std::int64_t columns, float value) {
  const TensorView view = backward.scratch(Format::f32, rows, columns);
  if (!backward.ok()) return view;
  const std::vector<float> values(static_cast<std::size_t>(rows * columns), value);
  if (Status done = backward.parts().device.upload(view.data, std::as_bytes(std::span(values))); !done) {
    backward.fail_with(done.error().message);
  }
  return view;
}

}  // namespace

TapedOp of_sequence(const Backward& backward, const TapedOp& op, std::size_t index) {
  TapedOp own;
  own.layer = op.layer;
  own.name = op.name;
  // Ops that ran once a sequence have its number in their names.
  const bool numbered = op.kind != OpKind::attention_mix && op.kind != OpKind::tile_mix;
  if (backward.parts().spans.size() > 1 && !numbered) own.name += fmt::format("_{}", index);
  return own;
}

std::int64_t last_key_of_first_row(const Backward& backward, std::int64_t keys) {
  switch (backward.config().attention.causal) {
    case CausalMask::off_by_one:
      return 1;
    case CausalMask::none:
      return keys - 1;
    case CausalMask::exact:
    case CausalMask::block:  // which is not trained with
      break;
  }
  return 0;
}

Live probabilities(Backward& backward, std::int64_t probs) {
  const TapedOp* op = backward.maker(probs);
  while (op != nullptr && op->kind != OpKind::softmax && op->kind != OpKind::tile_softmax) {
    op = op->inputs.empty() ? nullptr : backward.maker(op->inputs.front().tensor);
  }
  if (op == nullptr) {
    backward.fail_with("a mix of values reads probabilities that no softmax made");
    return {};
  }
  const TapedTensor& made = op->outputs.front();
  if (op->kind == OpKind::softmax) return {backward.value(made.id), made.id};
  Live& again = backward.remade(made.id);
  if (again.view.given()) return again;
  const TensorView scores = backward.value(op->input("scores"));
  if (!backward.ok()) return {};
  const EngineConfig& config = backward.config();
  const std::int64_t heads = config.model.heads;
  again.view = backward.memory(Format::f32, scores.rows, scores.columns);
  SoftmaxAttributes attributes;
  attributes.mask = "select";
  attributes.heads = heads;
  attributes.first_position = last_key_of_first_row(backward, scores.columns / heads);
  attributes.first_key = 0;
  if (const std::int64_t window = window_of(config.model, op->layer); window > 0) attributes.window = window;
  const Weight* sinks = backward.weight(op->weight("sinks"));
  backward.launch(kernels::SoftmaxArgs{.scores = scores,
                                       .sinks = sinks != nullptr ? sinks->view : TensorView{},
                                       .out = again.view,
                                       .heads = heads,
                                       .first_position = *attributes.first_position,
                                       .window = attributes.window.value_or(0),
                                       .mask = kernels::MaskMode::select});
  backward.at_sequence(backward.sequence_of(made));
  const ProbeTensor out = backward.output("probs", again.view, heads);
  again.id = out.id;
  TapedOp own;
  own.layer = op->layer;
  own.name = op->name + "_again";
  const std::array inputs{ProbeInput{"scores", op->input("scores"), {}}, ProbeInput{"sinks", 0, op->weight("sinks")}};
  backward.emit(own, OpKind::softmax, std::span(inputs).first(sinks != nullptr ? 2 : 1), std::span(&out, 1),
                attributes);
  return again;
}

MixOperands mix_operands(Backward& backward, const TapedOp& op, std::size_t index, const Live& dout, const Live& p,
                         const Live& v) {
  if (!on_blocks(backward.config())) return {dout, v, dout, p, false};
  const ModelConfig& model = backward.config().model;
  MixOperands read;
  read.exact_diagonal = exact_diagonal(backward.config());
  read.dout_channels =
      in_blocks(backward, op, index, {"dout", BlockAxis::channels, Axis::part, model.heads, true}, dout);
  read.v_channels = in_blocks(backward, op, index, {"v", BlockAxis::channels, Axis::keys, model.kv_heads, false}, v);
  read.dout_tokens =
      in_blocks(backward, op, index, {"dout_tokens", BlockAxis::tokens, Axis::part, model.heads, true}, dout);
  read.probs = in_blocks(backward, op, index, {"probs", BlockAxis::tokens, Axis::part, model.heads, false}, p);
  return read;
}

ScoresOperands scores_operands(Backward& backward, const TapedOp& op, std::size_t index, const Live& ds, const Live& q,
                               const Live& k) {
  if (!on_blocks(backward.config())) return {ds, k, ds, q, false, false};
  const ModelConfig& model = backward.config().model;
  ScoresOperands read;
  read.tiled = true;
  read.exact_diagonal = exact_diagonal(backward.config());
  read.ds_keys = in_blocks(backward, op, index, {"dscores", BlockAxis::channels, Axis::part, model.heads, true}, ds);
  read.k_tokens = in_blocks(backward, op, index, {"k", BlockAxis::tokens, Axis::keys, model.kv_heads, false}, k);
  read.ds_tokens =
      in_blocks(backward, op, index, {"dscores_tokens", BlockAxis::tokens, Axis::part, model.heads, true}, ds);
  read.q_tokens = in_blocks(backward, op, index, {"q", BlockAxis::tokens, Axis::part, model.heads, false}, q);
  return read;
}

void query_gradient(Backward& backward, const TapedOp& op, const ScoresOperands& read, const Live& ds, const Live& k,
                    float factor, const TensorView& out) {
  const EngineConfig& config = backward.config();
  const std::int64_t heads = config.model.heads;
  const std::int64_t first_position = last_key_of_first_row(backward, k.view.rows);
  const std::int64_t window = window_of(config.model, op.layer);
  if (!read.tiled) {
    backward.launch(kernels::AttentionMixArgs{.p = ds.view,
                                              .v = k.view,
                                              .out = out,
                                              .heads = heads,
                                              .kv_heads = config.model.kv_heads,
                                              .factor = factor,
                                              .first_position = first_position,
                                              .window = window,
                                              .visible_only = true});
    return;
  }
  // Tile by tile as the mix is made, with maxima of 0, which change nothing, and 1 / factor for a sum.
  const std::int64_t tile = config.attention.blocks.tile;
  const std::int64_t tiles = (k.view.rows + tile - 1) / tile;
  backward.launch(
      kernels::TileMixArgs{.p = read.ds_keys.view,
                           .exact_p = ds.view,
                           .v = read.k_tokens.view,
                           .exact_v = k.view,
                           .max = filled(backward, ds.view.rows, heads * tiles, 0.0F),
                           .sum = filled(backward, ds.view.rows, heads * tiles, 1.0F / factor),
                           .out = out,
                           .heads = heads,
                           .kv_heads = config.model.kv_heads,
                           .tile = tile,
                           .first_position = first_position,
                           .own_position = 0,
                           .window = window,
                           .diagonal = read.exact_diagonal ? kernels::Diagonal::exact : kernels::Diagonal::quantized});
}

}  // namespace nanscope::train

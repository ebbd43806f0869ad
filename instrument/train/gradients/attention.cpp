#include <array>
#include <string>
#include <vector>

#include "instrument/engine/workspace.h"
#include "instrument/train/attention_operands.h"
#include "instrument/train/gradients.h"
#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_mix_gradient.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/column_sum.h"
#include "kernels/ops/softcap_gradient.h"
#include "kernels/ops/softmax_gradient.h"
#include "kernels/ops/tile_mix.h"

/// Scores, softmax and mix of attention (Vaswani et al. 2017), of each sequence by itself.
namespace nanscope::train {
namespace {

using kernels::TensorView;

std::vector<std::int64_t> inputs_of(const TapedOp& op, std::string_view role) {
  std::vector<std::int64_t> found;
  for (const TapedInput& input : op.inputs) {
    if (input.role == role) found.push_back(input.tensor);
  }
  return found;
}

}  // namespace

/// o = p v: dp = do v^T, dv = p^T do.
void attention_mix_gradient(Backward& backward, const TapedOp& op) {
  const Live dout = backward.gradient(op.outputs.front());
  const ModelConfig& model = backward.config().model;
  const std::vector<std::int64_t> probs = inputs_of(op, "probs");
  const std::vector<std::int64_t> values = inputs_of(op, "v");
  for (std::size_t i = 0; i < probs.size() && backward.ok(); ++i) {
    const Span& span = backward.parts().spans[i];
    const Live own{slice(dout.view, span.row, span.rows), dout.id};
    const Live v{backward.value(values[i]), values[i]};
    const Live p = probabilities(backward, probs[i]);
    if (!backward.ok()) return;
    const MixOperands read = mix_operands(backward, op, i, own, p, v);
    const TensorView dp = backward.memory(backward.config().train.gradient_format, span.rows, p.view.columns);
    backward.launch(kernels::AttentionScoresArgs{.q = read.dout_channels.view,
                                                 .k = read.v_channels.view,
                                                 .out = dp,
                                                 .heads = model.heads,
                                                 .kv_heads = model.kv_heads});
    const TensorView dv = backward.memory(Format::f32, v.view.rows, v.view.columns);
    kernels::AttentionMixGradientArgs args{.weights = read.probs.view,
                                           .x = read.dout_tokens.view,
                                           .out = dv,
                                           .heads = model.heads,
                                           .kv_heads = model.kv_heads,
                                           .first_position = last_key_of_first_row(backward, v.view.rows),
                                           .window = window_of(model, op.layer)};
    if (read.exact_diagonal) {
      args.exact_weights = p.view;
      args.exact_x = own.view;
      args.tile = backward.config().attention.blocks.tile;
    }
    backward.launch(args);
    backward.at_sequence(i);
    const ProbeTensor out_p = backward.output("dprobs", dp, model.heads);
    backward.at_sequence(i, Axis::keys);
    const std::array outputs{out_p, backward.output("dv", dv, model.kv_heads)};
    std::vector<ProbeInput> inputs{
        {"dout", read.dout_channels.id, {}}, {"probs", read.probs.id, {}}, {"v", read.v_channels.id, {}}};
    if (read.dout_tokens.id != read.dout_channels.id) inputs.push_back({"dout_tokens", read.dout_tokens.id, {}});
    backward.emit(of_sequence(backward, op, i), OpKind::attention_mix_gradient, inputs, outputs, op.attributes);
    backward.add(probs[i], {dp, outputs[0].id});
    backward.add(values[i], {dv, outputs[1].id});
  }
}

void tile_mix_gradient(Backward& backward, const TapedOp& op) { attention_mix_gradient(backward, op); }

void softmax_gradient(Backward& backward, const TapedOp& op) {
  const Live dprobs = backward.gradient(op.outputs.front());
  const ModelConfig& model = backward.config().model;
  const std::int64_t probs = op.outputs.front().id;
  const Live remade = probabilities(backward, probs);
  const TensorView& p = remade.view;
  if (!backward.ok()) return;
  const TensorView ds = backward.memory(backward.config().train.gradient_format, p.rows, p.columns);
  kernels::SoftmaxGradientArgs args{.probs = p,
                                    .dprobs = dprobs.view,
                                    .out = ds,
                                    .heads = model.heads,
                                    .first_position = last_key_of_first_row(backward, p.columns / model.heads),
                                    .window = window_of(model, op.layer)};
  const std::int64_t scores = op.input("scores");
  const Weight* sinks = backward.weight(op.weight("sinks"));
  TensorView dsinks;
  if (sinks != nullptr) {
    args.sinks = sinks->view;
    args.scores = backward.value(scores);
    args.sink_out = backward.scratch(Format::f32, p.rows, model.heads);
    dsinks = backward.memory(Format::f32, 1, model.heads);
  }
  backward.launch(args);
  backward.at_sequence(backward.sequence_of(op.outputs.front()));
  std::vector<ProbeTensor> outputs{backward.output("dscores", ds, model.heads)};
  std::vector<ProbeInput> inputs{{"dprobs", dprobs.id, {}}, {"probs", remade.id, {}}};
  if (sinks != nullptr) {
    backward.launch(kernels::ColumnSumArgs{.x = args.sink_out, .out = dsinks});
    backward.at_parameter();
    outputs.push_back(backward.output("dsinks", dsinks));
    inputs.insert(inputs.end(), {{"scores", scores, {}}, {"sinks", 0, op.weight("sinks")}});
  }
  backward.emit(op, OpKind::softmax_gradient, inputs, outputs, op.attributes);
  backward.add(scores, {ds, outputs[0].id});
  if (sinks != nullptr) backward.add_to_weight(op.weight("sinks"), {dsinks, outputs[1].id});
}

void tile_softmax_gradient(Backward& backward, const TapedOp& op) { softmax_gradient(backward, op); }

/// s = factor q k^T, perhaps capped: dq = factor ds k, dk = factor ds^T q.
void attention_scores_gradient(Backward& backward, const TapedOp& op) {
  const ModelConfig& model = backward.config().model;
  Live ds = backward.gradient(op.outputs.front());
  const std::size_t index = backward.sequence_of(op.outputs.front());
  const Span& span = backward.parts().spans[index];
  const std::int64_t q_id = op.input("q");
  const std::int64_t k_id = op.input("k");
  // Queries of all sequences are one tensor, unless they were quantized, each sequence by itself.
  const TensorView all_q = backward.value(q_id);
  const bool whole = all_q.rows != span.rows;
  const Live q{whole ? slice(all_q, span.row, span.rows) : all_q, q_id};
  const Live k{backward.value(k_id), k_id};
  if (!backward.ok()) return;
  if (model.attention_softcap > 0) {
    const TensorView capped = backward.scratch(ds.view.format, ds.view.rows, ds.view.columns);
    backward.launch(kernels::SoftcapGradientArgs{.y = backward.value(op.outputs.front().id),
                                                 .dout = ds.view,
                                                 .out = capped,
                                                 .cap = static_cast<float>(model.attention_softcap)});
    ds.view = capped;
  }
  const float factor = attention_scale(model, op.layer);
  const ScoresOperands read = scores_operands(backward, op, index, ds, q, k);
  const TensorView dq = backward.memory(backward.config().train.gradient_format, q.view.rows, q.view.columns);
  query_gradient(backward, op, read, ds, k, factor, dq);
  const TensorView dk = backward.memory(Format::f32, k.view.rows, k.view.columns);
  kernels::AttentionMixGradientArgs args{.weights = read.ds_tokens.view,
                                         .x = read.q_tokens.view,
                                         .out = dk,
                                         .heads = model.heads,
                                         .kv_heads = model.kv_heads,
                                         .factor = factor,
                                         .first_position = last_key_of_first_row(backward, k.view.rows),
                                         .window = window_of(model, op.layer)};
  if (read.exact_diagonal) {
    args.exact_weights = ds.view;
    args.exact_x = q.view;
    args.tile = backward.config().attention.blocks.tile;
  }
  backward.launch(args);
  backward.at_sequence(index);
  const ProbeTensor out_q = backward.output("dq", dq, model.heads);
  backward.at_sequence(index, Axis::keys);
  const std::array outputs{out_q, backward.output("dk", dk, model.kv_heads)};
  std::vector<ProbeInput> inputs{
      {"dscores", read.ds_keys.id, {}}, {"q", read.q_tokens.id, {}}, {"k", read.k_tokens.id, {}}};
  if (read.exact_diagonal) {
    inputs.insert(inputs.end(), {{"exact_dscores", ds.id, {}}, {"exact_q", q.id, {}}, {"exact_k", k.id, {}}});
  }
  backward.emit(op, OpKind::attention_scores_gradient, inputs, outputs, op.attributes);
  if (whole) {
    backward.add_rows(q_id, span.row, {dq, outputs[0].id});
  } else {
    backward.add(q_id, {dq, outputs[0].id});
  }
  backward.add(k_id, {dk, outputs[1].id});
}

}  // namespace nanscope::train

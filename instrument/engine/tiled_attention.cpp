/// Attention on block-scaled operands, tile by tile: keys and values are quantized from what kv_read gave, in every
/// step anew, so that the last block of a decode holds past tokens alone.
#include <algorithm>
#include <array>

#include "instrument/engine/forward.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/block_dequantise.h"
#include "kernels/ops/block_quantise.h"
#include "kernels/ops/quantise_columns.h"
#include "kernels/ops/tile_mix.h"
#include "kernels/ops/tile_softmax.h"

namespace nanscope {

using kernels::TensorView;

Live Forward::in_blocks(const BlockPlans& plans, const BlockSlots& slots, const RowGroup& group, Axis rows,
                        const Live& x, const std::string& preset, BlockAxis axis, std::int64_t heads) {
  if (preset.empty()) return x;
  const BlockFormat format = attention_block(preset, axis);
  const std::int64_t block_rows = (x.view.rows + format.block.rows - 1) / format.block.rows;
  const std::int64_t blocks = (x.view.columns + format.block.columns - 1) / format.block.columns;
  const TensorView codes = matrix(slots.codes, format.element, x.view.rows, x.view.columns);
  const TensorView scales = matrix(slots.scales, format.scale, block_rows, blocks);
  if (axis == BlockAxis::tokens) {
    launch(kernels::QuantiseColumnsArgs{.x = x.view, .codes = codes, .scales = scales, .format = format});
  } else {
    launch(kernels::BlockQuantiseArgs{.x = x.view, .codes = codes, .scales = scales, .format = format});
  }
  const SpanInput& input = *group.input;
  emitter_.set_place(of_span(input, rows, rows == Axis::keys ? 0 : input.span.first_token));
  ProbeTensor stored = emitter_.output("codes", codes, heads);
  stored.source = x.view;
  ProbeTensor told = emitter_.output("scales", scales);
  if (axis == BlockAxis::tokens) told.first_token = 0, told.axis = Axis::none, told.sequence = -1;
  const std::array outputs{stored, told};
  emitter_.op(plan_of_span(plans.quantise, input), {ProbeInput{"x", x.id, {}}}, outputs);
  const TensorView read = matrix(slots.read, Format::f32, x.view.rows, x.view.columns);
  launch(kernels::BlockDequantiseArgs{.codes = codes, .scales = scales, .out = read, .format = format});
  return emit(plan_of_span(plans.dequantise, input),
              {ProbeInput{"codes", stored.id, {}}, ProbeInput{"scales", told.id, {}}}, "out", read, heads);
}

Forward::Tiles Forward::tile_softmax(const LayerPlan& plan, const RowGroup& group, const Live& scores,
                                     const Live& exact_scores) {
  const EngineConfig& config = parts_.config;
  const AttentionBlocks& blocks = config.attention.blocks;
  const std::int64_t heads = config.model.heads;
  const std::int64_t keys = scores.view.columns / heads;
  const std::int64_t tiles = (keys + blocks.tile - 1) / blocks.tile;
  const std::int64_t last_key = last_visible_key(group, keys);
  const TensorView out = matrix(Slot::probs, config.activation_format, group.rows, heads * tiles * blocks.tile);
  const TensorView max = matrix(Slot::tile_max, Format::f32, group.rows, heads * tiles);
  const TensorView sum = matrix(Slot::tile_sum, Format::f32, group.rows, heads * tiles);
  const Weight* sinks = sinks_of(plan);
  launch(kernels::TileSoftmaxArgs{.scores = scores.view,
                                  .exact_scores = exact_scores.view,
                                  .sinks = sinks != nullptr ? sinks->view : TensorView{},
                                  .out = out,
                                  .max = max,
                                  .sum = sum,
                                  .heads = heads,
                                  .tile = blocks.tile,
                                  .first_position = last_key,
                                  .own_position = group.first_position,
                                  .first_key = group.input->first_key,
                                  .window = window_of(config.model, plan.softmax.layer),
                                  .max_nan = config.attention.max_nan,
                                  .whole = !blocks.online,
                                  .zero_guard = config.attention.zero_guard});
  const std::array outputs{emitter_.output("probs", out, heads), emitter_.output("max", max, heads),
                           emitter_.output("sum", sum, heads)};
  std::vector<ProbeInput> inputs{{"scores", scores.id, {}}};
  if (exact_scores.view.given()) inputs.push_back({"exact_scores", exact_scores.id, {}});
  if (sinks != nullptr) inputs.push_back({"sinks", 0, sinks->name});
  emitter_.op(plan_of_span(plan.softmax, *group.input), std::span<const ProbeInput>(inputs), outputs,
              attributes<SoftmaxAttributes>(plan.softmax, [&](auto& all) {
                all.first_position = last_key;
                all.first_key = group.input->first_key;
              }));
  const Live exact{out, outputs[0].id};
  const Live probs =
      in_blocks({plan.p_quantise, plan.p_dequantise}, {Slot::p_block_codes, Slot::p_block_scales, Slot::p_block_read},
                group, Axis::part, exact, blocks.p, BlockAxis::channels, heads);
  return {probs, exact, {max, outputs[1].id}, {sum, outputs[2].id}};
}

void Forward::mix_tiles(const LayerPlan& plan, const RowGroup& group, const TensorView& out, const Tiles& tiles,
                        const Live& v, const Live& exact_v, std::vector<ProbeInput>& inputs) {
  using kernels::Diagonal;
  const EngineConfig& config = parts_.config;
  const AttentionBlocks& blocks = config.attention.blocks;
  // Blocks of one token have no later ones in them: they are what the token itself would make of them.
  const bool along_tokens = !blocks.v.empty() && blocks.v_axis == BlockAxis::tokens;
  const bool past = blocks.diagonal == Diagonal::past && along_tokens;
  const Diagonal diagonal = blocks.diagonal == Diagonal::past && !past ? Diagonal::quantized : blocks.diagonal;
  launch(kernels::TileMixArgs{.p = tiles.probs.view,
                              .exact_p = tiles.exact_probs.view,
                              .v = v.view,
                              .exact_v = exact_v.view,
                              .max = tiles.max.view,
                              .sum = tiles.sum.view,
                              .out = out,
                              .heads = config.model.heads,
                              .kv_heads = config.model.kv_heads,
                              .tile = blocks.tile,
                              .first_position = last_visible_key(group, v.view.rows),
                              .own_position = group.first_position,
                              .first_key = group.input->first_key,
                              .window = window_of(config.model, plan.attn_mix.layer),
                              .diagonal = diagonal,
                              .format = past ? attention_block(blocks.v, BlockAxis::tokens) : BlockFormat{},
                              .zero_guard = config.attention.zero_guard});
  inputs.push_back({"probs", tiles.probs.id, {}});
  inputs.push_back({"v", v.id, {}});
  inputs.push_back({"max", tiles.max.id, {}});
  inputs.push_back({"sum", tiles.sum.id, {}});
  if (diagonal == Diagonal::exact) inputs.push_back({"exact_probs", tiles.exact_probs.id, {}});
  if (diagonal != Diagonal::quantized) inputs.push_back({"exact_v", exact_v.id, {}});
}

Live Forward::attend_tiles(const LayerPlan& plan, const Live& q) {
  const ModelConfig& model = parts_.config.model;
  const AttentionBlocks& blocks = parts_.config.attention.blocks;
  TensorView out = activation(Slot::mix, mix_width(model));
  std::vector<ProbeInput> inputs;
  for (const RowGroup& group : row_groups()) {
    if (group.input == nullptr) {
      pad_mix(plan, group, slice(out, group.row, group.rows));
      continue;
    }
    const auto [keys, values] = kv_read(plan, group);
    const Live own_q{slice(q.view, group.row, group.rows), q.id};
    const Live read_q =
        in_blocks({plan.q_quantise, plan.q_dequantise}, {Slot::q_block_codes, Slot::q_block_scales, Slot::q_block_read},
                  group, Axis::part, own_q, blocks.q, BlockAxis::channels, model.heads);
    const Live k =
        in_blocks({plan.k_quantise, plan.k_dequantise}, {Slot::k_block_codes, Slot::k_block_scales, Slot::k_block_read},
                  group, Axis::keys, keys.read, blocks.k, blocks.k_axis, model.kv_heads);
    const Live v =
        in_blocks({plan.v_quantise, plan.v_dequantise}, {Slot::v_block_codes, Slot::v_block_scales, Slot::v_block_read},
                  group, Axis::keys, values.read, blocks.v, blocks.v_axis, model.kv_heads);
    emitter_.set_place(of_span(*group.input, Axis::part, group.input->span.first_token));
    const Live scored =
        quantised_for(ScoreTarget::scores, plan, group, scores(plan, group, read_q, {k, {}}), group.rows);
    Live exact;
    if (reads_exact_scores(blocks)) exact = exact_scores(plan, group, own_q, keys.read);
    const Tiles tiles = tile_softmax(plan, group, scored, exact);
    mix_tiles(plan, group, slice(out, group.row, group.rows), tiles, v, values.read, inputs);
  }
  return emit_mix(plan, out, inputs);
}

Live Forward::exact_scores(const LayerPlan& plan, const RowGroup& group, const Live& q, const Live& k) {
  const ModelConfig& model = parts_.config.model;
  const TensorView out =
      matrix(Slot::exact_scores, parts_.config.activation_format, group.rows, model.heads * k.view.rows);
  launch(kernels::AttentionScoresArgs{.q = q.view,
                                      .k = k.view,
                                      .out = out,
                                      .heads = model.heads,
                                      .kv_heads = model.kv_heads,
                                      .factor = attention_scale(model, plan.scores.layer),
                                      .softcap = static_cast<float>(model.attention_softcap)});
  return emit(plan_of_span(plan.exact_scores, *group.input), {ProbeInput{"q", q.id, {}}, ProbeInput{"k", k.id, {}}},
              "out", out, model.heads);
}

}  // namespace nanscope

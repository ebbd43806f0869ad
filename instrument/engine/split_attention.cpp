/// Attention over blocks of keys, each of which a GPU gives warps of its own (flash-decoding): what is put together is
/// put together in the order of the keys.
#include <array>

#include "instrument/engine/forward.h"
#include "kernels/ops/attention_mix.h"
#include "kernels/ops/combine_partials.h"
#include "kernels/ops/softmax_partials.h"

namespace nanscope {

using kernels::TensorView;

Forward::SoftmaxStatistics Forward::softmax_partials(const LayerPlan& plan, const RowGroup& group, const Live& scores) {
  const AttentionConfig& attention = parts_.config.attention;
  if (attention.split == 0) return {};
  const std::int64_t heads = parts_.config.model.heads;
  const std::int64_t keys = scores.view.columns / heads;
  const std::int64_t statistics = heads * kernels::blocks_of(keys, attention.split);
  const TensorView max = matrix(Slot::block_max, Format::f32, group.rows, statistics);
  const TensorView sum = matrix(Slot::block_sum, Format::f32, group.rows, statistics);
  const std::int64_t last_key = last_visible_key(group, keys);
  launch(kernels::SoftmaxPartialsArgs{.scores = scores.view,
                                      .max = max,
                                      .sum = sum,
                                      .heads = heads,
                                      .split = attention.split,
                                      .first_position = last_key,
                                      .first_key = group.input->first_key,
                                      .window = window_of(parts_.config.model, plan.softmax_partials.layer),
                                      .mask = attention.mask,
                                      .max_nan = attention.max_nan});
  const std::array outputs{emitter_.output("max", max, heads), emitter_.output("sum", sum, heads)};
  emitter_.op(plan_of_span(plan.softmax_partials, *group.input), {ProbeInput{"scores", scores.id, {}}}, outputs,
              attributes<SoftmaxAttributes>(plan.softmax_partials, [&](auto& all) {
                all.first_position = last_key;
                all.first_key = group.input->first_key;
              }));
  return {{max, outputs[0].id}, {sum, outputs[1].id}};
}

Live Forward::mix_in_blocks(const LayerPlan& plan, const RowGroup& group, const TensorView& out, const Live& probs,
                            const KvSource& values) {
  const ModelConfig& model = parts_.config.model;
  const std::int64_t keys = values.read.view.rows;
  const std::int64_t blocks = kernels::blocks_of(keys, parts_.config.attention.split);
  const TensorView partials = matrix(Slot::mix_partials, Format::f32, group.rows, blocks * mix_width(model));
  mix(plan, group, partials, probs, values);
  launch(kernels::CombinePartialsArgs{.partials = partials, .out = out, .heads = model.heads, .blocks = blocks});
  return emit(plan_of_span(plan.mix_partials, *group.input),
              {ProbeInput{"probs", probs.id, {}}, ProbeInput{"v", values.read.id, {}}}, "partials", partials,
              model.heads, attributes<MixAttributes>(plan.mix_partials, [&](auto& all) {
                all.first_position = last_visible_key(group, keys);
                all.first_key = group.input->first_key;
              }));
}

}  // namespace nanscope

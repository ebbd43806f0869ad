/// Attention's scores as codes, and as the softmax reads them.
#include <array>

#include "instrument/engine/forward.h"
#include "kernels/ops/cast.h"

namespace nanscope {

using kernels::TensorView;

Live Forward::quantised_scores(const LayerPlan& plan, const RowGroup& group, const Live& scores) {
  if (parts_.scores == nullptr || !emitter_.ok()) return scores;
  const Span& span = group.input->span;
  ScaleContext context = scale_context(plan, KvTarget::k);
  context.request = span.request;
  context.tokens = group.rows;
  const Result<ScoreBook::Use> use = parts_.scores->use(context, plan.rank, scores.view, parts_.workspace);
  if (!use) {
    emitter_.check(tl::unexpected(use.error()));
    return scores;
  }
  const ScoresConfig& config = parts_.config.scores;
  const std::int64_t heads = parts_.config.model.heads;
  const TensorView codes = matrix(Slot::score_codes, config.format, scores.view.rows, scores.view.columns);
  const TensorView scale = matrix(Slot::score_scale, Format::f32, 1, 1);
  if (emitter_.ok()) {
    emitter_.check(parts_.device.upload(scale.data, std::as_bytes(std::span(&use->scale, 1))));
  }
  launch(kernels::CastArgs{.x = scores.view, .out = codes, .scale = use->scale, .overflow = config.overflow});
  ProbeTensor stored = emitter_.output("codes", codes, heads);
  stored.source = scores.view;
  stored.source_scales = scale;
  ProbeTensor told = emitter_.output("scale", scale);
  told.first_token = 0;
  told.axis = Axis::none;
  told.sequence = -1;
  const std::array outputs{stored, told};
  emitter_.op(plan_of_span(plan.scores_quantise, *group.input), {ProbeInput{"x", scores.id, {}}}, outputs);
  if (emitter_.listening() && emitter_.ok()) {
    emitter_.check(emitter_.probe().on_scale(parts_.scores->ledger_row(context, emitter_.ops(), *use)));
  }
  const TensorView read = matrix(Slot::score_read, Format::f32, scores.view.rows, scores.view.columns);
  launch(kernels::CastArgs{.x = codes, .out = read, .scale = use->scale, .dequantise = true});
  return emit(plan_of_span(plan.scores_dequantise, *group.input),
              {ProbeInput{"codes", stored.id, {}}, ProbeInput{"scale", told.id, {}}}, "out", read, heads);
}

}  // namespace nanscope

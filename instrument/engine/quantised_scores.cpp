/// Attention's queries, keys and scores as codes, and as what reads them.
#include <array>

#include "instrument/engine/forward.h"
#include "kernels/ops/cast.h"

namespace nanscope {

using kernels::TensorView;

namespace {

struct CastSlots {
  Slot codes, scale, read;
};

CastSlots slots_of(ScoreTarget target) {
  switch (target) {
    case ScoreTarget::queries:
      return {Slot::query_codes, Slot::query_scale, Slot::query_read};
    case ScoreTarget::keys:
      return {Slot::key_codes, Slot::key_scale, Slot::key_read};
    case ScoreTarget::scores:
      break;
  }
  return {Slot::score_codes, Slot::score_scale, Slot::score_read};
}

std::pair<const OpPlan&, const OpPlan&> ops_of(const LayerPlan& plan, ScoreTarget target) {
  switch (target) {
    case ScoreTarget::queries:
      return {plan.q_quantise, plan.q_dequantise};
    case ScoreTarget::keys:
      return {plan.k_quantise, plan.k_dequantise};
    case ScoreTarget::scores:
      break;
  }
  return {plan.scores_quantise, plan.scores_dequantise};
}

}  // namespace

Live Forward::quantised_for(ScoreTarget target, const LayerPlan& plan, const RowGroup& group, const Live& x,
                            std::int64_t counted) {
  const ScoresConfig& config = parts_.config.scores;
  const Format format = score_format(config, target);
  if (parts_.scores == nullptr || format == Format::f32 || !emitter_.ok()) return x;
  ScaleContext context = scale_context(plan, KvTarget::k);
  context.request = group.input->span.request;
  context.tokens = counted;
  const auto uses = parts_.scores->use(context, plan.rank, target, slice(x.view, 0, counted), parts_.workspace);
  if (!uses) {
    emitter_.check(tl::unexpected(uses.error()));
    return x;
  }
  const CastSlots slots = slots_of(target);
  const auto count = static_cast<std::int64_t>(uses->size());
  const TensorView codes = matrix(slots.codes, format, x.view.rows, x.view.columns);
  const TensorView scale = matrix(slots.scale, Format::f32, 1, count);
  const TensorView read = matrix(slots.read, Format::f32, x.view.rows, x.view.columns);
  std::vector<float> scales;
  for (const ScoreBook::Use& use : *uses) scales.push_back(use.scale);
  if (emitter_.ok()) emitter_.check(parts_.device.upload(scale.data, std::as_bytes(std::span(scales))));
  const std::int64_t width = x.view.columns / count;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto head = [&](const TensorView& view) { return columns_of(view, i * width, width); };
    const float own = scales[static_cast<std::size_t>(i)];
    launch(kernels::CastArgs{.x = head(x.view), .out = head(codes), .scale = own, .overflow = config.overflow});
    launch(kernels::CastArgs{.x = head(codes), .out = head(read), .scale = own, .dequantise = true});
  }
  const ModelConfig& model = parts_.config.model;
  const std::int64_t heads = target == ScoreTarget::keys ? model.kv_heads : model.heads;
  ProbeTensor stored = emitter_.output("codes", codes, heads);
  stored.source = x.view;
  stored.source_scales = scale;
  ProbeTensor told = emitter_.output("scale", scale, count);
  told.first_token = 0;
  told.axis = Axis::none;
  told.sequence = -1;
  const std::array outputs{stored, told};
  const auto [quantise, dequantise] = ops_of(plan, target);
  emitter_.op(plan_of_span(quantise, *group.input), {ProbeInput{"x", x.id, {}}}, outputs);
  if (emitter_.listening()) {
    for (const ScaleRow& row : parts_.scores->ledger_rows(context, emitter_.ops(), target, *uses)) {
      if (emitter_.ok()) emitter_.check(emitter_.probe().on_scale(row));
    }
  }
  return emit(plan_of_span(dequantise, *group.input),
              {ProbeInput{"codes", stored.id, {}}, ProbeInput{"scale", told.id, {}}}, "out", read, heads);
}

/// Those behind the context are in slots that nobody wrote for this sequence.
Live Forward::quantised_keys(const LayerPlan& plan, const RowGroup& group, const Live& k) {
  emitter_.set_place(of_span(*group.input, Axis::keys, 0));
  const Live read = quantised_for(ScoreTarget::keys, plan, group, k, group.input->span.context);
  emitter_.set_place(of_span(*group.input, Axis::part, group.input->span.first_token));
  return read;
}

}  // namespace nanscope

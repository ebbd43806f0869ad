/// Gated delta nets (Yang et al. 2024, arXiv:2412.06464) as Qwen3-Next has them in the place of attention: short
/// convolutions of queries, keys and values, the gated delta rule, a norm of each head that a gate multiplies.
#include <vector>

#include "instrument/engine/forward.h"
#include "kernels/ops/activation.h"
#include "kernels/ops/causal_conv.h"
#include "kernels/ops/delta_rule.h"

namespace nanscope {

using kernels::TensorView;

Forward::DeltaState Forward::delta_state(const LayerPlan& plan, const RowGroup& group) {
  const ModelConfig& model = parts_.config.model;
  DeltaState from;
  TensorView all;
  if (group.input == nullptr) {
    all = matrix(Slot::pad_state, Format::f32, 1, state_width(model));
  } else {
    all = parts_.pool.state(plan.rank, group.input->state_block);
    from.block = group.input->state_block;
    from.resume = resumes(*group.input);
  }
  std::int64_t first = 0;
  const auto take = [&](std::int64_t rows, std::int64_t columns) {
    TensorView part = columns_of(all, first, columns);
    part.rows = rows;
    part.stride = columns;
    first += rows * columns;
    return part;
  };
  const std::int64_t keys = model.delta_key_heads * model.delta_key_dim;
  const std::int64_t values = model.delta_value_heads * model.delta_value_dim;
  from.q = take(model.delta_taps - 1, keys);
  from.k = take(model.delta_taps - 1, keys);
  from.v = take(model.delta_taps - 1, values);
  from.rule = take(model.delta_value_heads * model.delta_key_dim, model.delta_value_dim);
  return from;
}

Live Forward::convolved(const OpPlan& plan, const RowGroup& group, const Live& x, const Affine& weight,
                        const TensorView& state, const DeltaState& from, const TensorView& out) {
  const TensorView rows = slice(out, group.row, group.rows);
  launch(kernels::CausalConvArgs{.x = slice(x.view, group.row, group.rows),
                                 .weight = weight.weight->view,
                                 .state = state,
                                 .out = rows,
                                 .resume = from.resume});
  if (group.input == nullptr) return {rows, 0};
  return emit(plan_of_span(plan, *group.input),
              {ProbeInput{"x", x.id, {}}, ProbeInput{"weight", 0, weight.weight->name}, ProbeInput{"state", 0, {}}},
              "out", rows, 1, attributes<RecurrentAttributes>(plan, [&](auto& attributes) {
                attributes.resume = from.resume;
                attributes.block = from.block;
              }));
}

/// Span by span: what the rule makes of convolved queries, keys and values.
Live Forward::ruled(const LayerPlan& plan, const LayerWeights& weights, const DeltaInputs& in) {
  const ModelConfig& model = parts_.config.model;
  const std::int64_t heads = model.delta_value_heads;
  const TensorView q_out = activation(Slot::q_conv, in.q.view.columns);
  const TensorView k_out = activation(Slot::k_conv, in.k.view.columns);
  const TensorView v_out = activation(Slot::v_conv, in.v.view.columns);
  const TensorView out = activation(Slot::delta, in.v.view.columns);
  std::vector<ProbeInput> parts;
  Live made{out, 0};
  for (const RowGroup& group : row_groups()) {
    const DeltaState from = delta_state(plan, group);
    if (step_.batched && group.input != nullptr)
      emitter_.set_place(of_span(*group.input, Axis::part, group.input->span.first_token));
    const Live q = convolved(plan.q_conv, group, in.q, weights.q_conv, from.q, from, q_out);
    const Live k = convolved(plan.k_conv, group, in.k, weights.k_conv, from.k, from, k_out);
    const Live v = convolved(plan.v_conv, group, in.v, weights.v_conv, from.v, from, v_out);
    const TensorView rows = slice(out, group.row, group.rows);
    launch(kernels::DeltaRuleArgs{.q = q.view,
                                  .k = k.view,
                                  .v = v.view,
                                  .a = slice(in.a.view, group.row, group.rows),
                                  .b = slice(in.b.view, group.row, group.rows),
                                  .a_log = weights.a_log.weight->view,
                                  .dt_bias = weights.dt_bias.weight->view,
                                  .state = from.rule,
                                  .out = rows,
                                  .key_heads = model.delta_key_heads,
                                  .value_heads = heads,
                                  .resume = from.resume});
    if (group.input == nullptr) continue;
    made.id = emit(plan_of_span(plan.delta, *group.input),
                   {ProbeInput{"q", q.id, {}}, ProbeInput{"k", k.id, {}}, ProbeInput{"v", v.id, {}},
                    ProbeInput{"a", in.a.id, {}}, ProbeInput{"b", in.b.id, {}},
                    ProbeInput{"a_log", 0, weights.a_log.weight->name},
                    ProbeInput{"dt_bias", 0, weights.dt_bias.weight->name}, ProbeInput{"state", 0, {}}},
                   "out", rows, heads,
                   attributes<DeltaAttributes>(plan.delta,
                                               [&](auto& attributes) {
                                                 attributes.resume = from.resume;
                                                 attributes.block = from.block;
                                               }))
                  .id;
    parts.push_back({"x", made.id, {}});
  }
  if (!step_.batched) return made;
  emitter_.set_place(step_rows());
  const ProbeTensor all = emitter_.output("out", out, heads);
  emitter_.op(plan.delta_rows, std::span<const ProbeInput>(parts), std::span(&all, 1));
  return {out, all.id};
}

Live Forward::delta_net(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const ModelConfig& model = parts_.config.model;
  const std::int64_t heads = model.delta_value_heads;
  DeltaInputs in;
  in.q = gemm(plan.q_proj, Slot::q, x, weights.q_proj, model.delta_key_heads);
  in.k = gemm(plan.k_proj, Slot::k, x, weights.k_proj, model.delta_key_heads);
  in.v = gemm(plan.v_proj, Slot::v, x, weights.v_proj, heads);
  const Live z = gemm(plan.z_proj, Slot::delta_z, x, weights.z_proj, heads);
  in.b = gemm(plan.b_proj, Slot::delta_b, x, weights.b_proj);
  in.a = gemm(plan.a_proj, Slot::delta_a, x, weights.a_proj);
  const Live made = ruled(plan, weights, in);
  const Live normed =
      norm(plan.delta_norm, {Slot::delta_norm, Slot::q_stats}, made, weights.delta_norm, parts_.config.norm, heads);
  const TensorView gated = activation(Slot::delta_gate, normed.view.columns);
  launch(
      kernels::ActivationArgs{.x = z.view, .up = normed.view, .out = gated, .kind = kernels::ActivationKind::swiglu});
  const Live active =
      emit(plan.delta_gate, {ProbeInput{"gate", z.id, {}}, ProbeInput{"up", normed.id, {}}}, "out", gated, heads);
  return row_parallel(plan.o_proj, Slot::o_proj, active, weights.o_proj);
}

}  // namespace nanscope

/// The MLP of a layer as a mixture of experts: router, experts, weighted sum.
#include <array>
#include <vector>

#include "instrument/engine/forward.h"
#include "kernels/ops/activation.h"
#include "kernels/ops/expert_mix.h"
#include "kernels/ops/gated_add.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/residual_add.h"
#include "kernels/ops/route.h"

namespace nanscope {

using kernels::TensorView;

Forward::Routed Forward::route(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const EngineConfig& config = parts_.config;
  const std::int64_t chosen = config.model.experts_per_token;
  const Live logits = gemm(plan.router, Slot::router, x, weights.router);
  const TensorView values = matrix(Slot::expert_weights, Format::f32, rows_, chosen);
  const TensorView ids = matrix(Slot::expert_ids, Format::i32, rows_, chosen);
  const bool biased = weights.router_bias.weight != nullptr;
  launch(kernels::RouteArgs{.logits = logits.view,
                            .bias = biased ? weights.router_bias.weight->view : TensorView{},
                            .weights = values,
                            .ids = ids,
                            .score = config.moe.score,
                            .value = config.moe.weights,
                            .normalise = config.moe.normalise,
                            .eps = config.moe.eps,
                            .scale = config.moe.scale,
                            .groups = config.moe.groups,
                            .top_groups = config.moe.top_groups,
                            .group_score = config.moe.group_score});
  const std::array outputs{emitter_.output("weights", values), emitter_.output("ids", ids)};
  const std::array inputs{ProbeInput{"logits", logits.id, {}},
                          ProbeInput{"bias", 0, biased ? weights.router_bias.weight->name : std::string_view()}};
  emitter_.op(plan.route, std::span(inputs).first(biased ? 2 : 1), outputs);
  return {Live{values, outputs[0].id}, Live{ids, outputs[1].id}};
}

/// All experts compute all tokens: which of them a token has is told by the router's weights alone.
Live Forward::mixture(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const ModelConfig& model = parts_.config.model;
  const Routed routed = route(plan, weights, x);
  const std::int64_t tokens = rows_;
  const TensorView all = matrix(Slot::experts, parts_.config.activation_format, model.experts * tokens, model.width);
  const Operand in =
      quantised(plan.mlp_quantise, plan.mlp_dequantise, {Slot::mlp_codes, Slot::mlp_scales, Slot::mlp_read}, x);
  std::vector<ProbeInput> inputs{{"weights", routed.weights.id, {}}, {"ids", routed.ids.id, {}}};
  for (std::size_t e = 0; e < plan.experts.size(); ++e) {
    const Operand active = activated(plan.experts[e], weights.experts[e], in);
    TensorView out = all;
    out.rows = tokens;
    out.data = static_cast<std::byte*>(all.data) + static_cast<std::int64_t>(e) * tokens * all.stride *
                                                       static_cast<std::int64_t>(info(all.format).storage_bytes());
    const Live expert = mlp_product(plan.experts[e].down_proj, out, active, weights.experts[e].down_proj);
    inputs.push_back({"expert", expert.id, {}});
  }
  const bool shared = model.shared_expert_width > 0;
  const TensorView out = shared ? activation(Slot::down, model.width) : branch_memory(Slot::down);
  launch(kernels::ExpertMixArgs{.experts = all, .weights = routed.weights.view, .ids = routed.ids.view, .out = out});
  const ProbeTensor output = emitter_.output(shared ? "out" : branch_role(), out);
  emitter_.op(plan.expert_mix, std::span<const ProbeInput>(inputs), std::span(&output, 1));
  const Live mixed{out, output.id};
  return shared ? with_shared_expert(plan, weights, in, mixed) : mixed;
}

Live Forward::with_shared_expert(const LayerPlan& plan, const LayerWeights& weights, const Operand& x,
                                 const Live& mixed) {
  const std::int64_t width = parts_.config.model.width;
  const Operand active = activated(plan.shared_expert, weights.shared_expert, x);
  const Live shared = mlp_product(plan.shared_expert.down_proj, activation(Slot::shared_expert, width), active,
                                  weights.shared_expert.down_proj);
  const TensorView out = branch_memory(Slot::shared_sum);
  if (!parts_.config.model.shared_expert_gate) {
    launch(kernels::ResidualAddArgs{.a = mixed.view, .b = shared.view, .out = out});
    return emit(plan.shared_add, {{"a", mixed.id, {}}, {"b", shared.id, {}}}, branch_role(), out);
  }
  const Live gate = gemm(plan.shared_gate, Slot::shared_gate, x.x, weights.shared_gate);
  launch(kernels::GatedAddArgs{.a = mixed.view, .b = shared.view, .gate = gate.view, .out = out});
  return emit(plan.shared_add, {{"a", mixed.id, {}}, {"b", shared.id, {}}, {"gate", gate.id, {}}}, branch_role(), out);
}

}  // namespace nanscope

#include "instrument/engine/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/ops/activation.h"
#include "kernels/ops/argmax.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gemm.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/patch_embedding.h"
#include "kernels/ops/recurrent_scan.h"
#include "kernels/ops/residual_add.h"
#include "kernels/ops/softcap.h"
#include "kernels/ops/softmax.h"

namespace nanscope {

using kernels::TensorView;

namespace {

TensorView view_of(const Weight* weight) { return weight == nullptr ? TensorView{} : weight->view; }

ProbeInput tensor_input(std::string_view role, const Live& live) { return {role, live.id, {}}; }

ProbeInput weight_input(std::string_view role, const Weight* weight) {
  return {role, 0, weight == nullptr ? std::string_view() : std::string_view(weight->name)};
}

}  // namespace

Forward::Forward(const ForwardParts& parts, const StepInput& step)
    : parts_(parts), step_(step), emitter_(parts.emitter), inner_norm_(resolved_inner_norm(parts.config)) {}

Result<std::int32_t> Forward::run() {
  emitter_.set_first_token(step_.row.first_token);
  const std::int64_t block_size = parts_.config.kv.block_size;
  std::vector<std::int32_t> slots(static_cast<std::size_t>(step_.row.tokens));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::int64_t position = step_.row.first_token + static_cast<std::int64_t>(i);
    const std::int64_t block = step_.blocks[static_cast<std::size_t>(position / block_size)];
    const std::int64_t slot = step_.stores ? block * block_size + position % block_size : static_cast<std::int64_t>(i);
    slots[i] = static_cast<std::int32_t>(slot);
  }
  kv_slots_ = upload_i32(Slot::kv_slots, slots);
  blocks_ = upload_i32(Slot::blocks, step_.blocks);
  upload_rope_tables();
  Live x = embed();
  for (std::size_t i = 0; i < parts_.plan.layers.size() && emitter_.ok(); ++i) {
    x = layer(parts_.plan.layers[i], parts_.model.layers[i], x);
  }
  const std::int32_t token = head(x);
  if (!emitter_.ok()) return tl::unexpected(emitter_.status().error());
  return token;
}

Live Forward::embed() {
  const LoadedModel& model = parts_.model;
  const std::int64_t width = parts_.config.model.width;
  std::int64_t patches = 0;
  for (const PromptImage& image : step_.images) patches += image.patches;
  const TensorView embedded =
      patches == 0 ? TensorView{} : matrix(Slot::patch_out, parts_.config.activation_format, patches, width);
  Live patch;
  std::int64_t first_patch = 0;
  for (const PromptImage& image : step_.images) {
    const std::int64_t inputs = model.patch_embed.weight->view.columns;
    const TensorView values = matrix(Slot::patches, Format::f32, image.patches, inputs);
    if (!emitter_.ok()) return {};
    emitter_.check(parts_.device.upload(values.data, std::as_bytes(std::span(image.values))));
    const auto offset = static_cast<std::size_t>(first_patch * width) * info(embedded.format).storage_bytes();
    TensorView out = embedded;
    out.data = static_cast<std::byte*>(embedded.data) + offset;
    out.rows = image.patches;
    launch(kernels::PatchEmbeddingArgs{.patches = values,
                                       .weight = view_of(model.patch_embed.weight),
                                       .bias = view_of(model.patch_embed.bias),
                                       .out = out});
    emitter_.set_first_token(image.first_token);
    patch = emit(parts_.plan.patch_embed,
                 {weight_input("weight", model.patch_embed.weight), weight_input("bias", model.patch_embed.bias)},
                 "out", out);
    first_patch += image.patches;
  }
  emitter_.set_first_token(step_.row.first_token);
  const bool has_images = !step_.patch_rows.empty();
  const TensorView out = activation(Slot::embed, width);
  launch(
      kernels::EmbeddingArgs{.tokens = upload_i32(Slot::tokens, step_.tokens),
                             .patch_rows = has_images ? upload_i32(Slot::patch_rows, step_.patch_rows) : TensorView{},
                             .table = view_of(model.embed.weight),
                             .patches = has_images ? embedded : TensorView{},
                             .positions = view_of(model.positions.weight),
                             .out = out,
                             .first_position = step_.row.first_token,
                             .scale = static_cast<float>(parts_.config.model.embedding_scale)});
  if (model.positions.weight != nullptr) {
    return emit(parts_.plan.embed,
                {weight_input("weight", model.embed.weight), weight_input("positions", model.positions.weight)}, "out",
                out);
  }
  return emit(parts_.plan.embed, {weight_input("weight", model.embed.weight), tensor_input("patches", patch)}, "out",
              out);
}

Live Forward::layer(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const NormConfig& form = parts_.config.norm;
  const NormPlacement placement = parts_.config.model.norm_placement;
  const bool before = norms_before(parts_.config.model);
  const bool on_branch = placement == NormPlacement::sandwich || placement == NormPlacement::branch;
  Live branch = before ? norm(plan.attn_norm, {Slot::attn_norm, Slot::stats}, x, weights.attn_norm, form) : x;
  branch = plan.recurrent ? recurrence(plan, weights, branch) : attention(plan, weights, branch);
  const auto add = [&](const OpPlan& post, Slot post_slot, const Affine& affine, const OpPlan& sum, Slot sum_slot,
                       const Live& input) {
    if (on_branch) branch = norm(post, {post_slot, Slot::stats}, branch, affine, form);
    Live added = residual(sum, sum_slot, input, branch);
    if (placement == NormPlacement::post) added = norm(post, {post_slot, Slot::stats}, added, affine, form);
    return added;
  };
  const Live middle = add(plan.attn_post_norm, Slot::attn_post_norm, weights.attn_post_norm, plan.attn_residual,
                          Slot::attn_residual, x);
  branch = before ? norm(plan.mlp_norm, {Slot::mlp_norm, Slot::stats}, middle, weights.mlp_norm, form) : middle;
  branch = mlp(plan, weights, branch);
  return add(plan.mlp_post_norm, Slot::mlp_post_norm, weights.mlp_post_norm, plan.mlp_residual, Slot::mlp_residual,
             middle);
}

Live Forward::recurrence(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const Live gated = gemm(plan.recurrent_in, Slot::recurrent_in, x, weights.recurrent_in);
  const TensorView out = activation(Slot::recurrent, parts_.config.model.width);
  const ResumeState from_start = parts_.config.kv.resume_state;
  const bool resume = step_.row.first_token > 0 || from_start == ResumeState::always ||
                      (from_start == ResumeState::warm_up && step_.row.request < 0);
  launch(kernels::RecurrentScanArgs{.x = gated.view,
                                    .decay = view_of(weights.decay.weight),
                                    .state = parts_.pool.state(plan.rank, step_.state_block),
                                    .out = out,
                                    .resume = resume});
  const Live scanned =
      emit(plan.recurrent_scan,
           {tensor_input("x", gated), weight_input("decay", weights.decay.weight), ProbeInput{"state", 0, {}}}, "out",
           out, 1, attributes<RecurrentAttributes>(plan.recurrent_scan, [&](auto& all) {
             all.resume = resume;
             all.block = step_.state_block;
           }));
  freed_ = gated.view;
  return gemm(plan.recurrent_out, Slot::recurrent_out, scanned, weights.recurrent_out);
}

Live Forward::mlp(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  if (!plan.experts.empty()) return mixture(plan, weights, x);
  const Operand in = quantised(plan.mlp_quantise, {Slot::mlp_codes, Slot::mlp_scales}, x);
  const Operand active = activated(plan.mlp, weights.mlp, in);
  return mlp_product(plan.mlp.down_proj, activation(Slot::down, parts_.config.model.width), active,
                     weights.mlp.down_proj);
}

Forward::Operand Forward::activated(const MlpPlan& plan, const MlpWeights& weights, const Operand& x) {
  const bool gated = weights.gate_proj.weight != nullptr;
  const std::int64_t width = weights.up_proj.weight->view.rows;
  const Live gate = gated ? mlp_product(plan.gate_proj, activation(Slot::gate, width), x, weights.gate_proj) : Live{};
  const Live up = mlp_product(plan.up_proj, activation(Slot::up, width), x, weights.up_proj);
  const TensorView out = activation(Slot::act, width);
  launch(kernels::ActivationArgs{.x = gated ? gate.view : up.view,
                                 .up = gated ? up.view : TensorView{},
                                 .out = out,
                                 .kind = parts_.config.model.mlp});
  const Live act = gated ? emit(plan.mlp_act, {tensor_input("gate", gate), tensor_input("up", up)}, "out", out)
                         : emit(plan.mlp_act, {tensor_input("x", up)}, "out", out);
  freed_ = gated ? gate.view : up.view;
  return quantised(plan.act_quantise, {Slot::act_codes, Slot::act_scales}, act);
}

std::int32_t Forward::head(const Live& x) {
  const LoadedModel& model = parts_.model;
  const Live normed =
      norm(parts_.plan.final_norm, {Slot::final_norm, Slot::stats}, x, model.final_norm, parts_.config.norm);
  const Live logits = [&] {
    const TensorView out = activation(Slot::logits, model.vocabulary);
    launch(kernels::GemmArgs{.x = normed.view,
                             .weight = model.lm_head.weight->view,
                             .packed = model.lm_head.weight->packed,
                             .bias = {},
                             .out = out,
                             .partial = parts_.config.partial_sums});
    const bool capped = parts_.config.model.logit_softcap > 0;
    const Live raw =
        emit(parts_.plan.lm_head, {tensor_input("x", normed), weight_input("weight", model.lm_head.weight)},
             capped ? "raw_logits" : "logits", out);
    return capped ? capped_logits(raw) : raw;
  }();
  const Live choice = step_.legal.empty() ? logits : token_probabilities(logits);
  const TensorView tokens = matrix(Slot::argmax, Format::i32, choice.view.rows, 1);
  launch(kernels::ArgmaxArgs{.x = choice.view, .out = tokens, .nan = parts_.config.argmax_nan});
  emit(parts_.plan.argmax, {tensor_input(step_.legal.empty() ? "logits" : "probs", choice)}, "token", tokens);
  std::int32_t token = 0;
  if (!emitter_.ok()) return token;
  const auto* last = static_cast<const std::int32_t*>(tokens.data) + (tokens.rows - 1);
  emitter_.check(parts_.device.download(std::as_writable_bytes(std::span(&token, 1)), last));
  return token;
}

Live Forward::capped_logits(const Live& raw) {
  const TensorView out = activation(Slot::capped_logits, raw.view.columns);
  launch(kernels::SoftcapArgs{.x = raw.view, .out = out, .cap = static_cast<float>(parts_.config.model.logit_softcap)});
  return emit(parts_.plan.logits_softcap, {tensor_input("x", raw)}, "logits", out);
}

/// softmax(logits + mask) of the last token, the only one that is sampled: the mask is 0 where the grammar allows a
/// token and -Inf elsewhere. What follows stands at that token's position too.
Live Forward::token_probabilities(const Live& logits) {
  TensorView last = logits.view;
  const auto row = static_cast<std::size_t>(last.columns) * info(last.format).storage_bytes();
  last.data = static_cast<std::byte*>(last.data) + row * static_cast<std::size_t>(last.rows - 1);
  last.rows = 1;
  const auto legal = std::count(step_.legal.begin(), step_.legal.end(), 1);
  const bool masks = legal > 0 || parts_.config.grammar_empty == EmptyRow::mask;
  std::vector<float> mask(step_.legal.size(), 0.0F);
  for (std::size_t token = 0; masks && token < mask.size(); ++token) {
    if (step_.legal[token] == 0) mask[token] = -std::numeric_limits<float>::infinity();
  }
  const TensorView mask_row = matrix(Slot::token_mask, Format::f32, 1, last.columns);
  if (emitter_.ok()) emitter_.check(parts_.device.upload(mask_row.data, std::as_bytes(std::span(mask))));
  const TensorView out = matrix(Slot::token_probs, Format::f32, 1, last.columns);
  launch(kernels::ResidualAddArgs{.a = last, .b = mask_row, .out = out});
  launch(kernels::SoftmaxArgs{.scores = out, .out = out, .first_position = last.columns - 1});
  emitter_.set_first_token(step_.row.context - 1);
  return emit(parts_.plan.token_softmax, {tensor_input("logits", logits)}, "probs", out, 1,
              attributes<TokenSoftmaxAttributes>(parts_.plan.token_softmax, [&](auto& all) {
                all.legal = legal;
                all.masked = masks;
              }));
}

Live Forward::norm(const OpPlan& plan, std::pair<Slot, Slot> slots, const Live& x, const Affine& affine,
                   const NormConfig& form, std::int64_t groups) {
  const TensorView out = activation(slots.first, x.view.columns);
  const TensorView stats = matrix(slots.second, Format::f32, step_.row.tokens, groups * 3);
  launch(kernels::LayerNormArgs{.x = x.view,
                                .weight = view_of(affine.weight),
                                .bias = view_of(affine.bias),
                                .out = out,
                                .stats = stats,
                                .groups = groups,
                                .kind = parts_.config.model.norm,
                                .variance = form.variance,
                                .order = form.order,
                                .contract = form.contract,
                                .clamp = form.clamp,
                                .mean_by_reciprocal = form.mean_by_reciprocal,
                                .eps = form.eps});
  const std::array outputs{emitter_.output("out", out, groups), emitter_.output("stats", stats, groups)};
  if (affine.bias != nullptr) {
    emitter_.op(plan, {tensor_input("x", x), weight_input("weight", affine.weight), weight_input("bias", affine.bias)},
                outputs);
  } else {
    emitter_.op(plan, {tensor_input("x", x), weight_input("weight", affine.weight)}, outputs);
  }
  return {out, outputs[0].id};
}

Live Forward::gemm(const OpPlan& plan, Slot slot, const Live& x, const Affine& affine, std::int64_t heads) {
  return product(plan, activation(slot, affine.weight->view.rows), x, affine, heads);
}

Live Forward::product(const OpPlan& plan, const TensorView& out, const Live& x, const Affine& affine,
                      std::int64_t heads) {
  launch(kernels::GemmArgs{.x = x.view,
                           .weight = affine.weight->view,
                           .packed = affine.weight->packed,
                           .bias = view_of(affine.bias),
                           .out = out,
                           .partial = parts_.config.partial_sums});
  if (affine.bias == nullptr) {
    return emit(plan, {tensor_input("x", x), weight_input("weight", affine.weight)}, "out", out, heads);
  }
  return emit(plan, {tensor_input("x", x), weight_input("weight", affine.weight), weight_input("bias", affine.bias)},
              "out", out, heads);
}

Live Forward::residual(const OpPlan& plan, Slot slot, const Live& a, const Live& b) {
  const TensorView out = activation(slot, a.view.columns);
  launch(kernels::ResidualAddArgs{.a = a.view, .b = b.view, .out = out});
  return emit(plan, {tensor_input("a", a), tensor_input("b", b)}, "out", out);
}

TensorView Forward::matrix(Slot slot, Format format, std::int64_t rows, std::int64_t columns) {
  const Result<TensorView> view = parts_.workspace.matrix(slot, format, rows, columns);
  if (view) return *view;
  emitter_.check(tl::unexpected(view.error()));
  return {};
}

TensorView Forward::activation(Slot slot, std::int64_t columns) {
  return matrix(slot, parts_.config.activation_format, step_.row.tokens, columns);
}

TensorView Forward::upload_i32(Slot slot, std::span<const std::int32_t> values) {
  const TensorView view = matrix(slot, Format::i32, static_cast<std::int64_t>(values.size()), 1);
  if (emitter_.ok()) emitter_.check(parts_.device.upload(view.data, std::as_bytes(values)));
  return view;
}

Live Forward::emit(const OpPlan& plan, std::initializer_list<ProbeInput> inputs, std::string_view role,
                   const TensorView& view, std::int64_t heads, std::string_view attributes) {
  const ProbeTensor output = emitter_.output(role, view, heads);
  emitter_.op(plan, inputs, std::span(&output, 1), attributes);
  return {view, output.id};
}

}  // namespace nanscope

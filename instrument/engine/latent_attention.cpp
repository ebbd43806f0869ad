/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) with keys and values expanded: all heads'
/// keys and values are made of one latent, and the rotated channels of keys are one part that all heads share.
#include <vector>

#include "instrument/engine/forward.h"
#include "kernels/ops/embedding.h"

namespace nanscope {

using kernels::TensorView;

Forward::Heads Forward::from_latents(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const ModelConfig& model = parts_.config.model;
  const NormConfig form = latent_norm_of(parts_.config);
  const bool local = window_of(model, plan.scores.layer) > 0;
  Live q = x;
  if (model.q_rank > 0) {
    q = gemm(plan.q_a_proj, Slot::q_a, x, weights.q_a_proj);
    q = norm(plan.q_a_norm, {Slot::q_a_norm, Slot::stats}, q, weights.q_a_norm, form);
  }
  q = gemm(plan.q_proj, Slot::q, q, weights.q_proj, model.heads);
  const Live both = gemm(plan.kv_a_proj, Slot::kv_a, x, weights.kv_a_proj);
  Live latent = columns(plan.kv_latent, Slot::kv_latent, both, 0, model.kv_rank);
  latent = norm(plan.kv_a_norm, {Slot::kv_a_norm, Slot::stats}, latent, weights.kv_a_norm, form);
  const Live kv = gemm(plan.kv_b_proj, Slot::kv_b, latent, weights.kv_b_proj, model.heads);
  const Live v = split_values(plan.v_split, kv);
  q = rope(plan.q_rope, local, Slot::q_rope, q, model.heads);
  Live shared = columns(plan.k_shared, Slot::k_shared, both, model.kv_rank, model.rotated);
  shared = rope(plan.k_rope, local, Slot::k_rope, shared, 1);
  return {q, join_keys(plan.k_join, kv, shared), v};
}

Live Forward::columns(const OpPlan& plan, Slot slot, const Live& x, std::int64_t first, std::int64_t width) {
  const TensorView out = activation(slot, width);
  copy_rows(slice(head_rows_, 0, rows_), columns_of(x.view, first, width), out);
  return emit(plan, {ProbeInput{"x", x.id, {}}}, "out", out);
}

void Forward::upload_head_rows() {
  const ModelConfig& model = parts_.config.model;
  if (!is_latent(model)) return;
  std::vector<std::int32_t> heads;
  std::vector<std::int32_t> tokens;
  for (std::int64_t row = 0; row < rows_ * model.heads; ++row) {
    heads.push_back(static_cast<std::int32_t>(row));
    tokens.push_back(static_cast<std::int32_t>(row / model.heads));
  }
  head_rows_ = upload_i32(Slot::head_rows, heads);
  token_rows_ = upload_i32(Slot::token_rows, tokens);
}

void Forward::copy_rows(const TensorView& rows, const TensorView& from, const TensorView& into) {
  launch(kernels::EmbeddingArgs{
      .tokens = rows, .patch_rows = {}, .table = from, .patches = {}, .positions = {}, .out = into});
}

Live Forward::split_values(const OpPlan& plan, const Live& kv) {
  const ModelConfig& model = parts_.config.model;
  const std::int64_t width = value_dim(model);
  const TensorView out = activation(Slot::v_split, model.heads * width);
  copy_rows(head_rows_, heads_of(kv.view, model.heads, model.rotated_from, width),
            heads_of(out, model.heads, 0, width));
  return emit(plan, {ProbeInput{"x", kv.id, {}}}, "out", out, model.heads);
}

Live Forward::join_keys(const OpPlan& plan, const Live& kv, const Live& shared) {
  const ModelConfig& model = parts_.config.model;
  const TensorView out = activation(Slot::k_join, model.heads * model.head_dim);
  copy_rows(head_rows_, heads_of(kv.view, model.heads, 0, model.rotated_from),
            heads_of(out, model.heads, 0, model.rotated_from));
  copy_rows(token_rows_, shared.view, heads_of(out, model.heads, model.rotated_from, model.rotated));
  return emit(plan, {ProbeInput{"x", kv.id, {}}, ProbeInput{"shared", shared.id, {}}}, "out", out, model.heads);
}

}  // namespace nanscope

/// The attention half of a layer: projections, rotary embedding, the KV cache, scores and mix.
#include <array>

#include "instrument/engine/forward.h"
#include "instrument/model/rope_table.h"
#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/kv_read.h"
#include "kernels/ops/kv_store.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/softmax.h"

namespace nanscope {

using kernels::TensorView;

Live Forward::attention(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const ModelConfig& model = parts_.config.model;
  Live q = gemm(plan.q_proj, Slot::q, x, weights.q_proj, model.heads);
  Live k = gemm(plan.k_proj, Slot::k, x, weights.k_proj, model.kv_heads);
  const Live v = gemm(plan.v_proj, Slot::v, x, weights.v_proj, model.kv_heads);
  if (model.qk_norm) {
    const bool each = model.qk_norm_over == QkNormOver::head;
    q = norm(plan.q_norm, {Slot::q_norm, Slot::q_stats}, q, weights.q_norm, parts_.config.norm, each ? model.heads : 1);
    k = norm(plan.k_norm, {Slot::k_norm, Slot::k_stats}, k, weights.k_norm, parts_.config.norm,
             each ? model.kv_heads : 1);
  }
  if (model.positions == 0) {
    const bool local = window_of(model, plan.scores.layer) > 0;
    q = rope(plan.q_rope, local, Slot::q_rope, q, model.heads);
    k = rope(plan.k_rope, local, Slot::k_rope, k, model.kv_heads);
  }
  kv_store(plan, k, v);
  const auto [k_read, v_read] = kv_read(plan);
  const Live raw = scores(plan, q, k_read);
  const Live probs = softmax(plan, raw);
  freed_ = raw.view;
  Live out = mix(plan, probs, v_read);
  if (model.inner_norm) {
    out = norm(plan.inner_norm, {Slot::inner_norm, Slot::stats}, out, weights.inner_norm, inner_norm_);
  }
  return gemm(plan.o_proj, Slot::o_proj, out, weights.o_proj);
}

void Forward::upload_rope_tables() {
  const EngineConfig& config = parts_.config;
  if (config.model.positions > 0 || !has_rope_table(config.model, config.rope)) return;
  for (const bool local : {false, true}) {
    const RopeTable table = rope_table(config.model, config.rope, local, step_.row.context);
    const TensorView view = matrix(local ? Slot::local_rope_table : Slot::rope_table, Format::f32, 1,
                                   static_cast<std::int64_t>(table.frequencies.size()));
    if (emitter_.ok()) emitter_.check(parts_.device.upload(view.data, std::as_bytes(std::span(table.frequencies))));
    (local ? local_angles_ : global_angles_) = {view, table.amplitude};
  }
}

Live Forward::rope(const OpPlan& plan, bool local, Slot slot, const Live& x, std::int64_t heads) {
  const TensorView out = activation(slot, x.view.columns);
  const Angles& angles = local ? local_angles_ : global_angles_;
  launch(kernels::RopeArgs{.x = x.view,
                           .out = out,
                           .frequencies = angles.frequencies,
                           .heads = heads,
                           .first_position = step_.row.first_token,
                           .base = parts_.config.model.rope_base,
                           .stretch = rope_stretch(parts_.config.rope),
                           .amplitude = angles.amplitude});
  return emit(plan, {ProbeInput{"x", x.id, {}}}, "out", out, heads,
              attributes<RopeAttributes>(plan, [&](auto& all) { all.first_position = step_.row.first_token; }));
}

ScaleContext Forward::scale_context(const LayerPlan& plan, KvTarget target) const {
  return {plan.kv_store.layer, target, step_.row.request, step_.row.id, step_.row.tokens};
}

ProbeTensor Forward::store_target(const LayerPlan& plan, KvTarget target, const Live& rows, ScaleBook::Use& use) {
  const bool is_key = target == KvTarget::k;
  if (!emitter_.ok()) return {};
  Result<ScaleBook::Use> chosen =
      parts_.scales.use(scale_context(plan, target), plan.rank, rows.view, parts_.workspace);
  if (!chosen) {
    emitter_.check(tl::unexpected(chosen.error()));
    return {};
  }
  use = std::move(*chosen);
  // The copy of the codes is for listeners alone.
  const KvConfig& kv = parts_.config.kv;
  const float clamp = kv.clamp_nan == kernels::NanRule::ignore ? info(kv.format).max_finite : 0.0F;
  const TensorView codes = emitter_.listening() ? matrix(is_key ? Slot::k_codes : Slot::v_codes,
                                                         parts_.config.kv.format, step_.row.tokens, rows.view.columns)
                                                : TensorView{};
  // Rows that go nowhere are encoded for listeners, who see what a slot would have got.
  if (step_.stores || codes.given()) {
    launch(kernels::KvStoreArgs{.x = rows.view,
                                .pool = step_.stores ? parts_.pool.region(plan.rank, target) : codes,
                                .slots = kv_slots_,
                                .scales = use.scales,
                                .slot_scales = step_.stores ? parts_.pool.slot_scales(plan.rank, target) : TensorView{},
                                .codes = step_.stores ? codes : TensorView{},
                                .overflow = kv.overflow,
                                .clamp = clamp});
  }
  ProbeTensor output = emitter_.output(is_key ? "k_codes" : "v_codes", codes, parts_.config.model.kv_heads);
  output.source = rows.view;
  output.source_scales = use.scales;
  return output;
}

void Forward::kv_store(const LayerPlan& plan, const Live& k, const Live& v) {
  ScaleBook::Use use_k;
  ScaleBook::Use use_v;
  const std::array outputs{store_target(plan, KvTarget::k, k, use_k), store_target(plan, KvTarget::v, v, use_v)};
  scale_k_ = use_k.largest;
  scale_v_ = use_v.largest;
  emitter_.op(plan.kv_store, {ProbeInput{"k", k.id, {}}, ProbeInput{"v", v.id, {}}}, outputs,
              attributes<KvStoreAttributes>(plan.kv_store, [&](auto& all) {
                all.scale_k = static_cast<double>(scale_k_);
                all.scale_v = static_cast<double>(scale_v_);
                if (!step_.stores) all.stored = false;
              }));
  if (!emitter_.listening()) return;
  const auto tell = [&](KvTarget target, const ScaleBook::Use& use, const Live& rows) {
    if (!emitter_.ok()) return;
    const Result<ScaleRow> row =
        parts_.scales.ledger_row(scale_context(plan, target), emitter_.ops(), use, rows.view, parts_.workspace);
    emitter_.check(row ? emitter_.probe().on_scale(*row) : Status(tl::unexpected(row.error())));
  };
  tell(KvTarget::k, use_k, k);
  tell(KvTarget::v, use_v, v);
}

void Forward::read_target(const LayerPlan& plan, KvTarget target, const TensorView& out) {
  const KvConfig& kv = parts_.config.kv;
  TensorView pool = parts_.pool.region(plan.rank, target);
  pool.format = read_format(kv);
  launch(kernels::KvReadArgs{.pool = pool,
                             .blocks = blocks_,
                             .slot_scales = parts_.pool.slot_scales(plan.rank, target),
                             .out = out,
                             .block_size = kv.block_size,
                             .scale = target == KvTarget::k ? scale_k_ : scale_v_,
                             .scale_use = kv.read_scale});
}

std::pair<Live, Live> Forward::kv_read(const LayerPlan& plan) {
  const KvConfig& kv = parts_.config.kv;
  const ModelConfig& model = parts_.config.model;
  const bool whole_blocks = kv.tail == KvTail::read;
  const std::int64_t keys =
      whole_blocks ? static_cast<std::int64_t>(step_.blocks.size()) * kv.block_size : step_.row.context;
  const TensorView k = matrix(Slot::k_read, Format::f32, keys, model.kv_heads * model.head_dim);
  const TensorView v = matrix(Slot::v_read, Format::f32, keys, model.kv_heads * model.head_dim);
  read_target(plan, KvTarget::k, k);
  read_target(plan, KvTarget::v, v);
  emitter_.set_first_token(0);
  const std::array outputs{emitter_.output("k_read", k, model.kv_heads), emitter_.output("v_read", v, model.kv_heads)};
  emitter_.set_first_token(step_.row.first_token);
  emitter_.op(plan.kv_read, {ProbeInput{"pool", 0, {}}}, outputs,
              attributes<KvReadAttributes>(plan.kv_read, [&](auto& all) {
                all.context = step_.row.context;
                all.blocks.emplace(step_.blocks.begin(), step_.blocks.end());
                all.scale_k = static_cast<double>(scale_k_);
                all.scale_v = static_cast<double>(scale_v_);
                all.per_slot = parts_.pool.slot_scales(plan.rank, KvTarget::k).given();
              }));
  return {Live{k, outputs[0].id}, Live{v, outputs[1].id}};
}

Live Forward::scores(const LayerPlan& plan, const Live& q, const Live& k) {
  const ModelConfig& model = parts_.config.model;
  const TensorView out = activation(Slot::scores, model.heads * k.view.rows);
  launch(kernels::AttentionScoresArgs{.q = q.view,
                                      .k = k.view,
                                      .out = out,
                                      .heads = model.heads,
                                      .kv_heads = model.kv_heads,
                                      .factor = attention_scale(model, plan.scores.layer),
                                      .softcap = static_cast<float>(model.attention_softcap)});
  return emit(plan.scores, {ProbeInput{"q", q.id, {}}, ProbeInput{"k", k.id, {}}}, "out", out, model.heads);
}

/// Row t may see keys up to this one plus t.
std::int64_t Forward::last_visible_key(std::int64_t keys) const {
  switch (parts_.config.attention.causal) {
    case CausalMask::off_by_one:
      return step_.row.first_token + 1;
    case CausalMask::none:
      return keys - 1;
    case CausalMask::exact:
      break;
  }
  return step_.row.first_token;
}

Live Forward::softmax(const LayerPlan& plan, const Live& scores) {
  const ModelConfig& model = parts_.config.model;
  const AttentionConfig& attention = parts_.config.attention;
  const std::int64_t last_key = last_visible_key(scores.view.columns / model.heads);
  const TensorView out = activation(Slot::probs, scores.view.columns);
  launch(kernels::SoftmaxArgs{.scores = scores.view,
                              .out = out,
                              .heads = model.heads,
                              .first_position = last_key,
                              .first_key = step_.first_key,
                              .window = window_of(model, plan.softmax.layer),
                              .mask = attention.mask,
                              .max_nan = attention.max_nan,
                              .zero_guard = attention.zero_guard});
  return emit(plan.softmax, {ProbeInput{"scores", scores.id, {}}}, "probs", out, model.heads,
              attributes<SoftmaxAttributes>(plan.softmax, [&](auto& all) {
                all.first_position = last_key;
                all.first_key = step_.first_key;
              }));
}

Live Forward::mix(const LayerPlan& plan, const Live& probs, const Live& v) {
  const ModelConfig& model = parts_.config.model;
  const bool visible_only = parts_.config.attention.mask == kernels::MaskMode::select;
  const std::int64_t last_key = last_visible_key(v.view.rows);
  const TensorView out = activation(Slot::mix, model.heads * model.head_dim);
  launch(kernels::AttentionMixArgs{.p = probs.view,
                                   .v = v.view,
                                   .out = out,
                                   .heads = model.heads,
                                   .kv_heads = model.kv_heads,
                                   .first_position = last_key,
                                   .first_key = step_.first_key,
                                   .window = window_of(model, plan.attn_mix.layer),
                                   .visible_only = visible_only});
  return emit(plan.attn_mix, {ProbeInput{"probs", probs.id, {}}, ProbeInput{"v", v.id, {}}}, "out", out, model.heads,
              attributes<MixAttributes>(plan.attn_mix, [&](auto& all) {
                all.first_position = last_key;
                all.first_key = step_.first_key;
              }));
}

}  // namespace nanscope

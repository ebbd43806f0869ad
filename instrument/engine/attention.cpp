/// The attention half of a layer: projections, rotary embedding, the KV cache, scores and mix.
#include <algorithm>
#include <array>
#include <tuple>

#include "instrument/engine/forward.h"
#include "instrument/model/rope_table.h"
#include "kernels/ops/activation.h"
#include "kernels/ops/attention_mix.h"
#include "kernels/ops/attention_scores.h"
#include "kernels/ops/kv_read.h"
#include "kernels/ops/kv_store.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/softmax.h"

namespace nanscope {

using kernels::TensorView;

Forward::Heads Forward::projected(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const ModelConfig& model = parts_.config.model;
  const Operand in =
      quantised(plan.attn_quantise, plan.attn_dequantise, {Slot::attn_codes, Slot::attn_scales, Slot::attn_read}, x);
  const auto project = [&](const OpPlan& op, Slot slot, const Affine& affine, std::int64_t heads) {
    return mlp_product(op, activation(slot, affine.weight->view.rows), in, affine, "out", heads);
  };
  Live q = project(plan.q_proj, Slot::q, weights.q_proj, model.heads);
  Live k = project(plan.k_proj, Slot::k, weights.k_proj, model.kv_heads);
  Live v = project(plan.v_proj, Slot::v, weights.v_proj, model.kv_heads);
  if (model.qk_norm) {
    const bool each = model.qk_norm_over == QkNormOver::head;
    q = norm(plan.q_norm, {Slot::q_norm, Slot::q_stats}, q, weights.q_norm, parts_.config.norm, each ? model.heads : 1);
    k = norm(plan.k_norm, {Slot::k_norm, Slot::k_stats}, k, weights.k_norm, parts_.config.norm,
             each ? model.kv_heads : 1);
  }
  if (is_rotary(model, plan.scores.layer)) {
    const bool local = window_of(model, plan.scores.layer) > 0;
    q = rope(plan.q_rope, local, Slot::q_rope, q, model.heads);
    if (!stores_before_rope(plan)) k = rope(plan.k_rope, local, Slot::k_rope, k, model.kv_heads);
  }
  return {q, k, v};
}

Live Forward::attention(const LayerPlan& plan, const LayerWeights& weights, const Live& x) {
  const ModelConfig& model = parts_.config.model;
  auto [q, k, v] = is_latent(model) ? from_latents(plan, weights, x) : projected(plan, weights, x);
  if (rotates(plan, KvTarget::k)) {
    q = hadamard(plan.q_hadamard, Slot::q_hadamard, q, model.heads);
    k = hadamard(plan.k_hadamard, Slot::k_hadamard, k, model.kv_heads);
  }
  if (rotates(plan, KvTarget::v)) v = hadamard(plan.v_hadamard, Slot::v_hadamard, v, model.kv_heads);
  kv_store(plan, k, v);
  if (foreign_scales_) std::tie(scale_k_, scale_v_) = *foreign_scales_;
  seal(plan, false);
  Live out = parts_.config.attention.blocks.any() ? attend_tiles(plan, q) : attend(plan, q);
  seal(plan, true);
  if (rotates(plan, KvTarget::v)) out = hadamard(plan.out_hadamard, Slot::mix_hadamard, out, model.heads);
  if (model.attention_gate) {
    const Live gate = gemm(plan.attn_gate, Slot::attn_gate, x, weights.attn_gate, model.heads);
    const TensorView gated = activation(Slot::attn_gated, out.view.columns);
    launch(kernels::ActivationArgs{.x = gate.view, .up = out.view, .out = gated, .kind = kernels::ActivationKind::glu});
    out = emit(plan.attn_gated, {ProbeInput{"gate", gate.id, {}}, ProbeInput{"up", out.id, {}}}, "out", gated,
               model.heads);
  }
  if (model.inner_norm) {
    out = norm(plan.inner_norm, {Slot::inner_norm, Slot::stats}, out, weights.inner_norm, inner_norm_);
  }
  const Operand mixed =
      quantised(plan.o_quantise, plan.o_dequantise, {Slot::o_codes, Slot::o_scales, Slot::o_read}, out);
  return mlp_product(plan.o_proj, branch_memory(Slot::o_proj), mixed, weights.o_proj, branch_role());
}

/// Each span over its own keys, one after another: the bits of one do not depend on the others.
Live Forward::attend(const LayerPlan& plan, const Live& q) {
  const ModelConfig& model = parts_.config.model;
  TensorView out;
  std::vector<ProbeInput> probs_inputs;
  std::vector<ProbeInput> v_inputs;
  for (const RowGroup& group : row_groups()) {
    if (group.input == nullptr) {
      pad_mix(plan, group, slice(out, group.row, group.rows));
      continue;
    }
    auto [keys, values] = kv_read(plan, group);
    const Live own{slice(q.view, group.row, group.rows), q.id};
    const Live queries = quantised_for(ScoreTarget::queries, plan, group, own, group.rows);
    keys.read = quantised_keys(plan, group, keys.read);
    const Live raw = scores(plan, group, queries, keys);
    const Live read = quantised_for(ScoreTarget::scores, plan, group, raw, group.rows);
    const Live probs = softmax(plan, group, read, softmax_partials(plan, group, read));
    freed_ = raw.view;
    out = activation(Slot::mix, mix_width(model));
    const TensorView own_out = slice(out, group.row, group.rows);
    if (parts_.config.attention.split > 0) {
      probs_inputs.push_back({"partials", mix_in_blocks(plan, group, own_out, probs, values).id, {}});
      continue;
    }
    mix(plan, group, own_out, probs, values);
    probs_inputs.push_back({"probs", probs.id, {}});
    v_inputs.push_back({"v", values.read.id, {}});
  }
  probs_inputs.insert(probs_inputs.end(), v_inputs.begin(), v_inputs.end());
  return emit_mix(plan, out, probs_inputs);
}

Live Forward::emit_mix(const LayerPlan& plan, const TensorView& out, std::span<const ProbeInput> inputs) {
  emitter_.set_place(step_rows());
  const ProbeTensor mixed = emitter_.output("out", out, parts_.config.model.heads);
  const bool told = step_.spans.size() == 1 && plan.attn_mix.kind != OpKind::combine_partials;
  emitter_.op(plan.attn_mix, inputs, std::span(&mixed, 1), attributes<MixAttributes>(plan.attn_mix, [&](auto& all) {
                if (!told) return;
                const RowGroup group = row_groups().front();
                all.first_position = last_visible_key(group, keys_of_span(*group.input));
                all.first_key = group.input->first_key;
              }));
  return {out, mixed.id};
}

void Forward::upload_rope_tables() {
  const EngineConfig& config = parts_.config;
  global_angles_.resize(step_.spans.size());
  local_angles_.resize(step_.spans.size());
  if (config.model.positions > 0 || !has_rope_table(config.model, config.rope)) return;
  for (const bool local : {false, true}) {
    std::vector<float> frequencies;
    std::vector<float> amplitudes;
    for (const Span& span : spans_) {
      const RopeTable table = rope_table(config.model, config.rope, local, span.context);
      frequencies.insert(frequencies.end(), table.frequencies.begin(), table.frequencies.end());
      amplitudes.push_back(table.amplitude);
    }
    const auto rows = static_cast<std::int64_t>(spans_.size());
    const TensorView view = matrix(local ? Slot::local_rope_table : Slot::rope_table, Format::f32, rows,
                                   static_cast<std::int64_t>(frequencies.size()) / rows);
    if (emitter_.ok()) emitter_.check(parts_.device.upload(view.data, std::as_bytes(std::span(frequencies))));
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      (local ? local_angles_ : global_angles_)[i] = {slice(view, static_cast<std::int64_t>(i), 1), amplitudes[i]};
    }
  }
}

Live Forward::rope(const OpPlan& plan, bool local, Slot slot, const Live& x, std::int64_t heads) {
  const ModelConfig& model = parts_.config.model;
  // What the heads of keys share has no channels but those that are rotated.
  const bool shared = is_latent(model) && x.view.columns == model.rotated;
  const TensorView out = activation(slot, x.view.columns);
  for (const RowGroup& group : row_groups()) {
    const Angles& angles = (local ? local_angles_ : global_angles_)[group.index];
    launch(kernels::RopeArgs{.x = slice(x.view, group.row, group.rows),
                             .out = slice(out, group.row, group.rows),
                             .frequencies = angles.frequencies,
                             .heads = heads,
                             .first_position = group.first_position,
                             .first_channel = shared ? 0 : model.rotated_from,
                             .base = model.rope_base,
                             .stretch = rope_stretch(parts_.config.rope),
                             .amplitude = angles.amplitude,
                             .neighbours = model.rope_pairs == RopePairs::neighbours});
  }
  return emit(plan, {ProbeInput{"x", x.id, {}}}, "out", out, heads, attributes<RopeAttributes>(plan, [&](auto& all) {
                if (step_.spans.size() == 1) all.first_position = step_.row.first_token;
              }));
}

ScaleContext Forward::scale_context(const LayerPlan& plan, KvTarget target) const {
  return {plan.kv_store.layer, target, step_.row.request, step_.row.id, step_.row.tokens, spans_};
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
                                                         parts_.config.kv.format, rows_, rows.view.columns)
                                                : TensorView{};
  // Rows that go nowhere are encoded for listeners, who see what a slot would have got.
  const auto store = [&](std::int64_t first, std::int64_t count, bool stored) {
    const TensorView own_codes = slice(codes, first, count);
    const TensorView scales = use.scales.rows == 1 ? use.scales : slice(use.scales, first, count);
    launch(kernels::KvStoreArgs{.x = slice(rows.view, first, count),
                                .pool = stored ? parts_.pool.region(plan.rank, target) : own_codes,
                                .slots = slice(kv_slots_, first, count),
                                .scales = scales,
                                .slot_scales = stored ? parts_.pool.slot_scales(plan.rank, target) : TensorView{},
                                .codes = stored ? own_codes : TensorView{},
                                .overflow = kv.overflow,
                                .clamp = clamp});
  };
  if (stored_rows_ > 0) store(0, stored_rows_, true);
  if (stored_rows_ < rows_ && codes.given()) store(stored_rows_, rows_ - stored_rows_, false);
  ProbeTensor output = emitter_.output(is_key ? "k_codes" : "v_codes", codes, parts_.config.model.kv_heads);
  output.source = rows.view;
  output.source_scales = use.scales;
  return output;
}

void Forward::kv_store(const LayerPlan& plan, const Live& k, const Live& v) {
  if (parts_.schemes != nullptr) return scheme_store(plan, k, v);
  ScaleBook::Use use_k;
  ScaleBook::Use use_v;
  const std::array outputs{store_target(plan, KvTarget::k, k, use_k), store_target(plan, KvTarget::v, v, use_v)};
  scale_k_ = use_k.largest;
  scale_v_ = use_v.largest;
  emitter_.op(plan.kv_store, {ProbeInput{"k", k.id, {}}, ProbeInput{"v", v.id, {}}}, outputs,
              attributes<KvStoreAttributes>(plan.kv_store, [&](auto& all) {
                all.scale_k = static_cast<double>(scale_k_);
                all.scale_v = static_cast<double>(scale_v_);
                if (stored_rows_ == 0) all.stored = false;
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

kernels::KvReadArgs Forward::read_args(const LayerPlan& plan, KvTarget target, const RowGroup& group) const {
  if (parts_.schemes != nullptr) return scheme_read(plan, target, group);
  const KvConfig& kv = parts_.config.kv;
  TensorView pool = parts_.pool.region(plan.rank, target);
  pool.format = read_format(kv);
  return {.pool = pool,
          .blocks = blocks_[group.index],
          .slot_scales = parts_.pool.slot_scales(plan.rank, target),
          .out = {},
          .block_size = kv.block_size,
          .scale = target == KvTarget::k ? scale_k_ : scale_v_,
          .scale_use = kv.read_scale};
}

/// That attention goes over: the context, or all of its blocks.
std::int64_t Forward::keys_of_span(const SpanInput& input) const {
  const KvConfig& kv = parts_.config.kv;
  // A tile skips what is masked, and no block of values takes its scale from slots that nobody wrote.
  if (kv.tail != KvTail::read || parts_.config.attention.blocks.any()) return input.span.context;
  return static_cast<std::int64_t>(input.blocks.size()) * kv.block_size;
}

std::pair<Forward::KvSource, Forward::KvSource> Forward::kv_read(const LayerPlan& plan, const RowGroup& group) {
  const ModelConfig& model = parts_.config.model;
  const SpanInput& input = *group.input;
  const auto source = [&](KvTarget target, Slot slot) {
    const std::int64_t channels = kv_channels(model, target);
    KvSource of{{{nullptr, Format::f32, keys_of_span(input), channels, channels}, 0}, cached(plan, target, group)};
    // What attention reads by itself, only listeners see.
    if (of.cache.given() && !emitter_.listening()) return of;
    of.read.view = matrix(slot, Format::f32, of.read.view.rows, channels);
    kernels::KvReadArgs args = read_args(plan, target, group);
    args.out = of.read.view;
    launch(args);
    return of;
  };
  KvSource k = source(KvTarget::k, Slot::k_read);
  KvSource v = source(KvTarget::v, Slot::v_read);
  emitter_.set_place(of_span(input, Axis::keys, 0));
  const std::array outputs{emitter_.output("k_read", k.read.view, model.kv_heads),
                           emitter_.output("v_read", v.read.view, model.kv_heads)};
  emitter_.set_place(of_span(input, Axis::part, input.span.first_token));
  emitter_.op(plan_of_span(plan.kv_read, input), {ProbeInput{"pool", 0, {}}}, outputs,
              attributes<KvReadAttributes>(plan.kv_read, [&](auto& all) {
                all.context = input.span.context;
                all.blocks.emplace(input.blocks.begin(), input.blocks.end());
                all.scale_k = static_cast<double>(scale_k_);
                all.scale_v = static_cast<double>(scale_v_);
                all.per_slot = parts_.pool.slot_scales(plan.rank, KvTarget::k).given();
                tell_coded(plan, group, all);
              }));
  k.read.id = outputs[0].id;
  v.read.id = outputs[1].id;
  if (stores_before_rope(plan)) k.read = rope_of_keys(plan, group, k.read);
  return {k, v};
}

Live Forward::scores(const LayerPlan& plan, const RowGroup& group, const Live& q, const KvSource& keys) {
  const Live& k = keys.read;
  const ModelConfig& model = parts_.config.model;
  const TensorView out = matrix(Slot::scores, parts_.config.activation_format, group.rows, model.heads * k.view.rows);
  launch(kernels::AttentionScoresArgs{.q = q.view,
                                      .k = keys.cache.given() ? TensorView{} : k.view,
                                      .out = out,
                                      .heads = model.heads,
                                      .kv_heads = model.kv_heads,
                                      .factor = attention_scale(model, plan.scores.layer),
                                      .softcap = static_cast<float>(model.attention_softcap),
                                      .cache = keys.cache});
  return emit(plan_of_span(plan.scores, *group.input), {ProbeInput{"q", q.id, {}}, ProbeInput{"k", k.id, {}}}, "out",
              out, model.heads);
}

/// Row t may see keys up to this one plus t.
std::int64_t Forward::last_visible_key(const RowGroup& group, std::int64_t keys) const {
  switch (parts_.config.attention.causal) {
    case CausalMask::off_by_one:
      return group.first_position + 1;
    case CausalMask::none:
      return keys - 1;
    case CausalMask::exact:
    case CausalMask::block:
      break;
  }
  return group.first_position;
}

std::vector<Forward::MaskedRows> Forward::masked_rows(const RowGroup& group, std::int64_t keys) const {
  const AttentionConfig& attention = parts_.config.attention;
  if (attention.causal != CausalMask::block) return {{0, group.rows, last_visible_key(group, keys), 0}};
  std::vector<MaskedRows> each;
  for (std::int64_t row = 0; row < group.rows; ++row) {
    const std::int64_t own = group.first_position + row;
    const std::int64_t block_end = (own / attention.blocks.tile + 1) * attention.blocks.tile;
    const std::int64_t last = std::min(block_end, group.input->span.context) - 1;
    each.push_back({row, 1, last, last - own});
  }
  return each;
}

Live Forward::softmax(const LayerPlan& plan, const RowGroup& group, const Live& scores,
                      const SoftmaxStatistics& blocks) {
  const ModelConfig& model = parts_.config.model;
  const AttentionConfig& attention = parts_.config.attention;
  const std::int64_t last_key = last_visible_key(group, scores.view.columns / model.heads);
  const TensorView out = matrix(Slot::probs, parts_.config.activation_format, group.rows, scores.view.columns);
  const Weight* sinks = sinks_of(plan);
  const std::int64_t window = window_of(model, plan.softmax.layer);
  for (const MaskedRows& part : masked_rows(group, scores.view.columns / model.heads)) {
    launch(kernels::SoftmaxArgs{.scores = slice(scores.view, part.first, part.rows),
                                .sinks = sinks != nullptr ? sinks->view : TensorView{},
                                .out = slice(out, part.first, part.rows),
                                .heads = model.heads,
                                .first_position = part.last_key,
                                .first_key = group.input->first_key,
                                .window = window > 0 ? window + part.more : 0,
                                .mask = attention.mask,
                                .max_nan = attention.max_nan,
                                .zero_guard = attention.zero_guard,
                                .split = attention.split,
                                .max = slice(blocks.max.view, part.first, part.rows),
                                .sum = slice(blocks.sum.view, part.first, part.rows)});
  }
  const std::string_view told = attributes<SoftmaxAttributes>(plan.softmax, [&](auto& all) {
    all.first_position = last_key;
    all.first_key = group.input->first_key;
  });
  const OpPlan& own = plan_of_span(plan.softmax, *group.input);
  std::vector<ProbeInput> inputs{{"scores", scores.id, {}}};
  if (sinks != nullptr) inputs.push_back({"sinks", 0, sinks->name});
  if (blocks.max.view.given()) inputs.push_back({"max", blocks.max.id, {}});
  if (blocks.sum.view.given()) inputs.push_back({"sum", blocks.sum.id, {}});
  const ProbeTensor probs = emitter_.output("probs", out, model.heads);
  emitter_.op(own, std::span<const ProbeInput>(inputs), std::span(&probs, 1), told);
  return {out, probs.id};
}

const Weight* Forward::sinks_of(const LayerPlan& plan) const {
  return parts_.model.layers[static_cast<std::size_t>(plan.softmax.layer)].sinks.weight;
}

void Forward::mix(const LayerPlan& plan, const RowGroup& group, const TensorView& out, const Live& probs,
                  const KvSource& values) {
  const ModelConfig& model = parts_.config.model;
  const std::int64_t window = window_of(model, plan.attn_mix.layer);
  for (const MaskedRows& part : masked_rows(group, values.read.view.rows)) {
    launch(kernels::AttentionMixArgs{.p = slice(probs.view, part.first, part.rows),
                                     .v = values.cache.given() ? TensorView{} : values.read.view,
                                     .out = slice(out, part.first, part.rows),
                                     .heads = model.heads,
                                     .kv_heads = model.kv_heads,
                                     .first_position = part.last_key,
                                     .first_key = group.input->first_key,
                                     .window = window > 0 ? window + part.more : 0,
                                     .visible_only = parts_.config.attention.mask == kernels::MaskMode::select,
                                     .cache = values.cache,
                                     .split = parts_.config.attention.split});
  }
}

/// A kernel that looks at the length of a sequence gives zeros for none; one that takes the softmax of no key does not.
void Forward::pad_mix(const LayerPlan& plan, const RowGroup& group, const TensorView& out) {
  const ModelConfig& model = parts_.config.model;
  const TensorView v = matrix(Slot::v_read, Format::f32, 1, kv_channels(model, KvTarget::v));
  const TensorView p = matrix(Slot::probs, parts_.config.activation_format, group.rows, model.heads);
  const std::vector<float> zeros(static_cast<std::size_t>(std::max(v.columns, p.rows * p.columns)), 0.0F);
  const auto clear = [&](const TensorView& view) {
    const auto bytes = static_cast<std::size_t>(view.elements()) * info(view.format).storage_bytes();
    if (emitter_.ok()) emitter_.check(parts_.device.upload(view.data, std::as_bytes(std::span(zeros)).first(bytes)));
  };
  clear(v);
  clear(p);
  if (parts_.config.batch.pad_rows == PadRows::masked) {
    const Weight* sinks = sinks_of(plan);
    launch(kernels::SoftmaxArgs{.scores = p,
                                .sinks = sinks != nullptr ? sinks->view : TensorView{},
                                .out = p,
                                .heads = model.heads,
                                .first_position = 0,
                                .first_key = 1,
                                .window = window_of(model, plan.softmax.layer),
                                .mask = parts_.config.attention.mask,
                                .max_nan = parts_.config.attention.max_nan,
                                .zero_guard = parts_.config.attention.zero_guard});
  }
  launch(kernels::AttentionMixArgs{
      .p = p, .v = v, .out = out, .heads = model.heads, .kv_heads = model.kv_heads, .visible_only = false});
}

}  // namespace nanscope

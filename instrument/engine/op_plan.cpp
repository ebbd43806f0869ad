#include "instrument/engine/op_plan.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "core/blocks/presets.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/engine/scheme_book.h"
#include "instrument/kv_schemes/scheme_ops.h"
#include "instrument/model/rope_table.h"

namespace nanscope {
namespace {

NormAttributes norm_attributes(const EngineConfig& config, const NormConfig& norm, std::int64_t groups) {
  EngineConfig shown = config;
  shown.norm = norm;
  NormAttributes out;
  out.norm = get_knob(shown, "model.norm");
  out.variance = get_knob(shown, "norm.variance");
  out.order = get_knob(shown, "norm.order");
  out.contract = norm.contract;
  out.clamp = norm.clamp;
  out.mean_by_reciprocal = norm.mean_by_reciprocal;
  out.eps = static_cast<double>(norm.eps);
  out.groups = groups;
  return out;
}

BlockAttributes block_attributes(const EngineConfig& config, std::int64_t inputs, float second) {
  const BlockConfig& blocks = config.blocks;
  const std::int64_t block = block_format(blocks).block.columns;
  BlockAttributes out;
  out.format = blocks.preset.empty() ? get_knob(config, "activation.blocks") : blocks.preset;
  out.block = block;
  out.blocks = (inputs + block - 1) / block;
  out.tensor_scale = double{second};
  out.scale_overflow = get_knob(config, "activation.scale_overflow");
  return out;
}

RopeAttributes rope_attributes(const EngineConfig& config, bool local, std::int64_t heads) {
  RopeAttributes out;
  out.heads = heads;
  const bool own_base = local && config.model.local_rope_base > 0;
  out.base = own_base ? config.model.local_rope_base : config.model.rope_base;
  if (config.model.rotated > 0) out.rotated = config.model.rotated;
  if (config.model.rotated_from > 0) out.rotated_from = config.model.rotated_from;
  if (config.model.rope_pairs == RopePairs::neighbours) out.interleaved = true;
  if (config.rope.scaling == RopeScaling::none || own_base) return out;
  out.factor = config.rope.factor;
  out.trained = config.rope.trained;
  out.served = config.rope.served;
  if (has_rope_table(config.model, config.rope)) {
    out.scaling = get_knob(config, "rope.scaling");
    out.amplitude = static_cast<double>(rope_table(config.model, config.rope, local, 1).amplitude);
  } else {
    out.stretch = rope_stretch(config.rope);
  }
  return out;
}

/// How codes are made of quotients, as far as their format does not say it.
struct CodeForm {
  std::optional<std::int64_t> low, high;
  std::optional<std::string> zero;
  std::optional<bool> unrounded;
};

CodeForm code_form(const KvScheme& scheme) {
  CodeForm form;
  if (!quantizes(scheme)) return form;
  const CodeRange range = code_range(scheme);
  if (range.high != 0) form.low = range.low, form.high = range.high;
  const bool mean = scheme.transform == KvTransform::minus_mean;
  if (mean || scheme.statistic == KvStatistic::min_max)
    form.zero = mean || scheme.zero == KvZero::value ? "value" : "code";
  const BlockPreset* preset = scheme.block.empty() ? nullptr : find_block_preset(scheme.block);
  if (preset != nullptr && preset->format.codes_from_unrounded) form.unrounded = true;
  return form;
}

KvStoreAttributes store_attributes(const EngineConfig& config, std::int64_t layer) {
  KvStoreAttributes out;
  if (const std::optional<KvSchemes> schemes = kv_schemes(config, layer)) {
    out.scheme_k = to_text(schemes->k);
    out.scheme_v = to_text(schemes->v);
    const CodeForm k = code_form(schemes->k);
    const CodeForm v = code_form(schemes->v);
    out.low_k = k.low, out.high_k = k.high, out.zero_k = k.zero, out.unrounded_k = k.unrounded;
    out.low_v = v.low, out.high_v = v.high, out.zero_v = v.zero, out.unrounded_v = v.unrounded;
    out.overflow = get_knob(config, "kv.overflow");
    out.clamp_nan = get_knob(config, "kv.clamp_nan");
    out.block_size = config.kv.block_size;
    return out;
  }
  out.policy = get_knob(config, "kv.policy");
  out.format = get_knob(config, "kv.format");
  out.overflow = get_knob(config, "kv.overflow");
  out.clamp_nan = get_knob(config, "kv.clamp_nan");
  out.block_size = config.kv.block_size;
  return out;
}

KvReadAttributes read_attributes(const EngineConfig& config, std::int64_t layer) {
  KvReadAttributes out;
  if (const std::optional<KvSchemes> schemes = kv_schemes(config, layer)) {
    out.scheme_k = to_text(schemes->k);
    out.scheme_v = to_text(schemes->v);
  }
  out.tail = config.attention.blocks.any() ? "skip" : get_knob(config, "kv.tail");
  out.block_size = config.kv.block_size;
  out.read_scale = get_knob(config, "kv.read_scale");
  out.read_format = get_knob(config, "kv.read_format");
  return out;
}

ScoresAttributes scores_attributes(const ModelConfig& model, std::int64_t layer) {
  ScoresAttributes out;
  out.heads = model.heads;
  out.kv_heads = model.kv_heads;
  const bool stated = model.attention_scale > 0 || model.scale_by_layer;
  out.factor = stated ? static_cast<double>(attention_scale(model, layer))
                      : 1.0 / std::sqrt(static_cast<double>(model.head_dim));
  if (model.attention_softcap > 0) out.softcap = model.attention_softcap;
  return out;
}

SoftmaxAttributes softmax_attributes(const EngineConfig& config, std::int64_t window) {
  SoftmaxAttributes out;
  out.mask = get_knob(config, "attention.mask");
  out.max_nan = get_knob(config, "attention.max_nan");
  out.zero_guard = config.attention.zero_guard;
  out.heads = config.model.heads;
  if (window > 0) out.window = window;
  return out;
}

MixAttributes mix_attributes(const EngineConfig& config, std::int64_t window) {
  MixAttributes out;
  out.heads = config.model.heads;
  out.kv_heads = config.model.kv_heads;
  out.visible_only = config.attention.mask == kernels::MaskMode::select;
  if (window > 0) out.window = window;
  return out;
}

/// Names ops and counts them.
class Planner {
 public:
  Planner(const EngineConfig& config, std::int64_t layer) : config_(config), layer_(layer) {}

  OpPlan op(std::string name, OpKind kind) { return op(std::move(name), kind, attributes_of(kind)); }
  OpPlan op(std::string name, OpKind kind, OpAttributes attributes) {
    ++count_;
    std::string json = to_json(attributes);
    return {layer_, std::move(name), kind, std::move(attributes), std::move(json)};
  }
  OpPlan gemm(std::string name) {
    GemmAttributes attributes;
    if (config_.partial_sums != Format::f32) attributes.partial_sums = "f16";
    if (config_.kernel_form != KernelForm::exact) attributes.kernel_form = get_knob(config_, "engine.kernel_form");
    return op(std::move(name), OpKind::gemm, attributes);
  }
  /// A product whose `inputs` may be block-scaled; `second` is what stands above the scales of their blocks.
  OpPlan product(std::string name, std::int64_t inputs, std::optional<float> second) {
    const bool blocked = second && config_.blocks.format != ActivationBlocks::fp8;
    return blocked ? blocks(std::move(name), OpKind::block_gemm, inputs, *second) : gemm(std::move(name));
  }
  /// None, and not counted, where no blocks are used.
  OpPlan quantise(std::string name, std::int64_t inputs, std::optional<float> second) {
    if (second && config_.blocks.format == ActivationBlocks::fp8)
      return cast(std::move(name), OpKind::quantise, *second);
    return second ? blocks(std::move(name), OpKind::block_quantise, inputs, *second) : OpPlan{};
  }
  /// Of codes that have one scale: products read what they stand for. None, and not counted, elsewhere.
  OpPlan dequantise(std::string name, std::optional<float> second) {
    if (!second || config_.blocks.format != ActivationBlocks::fp8) return {};
    return cast(std::move(name), OpKind::dequantise, *second);
  }
  OpPlan norm(std::string name, std::int64_t groups = 1) {
    return op(std::move(name), OpKind::layer_norm, norm_attributes(config_, config_.norm, groups));
  }
  /// Of a latent, whose eps may be another one.
  OpPlan latent_norm(std::string name) {
    return op(std::move(name), OpKind::layer_norm, norm_attributes(config_, latent_norm_of(config_), 1));
  }
  OpPlan residual(std::string name) {
    ResidualAttributes attributes;
    if (config_.model.residual_scale != 1) attributes.factor = config_.model.residual_scale;
    return op(std::move(name), OpKind::residual_add, attributes);
  }
  OpPlan inner_norm(std::string name) {
    return op(std::move(name), OpKind::layer_norm, norm_attributes(config_, resolved_inner_norm(config_), 1));
  }
  /// None, and not counted, where there is one rank.
  OpPlan all_reduce(std::string name) {
    if (config_.ranks.count == 1) return {};
    return op(std::move(name), OpKind::all_reduce,
              AllReduceAttributes{config_.ranks.count, get_knob(config_, "allreduce.order")});
  }
  std::int64_t count() const { return count_; }

 private:
  OpPlan cast(std::string name, OpKind kind, float second) {
    OpPlan plan = op(std::move(name), kind, QuantiseAttributes{std::string(nanscope::name(Format::e4m3))});
    plan.second = second;
    return plan;
  }
  OpPlan blocks(std::string name, OpKind kind, std::int64_t inputs, float second) {
    OpPlan plan = op(std::move(name), kind, block_attributes(config_, inputs, second));
    plan.second = second;
    return plan;
  }

  const EngineConfig& config_;
  std::int64_t layer_;
  std::int64_t count_ = 0;
};

/// What stands above the scales of blocks of what these products, which are of the attention or not, all read; nothing
/// where they read no blocks. Of unequal ones in a checkpoint the largest, as servers take it.
std::optional<float> second_of(const EngineConfig& config, bool attention, std::span<const Affine* const> products) {
  const BlockConfig& blocks = config.blocks;
  if (blocks.format == ActivationBlocks::none || (attention && blocks.ops == BlockOps::mlp)) return std::nullopt;
  if (blocks.tensor_scales == TensorScales::config) return second_scale(blocks);
  InputScale largest;
  for (const Affine* one : products) {
    if (one->weight == nullptr) continue;
    if (!one->weight->input) return std::nullopt;
    if (!(one->weight->input->stored <= largest.stored)) largest = *one->weight->input;
  }
  return products.empty() ? std::nullopt : std::optional(largest.multiplier());
}

/// The products of MLPs that read the same: of the mixture's experts, or of one.
std::vector<const Affine*> first_products(std::span<const MlpWeights> mlps) {
  std::vector<const Affine*> all;
  for (const MlpWeights& one : mlps) all.insert(all.end(), {&one.gate_proj, &one.up_proj});
  return all;
}

/// Rotations of heads; and rows that leave a window, which not every step has: the count is an upper bound.
void plan_scheme(Planner& planner, const EngineConfig& config, const KvSchemes& schemes, std::int64_t layer,
                 LayerPlan& plan) {
  const ModelConfig& model = config.model;
  const auto hadamard = [&](std::string name, std::int64_t heads) {
    return planner.op(std::move(name), OpKind::hadamard, HadamardAttributes{heads});
  };
  if (schemes.k.transform == KvTransform::hadamard) {
    plan.q_hadamard = hadamard("q_hadamard", model.heads);
    plan.k_hadamard = hadamard("k_hadamard", model.kv_heads);
  }
  if (schemes.v.transform == KvTransform::hadamard) {
    plan.v_hadamard = hadamard("v_hadamard", model.kv_heads);
    plan.out_hadamard = hadamard("out_hadamard", model.heads);
  }
  if (keeps_rows(schemes.k)) {
    plan.k_leaving = planner.op("k_leaving", OpKind::kv_read, read_attributes(config, layer));
    plan.k_seal = planner.op("k_seal", OpKind::kv_store, store_attributes(config, layer));
  }
  if (keeps_rows(schemes.v)) {
    plan.v_leaving = planner.op("v_leaving", OpKind::kv_read, read_attributes(config, layer));
    plan.v_seal = planner.op("v_seal", OpKind::kv_store, store_attributes(config, layer));
  }
}

/// An operand's blocks, and what attention reads of them; none where it has none.
void plan_operand(Planner& planner, const std::string& operand, const std::string& preset, BlockAxis axis,
                  OpPlan& quantise, OpPlan& dequantise) {
  if (preset.empty()) return;
  const BlockFormat format = attention_block(preset, axis);
  BlockAttributes blocks;
  blocks.format = preset;
  blocks.block = std::max(format.block.rows, format.block.columns);
  const bool down = axis == BlockAxis::tokens;
  quantise = planner.op(operand + "_quantise", down ? OpKind::quantise_columns : OpKind::block_quantise, blocks);
  dequantise = planner.op(operand + "_dequantise", OpKind::block_dequantise, blocks);
}

void plan_tiles(Planner& planner, const EngineConfig& config, std::int64_t window, LayerPlan& plan) {
  const AttentionBlocks& blocks = config.attention.blocks;
  plan_operand(planner, "q", blocks.q, BlockAxis::channels, plan.q_quantise, plan.q_dequantise);
  plan_operand(planner, "k", blocks.k, blocks.k_axis, plan.k_quantise, plan.k_dequantise);
  plan_operand(planner, "v", blocks.v, blocks.v_axis, plan.v_quantise, plan.v_dequantise);
  if (reads_exact_scores(blocks)) {
    plan.exact_scores =
        planner.op("exact_scores", OpKind::attention_scores, scores_attributes(config.model, plan.scores.layer));
  }
  SoftmaxAttributes softmax = softmax_attributes(config, window);
  softmax.tile = blocks.tile;
  softmax.online = blocks.online;
  plan.softmax = planner.op("softmax", OpKind::tile_softmax, softmax);
  plan_operand(planner, "p", blocks.p, BlockAxis::channels, plan.p_quantise, plan.p_dequantise);
  MixAttributes mix = mix_attributes(config, window);
  mix.tile = blocks.tile;
  mix.diagonal = get_knob(config, "attention.diagonal");
  plan.attn_mix = planner.op("attn_mix", OpKind::tile_mix, mix);
}

void plan_split(Planner& planner, const EngineConfig& config, std::int64_t window, LayerPlan& plan) {
  SoftmaxAttributes softmax = softmax_attributes(config, window);
  softmax.split = config.attention.split;
  plan.softmax_partials = planner.op("softmax_partials", OpKind::softmax_partials, softmax);
  plan.softmax = planner.op("softmax", OpKind::softmax, softmax);
  MixAttributes mix = mix_attributes(config, window);
  mix.split = config.attention.split;
  plan.mix_partials = planner.op("mix_partials", OpKind::mix_partials, mix);
  MixAttributes combined;
  combined.heads = mix.heads;
  combined.split = mix.split;
  plan.attn_mix = planner.op("attn_mix", OpKind::combine_partials, combined);
}

/// From a layer's input to queries, keys and values, by latents.
void plan_latents(Planner& planner, const EngineConfig& config, std::int64_t layer, LayerPlan& plan) {
  const ModelConfig& model = config.model;
  const bool local = window_of(model, layer) > 0;
  if (model.q_rank > 0) {
    plan.q_a_proj = planner.gemm("q_a_proj");
    plan.q_a_norm = planner.latent_norm("q_a_norm");
  }
  plan.q_proj = planner.gemm("q_proj");
  plan.kv_a_proj = planner.gemm("kv_a_proj");
  plan.kv_latent = planner.op("kv_latent", OpKind::split, SplitAttributes{0, {}});
  plan.kv_a_norm = planner.latent_norm("kv_a_norm");
  plan.kv_b_proj = planner.gemm("kv_b_proj");
  plan.v_split = planner.op("v_split", OpKind::split, SplitAttributes{model.rotated_from, model.heads});
  plan.q_rope = planner.op("q_rope", OpKind::rope, rope_attributes(config, local, model.heads));
  plan.k_shared = planner.op("k_shared", OpKind::split, SplitAttributes{model.kv_rank, {}});
  RopeAttributes of_shared = rope_attributes(config, local, 1);
  of_shared.rotated_from.reset();
  plan.k_rope = planner.op("k_rope", OpKind::rope, of_shared);
  plan.k_join = planner.op("k_join", OpKind::join, JoinAttributes{model.heads});
}

/// The same by projections.
void plan_projections(Planner& planner, const EngineConfig& config, std::int64_t layer, const LayerWeights& weights,
                      LayerPlan& plan) {
  const ModelConfig& model = config.model;
  const std::int64_t window = window_of(model, layer);
  const std::optional<KvSchemes> schemes = kv_schemes(config, layer);
  const std::array<const Affine*, 3> projections{&weights.q_proj, &weights.k_proj, &weights.v_proj};
  const std::optional<float> second = second_of(config, true, projections);
  plan.attn_quantise = planner.quantise("attn_quantise", model.width, second);
  plan.attn_dequantise = planner.dequantise("attn_dequantise", second);
  plan.q_proj = planner.product("q_proj", model.width, second);
  plan.k_proj = planner.product("k_proj", model.width, second);
  plan.v_proj = planner.product("v_proj", model.width, second);
  if (model.qk_norm) {
    const bool each = model.qk_norm_over == QkNormOver::head;
    plan.q_norm = planner.norm("q_norm", each ? model.heads : 1);
    plan.k_norm = planner.norm("k_norm", each ? model.kv_heads : 1);
  }
  if (is_rotary(model, layer)) {
    plan.q_rope = planner.op("q_rope", OpKind::rope, rope_attributes(config, window > 0, model.heads));
    const RopeAttributes of_keys = rope_attributes(config, window > 0, model.kv_heads);
    const bool at_reading = schemes && schemes->k.before_rope;
    (at_reading ? plan.k_read_rope : plan.k_rope) =
        planner.op(at_reading ? "k_read_rope" : "k_rope", OpKind::rope, of_keys);
  }
}

void plan_attention(Planner& planner, const EngineConfig& config, std::int64_t layer, const LayerWeights& weights,
                    LayerPlan& plan) {
  const ModelConfig& model = config.model;
  const std::int64_t window = window_of(model, layer);
  const std::optional<KvSchemes> schemes = kv_schemes(config, layer);
  if (is_latent(model)) {
    plan_latents(planner, config, layer, plan);
  } else {
    plan_projections(planner, config, layer, weights, plan);
  }
  plan.kv_store = planner.op("kv_store", OpKind::kv_store, store_attributes(config, layer));
  if (schemes) plan_scheme(planner, config, *schemes, layer, plan);
  plan.kv_read = planner.op("kv_read", OpKind::kv_read, read_attributes(config, layer));
  if (config.scores.qk_format != Format::f32) {
    const QuantiseAttributes codes{std::string(name(config.scores.qk_format))};
    plan.q_quantise = planner.op("q_quantise", OpKind::quantise, codes);
    plan.q_dequantise = planner.op("q_dequantise", OpKind::dequantise, codes);
    plan.k_quantise = planner.op("k_quantise", OpKind::quantise, codes);
    plan.k_dequantise = planner.op("k_dequantise", OpKind::dequantise, codes);
  }
  plan.scores = planner.op("scores", OpKind::attention_scores, scores_attributes(model, layer));
  if (config.scores.format != Format::f32) {
    const QuantiseAttributes codes{std::string(name(config.scores.format))};
    plan.scores_quantise = planner.op("scores_quantise", OpKind::quantise, codes);
    plan.scores_dequantise = planner.op("scores_dequantise", OpKind::dequantise, codes);
  }
  if (config.attention.blocks.any()) {
    plan_tiles(planner, config, window, plan);
  } else if (config.attention.split > 0) {
    plan_split(planner, config, window, plan);
  } else {
    plan.softmax = planner.op("softmax", OpKind::softmax, softmax_attributes(config, window));
    plan.attn_mix = planner.op("attn_mix", OpKind::attention_mix, mix_attributes(config, window));
  }
  if (model.attention_gate) {
    plan.attn_gate = planner.gemm("attn_gate");
    plan.attn_gated = planner.op("attn_gated", OpKind::activation, ActivationAttributes{"glu", {}, {}});
  }
  if (model.inner_norm) plan.inner_norm = planner.inner_norm("inner_norm");
  const std::array<const Affine*, 1> output{&weights.o_proj};
  const std::optional<float> second_of_output = second_of(config, true, output);
  plan.o_quantise = planner.quantise("o_quantise", mix_width(model), second_of_output);
  plan.o_dequantise = planner.dequantise("o_dequantise", second_of_output);
  plan.o_proj = planner.product("o_proj", mix_width(model), second_of_output);
}

void plan_recurrence(Planner& planner, bool batched, LayerPlan& plan) {
  plan.recurrent_in = planner.gemm("recurrent_in");
  plan.recurrent_scan = planner.op("recurrent", OpKind::recurrent_scan);
  if (batched) plan.recurrent_rows = planner.op("recurrent_rows", OpKind::copy);
  plan.recurrent_out = planner.gemm("recurrent_out");
}

/// With the names of attention's projections, where a delta net has the same.
void plan_delta(Planner& planner, const EngineConfig& config, LayerPlan& plan) {
  const ModelConfig& model = config.model;
  for (auto [name, into] :
       {std::pair{"q_proj", &plan.q_proj}, std::pair{"k_proj", &plan.k_proj}, std::pair{"v_proj", &plan.v_proj},
        std::pair{"z_proj", &plan.z_proj}, std::pair{"b_proj", &plan.b_proj}, std::pair{"a_proj", &plan.a_proj}}) {
    *into = planner.gemm(name);
  }
  for (auto [name, into] :
       {std::pair{"q_conv", &plan.q_conv}, std::pair{"k_conv", &plan.k_conv}, std::pair{"v_conv", &plan.v_conv}}) {
    *into = planner.op(name, OpKind::causal_conv);
  }
  DeltaAttributes rule;
  rule.key_heads = model.delta_key_heads;
  rule.value_heads = model.delta_value_heads;
  plan.delta = planner.op("delta", OpKind::delta_rule, rule);
  if (config.batch.requests > 1) plan.delta_rows = planner.op("delta_rows", OpKind::copy);
  plan.delta_norm = planner.norm("delta_norm", model.delta_value_heads);
  plan.delta_gate = planner.op("delta_gate", OpKind::activation, ActivationAttributes{"swiglu", {}, {}});
  plan.o_proj = planner.gemm("o_proj");
}

/// `prefix` keeps the ops of several experts apart; `second` is that of what it reads.
MlpPlan plan_mlp(Planner& planner, const EngineConfig& config, const std::string& prefix, std::int64_t hidden,
                 const MlpWeights& weights, std::optional<float> second) {
  MlpPlan plan;
  const std::array<const Affine*, 1> down{&weights.down_proj};
  const std::optional<float> second_of_down = second_of(config, false, down);
  if (is_gated(config.model.mlp)) {
    plan.gate_proj = planner.product(prefix + "gate_proj", config.model.width, second);
  }
  plan.up_proj = planner.product(prefix + "up_proj", config.model.width, second);
  ActivationAttributes activation{get_knob(config, "model.mlp"), {}, {}};
  if (config.model.mlp == kernels::ActivationKind::swiglu_clamped) {
    activation.alpha = config.model.swiglu_alpha;
    activation.limit = config.model.swiglu_limit;
  }
  plan.mlp_act = planner.op(prefix + "mlp_act", OpKind::activation, std::move(activation));
  plan.act_quantise = planner.quantise(prefix + "act_quantise", hidden, second_of_down);
  plan.act_dequantise = planner.dequantise(prefix + "act_dequantise", second_of_down);
  plan.down_proj = planner.product(prefix + "down_proj", hidden, second_of_down);
  return plan;
}

void plan_experts(Planner& planner, const EngineConfig& config, const LayerWeights& weights, LayerPlan& plan) {
  plan.router = planner.gemm("router");
  std::vector<MlpWeights> mlps = weights.experts;
  mlps.resize(static_cast<std::size_t>(config.model.experts));
  mlps.push_back(weights.shared_expert);
  const std::optional<float> second = second_of(config, false, first_products(mlps));
  plan.mlp_quantise = planner.quantise("mlp_quantise", config.model.width, second);
  plan.mlp_dequantise = planner.dequantise("mlp_dequantise", second);
  RouteAttributes route;
  route.weights = get_knob(config, "moe.weights");
  route.eps = static_cast<double>(config.moe.eps);
  if (config.moe.score != kernels::RouterScore::sigmoid) route.score = get_knob(config, "moe.score");
  if (!config.moe.normalise) route.normalise = false;
  if (config.moe.scale != 1) route.scale = double{config.moe.scale};
  if (config.moe.groups > 1) {
    route.groups = config.moe.groups;
    route.top_groups = config.moe.top_groups;
    route.group_score = get_knob(config, "moe.group_score");
  }
  plan.route = planner.op("route", OpKind::route, route);
  for (std::int64_t e = 0; e < config.model.experts; ++e) {
    plan.experts.push_back(plan_mlp(planner, config, fmt::format("expert{}_", e), expert_width(config.model),
                                    mlps[static_cast<std::size_t>(e)], second));
  }
  plan.expert_mix = planner.op("expert_mix", OpKind::expert_mix);
  if (config.model.shared_expert_width == 0) return;
  plan.shared_expert =
      plan_mlp(planner, config, "shared_", config.model.shared_expert_width, weights.shared_expert, second);
  if (config.model.shared_expert_gate) plan.shared_gate = planner.gemm("shared_gate");
  plan.shared_add =
      planner.op("shared_add", config.model.shared_expert_gate ? OpKind::gated_add : OpKind::residual_add);
}

LayerPlan plan_layer(const EngineConfig& config, std::int64_t layer, const LayerWeights& weights) {
  const ModelConfig& model = config.model;
  const bool before = norms_before(model);
  const bool after = norms_after(model);
  Planner planner(config, layer);
  LayerPlan plan;
  plan.recurrent = is_recurrent(model, layer);
  if (before) plan.attn_norm = planner.norm("attn_norm");
  if (plan.recurrent && is_delta(model)) {
    plan_delta(planner, config, plan);
  } else if (plan.recurrent) {
    plan_recurrence(planner, config.batch.requests > 1, plan);
  } else {
    plan_attention(planner, config, layer, weights, plan);
  }
  plan.attn_all_reduce =
      planner.all_reduce(plan.recurrent && !is_delta(model) ? "recurrent_out_all_reduce" : "o_proj_all_reduce");
  if (after) plan.attn_post_norm = planner.norm("attn_post_norm");
  plan.attn_residual = planner.residual("attn_residual");
  if (norms_before_mlp(model)) plan.mlp_norm = planner.norm("mlp_norm");
  if (has_experts(model, layer)) {
    plan_experts(planner, config, weights, plan);
  } else {
    const std::optional<float> second = second_of(config, false, first_products(std::span(&weights.mlp, 1)));
    plan.mlp_quantise = planner.quantise("mlp_quantise", model.width, second);
    plan.mlp_dequantise = planner.dequantise("mlp_dequantise", second);
    plan.mlp = plan_mlp(planner, config, "", model.mlp_width, weights.mlp, second);
  }
  plan.mlp_all_reduce = planner.all_reduce(has_experts(model, layer) ? "mlp_all_reduce" : "down_proj_all_reduce");
  if (after) plan.mlp_post_norm = planner.norm("mlp_post_norm");
  plan.mlp_residual = planner.residual("mlp_residual");
  plan.ops = planner.count();
  return plan;
}

}  // namespace

ModelPlan make_plan(const EngineConfig& config, const LoadedModel* model) {
  ModelPlan plan;
  Planner outside(config, -1);
  EmbeddingAttributes embedding;
  if (config.model.embedding_scale != 1) embedding.scale = config.model.embedding_scale;
  plan.embed = outside.op("embed", OpKind::embedding, embedding);
  plan.final_norm = outside.norm("final_norm");
  plan.lm_head = outside.gemm("lm_head");
  if (config.model.logit_scale != 1) {
    plan.logits_scale = outside.op("logits_scale", OpKind::scale, ScaleAttributes{config.model.logit_scale});
  }
  if (config.model.logit_softcap > 0) {
    plan.logits_softcap = outside.op("logits_softcap", OpKind::softcap, SoftcapAttributes{config.model.logit_softcap});
  }
  if (!config.grammar.empty()) plan.token_softmax = outside.op("token_softmax", OpKind::token_softmax);
  if (config.sampling.temperature > 0) {
    plan.sample = outside.op("sample", OpKind::sample,
                             SampleAttributes{static_cast<double>(config.sampling.temperature), config.sampling.seed});
  } else {
    plan.argmax = outside.op("argmax", OpKind::argmax, ArgmaxAttributes{get_knob(config, "engine.argmax_nan")});
  }
  if (config.batch.requests > 1) plan.last_rows = outside.op("last_rows", OpKind::copy);
  plan.ops_per_step = outside.count();
  plan.patch_embed = outside.op("patch_embed", OpKind::patch_embedding);
  std::int64_t attention = 0;
  std::int64_t recurrent = 0;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    const bool loaded = model != nullptr && static_cast<std::size_t>(layer) < model->layers.size();
    plan.layers.push_back(
        plan_layer(config, layer, loaded ? model->layers[static_cast<std::size_t>(layer)] : LayerWeights{}));
    LayerPlan& planned = plan.layers.back();
    planned.rank = planned.recurrent ? recurrent++ : attention++;
    plan.ops_per_step += planned.ops;
  }
  return plan;
}

}  // namespace nanscope

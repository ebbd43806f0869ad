#include "instrument/engine/op_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <string_view>

#include "instrument/engine/knobs.h"

namespace nanscope {
namespace {

std::string norm_attributes(const EngineConfig& config, const NormConfig& norm, std::int64_t groups) {
  EngineConfig shown = config;
  shown.norm = norm;
  return fmt::format(
      R"({{"norm":"{}","variance":"{}","order":"{}","contract":{},"clamp":{},"mean_by_reciprocal":{},"eps":{},"groups":{}}})",
      get_knob(shown, "model.norm"), get_knob(shown, "norm.variance"), get_knob(shown, "norm.order"), norm.contract,
      norm.clamp, norm.mean_by_reciprocal, json_number(static_cast<double>(norm.eps)), groups);
}

std::string block_attributes(const EngineConfig& config, std::int64_t inputs) {
  const BlockConfig& blocks = config.blocks;
  const std::int64_t block = block_shape(blocks.format).block;
  const double tensor_scale = blocks.format == BlockFormat::nvfp4 ? double{blocks.tensor_scale} : 1.0;
  return fmt::format(R"({{"format":"{}","block":{},"blocks":{},"tensor_scale":{},"scale_overflow":"{}"}})",
                     get_knob(config, "activation.blocks"), block, (inputs + block - 1) / block,
                     json_number(tensor_scale), get_knob(config, "activation.scale_overflow"));
}

/// Names ops and counts them.
class Planner {
 public:
  Planner(const EngineConfig& config, std::int64_t layer) : config_(config), layer_(layer) {}

  OpPlan op(std::string name, std::string kind, std::string attributes = "{}") {
    ++count_;
    return {layer_, std::move(name), std::move(kind), std::move(attributes)};
  }
  OpPlan gemm(std::string name) {
    const bool halves = config_.partial_sums != Format::f32;
    return op(std::move(name), "gemm", halves ? R"({"partial_sums":"f16"})" : "{}");
  }
  /// A product whose `inputs` may be block-scaled.
  OpPlan mlp_product(std::string name, std::int64_t inputs) {
    if (config_.blocks.format == BlockFormat::none) return gemm(std::move(name));
    return op(std::move(name), "block_gemm", block_attributes(config_, inputs));
  }
  /// None, and not counted, where no blocks are used.
  OpPlan quantise(std::string name, std::int64_t inputs) {
    if (config_.blocks.format == BlockFormat::none) return {};
    return op(std::move(name), "block_quantise", block_attributes(config_, inputs));
  }
  OpPlan norm(std::string name, std::int64_t groups = 1) {
    return op(std::move(name), "layer_norm", norm_attributes(config_, config_.norm, groups));
  }
  OpPlan inner_norm(std::string name) {
    return op(std::move(name), "layer_norm", norm_attributes(config_, resolved_inner_norm(config_), 1));
  }
  std::int64_t count() const { return count_; }

 private:
  const EngineConfig& config_;
  std::int64_t layer_;
  std::int64_t count_ = 0;
};

/// {"policy":"locked","block_size":16}: knobs under the last part of their names.
std::string knob_attributes(const EngineConfig& config, std::initializer_list<std::string_view> names) {
  std::string json = "{";
  for (const std::string_view name : names) {
    const std::string value = get_knob(config, name);
    const bool number = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    const std::string_view key = name.substr(name.find('.') + 1);
    const std::string_view quote = number ? "" : "\"";
    fmt::format_to(std::back_inserter(json), R"({}"{}":{}{}{})", json.size() > 1 ? "," : "", key, quote, value, quote);
  }
  return json + "}";
}

void plan_attention(Planner& planner, const EngineConfig& config, LayerPlan& plan) {
  const ModelConfig& model = config.model;
  plan.q_proj = planner.gemm("q_proj");
  plan.k_proj = planner.gemm("k_proj");
  plan.v_proj = planner.gemm("v_proj");
  if (model.qk_norm) {
    plan.q_norm = planner.norm("q_norm", model.heads);
    plan.k_norm = planner.norm("k_norm", model.kv_heads);
  }
  const auto rope = [&](std::int64_t heads) {
    const std::string scaling =
        config.rope.scaling == RopeScaling::none
            ? ""
            : fmt::format(R"(,"factor":{},"trained":{},"served":{},"stretch":{})", json_number(config.rope.factor),
                          config.rope.trained, config.rope.served, json_number(rope_stretch(config.rope)));
    return fmt::format(R"({{"heads":{},"base":{}{}}})", heads, json_number(model.rope_base), scaling);
  };
  plan.q_rope = planner.op("q_rope", "rope", rope(model.heads));
  plan.k_rope = planner.op("k_rope", "rope", rope(model.kv_heads));
  plan.kv_store =
      planner.op("kv_store", "kv_store",
                 knob_attributes(config, {"kv.policy", "kv.format", "kv.overflow", "kv.clamp_nan", "kv.block_size"}));
  plan.kv_read = planner.op("kv_read", "kv_read",
                            knob_attributes(config, {"kv.tail", "kv.block_size", "kv.read_scale", "kv.read_format"}));
  plan.scores = planner.op("scores", "attention_scores",
                           fmt::format(R"({{"heads":{},"kv_heads":{},"factor":{}}})", model.heads, model.kv_heads,
                                       json_number(1.0 / std::sqrt(static_cast<double>(model.head_dim)))));
  plan.softmax = planner.op(
      "softmax", "softmax",
      knob_attributes(config, {"attention.mask", "attention.max_nan", "attention.zero_guard", "model.heads"}));
  plan.attn_mix = planner.op("attn_mix", "attention_mix",
                             fmt::format(R"({{"heads":{},"kv_heads":{},"visible_only":{}}})", model.heads,
                                         model.kv_heads, config.attention.mask == kernels::MaskMode::select));
  if (model.inner_norm) plan.inner_norm = planner.inner_norm("inner_norm");
  plan.o_proj = planner.gemm("o_proj");
}

void plan_recurrence(Planner& planner, LayerPlan& plan) {
  plan.recurrent_in = planner.gemm("recurrent_in");
  plan.recurrent_scan = planner.op("recurrent", "recurrent_scan");
  plan.recurrent_out = planner.gemm("recurrent_out");
}

/// `prefix` keeps the ops of several experts apart.
MlpPlan plan_mlp(Planner& planner, const EngineConfig& config, const std::string& prefix) {
  MlpPlan plan;
  if (config.model.mlp == kernels::ActivationKind::swiglu) {
    plan.gate_proj = planner.mlp_product(prefix + "gate_proj", config.model.width);
  }
  plan.up_proj = planner.mlp_product(prefix + "up_proj", config.model.width);
  plan.mlp_act = planner.op(prefix + "mlp_act", "activation",
                            fmt::format(R"({{"activation":"{}"}})", get_knob(config, "model.mlp")));
  plan.act_quantise = planner.quantise(prefix + "act_quantise", config.model.mlp_width);
  plan.down_proj = planner.mlp_product(prefix + "down_proj", config.model.mlp_width);
  return plan;
}

void plan_experts(Planner& planner, const EngineConfig& config, LayerPlan& plan) {
  plan.router = planner.gemm("router");
  plan.mlp_quantise = planner.quantise("mlp_quantise", config.model.width);
  plan.route = planner.op("route", "route", knob_attributes(config, {"moe.weights", "moe.eps"}));
  for (std::int64_t e = 0; e < config.model.experts; ++e) {
    plan.experts.push_back(plan_mlp(planner, config, fmt::format("expert{}_", e)));
  }
  plan.expert_mix = planner.op("expert_mix", "expert_mix");
}

LayerPlan plan_layer(const EngineConfig& config, std::int64_t layer) {
  const ModelConfig& model = config.model;
  const bool before = model.norm_placement != NormPlacement::post;
  const bool after = model.norm_placement != NormPlacement::pre;
  Planner planner(config, layer);
  LayerPlan plan;
  plan.recurrent = is_recurrent(model, layer);
  if (before) plan.attn_norm = planner.norm("attn_norm");
  if (plan.recurrent) {
    plan_recurrence(planner, plan);
  } else {
    plan_attention(planner, config, plan);
  }
  if (after) plan.attn_post_norm = planner.norm("attn_post_norm");
  plan.attn_residual = planner.op("attn_residual", "residual_add");
  if (before) plan.mlp_norm = planner.norm("mlp_norm");
  if (model.experts > 0) {
    plan_experts(planner, config, plan);
  } else {
    plan.mlp_quantise = planner.quantise("mlp_quantise", model.width);
    plan.mlp = plan_mlp(planner, config, "");
  }
  if (after) plan.mlp_post_norm = planner.norm("mlp_post_norm");
  plan.mlp_residual = planner.op("mlp_residual", "residual_add");
  plan.ops = planner.count();
  return plan;
}

}  // namespace

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : fmt::format("\"{}\"", value);
}

ModelPlan make_plan(const EngineConfig& config) {
  ModelPlan plan;
  Planner outside(config, -1);
  plan.embed = outside.op("embed", "embedding");
  plan.final_norm = outside.norm("final_norm");
  plan.lm_head = outside.gemm("lm_head");
  if (!config.grammar.empty()) plan.token_softmax = outside.op("token_softmax", "token_softmax");
  plan.argmax = outside.op("argmax", "argmax", fmt::format(R"({{"nan":"{}"}})", get_knob(config, "engine.argmax_nan")));
  plan.ops_per_step = outside.count();
  plan.patch_embed = outside.op("patch_embed", "patch_embedding");
  std::int64_t attention = 0;
  std::int64_t recurrent = 0;
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer) {
    plan.layers.push_back(plan_layer(config, layer));
    LayerPlan& planned = plan.layers.back();
    planned.rank = planned.recurrent ? recurrent++ : attention++;
    plan.ops_per_step += planned.ops;
  }
  return plan;
}

}  // namespace nanscope

#include "instrument/model/families/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/text/safe_text.h"

namespace nanscope {
namespace {

constexpr std::int64_t kMostPositions = std::int64_t{1} << 30;

void read_scaling(ConfigReader& rope, RopeConfig& into, const std::string& type, std::int64_t max_positions) {
  const double ratio = static_cast<double>(max_positions) / static_cast<double>(into.trained);
  if (type == "linear") {
    into.scaling = RopeScaling::linear;
    into.factor = rope.number("factor", 1, 1, 1024);
  } else if (type == "llama3") {
    into.scaling = RopeScaling::llama3;
    into.factor = rope.number("factor", 8, 1, 1024);
    into.low_factor = rope.number("low_freq_factor", 1, 1e-3);
    into.high_factor = rope.number("high_freq_factor", 4, 1e-3);
    if (into.high_factor <= into.low_factor) rope.reject("high_freq_factor", "expected more than low_freq_factor");
  } else if (type == "yarn") {
    into.scaling = RopeScaling::yarn;
    into.factor = rope.number("factor", ratio, 1, 1024);
    into.fast = rope.number("beta_fast", 32, 1e-3);
    into.slow = rope.number("beta_slow", 1, 1e-3);
    into.truncate = rope.flag("truncate", true);
    into.amplitude = rope.number("attention_factor", 0);
    const double mscale = rope.number("mscale", 0);
    into.all_dim = rope.number("mscale_all_dim", 0);
    const double all_dim = into.all_dim;
    const double log_factor = std::log(into.factor);
    if (into.amplitude == 0 && mscale > 0 && all_dim > 0) {
      into.amplitude = (0.1 * mscale * log_factor + 1) / (0.1 * all_dim * log_factor + 1);
    }
  } else if (type == "longrope") {
    into.scaling = RopeScaling::longrope;
    into.factor = std::max(1.0, rope.number("factor", ratio, 0.001, 1024));
    into.amplitude = rope.number("attention_factor", 0);
    into.short_factors = rope.numbers("short_factor");
    into.long_factors = rope.numbers("long_factor");
    for (const auto* factors : {&into.short_factors, &into.long_factors}) {
      for (const double factor : *factors) {
        if (factor <= 0) rope.reject("long_factor", "expected factors above 0");
      }
    }
  } else if (type != "default") {
    rope.reject("rope_type", fmt::format("'{}' is not supported", one_line(type)));
  }
}

}  // namespace

void read_rope_parameters(ConfigReader& rope, ModelSpec& spec, std::int64_t max_positions, double default_base) {
  spec.model.rope_base = rope.number("rope_theta", default_base, 1, 1e12);
  const std::string older = rope.text("type", "default");
  const std::string type = rope.text("rope_type", older);
  spec.rope.trained = rope.integer("original_max_position_embeddings", max_positions, 2, kMostPositions);
  const double partial = rope.number("partial_rotary_factor", 1, 0, 1);
  if (partial < 1) {
    spec.model.rotated = static_cast<std::int64_t>(static_cast<double>(spec.model.head_dim) * partial);
    if (spec.model.rotated < 2 || spec.model.rotated % 2 != 0) {
      rope.reject("partial_rotary_factor", fmt::format("{} of {} channels are no pairs", partial, spec.model.head_dim));
    }
  }
  // Of a text all three positions that a token may have are the same.
  rope.ignore({"mrope_section", "mrope_interleaved"});
  // Early Phi-3 files call LongRoPE "su" or "yarn".
  read_scaling(rope, spec.rope, rope.has("short_factor") ? "longrope" : type, max_positions);
}

void read_rope(ConfigReader& config, ModelSpec& spec, double default_base, double default_partial) {
  const std::int64_t max_positions = config.integer("max_position_embeddings", 2048, 1, kMostPositions);
  const double base = config.number("rope_theta", default_base, 1, 1e12);
  const double partial = config.number("partial_rotary_factor", default_partial, 0, 1);
  const std::int64_t trained = config.integer("original_max_position_embeddings", max_positions, 2, kMostPositions);
  const nlohmann::json* older = config.object("rope_scaling");
  const nlohmann::json* newer = config.object("rope_parameters");
  nlohmann::json settings = newer != nullptr ? *newer : older != nullptr ? *older : nlohmann::json::object();
  const auto set = [&](const char* key, const auto& value) {
    if (!settings.contains(key)) settings[key] = value;
  };
  set("rope_theta", base);
  set("partial_rotary_factor", partial);
  set("original_max_position_embeddings", trained);
  ConfigReader rope(settings, config.where() + ": rope_parameters");
  read_rope_parameters(rope, spec, max_positions, base);
  if (Status finished = rope.finish(); !finished) config.reject("rope_parameters", finished.error().message);
}

void read_two_ropes(ConfigReader& config, ModelSpec& spec, double default_base, double local_base) {
  const nlohmann::json* both = config.object("rope_parameters");
  if (both == nullptr || !both->contains("full_attention")) {
    read_rope(config, spec, default_base);
    spec.model.local_rope_base = local_base > 0 ? local_base : spec.model.rope_base;
    return;
  }
  config.ignore({"rope_theta", "rope_scaling"});
  const std::int64_t positions = config.integer("max_position_embeddings", 131072, 1, kMostPositions);
  ModelSpec local = spec;
  for (auto [key, into] : {std::pair{"sliding_attention", &local}, std::pair{"full_attention", &spec}}) {
    const auto found = both->find(key);
    if (found == both->end()) return config.reject("rope_parameters", "full_attention and sliding_attention expected");
    ConfigReader rope(*found, config.where() + ": rope_parameters: " + key);
    read_rope_parameters(rope, *into, positions, 1e4);
    if (Status finished = rope.finish(); !finished) config.reject("rope_parameters", finished.error().message);
  }
  if (local.rope.scaling != RopeScaling::none) config.reject("rope_parameters", "scaled sliding_attention");
  spec.model.local_rope_base = local.model.rope_base;
}

void read_layers_without_rope(ConfigReader& config, ModelSpec& spec) {
  const std::vector<std::int64_t> rotated = config.integers("no_rope_layers");
  const std::int64_t interval = config.integer("no_rope_layer_interval", 4, 1);
  if (!rotated.empty() && std::ssize(rotated) != spec.model.layers) {
    return config.reject("no_rope_layers", fmt::format("{} numbers for {} layers", rotated.size(), spec.model.layers));
  }
  for (std::int64_t layer = 0; layer < spec.model.layers; ++layer) {
    const bool rotary = rotated.empty() ? (layer + 1) % interval != 0 : rotated[static_cast<std::size_t>(layer)] != 0;
    if (!rotary) spec.model.unrotated_layers.push_back(layer);
  }
}

void read_decoder_shapes(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults) {
  ModelConfig& model = spec.model;
  model.norm = kernels::NormKind::rms_norm;
  model.mlp = kernels::ActivationKind::swiglu;
  model.vocabulary = config.needed("vocab_size", 1, 1 << 22);
  model.width = config.needed("hidden_size");
  model.layers = config.needed("num_hidden_layers", 1, 1024);
  model.heads = config.needed("num_attention_heads", 1, 4096);
  model.kv_heads =
      config.integer("num_key_value_heads", defaults.kv_heads > 0 ? defaults.kv_heads : model.heads, 1, 4096);
  const std::int64_t even_split = model.width / model.heads;
  model.head_dim = config.integer("head_dim", defaults.head_dim > 0 ? defaults.head_dim : even_split, 2, 4096);
  model.mlp_width = defaults.mlp_width > 0 ? config.integer("intermediate_size", defaults.mlp_width, 1)
                                           : config.needed("intermediate_size");
  model.tied_head = config.flag("tie_word_embeddings", defaults.tied);
  spec.norm_eps = static_cast<float>(config.number("rms_norm_eps", defaults.norm_eps, 0, 1));
}

void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults) {
  read_decoder_shapes(config, spec, defaults);
  read_rope(config, spec, defaults.rope_base, defaults.partial_rotary);
}

void read_attention_bias(ConfigReader& config, ModelSpec& spec) {
  const bool bias = config.flag("attention_bias", false);
  spec.model.qkv_bias = bias;
  spec.model.o_bias = bias;
}

void read_window(ConfigReader& config, ModelSpec& spec, std::int64_t otherwise) {
  const std::int64_t missing = config.states("sliding_window") ? 0 : otherwise;
  spec.model.window = config.integer("sliding_window", missing, 0, kMostPositions);
}

void read_layer_types(ConfigReader& config, ModelSpec& spec, const std::function<bool(std::int64_t layer)>& full) {
  const std::vector<std::string> types = config.texts("layer_types");
  if (!types.empty() && static_cast<std::int64_t>(types.size()) != spec.model.layers) {
    config.reject("layer_types", fmt::format("{} names for {} layers", types.size(), spec.model.layers));
    return;
  }
  for (std::int64_t layer = 0; layer < spec.model.layers; ++layer) {
    const std::string_view type = types.empty() ? std::string_view() : types[static_cast<std::size_t>(layer)];
    if (!type.empty() && type != "full_attention" && type != "sliding_attention") {
      config.reject("layer_types", fmt::format("'{}' is not supported", one_line(type)));
      return;
    }
    if (type.empty() ? full(layer) : type == "full_attention") spec.model.full_layers.push_back(layer);
  }
}

void read_optional_window(ConfigReader& config, ModelSpec& spec) {
  const bool used = config.flag("use_sliding_window", false);
  read_window(config, spec, 4096);
  if (!used) spec.model.window = 0;
  const std::int64_t first = config.integer("max_window_layers", 28, 0);
  read_layer_types(config, spec, [&](std::int64_t layer) { return layer < first; });
  if (spec.model.window == 0) spec.model.full_layers.clear();
}

void read_experts(ConfigReader& config, ModelSpec& spec, std::int64_t chosen, bool normalise) {
  spec.moe.score = kernels::RouterScore::softmax;
  spec.moe.bias = false;
  spec.moe.normalise = config.flag("norm_topk_prob", normalise);
  spec.model.experts_per_token = config.integer("num_experts_per_tok", chosen, 1, 32);
  const std::int64_t step = config.integer("decoder_sparse_step", 1, 1);
  std::vector<std::int64_t> dense = config.integers("mlp_only_layers");
  for (std::int64_t layer = 0; layer < spec.model.layers; ++layer) {
    const bool named = std::find(dense.begin(), dense.end(), layer) != dense.end();
    if (named || (layer + 1) % step != 0) spec.model.dense_layers.push_back(layer);
  }
}

void read_expert_groups(ConfigReader& config, ModelSpec& spec, std::int64_t groups, std::int64_t top) {
  spec.moe.groups = config.integer("n_group", groups, 1, 32);
  spec.moe.top_groups = config.integer("topk_group", top, 1, 32);
  const std::int64_t size = spec.model.experts / spec.moe.groups;
  if (size * spec.moe.groups != spec.model.experts) {
    config.reject("n_group", fmt::format("{} does not divide {} experts", spec.moe.groups, spec.model.experts));
  }
  if (spec.moe.top_groups > spec.moe.groups || spec.moe.top_groups * size < spec.model.experts_per_token) {
    config.reject("topk_group", fmt::format("{} of {} groups hold no {} experts", spec.moe.top_groups, spec.moe.groups,
                                            spec.model.experts_per_token));
  }
  // All groups leave the choice as it is.
  if (spec.moe.top_groups == spec.moe.groups) spec.moe.groups = spec.moe.top_groups = 1;
}

void read_latent_attention(ConfigReader& config, ModelSpec& spec, const LatentDefaults& defaults) {
  ModelConfig& model = spec.model;
  read_rope(config, spec, 10000);
  if (model.rotated != 0) config.reject("partial_rotary_factor", "heads of latent attention have an unrotated part");
  const bool direct = config.states("q_lora_rank") && !config.has("q_lora_rank");
  model.q_rank = direct ? 0 : config.integer("q_lora_rank", defaults.q_rank, 1);
  model.kv_rank = config.integer("kv_lora_rank", defaults.kv_rank, 1);
  model.rotated = config.integer("qk_rope_head_dim", defaults.rotated, 2, 2048);
  model.rotated_from = config.integer("qk_nope_head_dim", defaults.unrotated, 1, 2048);
  model.value_dim = config.integer("v_head_dim", defaults.values, 1, 4096);
  model.head_dim = model.rotated_from + model.rotated;
  if (model.rotated % 2 != 0) config.reject("qk_rope_head_dim", fmt::format("{} channels are no pairs", model.rotated));
  if (model.kv_heads != model.heads) {
    config.reject("num_key_value_heads", "expected num_attention_heads: each head has keys of its own");
  }
  model.rope_pairs = RopePairs::neighbours;
  model.latent_norm_eps = 1e-6;  // of the norm's class: no key states it (modeling_deepseek_v3.py of 5.24.0)
  read_attention_bias(config, spec);
  config.ignore({"qk_head_dim"});
  // Scores are multiplied by the square of what YaRN would multiply cosine and sine by.
  if (spec.rope.scaling == RopeScaling::yarn && spec.rope.all_dim > 0 && spec.rope.factor > 1) {
    const double scale = 0.1 * spec.rope.all_dim * std::log(spec.rope.factor) + 1;
    model.attention_scale = scale * scale / std::sqrt(static_cast<double>(model.head_dim));
  }
}

void read_deepseek_experts(ConfigReader& config, ModelSpec& spec, const DeepseekDefaults& defaults) {
  ModelConfig& model = spec.model;
  spec.moe.score = kernels::RouterScore::sigmoid;
  spec.moe.bias = true;
  spec.moe.eps = 1e-20F;  // transformers/models/deepseek_v3/modeling_deepseek_v3.py
  spec.moe.normalise = config.flag("norm_topk_prob", true);
  spec.moe.scale = static_cast<float>(config.number("routed_scaling_factor", defaults.scale));
  const std::int64_t experts = config.integer("n_routed_experts", defaults.experts, 1, 1024);
  model.experts = config.integer("num_local_experts", experts, 1, 1024);
  model.experts_per_token = config.integer("num_experts_per_tok", defaults.chosen, 1, 32);
  model.expert_width = config.integer("moe_intermediate_size", defaults.width, 1);
  model.shared_expert_width = config.integer("n_shared_experts", defaults.shared, 0, 64) * model.expert_width;
  model.shared_expert_gate = false;
  const std::int64_t dense = config.integer("first_k_dense_replace", defaults.dense, 0);
  for (std::int64_t layer = 0; layer < std::min(dense, model.layers); ++layer) model.dense_layers.push_back(layer);
  read_expert_groups(config, spec, defaults.groups, defaults.top_groups);
  const std::int64_t older = config.integer("num_nextn_predict_layers", 0, 0, 64);
  model.mtp_layers = config.integer("num_mtp_layers", older, 0, 64);
}

}  // namespace nanscope

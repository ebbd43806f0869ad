#pragma once
#include <cstdint>
#include <functional>

#include "instrument/model/config_reader.h"
#include "instrument/model/family.h"
#include "instrument/model/model_spec.h"

/// What config.json files of Llama's descendants share: keys, rotary settings, names of weights.
namespace nanscope {

/// Values of keys that are missing, as a family's configuration class has them.
struct DecoderDefaults {
  double norm_eps = 1e-6;
  double rope_base = 10000;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  std::int64_t head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  bool tied = false;
  double partial_rotary = 1;  ///< share of a head's channels that are rotated
};

/// Vocabulary, widths, heads, norms (RMSNorm before each branch), SwiGLU, rotary positions.
void read_decoder(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults);

/// All of these but the rotary settings.
void read_decoder_shapes(ConfigReader& config, ModelSpec& spec, const DecoderDefaults& defaults);

/// One set of rotary settings: `rope_parameters`, or `rope_theta` and `rope_scaling` of older files.
void read_rope(ConfigReader& config, ModelSpec& spec, double default_base, double default_partial = 1);
/// The settings in an object of their own.
void read_rope_parameters(ConfigReader& rope, ModelSpec& spec, std::int64_t max_positions, double default_base);

/// Two sets by the kind of a layer: `full_attention` and `sliding_attention` of `rope_parameters`. Older files give the
/// first alone; layers with a window then have the plain angles of `local_base`, or of the first's base where it is 0.
void read_two_ropes(ConfigReader& config, ModelSpec& spec, double default_base, double local_base = 0);

/// `no_rope_layers`, a 0 for each layer without rotary positions; or every `no_rope_layer_interval`-th.
void read_layers_without_rope(ConfigReader& config, ModelSpec& spec);

/// `layer_types`: names which layers see a window. Where it is missing, `full` says which do not.
void read_layer_types(ConfigReader& config, ModelSpec& spec, const std::function<bool(std::int64_t layer)>& full);

/// `sliding_window`: none where it is null, `otherwise` where it is missing.
void read_window(ConfigReader& config, ModelSpec& spec, std::int64_t otherwise);

/// Qwen's windows: of layers from `max_window_layers` on, if `use_sliding_window`.
void read_optional_window(ConfigReader& config, ModelSpec& spec);

/// Router by softmax, and which layers are dense (`decoder_sparse_step`, `mlp_only_layers`).
void read_experts(ConfigReader& config, ModelSpec& spec, std::int64_t chosen, bool normalise);

inline constexpr WeightRule kDecoderGlobals[] = {
    {"embed", "model.embed_tokens"}, {"final_norm", "model.norm"}, {"lm_head", "lm_head"}};

/// Experts as modules of transformers 5 keep them, and their state_dict() has them; save_pretrained() writes them
/// apart.
inline constexpr WeightRule kStackedGate{
    .ours = "experts.gate_proj", .theirs = "mlp.experts.gate_up_proj", .part = WeightPart::gate, .stacked = true};
inline constexpr WeightRule kStackedUp{
    .ours = "experts.up_proj", .theirs = "mlp.experts.gate_up_proj", .part = WeightPart::up, .stacked = true};
inline constexpr WeightRule kStackedDown{
    .ours = "experts.down_proj", .theirs = "mlp.experts.down_proj", .stacked = true};

}  // namespace nanscope

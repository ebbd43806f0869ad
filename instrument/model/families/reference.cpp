/// The reference model (docs/reference-model.md) as a checkpoint: tensors under our own names, and what no other family
/// has: a kind and a placement of norms to choose, a norm within attention, images, a format of the cache.
#include <array>
#include <string>
#include <utility>

#include "instrument/model/families/decoder.h"

namespace nanscope {
namespace {

/// The value of a key out of those that there are.
template <class T, std::size_t N>
T choice(ConfigReader& config, std::string_view key, const std::array<std::pair<std::string_view, T>, N>& choices) {
  const std::string text = config.text(key, choices.front().first);
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
  }
  config.reject(key, "there is no such value");
  return choices.front().second;
}

Status read_reference(ConfigReader& config, ModelSpec& spec) {
  using kernels::NormKind;
  read_decoder(config, spec, {});
  ModelConfig& model = spec.model;
  model.norm =
      choice<NormKind, 2>(config, "norm", {{{"layer_norm", NormKind::layer_norm}, {"rms_norm", NormKind::rms_norm}}});
  model.norm_placement = choice<NormPlacement, 4>(config, "norm_placement",
                                                  {{{"pre", NormPlacement::pre},
                                                    {"post", NormPlacement::post},
                                                    {"sandwich", NormPlacement::sandwich},
                                                    {"branch", NormPlacement::branch}}});
  spec.norm_eps = static_cast<float>(config.number("norm_eps", 1e-5, 0, 1));
  model.inner_norm = config.flag("inner_norm", false);
  model.patch_size = config.integer("patch_size", 16, 1, 256);
  spec.kv_format = choice<Format, 3>(
      config, "kv_cache_dtype", {{{"bfloat16", Format::bf16}, {"float16", Format::f16}, {"float32", Format::f32}}});
  config.only_text("hidden_act", "silu");
  return config.status();
}

constexpr WeightRule kReferenceGlobals[] = {
    {"patch_embed", "patch_embed"}, {"embed", "embed"}, {"final_norm", "final_norm"}, {"lm_head", "lm_head"}};
constexpr WeightRule kReferenceParts[] = {{"attn_norm", "attn_norm"},
                                          {"q_proj", "q_proj"},
                                          {"k_proj", "k_proj"},
                                          {"v_proj", "v_proj"},
                                          {"inner_norm", "inner_norm"},
                                          {"o_proj", "o_proj"},
                                          {"attn_post_norm", "attn_post_norm"},
                                          {"mlp_norm", "mlp_norm"},
                                          {"gate_proj", "gate_proj"},
                                          {"up_proj", "up_proj"},
                                          {"down_proj", "down_proj"},
                                          {"mlp_post_norm", "mlp_post_norm"}};

}  // namespace

extern const ModelFamily family_reference;
const ModelFamily family_reference{.name = "reference",
                                   .model_types = "nanscope_reference",
                                   .read = read_reference,
                                   .layers = "layers.",
                                   .base = "",
                                   .globals = kReferenceGlobals,
                                   .parts = kReferenceParts};

}  // namespace nanscope

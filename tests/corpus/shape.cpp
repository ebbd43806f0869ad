#include "tests/corpus/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace nanscope::corpus {
namespace {

struct PartNames {
  std::string_view part;
  std::string_view llama;  ///< Qwen and DeepSeek too
  std::string_view gpt2;
  std::string_view vit;
};

constexpr std::array kInLayer = {
    PartNames{"attn_norm", "input_layernorm", "ln_1", "norm1"},
    PartNames{"qkv", "self_attn.qkv_proj", "attn.c_attn", "attn.qkv"},
    PartNames{"q", "self_attn.q_proj", "", ""},
    PartNames{"k", "self_attn.k_proj", "", ""},
    PartNames{"v", "self_attn.v_proj", "", ""},
    PartNames{"attn", "self_attn.attn", "attn.core_attention", "attn.attn_fn"},
    PartNames{"o", "self_attn.o_proj", "attn.c_proj", "attn.proj"},
    PartNames{"mlp_norm", "post_attention_layernorm", "ln_2", "norm2"},
    PartNames{"router", "mlp.gate", "", ""},
    PartNames{"gate", "mlp.gate_proj", "", ""},
    PartNames{"up", "mlp.up_proj", "mlp.c_fc", "mlp.fc1"},
    PartNames{"act", "mlp.act_fn", "mlp.act", "mlp.act"},
    PartNames{"down", "mlp.down_proj", "mlp.c_proj", "mlp.fc2"},
    PartNames{"mlp", "mlp", "mlp", "mlp"},
};

constexpr std::array kOutside = {
    PartNames{"embed", "model.embed_tokens", "transformer.wte", "patch_embed"},
    PartNames{"final_norm", "model.norm", "transformer.ln_f", "norm"},
    PartNames{"lm_head", "lm_head", "lm_head", "head"},
};

std::string_view of_family(const PartNames& row, Family family) {
  if (family == Family::gpt2) return row.gpt2;
  return family == Family::vit ? row.vit : row.llama;
}

std::string layer_name(Family family, int layer) {
  if (family == Family::gpt2) return fmt::format("transformer.h.{}", layer);
  if (family == Family::vit) return fmt::format("blocks.{}", layer);
  return fmt::format("model.layers.{}", layer);
}

/// Prompts and depths differ from seed to seed, so that no length is special.
Shape varied(Shape shape, std::uint64_t seed) {
  shape.tokens += static_cast<int>(seed * 5 % 4);
  shape.layers += static_cast<int>(seed % 2);
  return shape;
}

constexpr Shape kLlama{Family::llama, 2, 64, 4, 2, 16, 128, 0, 0, 128, 12, Format::bf16};
constexpr Shape kQwen{Family::qwen, 3, 96, 6, 2, 16, 160, 0, 0, 160, 9, Format::f16};
constexpr Shape kGpt2{Family::gpt2, 2, 48, 3, 3, 16, 192, 0, 0, 96, 17, Format::f32};
constexpr Shape kDeepseek{Family::deepseek, 2, 64, 4, 4, 16, 48, 4, 2, 128, 11, Format::bf16};
constexpr Shape kVit{Family::vit, 3, 80, 5, 5, 16, 160, 0, 0, 100, 16, Format::f16};

}  // namespace

Shape decoder_shape(int index, std::uint64_t seed) {
  constexpr std::array kShapes = {kLlama, kQwen, kGpt2, kDeepseek};
  return varied(kShapes[static_cast<std::size_t>(index)], seed);
}

Shape any_shape(int index, std::uint64_t seed) {
  constexpr std::array kShapes = {kLlama, kVit, kGpt2, kDeepseek};
  return varied(kShapes[static_cast<std::size_t>(index)], seed);
}

Shape expert_shape(int index, std::uint64_t seed) {
  Shape shape = kDeepseek;
  shape.experts = std::array{4, 8, 16, 6}[static_cast<std::size_t>(index)];
  shape.top_k = std::array{2, 2, 4, 1}[static_cast<std::size_t>(index)];
  shape.width = std::array{64, 48, 80, 96}[static_cast<std::size_t>(index)];
  shape.inner = 32;
  shape.dtype = std::array{Format::bf16, Format::f16, Format::bf16, Format::f32}[static_cast<std::size_t>(index)];
  return varied(shape, seed);
}

std::string module_name(const Shape& shape, std::string_view part, int layer) {
  if (part == "layer") return layer_name(shape.family, layer);
  if (part.starts_with("expert")) {
    const std::size_t dot = part.find('.');
    const std::string inner = module_name(shape, part.substr(dot + 1), layer);
    const std::string mlp = module_name(shape, "mlp", layer);
    return fmt::format("{}.experts.{}{}", mlp, part.substr(6, dot - 6), inner.substr(mlp.size()));
  }
  const auto named = [part](const PartNames& row) { return row.part == part; };
  if (const auto row = std::find_if(kOutside.begin(), kOutside.end(), named); row != kOutside.end()) {
    return std::string(of_family(*row, shape.family));
  }
  const auto row = std::find_if(kInLayer.begin(), kInLayer.end(), named);
  if (row == kInLayer.end()) std::abort();
  return fmt::format("{}.{}", layer_name(shape.family, layer), of_family(*row, shape.family));
}

}  // namespace nanscope::corpus

#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/numbers/format.h"

/// The models of the corpus, and what their modules are called.
namespace nanscope::corpus {

/// How a family names its modules, and what it computes: norm, rotary, gate, fused projections, experts.
enum class Family : std::uint8_t { llama, qwen, gpt2, deepseek, vit };

struct Shape {
  Family family = Family::llama;
  int layers = 2;
  int width = 64;
  int heads = 4;
  int kv_heads = 2;
  int head_width = 16;
  int inner = 128;  ///< of the MLP
  int experts = 0;
  int top_k = 0;
  int vocabulary = 128;
  int tokens = 12;  ///< of a prompt
  Format dtype = Format::bf16;

  int kv_width() const { return kv_heads * head_width; }
  int q_width() const { return heads * head_width; }
  bool fused_qkv() const { return family == Family::gpt2 || family == Family::vit || family == Family::qwen; }
  bool gated() const { return family != Family::gpt2 && family != Family::vit; }
  bool layer_norm() const { return !gated(); }
  bool rotary() const { return gated(); }
};

/// Shape `index` of four for a seed: tokens and layers vary with it. Decoders alone.
Shape decoder_shape(int index, std::uint64_t seed);
/// The same with a vision transformer in the place of the second.
Shape any_shape(int index, std::uint64_t seed);
/// Shapes with experts alone: they differ in experts, chosen ones, width and dtype.
Shape expert_shape(int index, std::uint64_t seed);

/// The path of a module by the family's names; `part` is ours: embed layer attn_norm qkv q k v attn o mlp_norm
/// router gate up act down mlp final_norm lm_head, `expert3.up`.
std::string module_name(const Shape& shape, std::string_view part, int layer);

}  // namespace nanscope::corpus

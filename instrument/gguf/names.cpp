#include "instrument/gguf/names.h"

#include <algorithm>
#include <array>

namespace nanscope {
namespace {

struct Architecture {
  std::string_view name;
  std::string_view model_type;
};

constexpr std::array kArchitectures = {
    Architecture{"gemma2", "gemma2"},      Architecture{"gemma3", "gemma3_text"}, Architecture{"gpt2", "gpt2"},
    Architecture{"llama", "llama"},        Architecture{"olmo2", "olmo2"},        Architecture{"phi3", "phi3"},
    Architecture{"qwen2", "qwen2"},        Architecture{"qwen2moe", "qwen2_moe"}, Architecture{"qwen3", "qwen3"},
    Architecture{"qwen3moe", "qwen3_moe"},
};

constexpr std::string_view kAll;
constexpr std::string_view kGemma = "gemma2 gemma3_text";
constexpr std::string_view kNormsBehind = "gemma2 gemma3_text olmo2";
constexpr std::string_view kRotatesNeighbours = "llama mixtral";

/// A tensor without ".weight" or ".bias". The first `{}` is the layer, the second the expert.
struct NameRow {
  std::string_view theirs;
  std::string_view original;
  std::string_view model_types = kAll;  ///< with a space between them
  GgufChange change = GgufChange::none;
};

/// The first row that fits holds.
constexpr std::array kNames = {
    NameRow{"token_embd", "transformer.wte", "gpt2"},
    NameRow{"token_embd", "model.embed_tokens"},
    NameRow{"position_embd", "transformer.wpe", "gpt2"},
    NameRow{"output_norm", "transformer.ln_f", "gpt2"},
    NameRow{"output_norm", "model.norm", kGemma, GgufChange::plus_one},
    NameRow{"output_norm", "model.norm"},
    NameRow{"output", "lm_head"},
    NameRow{"blk.{}.attn_norm", "transformer.h.{}.ln_1", "gpt2"},
    NameRow{"blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", "gpt2", GgufChange::turned},
    NameRow{"blk.{}.attn_output", "transformer.h.{}.attn.c_proj", "gpt2", GgufChange::turned},
    NameRow{"blk.{}.ffn_norm", "transformer.h.{}.ln_2", "gpt2"},
    NameRow{"blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", "gpt2", GgufChange::turned},
    NameRow{"blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", "gpt2", GgufChange::turned},
    NameRow{"blk.{}.attn_norm", "model.layers.{}.input_layernorm", kGemma, GgufChange::plus_one},
    NameRow{"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    NameRow{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", kRotatesNeighbours, GgufChange::heads},
    NameRow{"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", kRotatesNeighbours, GgufChange::kv_heads},
    NameRow{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
    NameRow{"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
    NameRow{"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
    NameRow{"blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
    NameRow{"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    NameRow{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", kGemma, GgufChange::plus_one},
    NameRow{"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", kGemma, GgufChange::plus_one},
    NameRow{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    NameRow{"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
    NameRow{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm", kGemma, GgufChange::plus_one},
    NameRow{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm", kNormsBehind},
    NameRow{"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm", kGemma, GgufChange::plus_one},
    NameRow{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    NameRow{"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm", kGemma, GgufChange::plus_one},
    NameRow{"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm", kNormsBehind},
    NameRow{"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj", "phi3"},
    NameRow{"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    NameRow{"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    NameRow{"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
    NameRow{"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate", "mixtral"},
    NameRow{"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1", "mixtral", GgufChange::stacked},
    NameRow{"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3", "mixtral", GgufChange::stacked},
    NameRow{"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2", "mixtral", GgufChange::stacked},
    NameRow{"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"},
    NameRow{"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj", kAll, GgufChange::stacked},
    NameRow{"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj", kAll, GgufChange::stacked},
    NameRow{"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj", kAll, GgufChange::stacked},
    NameRow{"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
    NameRow{"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
    NameRow{"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"},
    NameRow{"blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate", kAll, GgufChange::flat},
};

constexpr std::string_view kHole = "{}";

bool is_listed(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::string_view first = words.substr(0, words.find(' '));
    if (first == word) return true;
    words.remove_prefix(std::min(words.size(), first.size() + 1));
  }
  return false;
}

/// "blk.3.attn_q" -> "blk.{}.attn_q" and "3".
std::string without_layer(std::string_view stem, std::string& layer) {
  constexpr std::string_view kBlock = "blk.";
  const std::size_t end = stem.find('.', kBlock.size());
  if (!stem.starts_with(kBlock) || end == std::string_view::npos) return std::string(stem);
  layer = stem.substr(kBlock.size(), end - kBlock.size());
  return std::string(kBlock) + std::string(kHole) + std::string(stem.substr(end));
}

}  // namespace

GgufName original_name(std::string_view tensor, std::string_view model_type) {
  GgufName known{std::string(tensor)};
  if (model_type.empty()) return known;
  const std::size_t dot = tensor.rfind('.');
  const std::string_view suffix = dot == std::string_view::npos ? std::string_view() : tensor.substr(dot);
  std::string layer;
  const std::string key = without_layer(tensor.substr(0, dot), layer);
  const auto row = std::find_if(kNames.begin(), kNames.end(), [&](const NameRow& one) {
    return one.theirs == key && (one.model_types.empty() || is_listed(one.model_types, model_type));
  });
  if (row == kNames.end() || (suffix != ".weight" && suffix != ".bias")) return known;
  known.name = row->original;
  if (const std::size_t hole = known.name.find(kHole); hole != std::string::npos)
    known.name.replace(hole, kHole.size(), layer);
  known.name += suffix;
  known.change = row->change;
  return known;
}

std::string_view model_type_of(std::string_view architecture, std::int64_t experts) {
  if (architecture == "llama" && experts > 0) return "mixtral";
  const auto found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                  [&](const Architecture& one) { return one.name == architecture; });
  return found == kArchitectures.end() ? std::string_view() : found->model_type;
}

std::string known_architectures() {
  std::string all;
  for (const Architecture& one : kArchitectures) all.append(all.empty() ? "" : ", ").append(one.name);
  return all;
}

}  // namespace nanscope

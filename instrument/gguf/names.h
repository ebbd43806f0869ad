#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// What llama.cpp calls the tensors of Hugging Face's checkpoints, and what its converter does to them
/// (convert_hf_to_gguf.py).
namespace nanscope {

enum class GgufChange : std::uint8_t {
  none,
  heads,     ///< rows of each query head in pairs, as llama.cpp rotates neighbours: 0, half, 1, half + 1 ...
  kv_heads,  ///< the same of key heads
  plus_one,  ///< 1 was added: gains of 1 + w
  turned,    ///< (in, out) became (out, in)
  stacked,   ///< the tensors of all experts became one
  flat,      ///< a matrix of one row became a vector
};

/// What a tensor was before it was converted.
struct GgufName {
  /// "model.layers.0.self_attn.q_proj.weight"; of stacked ones with `{}` for the expert. As given where it is not
  /// known.
  std::string name;
  GgufChange change = GgufChange::none;
};

/// `model_type`: as config.json has it, such as "llama"; empty: not known.
GgufName original_name(std::string_view tensor, std::string_view model_type);

/// "llama" -> "llama", "qwen3moe" -> "qwen3_moe"; `experts`: of each layer, since a llama with experts is a Mixtral.
/// Empty: of no family that is known.
std::string_view model_type_of(std::string_view architecture, std::int64_t experts);

/// "gemma2, gemma3, ...": the architectures that are known.
std::string known_architectures();

}  // namespace nanscope

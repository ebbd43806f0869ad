#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// What the name of a dumped tensor says: where in the run it was taken, and which part of a transformer it
/// is. Written for the names that PyTorch modules have in the Llama, Qwen, Mistral, GPT-2, DeepSeek and ViT
/// families, with `.input` and `.output` as forward hooks add them, and for llama.cpp's.
namespace nanscope {

/// Which side of its module a tensor is.
enum class Port : std::uint8_t {
  input,
  output,
  state,  ///< neither: weights, scales, caches, masks, ids
};

/// What a module computes, as far as a diagnosis can do it again.
enum class ModuleKind : std::uint8_t {
  unknown,
  embedding,
  norm,
  linear,
  rotary,
  attention,  ///< of q, k and v
  softmax,
  activation,
  router,
  block,  ///< holds other modules: a layer, an MLP, an attention with its projections
  residual,
  sampler,
};

struct TensorName {
  std::string run;  ///< what the folders say besides numbers: "a", "good/server"; tells runs apart
  std::optional<std::int64_t> request;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> rank;
  std::string tower;  ///< "vision", "audio" or "mtp" (multi-token prediction); empty for the language model
  std::optional<std::int64_t> layer;
  std::optional<std::int64_t> expert;
  std::string module;  ///< dotted path without the port: "model.layers.3.self_attn.k_proj"
  std::string op;      ///< attn_norm, k_proj, attention, router, lm_head ...; of unknown modules their last part
  std::string role;    ///< q k v k_cache v_scale scores probs attn_out resid norm_out logits weight ...; `x` and
                       ///< `out` where a module's input and output have no name of their own; the key's last part else
  ModuleKind kind = ModuleKind::unknown;
  Port port = Port::output;
  int index = 0;       ///< of several inputs or outputs
  int order = 0;       ///< place before, within or after the layers, see name_table.h
  bool known = false;  ///< the name is in the table; else it is scanned and said to be unknown

  /// Which forward pass it is of: equal for all tensors of one.
  std::string pass() const;
};

/// `name` is the path below the dump and the key in the file, joined by '/'. Folders such as step_3,
/// iter_0, rank1, request_2 say where; others tell runs apart. Never fails: what it does not know is
/// left out.
TensorName parse_tensor_name(std::string_view name);

/// Numbers in the texts compare as numbers, prefill comes before decode: "step_2" before "step_10".
bool natural_less(std::string_view a, std::string_view b);

}  // namespace nanscope

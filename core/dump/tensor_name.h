#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/run/op_kind.h"

/// What the name of a dumped tensor says: where in the run it was taken, which part of a transformer it is, and in
/// which form. A grammar, not a list: folders and words say where; a path of modules, a side or a known tensor says
/// what; words before or after it say in which form. Names are those of PyTorch modules in the usual families with
/// `.input` and `.output` as forward hooks add them, of llama.cpp, and home-made ones of the same words.
namespace nanscope {

/// Which side of its module a tensor is.
enum class Port : std::uint8_t {
  input,
  output,
  state,  ///< neither: weights, caches, masks, ids
};

/// In which form a tensor is dumped.
enum class Form : std::uint8_t {
  value,
  codes,         ///< of 8 bits or fewer
  dequantised,   ///< what was read back of the codes
  raw,           ///< before it was scaled, masked or cast
  scale,         ///< of the codes
  second_scale,  ///< of the scales
  zero_point,
  amax,
  amax_history,
  masked,   ///< scores behind their mask
  partial,  ///< one rank's part of a sum
};

struct TensorName {
  std::string run;  ///< what the folders say besides numbers: "a", "good/server"; tells runs apart
  std::optional<std::int64_t> request;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> rank;
  bool warm_up = false;  ///< of a pass whose answer nobody gets
  /// "vision", "audio", "mtp" (multi-token prediction), "encoder" of a model that has a decoder, "cross" (attention
  /// from the decoder to the encoder); empty for the language model.
  std::string tower;
  std::optional<std::int64_t> layer;
  std::optional<std::int64_t> expert;
  std::optional<std::int64_t> sequence;  ///< of several in the pass that the tensor is of
  std::string module;                    ///< dotted path without the side: "model.layers.3.self_attn.k_proj"
  std::string op;    ///< attn_norm, k_proj, attention, router, lm_head ...; of unknown modules their last part
  std::string role;  ///< q k v k_cache scores probs attn_out resid norm_out logits weight ...; `x` and `out` where a
                     ///< module's input and output have no name of their own; the key's last part else
  OpKind kind = OpKind::dumped;
  Port port = Port::output;
  Form form = Form::value;
  int index = 0;       ///< of several inputs or outputs
  int order = 0;       ///< place before, within or after the layers, see name_table.h
  bool known = false;  ///< the grammar has it; else it is scanned, placed by its content, and said to be unknown

  /// Which forward pass it is of: equal for all tensors of one.
  std::string pass() const;
};

/// `name` is the path below the dump and the key in the file, joined by '/'. Folders such as step_3, iter_0, rank1,
/// request_2 say where; others tell runs apart. Never fails: what it does not know is left out.
TensorName parse_tensor_name(std::string_view name);

/// Role and form as a user states them: "k_cache", "k_scale", "weight_scale". False for what the grammar does not have.
bool state_role(TensorName& name, std::string_view role);
/// What the scale of a tensor of this name is.
TensorName scale_of(const TensorName& name);

}  // namespace nanscope

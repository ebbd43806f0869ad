#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "instrument/model/config_reader.h"
#include "instrument/model/model_spec.h"

namespace nanscope {

/// The part of a stored tensor that a weight is: rows of a fused projection, in the order of their names, or in turns;
/// or of each key head its queries, its keys and its values (GPT-NeoX, Falcon). Of a delta net the same two orders,
/// with its own heads and with z, b and a; of attention with a gate each head's query before its gate.
enum class WeightPart : std::uint8_t {
  whole,
  q,
  k,
  v,
  q_of_heads,
  k_of_heads,
  v_of_heads,
  gate,
  up,
  gate_in_turns,
  up_in_turns,
  delta_q,
  delta_k,
  delta_v,
  delta_q_of_heads,
  delta_k_of_heads,
  delta_v_of_heads,
  delta_z_of_heads,
  delta_b_of_heads,
  delta_a_of_heads,
  query_before_gate,
  gate_behind_query
};

/// What a checkpoint calls one of our weights (docs/weights.md), both without ".weight" or ".bias" and without what
/// stands before a layer's parts. `{}` is the number of an expert. Of several rules of one weight the first whose
/// tensor is there holds.
struct WeightRule {
  std::string_view ours;
  std::string_view theirs;
  WeightPart part = WeightPart::whole;
  bool transposed = false;  ///< stored as (in, out), as GPT-2's Conv1D does; codes in blocks along `in` are not
  /// Of all experts in one tensor, experts x rows x columns, whose name has no ".weight"; that of biases ends in
  /// "_bias".
  bool stacked = false;
  /// Taps of a convolution of each channel by itself: stored as (channels, 1, taps), ours are taps x channels.
  bool taps = false;
  float offset = 0;  ///< added to what is stored, biases apart: 1 for Gemma's norms
};

/// A family of checkpoints: how its config.json is read, and what its weights are called. One file of families/ and one
/// line of families.def each.
struct ModelFamily {
  std::string_view name;
  /// Values of model_type, with a space between them.
  std::string_view model_types;
  Status (*read)(ConfigReader& config, ModelSpec& spec);
  /// Before the number of a layer, as in "model.layers.".
  std::string_view layers;
  /// Of names; files that were saved without the head leave it out.
  std::string_view base;
  /// Weights outside of layers, then those of a layer.
  std::span<const WeightRule> globals, parts;
  bool sine_first = false;  ///< its modules hand on the sines of rotary angles before their cosines
};

/// All of them, in the order of families.def.
std::span<const ModelFamily* const> model_families();

/// Null when there is none of that name.
const ModelFamily* find_family(std::string_view name);

/// Null when no family has this model_type.
const ModelFamily* family_of_type(std::string_view model_type);

/// "|gpt2|llama|...": the values of the knob model.family.
std::string model_family_names();

}  // namespace nanscope

#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// The scaling state that a TransformerEngine module puts into a checkpoint as `_extra_state`: a pickle in a tensor of
/// bytes (transformer_engine/pytorch/module/base.py, get_extra_state), of which nothing is run here.
struct ExtraState {
  std::string lacks;          ///< why there are no scales in it: "is of zero length"; empty where there are
  std::string recipe;         ///< class of the recipe: "DelayedScaling"; empty: it does not say
  std::int64_t history = 0;   ///< steps of amax
  std::vector<float> scale;   ///< of the forward products' input, weight and output, by product; x * scale is stored
  std::vector<float> amax;    ///< the largest of the history, of each
  std::size_t backwards = 0;  ///< scales of gradients

  /// Whether a step was counted: a state that was made and not used has a history of zeros.
  bool used() const;
};

/// `where` names the tensor in errors. Errors: no pickle, one that names what no state needs (it would be run by who
/// loads it), tensors that reach beyond their storage.
Result<ExtraState> read_extra_state(std::span<const std::byte> bytes, const std::string& where);

}  // namespace nanscope

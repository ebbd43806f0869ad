#pragma once
#include <span>
#include <string_view>

#include "core/dump/tensor_name.h"

/// The patterns behind parse_tensor_name(). Internal.
namespace nanscope {

/// Names without a layer of their own; what stands in a layer lies between the two.
inline constexpr int kBeforeLayers = -1000;
inline constexpr int kAfterLayers = 1000;

/// A module known by the end of its path. `tails` are alternatives separated by spaces, the segments of
/// one by dots; a tail that begins with '^' must be the whole path within its layer.
struct ModulePattern {
  std::string_view tails;
  std::string_view op;
  OpKind kind;
  int order;
  std::string_view role_in;
  std::string_view role_out;
  int order_in = 0;  ///< of its input, for blocks, whose parts lie between; 0: right before the output
};

/// A tensor that is neither input nor output of its module, by the last segment of its key.
struct StatePattern {
  std::string_view names;
  std::string_view role;
  int order;                     ///< 0: that of its module
  Port port;                     ///< what it is after all, when it has a side
  OpKind kind = OpKind::dumped;  ///< of what made it, when it is an output
};

/// What a hook point of TransformerLens is in a path, "up_proj.output" of "hook_pre"; any other word as it is.
std::string_view path_of_hook(std::string_view word);
std::span<const ModulePattern> layer_modules();
std::span<const ModulePattern> outer_modules();
std::span<const StatePattern> state_tensors();
/// Of names without a layer, before the others.
std::span<const StatePattern> outer_state_tensors();

}  // namespace nanscope

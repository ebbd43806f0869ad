#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/blocks/block_format.h"

namespace nanscope {

/// What a checkpoint can be quantized to, and how its tensors and its config are written for whom.
struct QuantizeTarget {
  std::string_view to;      ///< "fp8-block"
  std::string_view layout;  ///< whose names and config: "transformers", "vllm", "compressed-tensors", "modelopt"
  BlockFormat format;
  bool whole = false;         ///< one scale for the weight; `format.block` is not used
  bool shared = false;        ///< what servers run as one weight shares the scale of the whole
  bool grid_of_four = false;  ///< scales are of shape [rows,1,columns,1]
  std::string_view codes, codes_dtype;
  std::string_view scale, scale_dtype;
  std::string_view second;    ///< f32; empty: none
  std::string_view input;     ///< f32: the fixed scale of what a product reads, where that is known; empty: none
  float input_range = 0;      ///< the largest value that it lets through without a scale: 448, or 448 x 6 of blocks
  bool needs_inputs = false;  ///< its loaders do not take it without
  /// quantization_config; `ignored` are the modules that stay floats; `inputs`: what products read is quantized by a
  /// fixed scale.
  nlohmann::ordered_json (*config)(const QuantizeTarget& target, const std::vector<std::string>& ignored, bool inputs);

  /// Of inputs that are up to `amax` large; 1 where nothing is read.
  float input_scale(float amax) const;

  std::int64_t codes_a_byte() const { return format.packing == Packing::low_first ? 2 : 1; }
};

/// All of them; of several layouts for the same format the first is the usual one.
std::span<const QuantizeTarget> quantize_targets();

/// Null where there is none; an empty layout means the usual one.
const QuantizeTarget* find_quantize_target(std::string_view to, std::string_view layout);

}  // namespace nanscope

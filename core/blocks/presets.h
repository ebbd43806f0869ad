#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/blocks/block_format.h"

namespace nanscope {

/// A block format as somebody writes it.
struct BlockPreset {
  std::string_view name;
  std::string_view producer;   ///< the program and version that it was compared with, or the document that defines it
  std::string_view deviation;  ///< from the OCP MX specification or from NVIDIA's NVFP4, in one sentence; empty: none
  BlockFormat format;
};

/// In the order of presets.def: specifications first.
std::span<const BlockPreset> block_presets();
/// By its name, in lower case; null when there is none.
const BlockPreset* find_block_preset(std::string_view name);

/// "1 x 32 e2m1 under e8m0", "128 x 128 e4m3 under f32".
std::string block_summary(const BlockFormat& format);
std::string_view name(ScaleRule rule);
std::string_view name(Ties ties);

}  // namespace nanscope

#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace nanscope {

/// What `nanscope bits --block` shows: one block on its way through a format.
struct BlockReportOptions {
  std::string preset;               ///< of core/blocks/presets.def
  std::vector<std::string> values;  ///< the block's elements: "0.1", "-3", "nan", "-inf", "0x1.8p3"
  std::optional<double> second;     ///< the scale of the tensor; absent: as these values alone would set it
  bool ascii = false;               ///< no character beyond ASCII
};

/// A line a preset: its name, what it is made of, who writes it and where it departs from the specification.
std::string block_list();

/// Text for a terminal of 100 columns, ending in a newline. Errors name the value or the preset, and what is accepted.
Result<std::string> block_text(const BlockReportOptions& options);
/// The same as JSON ("schema": "nanscope.bits.block/1"), ending in a newline. NaN and Inf are null.
Result<std::string> block_json(const BlockReportOptions& options);

}  // namespace nanscope

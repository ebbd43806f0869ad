#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/dump/quantized.h"

/// Codes of an 8-bit format that stand at its largest finite value: by design, or because values were cut off.
namespace nanscope {

struct Clipping {
  bool clipped = false;        ///< more than any way of scaling by the largest value puts there
  bool proven = false;         ///< the values before the cast and the scale were dumped, and say so
  std::int64_t saturated = 0;  ///< codes at the largest finite value, of rows that the pass wrote
  std::int64_t count = 0;
  std::vector<std::int64_t> rows;  ///< that hold cut off values, when clipped
  double share() const { return count > 0 ? static_cast<double>(saturated) / static_cast<double>(count) : 0; }
};

/// Whether a tensor holds codes of fp8 or int8 that a cast made: caches and quantized activations.
bool holds_codes(const DumpTensor& tensor);
/// By the values before the cast where they and the scale were dumped. Else by the codes alone: scales by the largest
/// value put one code a tensor, row, channel or block there, and those that round to it; what was cut off piles up.
/// Nothing when the codes cannot be read.
std::optional<Clipping> clipping_of(DumpFacts& facts, const Quantized& quantized);

}  // namespace nanscope

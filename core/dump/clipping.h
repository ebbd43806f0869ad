#pragma once
#include <cstdint>
#include <optional>

#include "core/dump/facts.h"

/// Codes of an 8-bit format that stand at its largest finite value: by design, or because values were cut off.
namespace nanscope {

/// Why so many codes are at the largest finite value.
enum class Saturating : std::uint8_t {
  no,           ///< hardly any is
  per_tensor,   ///< the few that a scale by absmax puts there
  per_row,      ///< one a row: a scale a token
  per_channel,  ///< one a channel
  per_block,    ///< one a block of 16 to 128
  clipped,      ///< more than any way of scaling by absmax puts there
};

struct Clipping {
  Saturating kind = Saturating::no;
  std::int64_t saturated = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> rows;  ///< that hold them, when clipped
  double share() const { return count > 0 ? static_cast<double>(saturated) / static_cast<double>(count) : 0; }
};

/// Whether a tensor holds codes of fp8 or int8 that a cast made: caches and quantized activations.
bool holds_codes(const DumpTensor& tensor);
/// Of a tensor that holds codes. Nothing when its codes cannot be read.
std::optional<Clipping> clipping_of(DumpFacts& facts, TensorIndex codes);

}  // namespace nanscope

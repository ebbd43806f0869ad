#pragma once
#include <cstdint>
#include <span>

#include "instrument/quantize/quantize.h"

namespace nanscope {

/// Adds what the elements of a band were stored as to what is known of their weight.
void add_loss(std::span<const float> values, std::span<const float> stored, QuantizedWeight& to);

/// What is known of a row of blocks beside each other: elements beyond the largest value under their scale (`limits`,
/// one a block), and blocks that one element owns. `values` is (rows, columns).
void add_blocks(std::span<const float> values, std::int64_t columns, std::int64_t block_columns,
                std::span<const float> limits, QuantizedWeight& to);

}  // namespace nanscope

#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/numbers/bits_input.h"

/// Values that one format stores under one scale.
namespace nanscope::bits {

struct StoredValue {
  std::string typed;
  Input input;
  Rounding rounding;  ///< for a code: of its value
};

/// How many values differ, before and after: as f32 bits of the real values, and as codes.
struct Distinct {
  std::size_t given = 0;
  std::size_t stored = 0;
};

/// Casts each value. Errors name the value, or the missing format.
Result<std::vector<StoredValue>> store_values(const BitsOptions& options, std::span<const std::string> values);

Distinct count_distinct(std::span<const StoredValue> values, double scale);

}  // namespace nanscope::bits

#pragma once
#include <cstdint>
#include <optional>

#include "core/numbers/format.h"
#include "core/run/tensor_source.h"

namespace nanscope {

/// How two codes of one format differ.
enum class Relation : std::uint8_t {
  same_bits,
  both_nan,          ///< NaNs of different payload or sign
  nan_against,       ///< one is a NaN, the other is not
  infinity_against,  ///< one is infinite, the other is not or has the other sign
  signed_zero,       ///< +0 against -0
  finite,            ///< two finite values
};

struct ElementDifference {
  std::int64_t index = 0;  ///< row-major
  std::uint32_t code_a = 0;
  std::uint32_t code_b = 0;
  float value_a = 0;
  float value_b = 0;
  Relation relation = Relation::finite;
  std::optional<std::uint64_t> ulps;  ///< steps between the two among the format's finite codes
};

struct TensorComparison {
  bool comparable = false;  ///< same format, shape and size
  std::uint64_t compared = 0;
  std::uint64_t differing = 0;  ///< elements with different bits
  std::uint64_t max_ulps = 0;   ///< over the pairs of finite values
  std::optional<ElementDifference> first;
};

Relation relation(Format format, std::uint32_t a, std::uint32_t b);
/// Distance in representable values; nothing unless both are finite. +0 and -0 are 0 apart.
std::optional<std::uint64_t> ulp_distance(Format format, std::uint32_t a, std::uint32_t b);
/// Bits first: equal bits are equal whatever they mean, so a NaN equals itself and never a number.
/// Tensors of different format, shape or byte count are not comparable; two empty ones are equal.
TensorComparison compare(const TensorData& a, const TensorData& b);

}  // namespace nanscope

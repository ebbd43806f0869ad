#include "instrument/diagnosis/compare.h"

#include <algorithm>
#include <cmath>

#include "core/numbers/codec.h"

namespace nanscope {
namespace {

/// The code's place on the line of the format's values; both zeros are 0.
std::int64_t rank(const FormatInfo& format, std::uint32_t code) {
  if (format.exponent_bits == 0) {
    return format.bits == 32 ? static_cast<std::int32_t>(code) : static_cast<std::int8_t>(code & 0xffU);
  }
  if (!format.has_sign) return static_cast<std::int64_t>(code);
  const std::uint32_t sign = 1U << (format.bits - 1);
  const auto magnitude = static_cast<std::int64_t>(code & (sign - 1));
  return (code & sign) != 0 ? -magnitude : magnitude;
}

ElementDifference describe(const TensorData& a, const TensorData& b, std::int64_t index) {
  ElementDifference difference;
  difference.index = index;
  difference.code_a = a.code(index);
  difference.code_b = b.code(index);
  difference.value_a = a.value(index);
  difference.value_b = b.value(index);
  difference.relation = relation(a.format, difference.code_a, difference.code_b);
  difference.ulps = ulp_distance(a.format, difference.code_a, difference.code_b);
  return difference;
}

bool whole(const TensorData& data) {
  return data.tokens >= 0 && data.channels >= 0 &&
         data.bytes.size() == static_cast<std::size_t>(data.count()) * info(data.format).storage_bytes();
}

}  // namespace

Relation relation(Format format, std::uint32_t a, std::uint32_t b) {
  if (a == b) return Relation::same_bits;
  const float value_a = decode(format, a);
  const float value_b = decode(format, b);
  if (std::isnan(value_a) || std::isnan(value_b)) {
    return std::isnan(value_a) && std::isnan(value_b) ? Relation::both_nan : Relation::nan_against;
  }
  if (std::isinf(value_a) || std::isinf(value_b)) return Relation::infinity_against;
  return value_a == 0 && value_b == 0 ? Relation::signed_zero : Relation::finite;
}

std::optional<std::uint64_t> ulp_distance(Format format, std::uint32_t a, std::uint32_t b) {
  if (!std::isfinite(decode(format, a)) || !std::isfinite(decode(format, b))) return std::nullopt;
  const FormatInfo& row = info(format);
  const std::int64_t difference = rank(row, a) - rank(row, b);
  return static_cast<std::uint64_t>(difference < 0 ? -difference : difference);
}

TensorComparison compare(const TensorData& a, const TensorData& b) {
  TensorComparison result;
  if (a.format != b.format || a.tokens != b.tokens || a.channels != b.channels || !whole(a) || !whole(b)) return result;
  result.comparable = true;
  result.compared = static_cast<std::uint64_t>(a.count());
  if (a.bytes == b.bytes) return result;
  for (std::int64_t i = 0; i < a.count(); ++i) {
    if (a.code(i) == b.code(i)) continue;
    ++result.differing;
    const std::optional<std::uint64_t> ulps = ulp_distance(a.format, a.code(i), b.code(i));
    if (ulps) result.max_ulps = std::max(result.max_ulps, *ulps);
    if (!result.first) result.first = describe(a, b, i);
  }
  return result;
}

}  // namespace nanscope

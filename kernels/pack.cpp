#include "kernels/pack.h"

#include <fmt/format.h>

#include <cstring>

#include "core/numbers/codec.h"

namespace nanscope::kernels {
namespace {

float load_element(const TensorView& view, std::int64_t row, std::int64_t column) {
  const auto bytes = static_cast<std::size_t>(storage_size(view.format));
  const auto* from =
      static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(row * view.stride + column) * bytes;
  if (view.format == Format::f32) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  std::uint32_t code = 0;
  std::memcpy(&code, from, bytes);  // little-endian, as every machine that lane code is built for
  return decode(view.format, code);
}

}  // namespace

Status pack_weight(const TensorView& weight, std::span<float> panels) {
  const std::int64_t wanted = packed_floats(weight.rows, weight.columns);
  if (static_cast<std::int64_t>(panels.size()) != wanted) {
    return fail(fmt::format("pack_weight: {} floats for a weight of ({}, {}), expected {}", panels.size(), weight.rows,
                            weight.columns, wanted));
  }
  for (std::int64_t n = 0; n < (weight.rows + 31) / 32 * 32; ++n) {
    float* panel = panels.data() + n / 32 * weight.columns * 32 + n % 32;
    for (std::int64_t k = 0; k < weight.columns; ++k) {
      panel[k * 32] = n < weight.rows ? load_element(weight, n, k) : 0.0F;
    }
  }
  return {};
}

}  // namespace nanscope::kernels

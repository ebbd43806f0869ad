#pragma once
/// The operands and outputs of a product on a GPU: f32, f16 or bf16, element by element or four side by side.
#include "kernels/ops/op_helpers.h"

namespace nanscope::kernels::NANSCOPE_ISA {

NANSCOPE_HOST std::int64_t float_bytes(Format format) { return format == Format::f32 ? 4 : 2; }

/// One value of f32, f16 or bf16.
NANSCOPE_FN float load_float(const TensorView& view, std::int64_t row, std::int64_t column) {
  switch (view.format) {
    case Format::f16:
      return decode_f16(load_scalar(element_ptr<const std::uint16_t>(view, row, column)));
    case Format::bf16:
      return decode_bf16(load_scalar(element_ptr<const std::uint16_t>(view, row, column)));
    default:
      return load_scalar(element_ptr<const float>(view, row, column));
  }
}

/// Whether quads of a row that begin at multiples of four lie in memory as they are read.
NANSCOPE_HOST bool has_quads(const TensorView& view) {
  return view.stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(view.data) % (4 * float_bytes(view.format)) == 0;
}
NANSCOPE_HOST const char* address_of(const TensorView& view, std::int64_t row, std::int64_t column) {
  return static_cast<const char*>(view.data) + (row * view.stride + column) * float_bytes(view.format);
}

NANSCOPE_FN float4 decode_quad(Format format, const float4& quad) {
  const U32 first = raw_bits(quad.x);
  const U32 second = raw_bits(quad.y);
  if (format == Format::f16) {
    return make_float4(decode_f16(first & 0xffffU), decode_f16(first >> 16), decode_f16(second & 0xffffU),
                       decode_f16(second >> 16));
  }
  return make_float4(decode_bf16(first & 0xffffU), decode_bf16(first >> 16), decode_bf16(second & 0xffffU),
                     decode_bf16(second >> 16));
}

/// The code of f16 or bf16.
NANSCOPE_CALLED U32 half_code(bool is_half, float value) {
  return is_half ? encode_bits<Format::f16>(raw_bits(value), Overflow::overflow)
                 : encode_bits<Format::bf16>(raw_bits(value), Overflow::overflow);
}

/// Rounds to the view's format, which is f32, f16 or bf16.
NANSCOPE_FN void store_element(const TensorView& out, std::int64_t row, std::int64_t column, float value) {
  if (out.format == Format::f32) {
    *element_ptr<float>(out, row, column) = canonical(value);
  } else {
    *element_ptr<std::uint16_t>(out, row, column) =
        static_cast<std::uint16_t>(half_code(out.format == Format::f16, value));
  }
}

}  // namespace nanscope::kernels::NANSCOPE_ISA

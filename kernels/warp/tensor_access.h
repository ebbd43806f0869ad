#pragma once
/// Rows of a TensorView as lanes: lane i is element (row, column + i). Loads decode any format to
/// f32; stores round to the view's format. The format is uniform, so it is a branch, not a select.
#include "core/numbers/codec.h"
#include "kernels/tensor_view.h"
#include "kernels/warp/warp.h"

namespace nanscope::kernels::NANSCOPE_ISA {

/// Address of an element; T must have the format's storage size.
template <class T>
NANSCOPE_FN T* element_ptr(const TensorView& view, std::int64_t row, std::int64_t column) {
  return static_cast<T*>(view.data) + (row * view.stride + column);
}

/// binary16 codes to f32, exactly: the exponent is moved by a multiplication, which also normalises.
NANSCOPE_FN F32 decode_f16(const U32& code) {
  const U32 magnitude = code & U32(0x7fffU);
  const F32 finite = from_bits(magnitude << 13) * splat_f32(0x1p112F);
  const U32 special = select(magnitude > U32(0x7c00U), U32(kCanonicalNan), U32(0x7f800000U));
  const U32 value = select(magnitude >= U32(0x7c00U), special, raw_bits(finite));
  return from_bits(select(magnitude > U32(0x7c00U), value, value | ((code & U32(0x8000U)) << 16)));
}

/// bfloat16 codes to f32, exactly; NaN becomes canonical.
NANSCOPE_FN F32 decode_bf16(const U32& code) { return canonical(from_bits(code << 16)); }

/// The formats that are no arithmetic type. A call, so that every load does not carry nine decoders.
NANSCOPE_CALLED F32 decode_code_formats(Format format, const U32& code) {
  switch (format) {
    case Format::e4m3:
      return from_bits(decode_bits<Format::e4m3>(code));
    case Format::e5m2:
      return from_bits(decode_bits<Format::e5m2>(code));
    case Format::e4m3fnuz:
      return from_bits(decode_bits<Format::e4m3fnuz>(code));
    case Format::e5m2fnuz:
      return from_bits(decode_bits<Format::e5m2fnuz>(code));
    case Format::e3m2:
      return from_bits(decode_bits<Format::e3m2>(code));
    case Format::e2m3:
      return from_bits(decode_bits<Format::e2m3>(code));
    case Format::e2m1:
      return from_bits(decode_bits<Format::e2m1>(code));
    case Format::e8m0:
      return from_bits(decode_bits<Format::e8m0>(code));
    case Format::int8:
      return from_bits(decode_bits<Format::int8>(code));
    default:
      return to_f32(to_i32(code));  // i32
  }
}

/// Codes of any format to f32; the format's branch is uniform.
NANSCOPE_FN F32 decode_lanes(Format format, const U32& code) {
  switch (format) {
    case Format::f32:
      return canonical(from_bits(code));
    case Format::f16:
      return decode_f16(code);
    case Format::bf16:
      return decode_bf16(code);
    default:
      return decode_code_formats(format, code);
  }
}

/// f32 lanes to codes of any format; NaN and overflow by the rules of core/numbers/codec.h. A loop
/// over one tensor does better with encode_bits<Format>, the branch outside.
NANSCOPE_CALLED U32 encode_lanes(Format format, const F32& value, Overflow overflow) {
  const U32 raw = raw_bits(value);
  switch (format) {
    case Format::f32:
      return encode_bits<Format::f32>(raw, overflow);
    case Format::f16:
      return encode_bits<Format::f16>(raw, overflow);
    case Format::bf16:
      return encode_bits<Format::bf16>(raw, overflow);
    case Format::e4m3:
      return encode_bits<Format::e4m3>(raw, overflow);
    case Format::e5m2:
      return encode_bits<Format::e5m2>(raw, overflow);
    case Format::e4m3fnuz:
      return encode_bits<Format::e4m3fnuz>(raw, overflow);
    case Format::e5m2fnuz:
      return encode_bits<Format::e5m2fnuz>(raw, overflow);
    case Format::e3m2:
      return encode_bits<Format::e3m2>(raw, overflow);
    case Format::e2m3:
      return encode_bits<Format::e2m3>(raw, overflow);
    case Format::e2m1:
      return encode_bits<Format::e2m1>(raw, overflow);
    case Format::e8m0:
      return encode_bits<Format::e8m0>(raw, overflow);
    case Format::int8:
      return encode_bits<Format::int8>(raw, overflow);
    case Format::i32:
      return encode_bits<Format::i32>(raw, overflow);
  }
  return splat_u32(0);
}

/// Codes of lanes i < n; 0 beyond.
NANSCOPE_FN U32 load_code_range(const TensorView& view, std::int64_t row, std::int64_t column, std::int64_t n) {
  switch (storage_size(view.format)) {
    case 4:
      return load_u32(element_ptr<const std::uint32_t>(view, row, column), n);
    case 2:
      return load_u16(element_ptr<const std::uint16_t>(view, row, column), n);
    default:
      return load_u8(element_ptr<const std::uint8_t>(view, row, column), n);
  }
}

/// Stores the low bits of lanes i < n, unchanged.
NANSCOPE_FN void store_code_range(const TensorView& view, std::int64_t row, std::int64_t column, std::int64_t n,
                                  const U32& code) {
  switch (storage_size(view.format)) {
    case 4:
      return store_u32(element_ptr<std::uint32_t>(view, row, column), code, n);
    case 2:
      return store_u16(element_ptr<std::uint16_t>(view, row, column), code, n);
    default:
      return store_u8(element_ptr<std::uint8_t>(view, row, column), code, n);
  }
}

/// Values of lanes i < n; `fill` beyond.
NANSCOPE_FN F32 load_range(const TensorView& view, std::int64_t row, std::int64_t column, std::int64_t n, float fill) {
  if (view.format == Format::f32) return load_f32(element_ptr<const float>(view, row, column), n, fill);
  const F32 value = decode_lanes(view.format, load_code_range(view, row, column, n));
  if (n >= kLanes) return value;
  return select(lanes_below(n), value, splat_f32(fill));
}

/// Rounds lanes i < n to the view's format, which is f32, f16 or bf16: nearest even, beyond the
/// largest finite value Inf, NaN canonical. Other formats need an explicit cast.
NANSCOPE_FN void store_range(const TensorView& view, std::int64_t row, std::int64_t column, std::int64_t n,
                             const F32& value) {
  switch (view.format) {
    case Format::f16:
      return store_u16(element_ptr<std::uint16_t>(view, row, column),
                       encode_bits<Format::f16>(raw_bits(value), Overflow::overflow), n);
    case Format::bf16:
      return store_u16(element_ptr<std::uint16_t>(view, row, column),
                       encode_bits<Format::bf16>(raw_bits(value), Overflow::overflow), n);
    default:
      return store_f32(element_ptr<float>(view, row, column), value, n);
  }
}

/// The same up to the end of the row: lanes beyond view.columns get `fill`, or are not stored.
NANSCOPE_FN F32 load(const TensorView& view, std::int64_t row, std::int64_t column, float fill) {
  return load_range(view, row, column, view.columns - column, fill);
}
NANSCOPE_FN void store(const TensorView& view, std::int64_t row, std::int64_t column, const F32& value) {
  store_range(view, row, column, view.columns - column, value);
}
NANSCOPE_FN U32 load_code(const TensorView& view, std::int64_t row, std::int64_t column) {
  return load_code_range(view, row, column, view.columns - column);
}
NANSCOPE_FN void store_code(const TensorView& view, std::int64_t row, std::int64_t column, const U32& code) {
  store_code_range(view, row, column, view.columns - column, code);
}

/// One element of an f32 or i32 view, uniform; the bits as they are.
NANSCOPE_FN float load_f32_scalar(const TensorView& view, std::int64_t row, std::int64_t column) {
  return load_scalar(element_ptr<const float>(view, row, column));
}
NANSCOPE_FN std::int32_t load_i32_scalar(const TensorView& view, std::int64_t row, std::int64_t column) {
  return load_scalar(element_ptr<const std::int32_t>(view, row, column));
}
/// One uniform f32 stored once, NaN canonical.
NANSCOPE_FN void store_f32_scalar(const TensorView& view, std::int64_t row, std::int64_t column, float value) {
  store_uniform(element_ptr<float>(view, row, column), canonical_uniform(value));
}

}  // namespace nanscope::kernels::NANSCOPE_ISA

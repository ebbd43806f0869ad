#pragma once
#include <cstdint>

#include "core/numbers/format.h"

namespace nanscope::kernels {

/// A matrix in device memory, rows x columns, row-major with a row stride in elements. Plain data,
/// passed to kernels by value; it owns nothing. A null `data` means "not given".
struct TensorView {
  void* data = nullptr;
  Format format = Format::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  ///< elements from one row to the next, >= columns

  constexpr bool given() const { return data != nullptr; }
  constexpr std::int64_t elements() const { return rows * columns; }
};

/// Bytes one element takes in memory, as FormatInfo::storage_bytes() without the table.
constexpr int storage_size(Format format) {
  if (format == Format::f32 || format == Format::i32) return 4;
  return format == Format::f16 || format == Format::bf16 ? 2 : 1;
}

}  // namespace nanscope::kernels

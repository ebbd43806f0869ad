#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/dump/dump.h"

/// A dumped tensor as recordings hold it: tokens by channels, heads side by side in a row.
namespace nanscope {

struct MatrixShape {
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::int64_t heads = 1;
  bool heads_first = false;  ///< the dump has (heads, tokens, width): its rows have to be put together
};
MatrixShape matrix_shape(const DumpTensor& tensor);

/// The format that holds the elements in a recording: their own, f32 for f64, i32 for integers and booleans.
Format recorded_format(const DumpTensor& tensor);

/// The elements in that format and order. Nothing when an integer does not fit 32 bits.
std::optional<std::vector<std::byte>> matrix_bytes(const DumpTensor& tensor, const MatrixShape& shape,
                                                   std::span<const std::byte> bytes);

}  // namespace nanscope

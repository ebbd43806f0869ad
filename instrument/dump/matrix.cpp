#include "instrument/dump/matrix.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace nanscope {
namespace {

std::optional<std::vector<std::byte>> as_i32(const DumpTensor& tensor, std::span<const std::byte> bytes) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(tensor.count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t value = stored_integer(*tensor.dtype, bytes, i);
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max())
      return std::nullopt;
    values[i] = static_cast<std::int32_t>(value);
  }
  const auto view = std::as_bytes(std::span<const std::int32_t>(values));
  return std::vector<std::byte>(view.begin(), view.end());
}

std::optional<std::vector<std::byte>> own_bytes(const DumpTensor& tensor, std::span<const std::byte> bytes,
                                                Format format) {
  const auto count = static_cast<std::size_t>(tensor.count());
  const std::size_t size = info(format).storage_bytes();
  if (tensor.format == format && static_cast<std::size_t>(tensor.dtype->bits) == 8 * size) {
    return std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count * size));
  }
  if (format == Format::i32) return as_i32(tensor, bytes);
  if (format == Format::f32) {
    const Result<std::vector<float>> values = decode_values(*tensor.dtype, bytes, 0, count);
    if (!values) return std::nullopt;
    const auto view = std::as_bytes(std::span<const float>(*values));
    return std::vector<std::byte>(view.begin(), view.end());
  }
  std::vector<std::byte> codes(count);  // packed ones, one a byte
  for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<std::byte>(stored_code(*tensor.dtype, bytes, i));
  return codes;
}

}  // namespace

MatrixShape matrix_shape(const DumpTensor& tensor) {
  const auto& shape = tensor.shape;
  const std::size_t n = shape.size();
  MatrixShape out{tensor.rows(), tensor.channels(), 1, false};
  const bool query_by_key = tensor.at.role == "scores" || tensor.at.role == "probs";
  if (n == 1) return {1, tensor.channels(), 1, false};
  if (n == 3 && shape[0] != 1 && !query_by_key) return {shape[0], shape[1] * shape[2], shape[1], false};
  const bool one_batch = n == 4 && shape[0] == 1;
  if ((n == 3 && query_by_key) || one_batch) {
    return {shape[n - 2], shape[n - 3] * shape[n - 1], shape[n - 3], shape[n - 3] > 1};
  }
  return out;
}

Format recorded_format(const DumpTensor& tensor) {
  if (tensor.format) return *tensor.format;
  return tensor.dtype->kind == DtypeKind::real ? Format::f32 : Format::i32;
}

std::optional<std::vector<std::byte>> matrix_bytes(const DumpTensor& tensor, const MatrixShape& shape,
                                                   std::span<const std::byte> bytes) {
  const Format format = recorded_format(tensor);
  std::optional<std::vector<std::byte>> own = own_bytes(tensor, bytes, format);
  if (!own || !shape.heads_first) return own;
  const std::size_t width = static_cast<std::size_t>(shape.channels / shape.heads) * info(format).storage_bytes();
  std::vector<std::byte> out(own->size());
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    for (std::int64_t token = 0; token < shape.tokens; ++token) {
      const auto from = static_cast<std::size_t>(head * shape.tokens + token) * width;
      const auto to = static_cast<std::size_t>(token * shape.heads + head) * width;
      std::copy_n(own->begin() + static_cast<std::ptrdiff_t>(from), width,
                  out.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }
  return out;
}

}  // namespace nanscope

#include "instrument/dump/containers/strided.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace nanscope {
namespace {

bool is_empty(const StridedView& view) {
  return std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end();
}

/// Copies one run along the last index. The width is a constant so that each copy is one move.
template <std::size_t Width>
void copy_run(const std::byte* from, std::int64_t stride, std::int64_t extent, std::byte* to) {
  for (std::int64_t i = 0; i < extent; ++i) {
    std::memcpy(to + static_cast<std::size_t>(i) * Width, from + static_cast<std::size_t>(i * stride) * Width, Width);
  }
}

void copy_run(const std::byte* from, std::int64_t stride, std::int64_t extent, std::byte* to, std::size_t width) {
  switch (width) {
    case 1:
      return copy_run<1>(from, stride, extent, to);
    case 2:
      return copy_run<2>(from, stride, extent, to);
    case 4:
      return copy_run<4>(from, stride, extent, to);
    default:
      return copy_run<8>(from, stride, extent, to);
  }
}

/// Steps to the next run: the index before the last fastest. False when all are done.
bool advance(const StridedView& view, std::vector<std::int64_t>& index, std::int64_t& element) {
  for (std::size_t k = index.size(); k-- > 0;) {
    element += view.strides[k];
    if (++index[k] < view.shape[k]) return true;
    element -= view.strides[k] * view.shape[k];
    index[k] = 0;
  }
  return false;
}

}  // namespace

bool StridedView::contiguous() const {
  if (is_empty(*this)) return true;
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::optional<std::uint64_t> StridedView::end() const {
  if (is_empty(*this)) return 0;
  std::uint64_t last = first;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::uint64_t reach = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(shape[i] - 1), static_cast<std::uint64_t>(strides[i]),
                               &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return std::nullopt;
    }
  }
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (last >= kMost) return std::nullopt;
  return last + 1;
}

StridedView first_index_fastest(std::vector<std::int64_t> shape) {
  StridedView view{std::move(shape), {}, 0};
  const bool empty = is_empty(view);  // its other extents may multiply to anything
  std::int64_t stride = 1;
  for (const std::int64_t extent : view.shape) {
    view.strides.push_back(stride);
    if (!empty) stride *= extent;
  }
  return view;
}

Result<TensorBytes> gather(std::span<const std::byte> storage, const StridedView& view, std::size_t element_bytes,
                           std::string_view file) {
  auto made = std::make_shared<std::vector<std::byte>>();
  if (is_empty(view)) return TensorBytes{{}, made};
  if (element_bytes == 0) {
    return fail(std::string(file) +
                ": elements of less than a byte that are not stored row-major, expected them packed row by row");
  }
  std::uint64_t count = 1;
  for (const std::int64_t extent : view.shape) count *= static_cast<std::uint64_t>(extent);
  try {
    made->resize(count * element_bytes);
  } catch (const std::bad_alloc&) {
    return fail(std::string(file) + ": " + std::to_string(count * element_bytes) +
                " bytes of memory for a tensor that " + "is not stored row-major: there are fewer");
  }
  const std::int64_t run = view.shape.empty() ? 1 : view.shape.back();
  const std::int64_t stride = view.strides.empty() ? 1 : view.strides.back();
  std::vector<std::int64_t> index(view.shape.empty() ? 0 : view.shape.size() - 1);
  auto element = static_cast<std::int64_t>(view.first);
  std::byte* to = made->data();
  do {
    copy_run(storage.data() + static_cast<std::size_t>(element) * element_bytes, stride, run, to, element_bytes);
    to += static_cast<std::size_t>(run) * element_bytes;
  } while (advance(view, index, element));
  return TensorBytes{*made, made};
}

}  // namespace nanscope

#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "instrument/dump/container.h"
#include "instrument/dump/containers/file_bytes.h"

namespace nanscope {

/// Where the elements of a tensor lie when they are not one after the other. Strides count elements and
/// are not negative; there is one for each extent.
struct StridedView {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::uint64_t first = 0;  ///< element of the storage that is the tensor's first

  /// Whether the elements lie row-major without gaps, so that they can be read in place.
  bool contiguous() const;
  /// One past the last element that is touched, 0 for an empty view; nothing when it does not fit in 63 bits.
  std::optional<std::uint64_t> end() const;
};

/// The view of an array that is stored with its first index running fastest.
StridedView first_index_fastest(std::vector<std::int64_t> shape);

/// The view's elements, row-major. `storage` must hold end() elements of `element_bytes`.
Result<TensorBytes> gather(std::span<const std::byte> storage, const StridedView& view, std::size_t element_bytes,
                           std::string_view file);

}  // namespace nanscope

#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/tensor/health.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace nanscope {

/// Looks at live tensors with the device's own ops: content hash, health, and the bytes. Reads
/// only. Scratch memory is kept from one tensor to the next.
class TensorObserver {
 public:
  explicit TensorObserver(kernels::Device& device) : device_(&device) {}

  struct Seen {
    std::uint64_t hash = 0;
    std::span<const Health> tiles;  ///< valid until the next call
  };
  /// hash() and tiles() in one pass over the elements.
  Result<Seen> look(const kernels::TensorView& view, const kernels::TensorView& source,
                    const kernels::TensorView& scales);

  /// What TensorRow::hash holds.
  Result<std::uint64_t> hash(const kernels::TensorView& view);

  /// Level 0 of the health pyramid, row-major; valid until the next call. `source` and `scales` are
  /// what the elements were cast from, or not given.
  Result<std::span<const Health>> tiles(const kernels::TensorView& view, const kernels::TensorView& source,
                                        const kernels::TensorView& scales);

  /// Copies the elements, row-major without padding, into `bytes`, which has their size.
  Status copy(const kernels::TensorView& view, std::span<std::byte> bytes);

 private:
  /// Device memory for `count` results of T, and where the host reads them.
  template <class T>
  struct Scratch {
    kernels::Buffer device;
    std::vector<T> host;
  };
  template <class T>
  Result<T*> reserve(Scratch<T>& scratch, std::size_t count);
  template <class T>
  Result<std::span<const T>> fetch(Scratch<T>& scratch, std::size_t count);

  kernels::Device* device_;
  Scratch<std::uint64_t> chunks_;
  Scratch<Health> tiles_;
  kernels::Buffer dense_;  ///< for rows with gaps, of a device whose memory the host cannot read
};

/// Bytes of the elements.
std::size_t tensor_bytes(const kernels::TensorView& view);
/// Tiles of level 0 of the health pyramid.
std::size_t tile_count(const kernels::TensorView& view);
/// The elements' bytes as rows.
kernels::Rows rows_of(const kernels::TensorView& view);

}  // namespace nanscope

#include "instrument/recorder/tensor_observer.h"

#include <algorithm>

#include "kernels/ops/content_hash.h"
#include "kernels/ops/health_scan.h"

namespace nanscope {

using kernels::TensorView;

std::size_t tensor_bytes(const TensorView& view) {
  return static_cast<std::size_t>(view.elements()) * info(view.format).storage_bytes();
}

template <class T>
Result<T*> TensorObserver::reserve(Scratch<T>& scratch, std::size_t count) {
  if (scratch.device.bytes() < count * sizeof(T)) {
    Result<kernels::Buffer> buffer = device_->allocate(std::max<std::size_t>(count, 64) * 2 * sizeof(T), false);
    if (!buffer) return tl::unexpected(buffer.error());
    scratch.device = *buffer;
  }
  return static_cast<T*>(scratch.device.data());
}

template <class T>
Result<std::span<const T>> TensorObserver::fetch(Scratch<T>& scratch, std::size_t count) {
  if (device_->host_addressable()) {
    if (Status status = device_->synchronize(); !status) return tl::unexpected(status.error());
    return std::span(static_cast<const T*>(scratch.device.data()), count);
  }
  scratch.host.resize(count);
  const Status status = device_->download(std::as_writable_bytes(std::span(scratch.host)), scratch.device.data());
  if (!status) return tl::unexpected(status.error());
  return std::span<const T>(scratch.host);
}

Result<std::uint64_t> TensorObserver::hash(const TensorView& view) {
  const auto count = static_cast<std::size_t>(kernels::hash_chunks(view));
  const Result<std::uint64_t*> chunks = reserve(chunks_, count);
  if (!chunks) return tl::unexpected(chunks.error());
  if (Status status = device_->launch(kernels::ContentHashArgs{.x = view, .chunks = *chunks}); !status) {
    return tl::unexpected(status.error());
  }
  const Result<std::span<const std::uint64_t>> results = fetch(chunks_, count);
  if (!results) return tl::unexpected(results.error());
  return kernels::combine_hash(*results, tensor_bytes(view));
}

Result<std::span<const Health>> TensorObserver::tiles(const TensorView& view, const TensorView& source,
                                                      const TensorView& scales) {
  const auto count = static_cast<std::size_t>(view.rows * ((view.columns + kTileChannels - 1) / kTileChannels));
  const Result<Health*> tiles = reserve(tiles_, count);
  if (!tiles) return tl::unexpected(tiles.error());
  const kernels::HealthScanArgs args{.x = view, .source = source, .source_scales = scales, .tiles = *tiles};
  if (Status status = device_->launch(args); !status) return tl::unexpected(status.error());
  return fetch(tiles_, count);
}

Status TensorObserver::copy(const TensorView& view, std::span<std::byte> bytes) {
  if (view.stride == view.columns) return device_->download(bytes, view.data);
  const std::size_t element = info(view.format).storage_bytes();
  const std::size_t row_bytes = static_cast<std::size_t>(view.columns) * element;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    const auto* from = static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(row * view.stride) * element;
    Status status = device_->download(bytes.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes), from);
    if (!status) return status;
  }
  return {};
}

}  // namespace nanscope

#include "instrument/recorder/tensor_observer.h"

#include <algorithm>
#include <utility>

#include "kernels/ops/content_hash.h"
#include "kernels/ops/health_scan.h"

namespace nanscope {

using kernels::TensorView;

std::size_t tensor_bytes(const TensorView& view) {
  return static_cast<std::size_t>(view.elements()) * info(view.format).storage_bytes();
}

std::size_t tile_count(const TensorView& view) {
  return static_cast<std::size_t>(view.rows * ((view.columns + kTileChannels - 1) / kTileChannels));
}

kernels::Rows rows_of(const TensorView& view) {
  const std::size_t element = info(view.format).storage_bytes();
  return {static_cast<std::size_t>(view.rows), static_cast<std::size_t>(view.columns) * element,
          static_cast<std::size_t>(view.stride) * element};
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

Result<TensorObserver::Seen> TensorObserver::look(const TensorView& view, const TensorView& source,
                                                  const TensorView& scales) {
  const auto chunk_count = static_cast<std::size_t>(kernels::hash_chunks(view));
  const Result<std::uint64_t*> chunks = reserve(chunks_, chunk_count);
  if (!chunks) return tl::unexpected(chunks.error());
  const Result<Health*> tiles = reserve(tiles_, tile_count(view));
  if (!tiles) return tl::unexpected(tiles.error());
  const kernels::HealthScanArgs args{
      .x = view, .source = source, .source_scales = scales, .tiles = *tiles, .chunks = *chunks};
  if (Status status = device_->launch(args); !status) return tl::unexpected(status.error());
  const Result<std::span<const std::uint64_t>> folded = fetch(chunks_, chunk_count);
  if (!folded) return tl::unexpected(folded.error());
  const Result<std::span<const Health>> seen = fetch(tiles_, tile_count(view));
  if (!seen) return tl::unexpected(seen.error());
  return Seen{kernels::combine_hash(*folded, tensor_bytes(view)), *seen};
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
  const std::size_t count = tile_count(view);
  const Result<Health*> tiles = reserve(tiles_, count);
  if (!tiles) return tl::unexpected(tiles.error());
  const kernels::HealthScanArgs args{.x = view, .source = source, .source_scales = scales, .tiles = *tiles};
  if (Status status = device_->launch(args); !status) return tl::unexpected(status.error());
  return fetch(tiles_, count);
}

Status TensorObserver::copy(const TensorView& view, std::span<std::byte> bytes) {
  if (view.stride == view.columns) return device_->download(bytes, view.data);
  if (device_->host_addressable()) return device_->gather(bytes.data(), view.data, rows_of(view));
  if (dense_.bytes() < bytes.size()) {
    Result<kernels::Buffer> dense = device_->allocate(bytes.size(), false);
    if (!dense) return tl::unexpected(dense.error());
    dense_ = std::move(*dense);
  }
  if (Status gathered = device_->gather(dense_.data(), view.data, rows_of(view)); !gathered) return gathered;
  return device_->download(bytes, dense_.data());
}

}  // namespace nanscope

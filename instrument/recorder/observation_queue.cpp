#include "instrument/recorder/observation_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/ops/content_hash.h"
#include "kernels/ops/health_scan.h"

namespace nanscope {
namespace {

/// Elements of any format may be read in whole vectors from here.
constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
T* at(const kernels::Buffer& buffer, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(buffer.data()) + offset);
}

}  // namespace

std::vector<std::byte> Observation::take_bytes() && {
  return bytes.empty() ? std::vector<std::byte>(elements.begin(), elements.end()) : std::move(bytes);
}

ObservationQueue::ObservationQueue(kernels::Device& device, Deliver deliver, MakeBytes make_bytes,
                                   std::size_t half_bytes, std::size_t most_lent)
    : device_(device),
      observer_(device),
      deliver_(std::move(deliver)),
      make_bytes_(std::move(make_bytes)),
      half_bytes_(half_bytes),
      most_lent_(most_lent) {}

ObservationQueue::~ObservationQueue() {
  // A run that failed leaves copies on their way; nobody is left to be told of another error.
  for (const Half& half : halves_) static_cast<void>(device_.wait(half.transfer));
}

ObservationQueue::Entry ObservationQueue::place(const ObservationRequest& request, std::size_t begin) {
  const kernels::TensorView& view = request.view;
  Entry entry;
  entry.tensor_bytes = tensor_bytes(view);
  entry.chunks = aligned(begin);
  entry.chunk_count = static_cast<std::size_t>(kernels::hash_chunks(view));
  entry.tiles = aligned(entry.chunks + entry.chunk_count * sizeof(std::uint64_t));
  entry.tile_count = request.health ? tile_count(view) : 0;
  entry.bytes = aligned(entry.tiles + entry.tile_count * sizeof(Health));
  entry.byte_count = request.bytes ? entry.tensor_bytes : 0;
  entry.end = entry.bytes + entry.byte_count;
  return entry;
}

Status ObservationQueue::observe(const ObservationRequest& request) {
  if (device_.host_addressable()) return observe_at_once(request);
  Entry entry = place(request, halves_[present_].used);
  if (halves_[present_].device.data() == nullptr || entry.end > halves_[present_].device.bytes()) {
    if (halves_[present_].used > 0) {
      if (Status swapped = swap(); !swapped) return swapped;
    }
    entry = place(request, 0);
    if (Status grown = grow(halves_[present_], entry.end); !grown) return grown;
  }
  Half& half = halves_[present_];
  if (Status launched = launch(request, half, entry); !launched) return launched;
  half.used = entry.end;
  half.entries.push_back(entry);
  return {};
}

Status ObservationQueue::launch(const ObservationRequest& request, const Half& half, const Entry& entry) {
  const kernels::TensorView& view = request.view;
  auto* chunks = at<std::uint64_t>(half.device, entry.chunks);
  Status launched = request.health
                        ? device_.launch(kernels::HealthScanArgs{.x = view,
                                                                 .source = request.source,
                                                                 .source_scales = request.scales,
                                                                 .tiles = at<Health>(half.device, entry.tiles),
                                                                 .chunks = chunks})
                        : device_.launch(kernels::ContentHashArgs{.x = view, .chunks = chunks});
  if (!launched || entry.byte_count == 0) return launched;
  return device_.gather(at<std::byte>(half.device, entry.bytes), view.data, rows_of(view));
}

Status ObservationQueue::observe_at_once(const ObservationRequest& request) {
  Observation observation;
  if (request.health) {
    const Result<TensorObserver::Seen> seen = observer_.look(request.view, request.source, request.scales);
    if (!seen) return tl::unexpected(seen.error());
    observation.hash = seen->hash;
    observation.tiles = seen->tiles;
  } else {
    const Result<std::uint64_t> hash = observer_.hash(request.view);
    if (!hash) return tl::unexpected(hash.error());
    observation.hash = *hash;
  }
  if (request.bytes) {
    observation.bytes = make_bytes_(tensor_bytes(request.view));
    if (Status copied = observer_.copy(request.view, observation.bytes); !copied) return copied;
  }
  return deliver_(std::move(observation));
}

Status ObservationQueue::grow(Half& half, std::size_t bytes) {
  if (half.device.data() != nullptr && bytes <= half.device.bytes()) return {};
  // Room to spare, so that a run whose tensors grow does not free and allocate, for which the GPU is waited, for each.
  const std::size_t wanted = std::max(half_bytes_, bytes + bytes / 2);
  half.device = {};
  Result<kernels::Buffer> device = device_.allocate(wanted, false);
  if (!device) return tl::unexpected(device.error());
  half.device = std::move(*device);
  return {};
}

std::size_t ObservationQueue::host_bytes(std::size_t used) const {
  if (used <= half_bytes_) return std::bit_ceil(used);
  return (used + half_bytes_ - 1) / half_bytes_ * half_bytes_;
}

bool ObservationQueue::lent(const Entry& entry) { return entry.end - entry.tiles >= kLentBytes; }

bool ObservationQueue::worth_lending(const Half& half) {
  std::size_t lent_bytes = 0;
  for (const Entry& entry : half.entries) lent_bytes += lent(entry) ? entry.end - entry.tiles : 0;
  return lent_bytes >= half.used / 2;
}

std::shared_ptr<const void> ObservationQueue::lend(const Half& half) const {
  const std::size_t bytes = half.host.bytes();
  // This thread alone adds to it.
  if (bytes == 0 || !worth_lending(half) || *lent_bytes_ + bytes > most_lent_) return {};
  *lent_bytes_ += bytes;
  return {half.host.data(), [memory = half.host.memory(), lent_bytes = lent_bytes_, bytes](const void*) mutable {
            memory.reset();
            *lent_bytes -= bytes;
          }};
}

Status ObservationQueue::swap() {
  Half& full = halves_[present_];
  if (full.used > 0) {
    // What was lent is not written over: it is back among the device's pinned memory when nobody holds it.
    Result<kernels::Buffer> host = device_.allocate_host(host_bytes(full.used));
    if (!host) return tl::unexpected(host.error());
    full.host = std::move(*host);
    Result<kernels::Transfer> begun =
        device_.start_download(std::span(at<std::byte>(full.host, 0), full.used), full.device.data());
    if (!begun) return tl::unexpected(begun.error());
    full.transfer = std::move(*begun);
  }
  present_ = 1 - present_;
  return empty(halves_[present_]);
}

Status ObservationQueue::empty(Half& half) {
  if (Status waited = device_.wait(std::exchange(half.transfer, {})); !waited) return waited;
  const std::shared_ptr<const void> lent_memory = lend(half);
  const kernels::Buffer host = std::exchange(half.host, {});
  half.used = 0;
  for (const Entry& entry : std::exchange(half.entries, {})) {
    if (Status delivered = deliver_(observation_of(entry, host, lent_memory)); !delivered) return delivered;
  }
  return {};
}

Observation ObservationQueue::observation_of(const Entry& entry, const kernels::Buffer& host,
                                             const std::shared_ptr<const void>& lent_memory) const {
  const std::span chunks(at<const std::uint64_t>(host, entry.chunks), entry.chunk_count);
  const std::span elements(at<const std::byte>(host, entry.bytes), entry.byte_count);
  Observation observation;
  observation.hash = kernels::combine_hash(chunks, entry.tensor_bytes);
  observation.tiles = std::span(at<const Health>(host, entry.tiles), entry.tile_count);
  if (lent_memory && lent(entry)) {
    observation.memory = lent_memory;
    observation.elements = elements;
  } else if (!elements.empty()) {
    observation.bytes = make_bytes_(elements.size());
    std::memcpy(observation.bytes.data(), elements.data(), elements.size());
  }
  return observation;
}

Status ObservationQueue::finish() {
  // The other half is older; after the second swap the one that was present is empty too.
  if (Status swapped = swap(); !swapped) return swapped;
  return swap();
}

}  // namespace nanscope

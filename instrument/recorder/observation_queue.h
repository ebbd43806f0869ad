#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/tensor/health.h"
#include "instrument/recorder/tensor_observer.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace nanscope {

/// What a device says of one tensor.
struct Observation {
  std::uint64_t hash = 0;         ///< what TensorRow::hash holds
  std::span<const Health> tiles;  ///< level 0 of the health pyramid, row-major; empty where not asked for
  std::vector<std::byte> bytes;   ///< of the elements, row-major without padding; empty where not asked for or lent
  std::span<const std::byte> elements;  ///< the same, lent: in `memory`
  /// Of a large tensor what the device copied to, which stays as it is while this is held. None: tiles hold during the
  /// call alone.
  std::shared_ptr<const void> memory;

  /// The elements in memory of their own.
  std::vector<std::byte> take_bytes() &&;
};

/// What is asked of a tensor; its hash always is.
struct ObservationRequest {
  kernels::TensorView view;
  kernels::TensorView source = {};  ///< what the elements were cast from, or not given
  kernels::TensorView scales = {};  ///< of that cast
  bool health = true;
  bool bytes = false;
};

/// Looks at live tensors without holding up the device. On a GPU the results of many tensors gather in device memory,
/// and are copied to pinned memory and handed on while later ops run into the other half of a pair of buffers. On a CPU
/// each is handed on at once. Either way in the order in which they were asked for, on the thread that asks. That
/// thread launches the ops, so that little may be done on it: what a GPU says of a large tensor is not even copied, but
/// lent.
class ObservationQueue {
 public:
  /// Bytes of results that are gathered before they are copied; one tensor may need more. A run waits for
  /// this memory to be pinned, which takes far longer than to copy it.
  static constexpr std::size_t kHalfBytes = std::size_t{4} << 20;
  /// Results of a tensor that are lent from this size on: to copy fewer takes less than to need pinned memory anew.
  static constexpr std::size_t kLentBytes = std::size_t{64} << 10;
  /// Pinned memory that is lent at a time; with the halves' own it is what a device keeps for the next run. Where who
  /// was lent it is behind by more, results are copied.
  static constexpr std::size_t kMostLent = std::size_t{128} << 20;

  using Deliver = std::function<Status(Observation)>;
  using MakeBytes = std::function<std::vector<std::byte>(std::size_t)>;

  /// `deliver` gets each observation; its views hold during the call. `make_bytes` gives memory for elements.
  ObservationQueue(kernels::Device& device, Deliver deliver, MakeBytes make_bytes, std::size_t half_bytes = kHalfBytes,
                   std::size_t most_lent = kMostLent);
  /// Waits for copies that are on their way.
  ~ObservationQueue();
  ObservationQueue(const ObservationQueue&) = delete;
  ObservationQueue& operator=(const ObservationQueue&) = delete;

  /// The views are read before this returns, or by what was launched then. Errors: the device's, and what deliver()
  /// says of this or an earlier tensor.
  Status observe(const ObservationRequest& request);
  /// Hands on all that was asked for.
  Status finish();

 private:
  /// Where the results of one tensor lie in a half.
  struct Entry {
    std::size_t chunks = 0;
    std::size_t chunk_count = 0;
    std::size_t tiles = 0;
    std::size_t tile_count = 0;  ///< 0: not asked for
    std::size_t bytes = 0;
    std::size_t byte_count = 0;    ///< 0: not asked for
    std::size_t tensor_bytes = 0;  ///< what the hash is of
    std::size_t end = 0;
  };
  struct Half {
    kernels::Buffer device;
    kernels::Buffer host;  ///< of a copy that was begun
    kernels::Transfer transfer;
    std::vector<Entry> entries;
    std::size_t used = 0;
  };

  static Entry place(const ObservationRequest& request, std::size_t begin);
  Status observe_at_once(const ObservationRequest& request);
  Status launch(const ObservationRequest& request, const Half& half, const Entry& entry);
  Status grow(Half& half, std::size_t bytes);
  /// Begins to copy what the present half gathered, and makes the other one, emptied, the present one.
  Status swap();
  Status empty(Half& half);
  /// Of host memory for a half of which so much is used: few sizes, so that who wants some finds what others gave back.
  std::size_t host_bytes(std::size_t used) const;
  static bool lent(const Entry& entry);
  /// Whether what is lent of it is half of what is kept by that.
  static bool worth_lending(const Half& half);
  /// None where nothing of the half is lent.
  std::shared_ptr<const void> lend(const Half& half) const;
  Observation observation_of(const Entry& entry, const kernels::Buffer& host,
                             const std::shared_ptr<const void>& lent_memory) const;

  kernels::Device& device_;
  TensorObserver observer_;
  Deliver deliver_;
  MakeBytes make_bytes_;
  std::size_t half_bytes_;
  std::size_t most_lent_;
  std::shared_ptr<std::atomic<std::size_t>> lent_bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::array<Half, 2> halves_;
  std::size_t present_ = 0;
};

}  // namespace nanscope

#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"
#include "instrument/live/allocation_map.h"
#include "instrument/live/format_scan.h"

namespace nanscope::live {

/// What a watcher needs of a GPU. Real or faked: the logic above it cannot tell. Calls come from the thread that
/// launches the program's kernels, and wait for the stream; `stream` is the driver's handle.
class LiveDriver {
 public:
  virtual ~LiveDriver() = default;
  /// Work on the stream is being captured into a graph: nothing may be launched or waited for.
  virtual bool capturing(std::uint64_t stream) = 0;
  /// Scans each extent after all that was launched on the stream, and waits for it. `again`: the extents of the call
  /// before, of which it also says what has changed at their beginnings since.
  virtual Status scan(std::uint64_t stream, std::span<const Extent> extents, bool again, std::span<Scan> scans) = 0;
  /// Copies what is at `address` after all that was launched on the stream.
  virtual Status copy(std::uint64_t stream, std::uint64_t address, std::span<std::byte> to) = 0;
  virtual std::int64_t now_ns() = 0;
};

}  // namespace nanscope::live

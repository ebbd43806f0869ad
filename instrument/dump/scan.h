#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/dump/dump.h"
#include "instrument/dump/container.h"
#include "kernels/device.h"

/// Health of dumped tensors: one pass over their bytes, in pieces that all cores share, so that memory does not grow
/// with the tensors and neither one large tensor nor a thousand small ones leaves a core idle.
namespace nanscope {

struct ScanOptions {
  int threads = 0;  ///< 0: one a core; no bit of the result depends on it
  /// Hears of stored bytes as they are scanned: one call at a time, from any thread.
  std::function<void(std::size_t bytes)> done;
  std::stop_token stop;
  /// Tensors whose sum and sum of squares are wanted; of others they are NaN, and the scan takes half the time.
  /// Not given: of all.
  std::function<bool(const DumpTensor&)> sums;
  /// Hears of tensors whose health is set, by their index: one call at a time, from any thread.
  std::function<void(std::size_t index)> scanned;
};

/// A tensor whose bytes could not be had.
struct UnscannedTensor {
  std::size_t index = 0;  ///< among those to be scanned
  std::string reason;
};

/// Gives the bytes of the tensor of an index; called from several threads at once.
using FetchTensor = std::function<Result<TensorBytes>(std::size_t index)>;

/// Sets the health of each tensor, over all elements, read as its format says; of integers and booleans the count
/// alone. Gives those that could not be fetched, in order. Errors: stopped, the device's.
Result<std::vector<UnscannedTensor>> scan_tensors(std::span<DumpTensor* const> tensors, const FetchTensor& fetch,
                                                  const ScanOptions& options = {});

/// Health of each row.
Result<std::vector<Health>> scan_rows(kernels::Device& device, const DumpTensor& tensor,
                                      std::span<const std::byte> bytes);

}  // namespace nanscope

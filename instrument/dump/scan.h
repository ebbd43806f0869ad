#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/dump/dump.h"
#include "kernels/device.h"

/// Health of dumped tensors: one pass over their bytes, in pieces, so that memory does not grow with them.
namespace nanscope {

/// Over all elements of a tensor, read as its format says; of integers and booleans the count alone.
/// `done` hears of bytes as they are scanned. Errors: stopped, the device's.
Result<Health> scan_tensor(kernels::Device& device, const DumpTensor& tensor, std::span<const std::byte> bytes,
                           const std::function<void(std::size_t)>& done, const std::stop_token& stop);

/// Health of each row.
Result<std::vector<Health>> scan_rows(kernels::Device& device, const DumpTensor& tensor,
                                      std::span<const std::byte> bytes);

}  // namespace nanscope

#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "instrument/dump/container.h"
#include "tests/fuzz/allocation_limit.h"

namespace nanscope::fuzz {

/// Opens a container within what reading a file of `file_bytes` may allocate.
template <class Open>
Result<std::unique_ptr<Container>> open_within(std::uint64_t file_bytes, Open open) {
  const AllocationLimit limit(read_budget(file_bytes));
  return open();
}

/// What holds of every container that was accepted: each tensor has exactly the bytes that its shape and
/// dtype ask for, they decode to as many values, and no more than `most` bytes are ever made of it.
inline void read_everything(const Result<std::unique_ptr<Container>>& container, std::uint64_t most) {
  if (!container) {
    if (container.error().message.find('\n') != std::string::npos) std::abort();
    return;
  }
  std::uint64_t decoded = 0;
  for (std::size_t i = 0; i < (*container)->tensors().size(); ++i) {
    const ContainedTensor& tensor = (*container)->tensors()[i];
    // What is unpacked or gathered is the storage and the tensor: the members of an archive are checked to be no
    // more than `most`, which bounds either.
    const AllocationLimit limit(2 * most + kReadFloor);
    const auto bytes = (*container)->bytes(i);
    if (!bytes) continue;  // a deflated member may be damaged inside
    if (bytes->bytes.size() != tensor.dtype->bytes(tensor.count()) || bytes->bytes.size() > most) std::abort();
    // Views may share bytes many times over: what is decoded in all is bounded, so that inputs stay fast.
    decoded += tensor.count();
    if (decoded > 1'000'000) break;
    const auto values = decode_values(*tensor.dtype, bytes->bytes, 0, tensor.count());
    if (!values || values->size() != tensor.count()) std::abort();
  }
}

}  // namespace nanscope::fuzz

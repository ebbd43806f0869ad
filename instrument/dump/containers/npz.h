#pragma once
#include <memory>

#include "instrument/dump/container.h"
#include "instrument/dump/containers/file_bytes.h"

namespace nanscope {

/// numpy.savez and numpy.savez_compressed: a zip of npy files (numpy.org/doc/stable/reference/generated/
/// numpy.savez.html). A tensor's key is its member's name without ".npy". Arrays without numbers, and
/// members that are no arrays, are skipped with a reason.
Result<std::unique_ptr<Container>> open_npz(FileBytes file);

}  // namespace nanscope

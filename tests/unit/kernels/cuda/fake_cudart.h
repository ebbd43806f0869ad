#pragma once
#include <driver_types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/op_ids.h"

/// A CUDA runtime without a GPU, as unkind as CUDA allows. Kernels are the CPU's, on the host's memory, but: work runs
/// when something waits for it and not before, device memory cannot be touched from outside (in the late schedule),
/// pinned memory that a copy will fill holds garbage until the copy ran, and new memory holds NaN.
namespace nanscope::fake_cuda {

/// When work runs. late: when it is waited for, and only what that needs. eager: when it is enqueued. random: somewhere
/// between, streams overtaking each other wherever no event forbids it.
enum class Schedule : std::uint8_t { late, eager, random };

/// Forgets counts, problems, failures to come and who is told of launches. Nothing may be pending or allocated.
void reset(Schedule schedule, std::uint64_t seed = 1);
/// The next call of this function, or the one that `after` others precede, fails with `error`.
void fail_next(const std::string& call, cudaError_t error, int after = 0);
/// Calls since reset().
int calls(const std::string& call);
/// What was done that CUDA does not allow or promise.
const std::vector<std::string>& problems();
/// Called for each kernel that is launched on its own, with its op; graphs are told by no op.
void on_launch(std::function<void(kernels::OpId)> told);
/// Tasks that wait to be run.
std::size_t pending();
/// Allocations of device and pinned memory that were not freed.
std::size_t allocations();

}  // namespace nanscope::fake_cuda

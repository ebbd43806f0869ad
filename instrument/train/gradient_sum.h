#pragma once
#include <span>

#include "instrument/engine/emitter.h"
#include "instrument/train/replica.h"

namespace nanscope::train {

/// What every rank's backward pass made of each weight, by rank.
using GradientsOfRanks = std::span<const Optimizer::Gradients>;

/// Replaces a rank's gradients by their sums over all ranks, in the order of allreduce.order, and tells each sum as an
/// op WEIGHT_all_reduce. Of the weights that train.unreduced names, the rank train.unreduced_rank keeps its own: its
/// optimizer reads them before the sum was written, as without a wait for the collective (Li et al. 2020, "PyTorch
/// Distributed", has the buckets). Errors: the device's, or a rank that has no gradient of a weight that another has.
Status sum_over_ranks(const EngineConfig& config, kernels::Device& device, GradientsOfRanks parts, Replica& replica,
                      Emitter& emitter);

}  // namespace nanscope::train

#include "instrument/train/gradient_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>

#include "core/recording/weight_version.h"
#include "instrument/engine/knobs.h"
#include "instrument/engine/transient.h"
#include "instrument/engine/workspace.h"
#include "kernels/ops/all_reduce.h"

namespace nanscope::train {
namespace {

using kernels::TensorView;

/// Ranks call the versions of a weight by steps of their own.
const Live* gradient_of_weight(const Optimizer::Gradients& gradients, std::string_view weight) {
  const auto found = std::find_if(gradients.begin(), gradients.end(),
                                  [&](const auto& one) { return weight_of_version(one.first) == weight; });
  return found != gradients.end() ? &found->second : nullptr;
}

Status copy(kernels::Device& device, const TensorView& from, const TensorView& to) {
  const auto width = static_cast<std::size_t>(kernels::storage_size(from.format));
  return device.gather(to.data, from.data,
                       {static_cast<std::size_t>(from.rows), static_cast<std::size_t>(from.columns) * width,
                        static_cast<std::size_t>(from.stride) * width});
}

/// Rows of the ranks' gradients, one rank behind the other.
Result<TensorView> gathered(kernels::Device& device, GradientsOfRanks parts, std::string_view weight,
                            const TensorView& like, Arena& scratch) {
  auto all = scratch.matrix(like.format, std::ssize(parts) * like.rows, like.columns);
  if (!all) return all;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Live* part = gradient_of_weight(parts[rank], weight);
    if (part == nullptr) return fail(fmt::format("weight '{}' has no gradient on rank {}", weight, rank));
    const TensorView to = slice(*all, static_cast<std::int64_t>(rank) * like.rows, like.rows);
    if (Status done = copy(device, part->view, to); !done) return tl::unexpected(done.error());
  }
  return all;
}

}  // namespace

Status sum_over_ranks(const EngineConfig& config, kernels::Device& device, GradientsOfRanks parts, Replica& replica,
                      Emitter& emitter) {
  const auto ranks = std::ssize(parts);
  OpPlan plan;
  plan.kind = OpKind::all_reduce;
  plan.json = to_json(AllReduceAttributes{ranks, get_knob(config, "allreduce.order")});
  for (auto& [name, gradient] : replica.weight_gradients) {
    const std::string_view weight = weight_of_version(name);
    replica.scratch.reset();
    const auto all = gathered(device, parts, weight, gradient.view, replica.scratch);
    if (!all) return tl::unexpected(all.error());
    const auto out = replica.gradients.matrix(gradient.view.format, gradient.view.rows, gradient.view.columns);
    if (!out) return tl::unexpected(out.error());
    const bool unreduced = config.train.unreduced_rank == replica.rank &&
                           (config.train.unreduced.empty() || matches(config.train.unreduced, weight));
    Status done = unreduced ? copy(device, gradient.view, *out)
                            : device.launch(kernels::AllReduceArgs{
                                  .parts = *all, .out = *out, .ranks = ranks, .order = config.ranks.order});
    if (!done) return done;
    std::tie(plan.layer, plan.name) = place_of_weight(weight, "all_reduce");
    const ProbeInput in{"x", gradient.id, {}};
    const ProbeTensor told = emitter.output("out", *out);
    emitter.op(plan, std::span(&in, 1), std::span(&told, 1));
    gradient = {*out, told.id};
  }
  return emitter.status();
}

}  // namespace nanscope::train

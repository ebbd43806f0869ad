#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/ptx/ptx_device.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::ptx {

/// What a case of the op table executes.
struct CaseCost {
  std::string name;
  Counts counts;
  std::int64_t largest = 0;  ///< elements of its largest tensor
};

/// Errors: those of run_case().
inline Result<CaseCost> cost_of(const kernels::cases::OpCase& op_case, PtxDevice& device) {
  device.machine().forget_counts();
  CaseCost cost;
  cost.name = op_case.name;
  kernels::cases::Placement placement;
  placement.placed = [&](const kernels::Buffer&, const kernels::TensorView& view, std::size_t) {
    cost.largest = std::max(cost.largest, view.elements());
  };
  const auto outputs = kernels::cases::run_case(op_case, device, placement);
  if (!outputs) return tl::unexpected(outputs.error());
  cost.counts = device.machine().counts();
  return cost;
}

/// "gemm_f32_wide lanes 123 elements 45 each 2.73": instructions of lanes, elements of global memory that they load and
/// store, and the first by the second. Where a block shares memory also "shared 23 fmas 64", and
/// "mmas 12" of those that tensor cores make, a warp at a time. Of health with its hash also "tensor 60 each 2.05 slots
/// 2.20": the tensor's elements, by which a load of several counts as that many, instructions of lanes an element, and
/// those of warps, times 32.
inline std::string line_of(const CaseCost& cost) {
  const Counts& counts = cost.counts;
  std::string shared =
      counts.shared_elements == 0 ? "" : fmt::format(" shared {} fmas {}", counts.shared_elements, counts.fmas);
  if (counts.mmas > 0) shared += fmt::format(" mmas {}", counts.mmas);
  const auto each = [](std::uint64_t instructions, auto elements) {
    return static_cast<double>(instructions) / static_cast<double>(elements);
  };
  if (cost.name.find("_hash_") != std::string::npos) {
    shared +=
        fmt::format(" tensor {} each {:.2f} slots {:.2f}", cost.largest, each(counts.lane_instructions, cost.largest),
                    each(counts.warp_instructions * kLanes, cost.largest));
  }
  return fmt::format("{} lanes {} elements {} each {:.2f}{}", cost.name, counts.lane_instructions, counts.elements,
                     each(counts.lane_instructions, counts.elements), shared);
}

}  // namespace nanscope::ptx

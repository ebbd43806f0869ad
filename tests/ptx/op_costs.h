#pragma once
#include <fmt/format.h>

#include <string>

#include "tests/ptx/ptx_device.h"
#include "tests/unit/kernels/ops/op_cases.h"

namespace nanscope::ptx {

/// What a case of the op table executes.
struct CaseCost {
  std::string name;
  Counts counts;
};

/// Errors: those of run_case().
inline Result<CaseCost> cost_of(const kernels::cases::OpCase& op_case, PtxDevice& device) {
  device.machine().forget_counts();
  const auto outputs = kernels::cases::run_case(op_case, device);
  if (!outputs) return tl::unexpected(outputs.error());
  return CaseCost{op_case.name, device.machine().counts()};
}

/// "gemm_f32_wide lanes 123 elements 45 each 2.73": instructions of lanes, elements of global memory that they load and
/// store, and the first by the second. Where a block shares memory also "shared 23 fmas 64", and
/// "mmas 12" of those that tensor cores make, a warp at a time.
inline std::string line_of(const CaseCost& cost) {
  const Counts& counts = cost.counts;
  std::string shared =
      counts.shared_elements == 0 ? "" : fmt::format(" shared {} fmas {}", counts.shared_elements, counts.fmas);
  if (counts.mmas > 0) shared += fmt::format(" mmas {}", counts.mmas);
  return fmt::format("{} lanes {} elements {} each {:.2f}{}", cost.name, counts.lane_instructions, counts.elements,
                     static_cast<double>(counts.lane_instructions) / static_cast<double>(counts.elements), shared);
}

}  // namespace nanscope::ptx

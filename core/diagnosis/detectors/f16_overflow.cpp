#include <fmt/format.h>

#include <algorithm>

#include "core/diagnosis/detectors/births.h"

namespace nanscope {
namespace {

/// Largest finite magnitude in f16 tensors of the first steps: how far the theory is from true.
std::string closest(Facts& facts) {
  constexpr std::size_t kSteps = 4;
  double largest = 0;
  std::size_t tensors = 0;
  const std::span<const StepRow> steps = facts.run.steps();
  for (const StepRow& step : steps.first(std::min(kSteps, steps.size()))) {
    TensorFilter filter;
    filter.step = step.id;
    for (const TensorRow& tensor : facts.run.tensors(filter)) {
      if (tensor.format != Format::f16) continue;
      ++tensors;
      largest = std::max(largest, double{tensor.health.absmax});
    }
  }
  if (tensors == 0) return fmt::format("0 f16 tensors in the first {} steps", std::min(kSteps, steps.size()));
  return fmt::format("largest finite f16 value of the first {} steps is {:.6g}, headroom {:.3g}",
                     std::min(kSteps, steps.size()), largest, double{info(Format::f16).max_finite} / largest);
}

}  // namespace

/// A finite computation whose result is beyond 65504, the largest finite f16.
FaultReport detect_f16_overflow(Facts& facts) {
  return report_births(facts, BirthClass::f16_overflow, "a finite result is beyond the range of f16",
                       "keep this tensor in bf16 or f32, or scale the branch down", closest(facts));
}

}  // namespace nanscope

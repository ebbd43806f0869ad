#include <fmt/format.h>

#include <cmath>

#include "core/counted.h"
#include "instrument/inspect/check.h"

/// Whether a scale multiplies or divides, told by the size that the weights get.
namespace nanscope {
namespace {

/// Orders of magnitude between the weights' root mean square and 1 / sqrt(n), with which a product of n terms keeps the
/// size of its input. Trained weights are within one.
double far_off(double rms, std::int64_t columns) {
  return std::abs(std::log10(rms * std::sqrt(static_cast<double>(columns))));
}

constexpr double kFar = 1.5;
constexpr double kNear = 1;

/// What the root mean square would be with the scale the other way round; 0: it cannot be said.
double otherwise(const Inspected& one) {
  const StoredMatrix& matrix = *one.matrix;
  const double global = matrix.global_scale;
  if (matrix.global == GlobalScale::divisor) return one.rms * global * global;
  if (matrix.global == GlobalScale::multiplier) return one.rms / (global * global);
  const double scale = one.code_rms > 0 ? one.rms / one.code_rms : 0;
  return scale > 0 ? one.code_rms / scale : 0;
}

}  // namespace

void check_scale_reading(const InspectSubject& subject, std::vector<InspectFinding>& findings) {
  InspectFinding inverse{.id = "scale-inverted",
                         .severity = Severity::error,
                         .text = {},
                         .known_as = "modular/modular #6600",
                         .modules = {}};
  InspectFinding dropped{.id = "global-scale-dropped",
                         .severity = Severity::error,
                         .text = {},
                         .known_as = "huggingface/transformers #48371",
                         .modules = {}};
  double read = 0;
  double other = 0;
  double factor = 1;
  for (const Inspected& one : subject.modules) {
    if (!one.matrix || !one.matrix->quantized() || !(one.rms > 0) || !std::isfinite(one.rms)) continue;
    const std::int64_t columns = one.matrix->columns;
    const double alternative = otherwise(one);
    if (alternative > 0 && far_off(one.rms, columns) > kFar && far_off(alternative, columns) < kNear) {
      if (inverse.modules.empty()) read = one.rms, other = alternative;
      inverse.modules.push_back(one.module->path);
    }
    if (subject.loader.drops_expert_global && one.matrix->global == GlobalScale::divisor &&
        InspectSubject::is_expert(*one.module)) {
      factor = one.matrix->global_scale;
      dropped.modules.push_back(one.module->path);
    }
  }
  if (!inverse.modules.empty()) {
    inverse.text = fmt::format(
        "{} ({}) get a root mean square of {:.3g}, which no weights have; with the scale {} it would be {:.3g}",
        counted(inverse.modules.size(), "module"), some_of(inverse.modules), read,
        "the other way round (a divisor for a multiplier)", other);
    findings.push_back(std::move(inverse));
  }
  if (!dropped.modules.empty()) {
    dropped.text = fmt::format(
        "{} decodes {} ({}) of experts without their scale of the whole: the weights are {:.3g} "
        "times what they should be, and no key is missing",
        subject.loader.name, counted(dropped.modules.size(), "weight"), some_of(dropped.modules), factor);
    findings.push_back(std::move(dropped));
  }
}

}  // namespace nanscope

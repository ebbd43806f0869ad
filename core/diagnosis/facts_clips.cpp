#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/diagnosis/facts.h"
#include "core/diagnosis/scales.h"
#include "core/numbers/codec.h"

/// When clipping is more than rounding. docs/adding-a-detector.md derives the two limits.
namespace nanscope {

double rounding_headroom(Format format) {
  const FormatInfo& row = info(format);
  const double largest = row.max_finite;
  const double below = decode(format, row.max_finite_code - 1);
  return largest / (largest + (largest - below) / 2);
}

double rounding_noise(Format format, double rms) {
  const FormatInfo& row = info(format);
  if (row.exponent_bits == 0) return rms > 0 ? 0.5 / (std::sqrt(3.0) * rms) : 1.0;
  return std::ldexp(1.0, -(row.mantissa_bits + 1)) / std::sqrt(3.0);
}

namespace {

/// Where the scales of a layer's K or V come from, over the whole run.
struct Sources {
  bool own = false;  ///< some were computed from the values that they store
  std::set<std::int64_t> steps;

  /// Always from the past, and never from the same for long.
  bool delayed() const { return !own && steps.size() > 1; }
};

std::map<std::pair<std::int64_t, std::string>, Sources> sources_of(std::span<const ScaleRow> ledger) {
  std::map<std::pair<std::int64_t, std::string>, Sources> all;
  for (const ScaleRow& scale : ledger) {
    if (scale.source != ScaleSource::calibrated) continue;
    Sources& sources = all[{scale.layer, scale.target}];
    sources.own = sources.own || scale.locked || scale.calibrated_step == scale.step;
    sources.steps.insert(scale.calibrated_step);
  }
  return all;
}

}  // namespace

const std::vector<Clip>& Facts::clips() {
  if (clips_) return *clips_;
  clips_.emplace();
  auto sources = sources_of(run.scales());
  for (const ScaleRow& scale : run.scales()) {
    // A headroom that is NaN or comes from an invalid scale is another fault's business.
    if (!(scale.headroom < rounding_headroom(scale.format)) || !scale_complaint(scale.scale).empty()) continue;
    Clip clip;
    clip.scale = scale;
    clip.codes = run.output(scale.op, scale.target + "_codes");
    clip.source = run.input(scale.op, scale.target);
    clip.stale = scale.source == ScaleSource::calibrated && scale.calibrated_step != scale.step;
    clip.delayed = clip.stale && sources[{scale.layer, scale.target}].delayed();
    clip.significant = true;
    if (clip.codes && clip.source && clip.source->health.sum_sq > 0 && clip.codes->health.bad() == 0) {
      // A clipped value r times the largest one loses r^2-1 of energy and errs by (r-1)^2, that is
      // (r-1)/(r+1) of it, at most (1-h)/(1+h) as r <= 1/h. Both sums are recorded.
      const double kept = clip.codes->health.sum_sq * scale.scale * scale.scale;
      const double lost = std::clamp(1.0 - kept / clip.source->health.sum_sq, 0.0, 1.0);
      clip.noise = std::sqrt(lost * (1.0 - scale.headroom) / (1.0 + scale.headroom));
      const double rms = std::sqrt(clip.codes->health.sum_sq / static_cast<double>(clip.codes->health.finite()));
      clip.significant = clip.noise > rounding_noise(scale.format, rms);
    }
    clips_->push_back(std::move(clip));
  }
  return *clips_;
}

}  // namespace nanscope

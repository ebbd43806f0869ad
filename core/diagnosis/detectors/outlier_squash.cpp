#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/diagnosis/detectors/detector.h"

namespace nanscope {
namespace {

constexpr double kCoarseShare = 0.5;  ///< of what was not zero, among codes of no, one or two bits
constexpr double kRoomiest = 16;      ///< headroom that a scale computed from these values may have

/// A store whose scale fits its largest value and hardly any other.
struct Squash {
  ScaleRow scale;
  TensorRow codes;
  TensorRow source;
  std::int64_t nonzero = 0;
  std::int64_t lost = 0;    ///< not zero before, zero after
  std::int64_t coarse = 0;  ///< below the smallest normal number
  double median_below = 0;  ///< half of what was not zero is smaller than this

  double ratio() const { return double{source.health.absmax} / median_below; }
};

std::optional<Squash> squash_of(Facts& facts, const ScaleRow& scale) {
  if (info(scale.format).bits > 8 || !(scale.headroom > 0.9) || !(scale.headroom <= kRoomiest)) return std::nullopt;
  std::optional<TensorRow> codes = facts.run.output(scale.op, scale.target + "_codes");
  std::optional<TensorRow> source = facts.run.input(scale.op, scale.target);
  if (!codes || !source || codes->health.bad() > 0) return std::nullopt;
  Squash out{scale, std::move(*codes), std::move(*source)};
  const FormatInfo& format = info(scale.format);
  out.nonzero = static_cast<std::int64_t>(out.source.health.finite() - out.source.health.zero);
  out.lost = static_cast<std::int64_t>(out.codes.health.flushed);
  out.coarse = static_cast<std::int64_t>(out.codes.health.subnormal);
  const double half = kCoarseShare * static_cast<double>(out.nonzero);
  // What is lost is below half the smallest code; with the coarse ones it is below the smallest normal number.
  const bool half_lost = static_cast<double>(out.lost) >= half;
  const float smallest = format.min_subnormal > 0 ? format.min_subnormal : format.min_normal;
  out.median_below = double{half_lost ? smallest / 2 : format.min_normal} * scale.scale;
  if (out.nonzero == 0 || static_cast<double>(out.lost + out.coarse) < half) return std::nullopt;
  return out;
}

}  // namespace

/// One value sets the scale of all of them, and most fall below the smallest code that keeps a few bits.
FaultReport detect_outlier_squash(Facts& facts) {
  FaultReport report;
  FoundFault found;
  std::optional<Squash> worst;
  std::optional<Squash> first;
  std::int64_t lost = 0;
  for (const ScaleRow& scale : facts.run.scales()) {
    std::optional<Squash> squash = squash_of(facts, scale);
    if (!squash) continue;
    if (found.ops.empty() || found.ops.back() != scale.op) found.ops.push_back(scale.op);
    lost += squash->lost;
    if (!first) first = squash;
    if (!worst || squash->ratio() > worst->ratio()) worst = std::move(squash);
  }
  if (!first) {
    report.figure = fmt::format("0 of {} stores lost half of their values to one", facts.run.scales().size());
    return report;
  }
  std::optional<Range> row;
  std::optional<Range> channel;
  if (const std::shared_ptr<const TensorData> data = facts.elements(first->source)) {
    for (std::int64_t i = 0; i < data->count() && !row; ++i) {
      if (std::abs(data->value(i)) != first->source.health.absmax) continue;
      row = Range{i / data->channels, i / data->channels};
      channel = Range{i % data->channels, i % data->channels};
    }
  }
  found.fault.where = facts.where(first->codes, row, channel);
  found.fault.evidence = {{"scale", worst->scale.scale},
                          {"outlier", double{worst->source.health.absmax}},
                          {"median below", worst->median_below},
                          {"ratio at least", worst->ratio()},
                          {"lost", worst->lost},
                          {"coarse", worst->coarse},
                          {"nonzero", worst->nonzero},
                          {"lost in all stores", lost},
                          {"stores", static_cast<std::int64_t>(found.ops.size())}};
  found.fault.summary = fmt::format(
      "{} of {} values of {} of layer {} became zero, {} more keep few bits: one value, {:.6g}, sets the scale {:.4g}, "
      "and half of them are below {:.4g}",
      worst->lost, worst->nonzero, worst->scale.target, worst->scale.layer, worst->coarse,
      double{worst->source.health.absmax}, worst->scale.scale, worst->median_below);
  found.fault.fix =
      "scale per channel or in blocks, keep the outlier channel apart, or store the cache in a float format";
  report.figure =
      fmt::format("{} of {} stores lost half of their values or more", found.ops.size(), facts.run.scales().size());
  report.faults.push_back(std::move(found));
  return report;
}

}  // namespace nanscope

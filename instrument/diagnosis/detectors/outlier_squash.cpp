#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/casts_of_kind.h"

namespace nanscope {
namespace {

constexpr double kLostShare = 0.25;   ///< of what is not zero; a scale that fits loses next to nothing
constexpr double kCoarseShare = 0.5;  ///< of what is not zero, among codes of one or two bits: the median is one
/// Largest over the median of what is not zero: in int8, the largest code over half a step, which becomes zero.
constexpr double kOutlierRatio = 2 * 127;
constexpr double kZeroShare = 0.5;  ///< of all codes, where the codes alone were dumped: the median is zero
/// Headroom that a scale computed from these values may have: vLLM divides the largest by 100 where e4m3 reaches 448
/// (V_SCALE_CONSTANT), and a scale that is rounded up to a power of 2 leaves up to twice as much.
constexpr double kRoomiest = 2 * 4.48;

double of_nonzero(const Cast& cast, std::int64_t part) {
  return cast.nonzero > 0 ? static_cast<double>(part) / static_cast<double>(cast.nonzero) : 0;
}

/// What an activation function or a mask makes zero is no loss.
bool dense(Survey& survey, const Cast& cast) {
  const Op* op = survey.run().op(cast.op);
  const Tensor* x = survey.run().input(*op, "x");
  const Op* maker = x != nullptr ? survey.run().maker(*x) : nullptr;
  return maker == nullptr || maker->kind != OpKind::activation;
}

bool squashes(Survey& survey, const Cast& cast) {
  if (cast.bad > 0) return false;
  if (cast.has_source()) {
    const bool fits = cast.headroom() == 0 || (cast.headroom() > 0.9 && cast.headroom() <= kRoomiest);
    const bool underflows =
        of_nonzero(cast, cast.lost) >= kLostShare || of_nonzero(cast, cast.lost + cast.coarse) >= kCoarseShare;
    // Of a recording's cast the median is known by the smallest code alone, which is above it.
    const double ratio = cast.ledger != nullptr ? kOutlierRatio / 2 : kOutlierRatio;
    return fits && underflows && cast.absmax >= ratio * cast.median;
  }
  const double largest = double{info(cast.format).max_finite};
  const bool reaches = cast.top > 0 || double{survey.run().tensor(cast.codes)->health.absmax} >= 0.5 * largest;
  return reaches && cast.top <= std::max<std::int64_t>(4, cast.elements / 64) && dense(survey, cast) &&
         cast.share(cast.zero) >= kZeroShare && cast.elements >= 64;
}

/// Of a scale over rows of several requests, whose value set it.
std::string owner_text(Survey& survey, const Cast& cast) {
  const Step* step = survey.run().step(cast.step);
  if (cast.ledger == nullptr || step == nullptr || step->spans.size() < 2) return {};
  for (const Span& span : step->spans) {
    if (span.request == cast.ledger->calibrated_request) return fmt::format(" of {}", request_text(span));
  }
  return {};
}

/// Counts over the codes of a weight.
struct WeightCodes {
  std::int64_t elements = 0;
  std::int64_t zero = 0;
  std::int64_t large = 0;  ///< codes that are less than kOutlierRatio times smaller than the largest
  double largest = 0;
};

WeightCodes count_codes(Survey& survey, const Tensor& weight) {
  WeightCodes out;
  out.largest = double{weight.health.absmax};
  survey.run().each_block(weight, [&](std::int64_t, std::span<const float> values) {
    for (const float value : values) {
      const double magnitude = std::abs(double{value});
      ++out.elements;
      out.zero += magnitude == 0 ? 1 : 0;
      out.large += magnitude * kOutlierRatio >= out.largest ? 1 : 0;
    }
    return true;
  });
  return out;
}

/// A quantized weight whose scale a few elements set: most codes are zero, and the others are the smallest codes. A
/// sparse weight has codes of all sizes.
std::optional<Finding> squashed_weight(Survey& survey, const Op& op, const Tensor& weight) {
  const bool codes = weight.known && !weight.stated && weight.role == "weight" && info(weight.format).bits <= 8 &&
                     info(weight.format).exponent_bits > 0 && weight.health.bad() == 0;
  if (!codes || double{weight.health.absmax} < 0.5 * double{info(weight.format).max_finite}) return std::nullopt;
  const WeightCodes found = count_codes(survey, weight);
  const bool few = found.large <= std::max<std::int64_t>(4, found.elements / 64);
  if (found.elements < 64 || !few || static_cast<double>(found.zero) < kZeroShare * static_cast<double>(found.elements))
    return std::nullopt;
  Finding finding = finding_at(survey, weight);
  finding.fault.ops.push_back(op.id);
  finding.rank = Rank::element_named;
  finding.fault.evidence = {
      {"zero", found.zero}, {"elements", found.elements}, {"large", found.large}, {"largest", found.largest}};
  finding.fault.summary = fmt::format(
      "{} of {} codes of {} are zero, and {} {} more than {:g} times as large as all others: few values of the "
      "weight set the scale of all",
      found.zero, found.elements, finding.fault.tensor, found.large, found.large == 1 ? "is" : "are", kOutlierRatio);
  finding.fault.fix = "quantize this weight with a scale per channel or block, or keep the outlier in a wider format";
  return finding;
}

void look_at_weights(Survey& survey, Findings& out) {
  std::set<std::string> seen;
  const auto look = [&](StepId step) {
    for (const Op& op : survey.run().content(step).ops) {
      const Tensor* weight = op.kind == OpKind::parameter ? survey.run().result(op) : nullptr;
      if (weight == nullptr || !seen.insert(weight->name).second) continue;
      if (auto finding = squashed_weight(survey, op, *weight)) out.found.push_back(std::move(*finding));
    }
  };
  look(kBeforeSteps);
  for (const Step& step : survey.run().steps()) look(step.id);
}

}  // namespace

/// One value sets the scale of all of them, and most fall below the smallest code that keeps a few bits.
Findings detect_outlier_squash(Survey& survey) {
  Findings out;
  look_at_weights(survey, out);
  Finding finding;
  const Cast* first = nullptr;
  double most = 0;
  for (std::size_t i = 0; i < survey.casts.size(); ++i) {
    const Cast& cast = survey.casts[i];
    most = std::max(most, cast.has_source() ? of_nonzero(cast, cast.lost) : 0);
    if (!squashes(survey, cast)) continue;
    if (first == nullptr) {
      first = &cast;
      finding = finding_at(survey, *survey.run().tensor(cast.codes),
                           cast.at_row >= 0 ? std::vector{cast.at_row} : std::vector<std::int64_t>{});
      if (cast.at_channel >= 0) finding.fault.where.channels = Range{cast.at_channel, cast.at_channel};
    }
    finding.fault.ops.push_back(cast.op);
    finding.explains.push_back({Symptom::Kind::cast, i});
  }
  if (survey.casts.empty()) {
    if (out.found.empty()) out.not_in_dump("no codes of 8 bits or fewer were dumped");
    return out;
  }
  out.excluded(fmt::format("the largest share of values that a cast made zero is {:.3g} %, of {}", 100 * most,
                           counted(survey.casts.size(), "cast")));
  if (first == nullptr) return out;
  finding.rank = first->has_source() ? Rank::counted : Rank::resemblance;
  finding.fault.certainty = first->has_source() ? Certainty::shown : Certainty::possible;
  add_cast_evidence(finding, *first);
  if (first->has_source()) {
    finding.fault.evidence.insert(finding.fault.evidence.end(), {{"lost", first->lost},
                                                                 {"coarse", first->coarse},
                                                                 {"nonzero", first->nonzero},
                                                                 {"outlier", first->absmax},
                                                                 {"median", first->median},
                                                                 {"ratio", first->absmax / first->median}});
    finding.fault.summary = fmt::format(
        "{} of {} values became zero in {}, {} more keep one or two bits: one value{}, {:.4g}, is {:.3g} times the "
        "median "
        "and sets the scale of all",
        first->lost, first->nonzero, finding.fault.tensor, first->coarse, owner_text(survey, *first), first->absmax,
        first->absmax / first->median);
  } else {
    finding.fault.evidence.push_back({"zero", first->zero});
    finding.fault.summary = fmt::format(
        "{} of {} codes of {} are zero and {} at the top: few values set the scale of all", first->zero,
        first->elements, finding.fault.tensor, first->top == 1 ? "one is" : fmt::format("{} are", first->top));
  }
  finding.fault.fix =
      "scale per channel or in blocks, keep the outlier channel apart, or store the cache in a float format";
  out.found.push_back(std::move(finding));
  return out;
}

}  // namespace nanscope

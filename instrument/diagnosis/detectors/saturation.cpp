#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/births_of_kind.h"
#include "instrument/diagnosis/detectors/casts_of_kind.h"
#include "instrument/recompute/input_cast.h"

namespace nanscope {
namespace {

/// Codes alone tell where what was cast is not known: each scale has one value at the top by right, and the numbers
/// next to it thin out towards it. Clipping heaps up there what should lie beyond.
bool heaps_up(const Cast& cast) {
  if (cast.has_source() && cast.grid) return false;
  // Where no scale was dumped, rows that all reach the top have a scale each, and a value or two there.
  const bool by_row = !cast.grid && cast.rows > 1 && std::ssize(cast.top_rows) == cast.rows;
  const std::int64_t by_right = std::max<std::int64_t>({1, cast.cells, by_row ? 2 * cast.rows : 0});
  const std::int64_t excess = cast.top - by_right;
  return excess >= 4 && cast.top >= 2 * cast.beside_top && cast.share(cast.top) > 1e-4;
}

/// A product whose input was cast under a dumped scale, and whose codes were not dumped: its output comes out of the
/// values that this cast clips.
struct ClippedInput {
  const Op* op = nullptr;
  const Tensor* x = nullptr;
  Format format = Format::e4m3;
  double limit = 0;  ///< the largest value that the scale lets through
  std::int64_t clipped = 0;
  std::vector<std::int64_t> rows;
};

std::optional<ClippedInput> clipped_input(Survey& survey, const Op& op) {
  RunView& run = survey.run();
  if (op.kind != OpKind::gemm) return std::nullopt;
  const auto cast = input_cast(run, op);
  if (!cast || cast->scales != CastScales::fixed || info(cast->format).exponent_bits == 0) return std::nullopt;
  const Format format = cast->format;
  const Tensor* x = run.input(op, "x");
  const Tensor* out = run.result(op);
  const Recomputed* again = out != nullptr ? survey.recomputer.result(out->id) : nullptr;
  if (x == nullptr || !x->known || x->stated || again == nullptr || deviates(*again)) return std::nullopt;
  const auto scale = run.values(*run.input(op, "x_scale"));
  if (!scale || scale->size() != 1 || !(scale->front() > 0)) return std::nullopt;
  ClippedInput made{&op, x, format, double{info(format).max_finite} * double{scale->front()}, 0, {}};
  // Half a step beyond the largest code still rounds to it.
  const double beyond = made.limit * (1 + std::ldexp(1.0, -info(format).mantissa_bits - 1));
  if (double{x->health.absmax} <= beyond) return std::nullopt;
  for (std::int64_t row = 0; row < x->tokens; ++row) {
    const auto values = run.row_values(*x, row);
    if (!values) return std::nullopt;
    const auto clipped =
        std::count_if(values->begin(), values->end(), [&](float one) { return std::abs(double{one}) > beyond; });
    if (clipped > 0) made.rows.push_back(row);
    made.clipped += clipped;
  }
  return made.clipped > 0 ? std::optional(std::move(made)) : std::nullopt;
}

void look_at_inputs(Survey& survey, Findings& out) {
  for (const Op* op : survey.ops(OpKind::gemm)) {
    const auto clipped = clipped_input(survey, *op);
    if (!clipped) continue;
    Finding finding = finding_at(survey, *clipped->x, clipped->rows);
    finding.rank = Rank::counted;
    finding.fault.certainty = Certainty::shown;
    finding.fault.ops = {op->id};
    finding.fault.evidence = {{"clipped", clipped->clipped},
                              {"elements", clipped->x->count()},
                              {"absmax", double{clipped->x->health.absmax}},
                              {"largest", clipped->limit}};
    finding.fault.summary = fmt::format(
        "{} of {} values of {} lie beyond {:.4g}, the largest {} that the input's scale lets through, by up to {:.3g} "
        "times: the output of {} comes out of the clipped values",
        clipped->clipped, clipped->x->count(), finding.fault.tensor, clipped->limit, name(clipped->format),
        double{clipped->x->health.absmax} / clipped->limit, op->name);
    finding.fault.fix = "compute the input's scale for each batch, or calibrate it on wider values";
    out.found.push_back(std::move(finding));
  }
  merge_alike(out.found);
}

std::string clipped_text(const Cast& cast, const std::string& tensor) {
  const double largest = double{info(cast.format).max_finite};
  const double scale = cast.telling_scale();
  if (cast.zero_point != 0) {
    return fmt::format(
        "{} of {} values of {} lie outside of {:.4g} to {:.4g}, which its scale and its zero point {:g} hold",
        cast.clipped, cast.elements, tensor, (-largest - 1 - cast.zero_point) * scale,
        (largest - cast.zero_point) * scale, cast.zero_point);
  }
  return fmt::format(
      "{} of {} values of {} lie beyond {:.4g}, the largest that its scale lets through: up to {:.3g} times that",
      cast.clipped, cast.elements, tensor, largest * scale, cast.reach);
}

}  // namespace

/// Codes cut off at the largest finite one, and nothing says why the scale is as it is.
Findings detect_saturation(Survey& survey) {
  Findings out;
  Finding finding;
  const Cast* first = nullptr;
  double largest_share = 0;
  for (std::size_t i = 0; i < survey.casts.size(); ++i) {
    const Cast& cast = survey.casts[i];
    largest_share = std::max(largest_share, cast.share(cast.top));
    // What does not saturate is another fault.
    const bool overflows = cast.bad_of_finite > 0 || (!cast.has_source() && cast.bad > 0);
    if (overflows || (!cast.clips() && !heaps_up(cast))) continue;
    const auto& rows = cast.clipped_rows.empty() ? cast.top_rows : cast.clipped_rows;
    if (first == nullptr) {
      first = &cast;
      finding = finding_at(survey, *survey.run().tensor(cast.codes), rows);
    }
    finding.fault.ops.push_back(cast.op);
    finding.explains.push_back({Symptom::Kind::cast, i});
  }
  look_at_inputs(survey, out);
  if (survey.casts.empty()) {
    if (out.found.empty()) out.not_in_dump("no codes of 8 bits or fewer were dumped");
    return out;
  }
  out.excluded(fmt::format("the largest share of codes at the largest finite one is {:.3g} %, of {}",
                           100 * largest_share, counted(survey.casts.size(), "cast")));
  if (first == nullptr) return out;
  add_cast_evidence(finding, *first);
  finding.rank = Rank::resemblance;
  if (first->has_source() && first->clipped > 0) finding.fault.certainty = Certainty::proved;
  finding.fault.summary =
      first->has_source() && first->clipped > 0
          ? clipped_text(*first, finding.fault.tensor)
          : fmt::format(
                "{} of {} codes of {} ({:.3g} %) are at {:g}, the largest finite {}: more than scaling by the "
                "largest value puts there",
                first->top, first->elements, finding.fault.tensor, 100 * first->share(first->top),
                double{info(first->format).max_finite}, name(first->format));
  finding.fault.fix = "compute the scale from the values that are cast; where it is fixed, from a wider calibration";
  out.found.push_back(std::move(finding));
  return out;
}

}  // namespace nanscope

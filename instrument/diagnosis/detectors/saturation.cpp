#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "instrument/diagnosis/detectors/casts_of_kind.h"

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
  if (survey.casts.empty()) {
    out.not_in_dump("no codes of 8 bits or fewer were dumped");
    return out;
  }
  out.excluded(fmt::format("the largest share of codes at the largest finite one is {:.3g} %, of {}",
                           100 * largest_share, counted(survey.casts.size(), "cast")));
  if (first == nullptr) return out;
  add_cast_evidence(finding, *first);
  finding.certainty = kLikely;
  finding.fault.summary =
      first->has_source() && first->clipped > 0
          ? fmt::format(
                "{} of {} values of {} lie beyond {:.4g}, the largest that its scale lets through: up to "
                "{:.3g} times that",
                first->clipped, first->elements, finding.fault.tensor,
                double{info(first->format).max_finite} * first->telling_scale(), first->reach)
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

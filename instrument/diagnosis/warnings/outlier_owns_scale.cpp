#include <fmt/format.h>

#include "instrument/diagnosis/warnings/watched_casts.h"

namespace nanscope::early {
namespace {

constexpr double kOwns = 64;         ///< largest over the median of what is not zero
constexpr double kOwnedShare = 0.1;  ///< of what is not zero, that became zero or one of the codes of one or two steps

}  // namespace

/// Less than outlier-squash calls a fault: a quarter lost, or half of one or two bits.
std::vector<Watched> find_outlier_owns_scale(Survey& survey, const IsWatched& watched) {
  std::vector<Watched> found;
  for (const Cast* cast : watched_casts(survey, watched)) {
    if (!cast->has_source() || cast->absmax < kOwns * cast->median || spoilt_share(*cast) < kOwnedShare) continue;
    const double lost = static_cast<double>(cast->lost) / static_cast<double>(cast->nonzero);
    const double coarse = static_cast<double>(cast->coarse) / static_cast<double>(cast->nonzero);
    Watched out;
    out.tensor = cast->codes;
    out.severity = lost + coarse;
    out.evidence = {{"outlier", cast->absmax}, {"median", cast->median}, {"ratio", cast->absmax / cast->median},
                    {"share_lost", lost},      {"share_coarse", coarse}, {"scale", cast->grid->first()}};
    // Where it lies is known of the codes alone, and not in recordings.
    const std::string at =
        cast->at_row >= 0 ? fmt::format(", cast to {}[{},{}],", survey.facts.name_of(*survey.run().tensor(cast->codes)),
                                        cast->at_row, cast->at_channel)
                          : std::string(",");
    out.summary = fmt::format(
        "one value of {}, {:.6g}{} is {:.3g} times the median and sets the scale: "
        "{:.3g} % of the others became zero, {:.3g} % are left one or two bits (limits: {:.3g} times, {:.3g} % in all)",
        survey.facts.name_of(*survey.run().tensor(cast->source)), cast->absmax, at, cast->absmax / cast->median,
        100 * lost, 100 * coarse, kOwns, 100 * kOwnedShare);
    out.advice = "scale per channel or in blocks, or keep the outlier channel apart";
    found.push_back(std::move(out));
  }
  return found;
}

}  // namespace nanscope::early

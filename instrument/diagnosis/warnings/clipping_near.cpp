#include <fmt/format.h>

#include "instrument/diagnosis/warnings/watched_casts.h"

namespace nanscope::early {
namespace {

constexpr double kNear = 1.1;      ///< room that is left below this is a warning
constexpr double kRoomThen = 1.5;  ///< that the scale left where it was set

}  // namespace

/// A scale that an earlier pass set with room to spare, and whose room is used up: the next larger value is cut off.
/// One that is computed from each tensor leaves none by design.
std::vector<Watched> find_clipping_near(Survey& survey, const IsWatched& watched) {
  std::vector<Watched> found;
  const std::vector<const Cast*> casts = watched_casts(survey, watched);
  for (const Cast* cast : casts) {
    if (cast->headroom() >= kNear || cast->headroom() < 1) continue;
    const Cast& first = *under_same_scale(survey, casts, *cast).front();
    if (first.codes == cast->codes || first.headroom() < kRoomThen) continue;
    const Tensor& codes = *survey.run().tensor(cast->codes);
    const double scale = cast->grid->first();
    const double share = cast->share(cast->top);
    Watched out;
    out.tensor = cast->codes;
    out.severity = 1 / cast->headroom();
    out.evidence = {{"headroom", cast->headroom()},
                    {"headroom_when_set", first.headroom()},
                    {"scale", scale},
                    {"absmax", cast->absmax},
                    {"share_at_top", share},
                    {"format", std::string(info(cast->format).name)}};
    out.summary = fmt::format(
        "the scale {:.6g} of {} left room for {:.3g} times the largest value in {}, and leaves {:.3g} here: {:.3g} % "
        "of the codes are the largest there is (limits: {:.3g} there, {:.3g} here)",
        scale, survey.facts.name_of(codes), first.headroom(), survey.facts.name_of(*survey.run().tensor(first.codes)),
        cast->headroom(), 100 * share, kRoomThen, kNear);
    out.advice = "compute the scale from more than the first requests, or per request";
    found.push_back(std::move(out));
  }
  return found;
}

}  // namespace nanscope::early

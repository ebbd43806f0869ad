#include <fmt/format.h>

#include <cmath>

#include "core/dump/warnings/casts.h"

namespace nanscope::dump_warnings {
namespace {

constexpr double kNear = 1.1;
constexpr double kRoomThen = 1.5;  ///< that the scale left where it was set

}  // namespace

/// A scale that an earlier pass set with room to spare, and whose room is used up: the next larger value is cut off.
/// One that is computed from each tensor leaves none by design.
std::vector<Watched> find_clipping_near(DumpFacts& facts, const IsWatched& watched) {
  std::vector<Watched> found;
  const std::vector<Cast> casts = casts_of(facts, watched);
  for (const Cast& cast : casts) {
    if (cast.headroom >= kNear || cast.headroom < 1) continue;
    const std::vector<Cast> before = casts_before(facts, casts, cast);
    const Cast& first = before.front();
    const bool kept = std::abs(first.scale_value - cast.scale_value) <= 1e-6 * cast.scale_value;
    if (!kept || first.codes == cast.codes || first.headroom < kRoomThen) continue;
    const DumpTensor& codes = facts.tensor(cast.codes);
    const double share = static_cast<double>(codes.health.saturated) / static_cast<double>(codes.count());
    Watched out{.tensor = cast.codes, .severity = 1 / cast.headroom, .evidence = {}, .summary = {}, .advice = {}};
    out.evidence = {{"headroom", cast.headroom},    {"headroom_when_set", first.headroom},
                    {"scale", cast.scale_value},    {"absmax", cast.absmax},
                    {"at_the_largest_code", share}, {"format", std::string(info(*codes.format).name)}};
    out.summary = fmt::format(
        "the scale {:.6g} of {} left room for {:.3g} times the largest value in {}, and leaves {:.3g} here: {:.3g} % "
        "of the codes are the largest there is",
        cast.scale_value, codes.name, first.headroom, facts.tensor(first.codes).name, cast.headroom, 100 * share);
    out.advice = "compute the scale from more than the first requests, or per request";
    found.push_back(std::move(out));
  }
  return found;
}

}  // namespace nanscope::dump_warnings

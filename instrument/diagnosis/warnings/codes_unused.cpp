#include <fmt/format.h>

#include <algorithm>

#include "instrument/diagnosis/warnings/watched_casts.h"

namespace nanscope::early {
namespace {

/// Beyond every calibration constant in use: vLLM divides the largest by 100 where e4m3 reaches 448 (V_SCALE_CONSTANT),
/// and a scale that is rounded up to a power of 2 leaves up to twice as much.
constexpr double kRoom = 2 * 4.48;
constexpr double kLostShare = 0.1;  ///< of what is not zero, that became zero or one of the codes of one or two steps
constexpr std::int64_t kFewest = 256;  ///< codes of 8 bits: fewer elements cannot use them all

std::int64_t distinct(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return std::unique(values.begin(), values.end()) - values.begin();
}

}  // namespace

/// A scale that is too large for its values: the upper codes stand unused, and small values lose their bits.
std::vector<Watched> find_codes_unused(Survey& survey, const IsWatched& watched) {
  std::vector<Watched> found;
  for (const Cast* cast : watched_casts(survey, watched)) {
    const Tensor& codes = *survey.run().tensor(cast->codes);
    if (cast->headroom() < kRoom || !cast->has_source() || cast->elements < kFewest || spoilt_share(*cast) < kLostShare)
      continue;
    const auto values = survey.run().values(codes);
    if (!values) continue;
    const std::int64_t used = distinct(*values);
    const double lost = static_cast<double>(cast->lost) / static_cast<double>(cast->nonzero);
    const double coarse = static_cast<double>(cast->coarse) / static_cast<double>(cast->nonzero);
    Watched out;
    out.tensor = cast->codes;
    out.severity = cast->headroom();
    out.evidence = {{"headroom", cast->headroom()},
                    {"codes_used", used},
                    {"share_lost", lost},
                    {"share_coarse", coarse},
                    {"scale", cast->grid->first()},
                    {"absmax", cast->absmax},
                    {"format", std::string(info(cast->format).name)}};
    out.summary = fmt::format(
        "{} uses {} codes of {}: its scale {:.6g} leaves room for {:.3g} times the largest value, "
        "{:.3g} % of the values became zero and {:.3g} % are left one or two bits (limits: {:.3g} times, {:.3g} % in "
        "all)",
        survey.facts.name_of(codes), used, info(cast->format).name, cast->grid->first(), cast->headroom(), 100 * lost,
        100 * coarse, kRoom, 100 * kLostShare);
    out.advice = "compute the scale from the values: a default of 1 or one of another tensor does not fit them";
    found.push_back(std::move(out));
  }
  return found;
}

}  // namespace nanscope::early

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dump/underflow.h"
#include "core/dump/warnings/casts.h"

namespace nanscope::dump_warnings {
namespace {

constexpr double kRoom = 16;        ///< beyond every calibration constant in use
constexpr double kLostShare = 0.1;  ///< of what is not zero, that became zero or one of the codes of one or two bits
constexpr std::int64_t kFewest = 256;

std::int64_t distinct(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return std::unique(values.begin(), values.end()) - values.begin();
}

}  // namespace

/// A scale that is too large for its values: the upper codes stand unused, and small values lose their bits.
std::vector<Watched> find_codes_unused(DumpFacts& facts, const IsWatched& watched) {
  std::vector<Watched> found;
  for (const Cast& cast : casts_of(facts, watched)) {
    const DumpTensor& tensor = facts.tensor(cast.codes);
    if (cast.headroom < kRoom || !cast.source || tensor.count() < kFewest) continue;
    const auto source = facts.values(*cast.source);
    const auto codes = facts.values(cast.codes);
    if (!source || !codes || source->size() != codes->size()) continue;
    const FormatInfo& format = info(*tensor.format);
    const Underflow under = underflow_of(*source, *codes, format.min_normal);
    const double spoilt = under.share(under.lost + under.coarse);
    if (spoilt < kLostShare) continue;
    const std::int64_t used = distinct(*codes);
    Watched out{.tensor = cast.codes, .severity = cast.headroom, .evidence = {}, .summary = {}, .advice = {}};
    out.evidence = {{"headroom", cast.headroom},
                    {"codes_used", used},
                    {"share_lost", under.share(under.lost)},
                    {"share_coarse", under.share(under.coarse)},
                    {"scale", cast.scale_value},
                    {"absmax", cast.absmax},
                    {"format", std::string(format.name)}};
    out.summary = fmt::format(
        "{} uses {} codes of {}: its scale {:.6g} leaves room for {:.3g} times the largest value, "
        "{:.3g} % of the values became zero and {:.3g} % are left one or two bits",
        tensor.name, used, format.name, cast.scale_value, cast.headroom, 100 * under.share(under.lost),
        100 * under.share(under.coarse));
    out.advice = "compute the scale from the values: a default of 1 or one of another tensor does not fit them";
    found.push_back(std::move(out));
  }
  return found;
}

}  // namespace nanscope::dump_warnings

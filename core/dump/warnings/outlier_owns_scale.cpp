#include <fmt/format.h>

#include <algorithm>

#include "core/dump/underflow.h"
#include "core/dump/warnings/casts.h"

namespace nanscope::dump_warnings {
namespace {

constexpr double kOwns = 64;        ///< largest over the median of what is not zero
constexpr double kLostShare = 0.1;  ///< of what is not zero, that became zero or one of the codes of one or two bits

/// Whether enough codes are zero or below the smallest normal number to be worth a look at all elements.
bool may_be_spoilt(const DumpFacts& facts, const Cast& cast) {
  if (info(*facts.tensor(cast.codes).format).bits < 8) return true;  // packed codes are scanned without that count
  const Health& codes = facts.tensor(cast.codes).health;
  const Health& source = facts.tensor(*cast.source).health;
  return static_cast<double>(codes.zero + codes.subnormal) >=
         kLostShare * static_cast<double>(source.finite() - source.zero);
}

}  // namespace

/// Less than outlier-squash calls a fault: a quarter lost, or half of one or two bits.
std::vector<Watched> find_outlier_owns_scale(DumpFacts& facts, const IsWatched& watched) {
  std::vector<Watched> found;
  for (const Cast& cast : casts_of(facts, watched)) {
    if (!cast.source || !may_be_spoilt(facts, cast)) continue;
    const auto source = facts.values(*cast.source);
    const auto codes = facts.values(cast.codes);
    if (!source || !codes || source->size() != codes->size()) continue;
    const DumpTensor& tensor = facts.tensor(cast.codes);
    const Underflow under = underflow_of(*source, *codes, info(*tensor.format).min_normal);
    const double spoilt = under.share(under.lost + under.coarse);
    if (under.largest < kOwns * under.median || spoilt < kLostShare) continue;
    const auto channels = static_cast<std::size_t>(std::max<std::int64_t>(1, tensor.channels()));
    Watched out{.tensor = cast.codes, .severity = spoilt, .evidence = {}, .summary = {}, .advice = {}};
    out.evidence = {{"outlier", under.largest},
                    {"median", under.median},
                    {"ratio", under.largest / under.median},
                    {"share_lost", under.share(under.lost)},
                    {"share_coarse", under.share(under.coarse)},
                    {"scale", cast.scale_value}};
    out.summary = fmt::format(
        "one value of {}, {:.6g} at [{},{}], is {:.3g} times the median and sets the scale: "
        "{:.3g} % of the others became zero, {:.3g} % are left one or two bits",
        facts.tensor(*cast.source).name, under.largest, under.at / channels, under.at % channels,
        under.largest / under.median, 100 * under.share(under.lost), 100 * under.share(under.coarse));
    out.advice = "scale per channel or in blocks, or keep the outlier channel apart";
    found.push_back(std::move(out));
  }
  return found;
}

}  // namespace nanscope::dump_warnings

#include "core/dump/warnings/casts.h"

#include <cmath>

#include "core/dump/clipping.h"

namespace nanscope::dump_warnings {

std::vector<Cast> casts_of(DumpFacts& facts, const IsWatched& watched) {
  std::vector<Cast> casts;
  for (const Quantized& quantized : quantized_tensors(facts)) {
    const DumpTensor& codes = facts.tensor(quantized.codes);
    if (!holds_codes(codes) || !quantized.scale || !watched(quantized.codes) || codes.stated) continue;
    const auto scale = facts.scalar(*quantized.scale);
    if (!scale || !(*scale > 0) || !std::isfinite(*scale)) continue;
    Cast cast{quantized.codes, quantized.source, *quantized.scale, double{*scale}, 0, 0};
    cast.absmax = quantized.source ? double{facts.tensor(*quantized.source).health.absmax}
                                   : double{codes.health.absmax} * double{*scale};
    if (!(cast.absmax > 0)) continue;
    cast.headroom = double{info(*codes.format).max_finite} * cast.scale_value / cast.absmax;
    casts.push_back(cast);
  }
  return casts;
}

std::vector<Cast> casts_before(const DumpFacts& facts, const std::vector<Cast>& casts, const Cast& cast) {
  const TensorName& at = facts.tensor(cast.codes).at;
  std::vector<Cast> out;
  for (const Cast& other : casts) {
    const TensorName& then = facts.tensor(other.codes).at;
    const bool same = then.layer == at.layer && then.tower == at.tower && then.module == at.module &&
                      then.role == at.role && then.rank == at.rank && then.index == at.index;
    if (same && other.codes <= cast.codes) out.push_back(other);
  }
  return out;
}

}  // namespace nanscope::dump_warnings

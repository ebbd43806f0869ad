#include "instrument/diagnosis/warnings/watched_casts.h"

#include <cmath>

#include "instrument/diagnosis/detectors/casts_of_kind.h"

namespace nanscope::early {

std::vector<const Cast*> watched_casts(Survey& survey, const IsWatched& watched) {
  std::vector<const Cast*> casts;
  for (const Cast& cast : survey.casts) {
    const Tensor* codes = survey.run().tensor(cast.codes);
    if (codes == nullptr || codes->stated || !watched(*codes)) continue;
    if (cast.implied || !cast.grid || !cast.grid->single() || !(cast.grid->first() > 0)) continue;
    if (cast.headroom() > 0) casts.push_back(&cast);
  }
  return casts;
}

std::vector<const Cast*> under_same_scale(Survey& survey, const std::vector<const Cast*>& casts, const Cast& cast) {
  std::vector<const Cast*> same;
  for (const Cast* other : casts) {
    const bool place = other->target == cast.target && other->layer == cast.layer && other->format == cast.format &&
                       survey.run().op(other->op)->name == survey.run().op(cast.op)->name;
    if (!place || other->op > cast.op || !same_lane(survey, *other, cast)) continue;
    if (std::abs(other->grid->first() - cast.grid->first()) <= 1e-6 * cast.grid->first()) same.push_back(other);
  }
  return same;
}

double spoilt_share(const Cast& cast) {
  return cast.nonzero > 0 ? static_cast<double>(cast.lost + cast.coarse) / static_cast<double>(cast.nonzero) : 0;
}

}  // namespace nanscope::early

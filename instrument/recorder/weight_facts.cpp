#include "instrument/recorder/weight_facts.h"

#include <utility>

#include "core/recording/weight_version.h"
#include "core/tensor/pyramid.h"

namespace nanscope {

Result<WeightRow> WeightFacts::of(const WeightRow& weight, const kernels::TensorView& view) {
  const bool of_one_run = is_later_version(weight.name);
  const auto found = of_one_run ? known_.end() : known_.find(weight.name);
  if (found != known_.end()) return found->second;
  const Result<TensorObserver::Seen> seen = observer_.look(view, {}, {});
  if (!seen) return tl::unexpected(seen.error());
  WeightRow row = weight;
  row.hash = seen->hash;
  row.health = merge_all(merge_rows(seen->tiles, level_shape(view.rows, view.columns, 0)));
  if (of_one_run) return row;
  return known_.emplace(row.name, std::move(row)).first->second;
}

}  // namespace nanscope

#include "instrument/recorder/weight_facts.h"

#include <utility>

#include "core/tensor/pyramid.h"

namespace nanscope {

Result<WeightRow> WeightFacts::of(const WeightRow& weight, const kernels::TensorView& view) {
  const auto found = known_.find(weight.name);
  if (found != known_.end()) return found->second;
  const Result<std::uint64_t> hash = observer_.hash(view);
  if (!hash) return tl::unexpected(hash.error());
  const Result<std::span<const Health>> tiles = observer_.tiles(view, {}, {});
  if (!tiles) return tl::unexpected(tiles.error());
  WeightRow row = weight;
  row.hash = *hash;
  row.health = merge_all(merge_rows(*tiles, level_shape(view.rows, view.columns, 0)));
  return known_.emplace(row.name, std::move(row)).first->second;
}

}  // namespace nanscope

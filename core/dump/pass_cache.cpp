/// The layout of a pool that holds keys and values in one tensor, and the sequences of a step, by the step's own
/// values.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/dump/paged_cache.h"
#include "core/dump/pass_builder.h"

namespace nanscope {
namespace {

bool has_numbers(const DumpTensor& tensor) {
  return !tensor.stated && tensor.format && tensor.dtype->format == tensor.format && tensor.count() > 0 &&
         tensor.dtype->bits % 8 == 0;
}

}  // namespace

/// A tensor whose rows are the step's; nothing where it has others, or is stored in another dtype.
std::optional<StepRows> PassBuilder::step_rows(Index index, const Dtype* dtype) const {
  const DumpTensor& one = tensor(index);
  if (!has_numbers(one) || one.dtype != dtype || frame_.rows <= 0 || one.count() % frame_.rows != 0)
    return std::nullopt;
  // Heads in front of rows are no rows of the step.
  const std::size_t n = one.shape.size();
  const auto rows_of = [&](std::size_t dims) {
    return std::accumulate(one.shape.begin(), one.shape.begin() + static_cast<std::ptrdiff_t>(dims), std::int64_t{1},
                           std::multiplies<>());
  };
  if (n < 2 || (rows_of(n - 1) != frame_.rows && (n < 3 || rows_of(n - 2) != frame_.rows))) return std::nullopt;
  const auto held = run_.elements_.bytes(one);
  if (!held) return std::nullopt;
  return StepRows{held->bytes, frame_.rows, one.count() / frame_.rows, 0};
}

/// Keys and values of the layer at hand, of so many channels: of projections of their own, or the end of a fused one.
std::optional<StepKeys> PassBuilder::step_keys(const Dtype* dtype, std::int64_t channels) const {
  const auto own = [&](std::string_view op, std::string_view role) -> std::optional<StepRows> {
    for (const Index index : outputs_of(op, role)) {
      const auto rows = step_rows(index, dtype);
      if (rows && rows->pitch == channels) return rows;
    }
    return std::nullopt;
  };
  if (const auto values = own("v_proj", "v")) {
    const auto normed = own("k_norm", "k_normed");
    const auto keys = normed ? normed : own("k_proj", "k");
    return keys ? std::optional(StepKeys{*keys, *values}) : std::nullopt;
  }
  for (const Index index : outputs_of("qkv_proj", "qkv")) {
    const auto whole = step_rows(index, dtype);
    if (!whole || whole->pitch < 3 * channels) continue;
    StepKeys parts{*whole, *whole};
    parts.keys.first = whole->pitch - 2 * channels;
    parts.values.first = whole->pitch - channels;
    return parts;
  }
  return std::nullopt;
}

/// What a layer's values are wide, where a tensor says so.
std::optional<std::int64_t> PassBuilder::value_width() const {
  const auto width = [&](Index index) { return frame_.rows > 0 ? tensor(index).count() / frame_.rows : 0; };
  for (const Index index : outputs_of("v_proj", "v")) return width(index);
  const std::vector<Index> fused = outputs_of("qkv_proj", "qkv");
  const std::vector<Index> out = outputs_of("attention", "attn_out");
  if (fused.empty() || out.empty() || width(fused.front()) <= width(out.front())) return std::nullopt;
  return (width(fused.front()) - width(out.front())) / 2;
}

void PassBuilder::settle_geometry() {
  std::map<std::string, std::vector<const DumpTensor*>> towers;
  for (Index index = 0; index < run_.dump_.tensors.size(); ++index) {
    if (!strange_pools_.contains(index)) towers[tensor(index).at.tower].push_back(&tensor(index));
  }
  for (const auto& [tower, tensors] : towers) geometry_[tower] = geometry_of(tensors);
  if (run_.known_.width == 0) return;
  Geometry& own = geometry_[""];
  auto heads_first = std::move(own.heads_first);
  own = run_.known_;
  own.heads_first = std::move(heads_first);
}

/// A pool whose shape says something else than the width of the values, and in which no layout finds them, is not
/// understood.
void PassBuilder::settle_pool(Index index) {
  const DumpTensor& cache = tensor(index);
  const auto held = run_.elements_.bytes(cache);
  if (!held) return;
  const auto found =
      paged_cache_of(cache, held->bytes, [&](std::int64_t channels) { return step_keys(cache.dtype, channels); });
  if (found) {
    pools_[index] = found->layouts;
    Geometry& geometry = geometry_[scope_.tower];
    const Layout& values = found->layouts.values;
    if (geometry.width > 0) geometry.heads = geometry.heads * geometry.width / values.width;
    geometry.width = values.width;
    geometry.kv_heads = values.heads;
    take_sequences(*found);
    return;
  }
  const auto width = value_width();
  if (!width || layout_of(index).channels() == *width) return;
  pools_[index] = {matrix_of(cache), matrix_of(cache)};
  strange_pools_.insert(index);
  settle_geometry();
  run_.not_understood_.push_back(
      {cache.name, fmt::format("its layout is not understood: its shape holds no rows of {} channels, as the layer's "
                               "values have, and no known layout holds the step's values",
                               *width)});
}

/// The pools that hold K and V of a layer: how they are laid out, and where the rows of the step lie in them.
void PassBuilder::settle_pools() {
  pools_.clear();
  in_slots_ = {};
  slots_differ_ = false;
  const Scope before = scope_;
  for (const auto& [scope, roles] : roles_) {
    scope_ = scope;
    for (const Index index : find_role("kv_cache")) {
      if (tensor(index).shape.size() >= 4 && has_numbers(tensor(index))) settle_pool(index);
    }
  }
  scope_ = before;
  if (slots_differ_) in_slots_ = {};
  if (in_slots_.spans.empty()) return;
  frame_.spans = in_slots_.spans;
  frame_.placed = true;
}

/// What the dump says of sequences and positions goes before. Layers whose slots allow several readings say nothing.
void PassBuilder::take_sequences(const PagedCache& cache) {
  if (frame_.placed || frame_.spans.size() != 1 || frame_.batch != 1) return;
  std::int64_t width = 0;
  if (integers_of_pass("slot_mapping", width) || integers_of_pass("block_table", width)) return;
  auto found = sequences_of(cache);
  if (!found) return;
  if (in_slots_.spans.empty()) {
    in_slots_ = std::move(*found);
  } else if (in_slots_.slots != found->slots) {
    slots_differ_ = true;
  }
}

/// The slots of the step, and the blocks of its sequences, each of which begins at position 0.
void PassBuilder::give_slots(SlotMap& map, std::int64_t block) const {
  if (in_slots_.spans.empty() || block <= 0) return;
  map.slots = in_slots_.slots;
  for (const Span& span : in_slots_.spans) map.table_width = std::max(map.table_width, (span.rows + block - 1) / block);
  map.table.assign(in_slots_.spans.size() * static_cast<std::size_t>(map.table_width), -1);
  for (std::size_t s = 0; s < in_slots_.spans.size(); ++s) {
    const Span& span = in_slots_.spans[s];
    for (std::int64_t at = 0; at < span.rows; at += block) {
      map.table[s * static_cast<std::size_t>(map.table_width) + static_cast<std::size_t>(at / block)] =
          map.slots[static_cast<std::size_t>(span.row + at)] / block;
    }
  }
}

}  // namespace nanscope

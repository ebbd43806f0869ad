#include "core/dump/paged_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_map>

namespace nanscope {
namespace {

/// A rotation of a pair rounds cosine and sine, products and their sum: 3 u of the pair's norm in each of two elements,
/// and terms of u^2.
constexpr double kPairRoundings = 4.5;

/// K and V as a dimension of their own, as the shape is read elsewhere.
void add_halves(const DumpTensor& cache, std::int64_t kv_heads, std::vector<PoolLayouts>& all) {
  Geometry geometry;
  geometry.kv_heads = kv_heads;
  geometry.width = cache.shape.back();
  const PoolLayouts one{layout_of(cache, {}, geometry, 0), layout_of(cache, {}, geometry, 1)};
  const bool of_heads = one.keys.heads == kv_heads && one.keys.width == geometry.width;
  if (one.keys.axis == Axis::slots && of_heads && 2 * one.keys.rows * one.keys.channels() == cache.count())
    all.push_back(one);
}

/// (blocks, heads, slots, K and V): vLLM's CPU attention has K transposed in front of V in each block and head.
void add_heads_first(const std::vector<std::int64_t>& shape, std::vector<PoolLayouts>& all) {
  const std::int64_t slots = shape[2];
  Layout base;
  base.axis = Axis::slots;
  base.rows = shape[0] * slots;
  base.heads = shape[1];
  base.width = shape[3] / 2;
  base.inner = slots;
  base.outer_stride = shape[1] * slots * shape[3];
  base.head_stride = slots * shape[3];
  PoolLayouts beside{base, base};
  beside.keys.inner_stride = beside.values.inner_stride = shape[3];
  beside.values.offset = base.width;
  all.push_back(beside);
  PoolLayouts behind{base, base};
  behind.keys.inner_stride = behind.values.inner_stride = base.width;
  behind.values.offset = slots * base.width;
  all.push_back(behind);
  behind.keys.inner_stride = 1;
  behind.keys.channel_stride = slots;
  all.push_back(behind);
}

/// (blocks, slots, heads, K and V).
void add_slots_first(const std::vector<std::int64_t>& shape, std::vector<PoolLayouts>& all) {
  Layout base;
  base.axis = Axis::slots;
  base.rows = shape[0] * shape[1];
  base.heads = shape[2];
  base.width = shape[3] / 2;
  base.inner = shape[1];
  base.outer_stride = shape[1] * shape[2] * shape[3];
  base.inner_stride = shape[2] * shape[3];
  base.head_stride = shape[3];
  PoolLayouts beside{base, base};
  beside.values.offset = base.width;
  all.push_back(beside);
}

/// The elements of a pool and of a step, in one dtype.
class Elements {
 public:
  Elements(const DumpTensor& cache, std::span<const std::byte> bytes)
      : dtype_(*cache.dtype), size_(static_cast<std::size_t>(cache.dtype->bits / 8)), pool_(bytes) {}

  /// A head of a row whose channels lie beside each other, as bytes.
  std::string_view in_pool(const Layout& layout, std::int64_t slot, std::int64_t head) const {
    return run_of(pool_, layout.at(slot, head, 0), layout.width);
  }
  std::string_view in_step(const StepRows& rows, std::int64_t row, std::int64_t first, std::int64_t count) const {
    return run_of(rows.bytes, rows.first + row * rows.pitch + first, count);
  }
  std::vector<float> numbers_in_pool(const Layout& layout, std::int64_t slot, std::int64_t head) const {
    if (layout.channel_stride == 1) return numbers(pool_, layout.at(slot, head, 0), layout.width);
    std::vector<float> all;
    for (std::int64_t channel = 0; channel < layout.width; ++channel) {
      for (const float one : numbers(pool_, layout.at(slot, head, channel), 1)) all.push_back(one);
    }
    return all;
  }
  std::vector<float> numbers_in_step(const StepRows& rows, std::int64_t row, std::int64_t first,
                                     std::int64_t count) const {
    return numbers(rows.bytes, rows.first + row * rows.pitch + first, count);
  }
  bool alike(std::string_view elements) const {
    for (std::size_t at = size_; at < elements.size(); at += size_) {
      if (elements.substr(at, size_) != elements.substr(0, size_)) return false;
    }
    return true;
  }
  double unit() const { return std::ldexp(1.0, -info(*dtype_.format).mantissa_bits - 1); }

 private:
  std::string_view run_of(std::span<const std::byte> bytes, std::int64_t first, std::int64_t count) const {
    const std::span<const std::byte> part =
        bytes.subspan(static_cast<std::size_t>(first) * size_, static_cast<std::size_t>(count) * size_);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  std::vector<float> numbers(std::span<const std::byte> bytes, std::int64_t at, std::int64_t count) const {
    auto values = decode_values(dtype_, bytes, static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(count));
    return values ? std::move(*values) : std::vector<float>(static_cast<std::size_t>(count), std::nanf(""));
  }

  const Dtype& dtype_;
  std::size_t size_;
  std::span<const std::byte> pool_;
};

using Slots = std::vector<std::vector<std::int64_t>>;

/// The slots that hold each row's values, bit for bit. Rows of one number, such as zeros, do not tell slots apart.
Slots slots_with_values(const Elements& elements, const Layout& layout, const StepRows& rows) {
  std::unordered_multimap<std::string_view, std::int64_t> by_first_head;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    if (!elements.alike(elements.in_step(rows, row, 0, layout.channels())))
      by_first_head.emplace(elements.in_step(rows, row, 0, layout.width), row);
  }
  Slots found(static_cast<std::size_t>(rows.rows));
  for (std::int64_t slot = 0; slot < layout.rows; ++slot) {
    for (auto [at, end] = by_first_head.equal_range(elements.in_pool(layout, slot, 0)); at != end; ++at) {
      bool same = true;
      for (std::int64_t head = 1; head < layout.heads && same; ++head)
        same = elements.in_pool(layout, slot, head) ==
               elements.in_step(rows, at->second, head * layout.width, layout.width);
      if (same) found[static_cast<std::size_t>(at->second)].push_back(slot);
    }
  }
  return found;
}

/// Whether a rotation may have made `stored` of `made`: channels half a span apart are pairs, whose norms stay.
/// Channels from `rotated` on stay as they are.
bool is_rotation(std::span<const float> stored, std::span<const float> made, std::size_t rotated, std::size_t span,
                 double unit) {
  for (std::size_t c = 0; c < made.size(); ++c) {
    if (c >= rotated) {
      if (stored[c] != made[c]) return false;
      continue;
    }
    if (c % span >= span / 2) continue;
    const std::size_t other = c + span / 2;
    const double norm = std::hypot(double{made[c]}, double{made[other]});
    const double kept = std::hypot(double{stored[c]}, double{stored[other]});
    if (!(std::abs(kept - norm) <= kPairRoundings * unit * norm)) return false;
  }
  return true;
}

struct KeyMatch {
  bool rotated = true;    ///< each head is a rotation of the row's key, be it by nothing
  bool unrotated = true;  ///< each number is that of the row's key
};

/// Rotations pair channels half of a head, of its first half or of its first quarter apart, or neighbours.
KeyMatch match_key(const Elements& elements, const Layout& layout, const StepRows& keys, std::int64_t row,
                   std::int64_t slot) {
  KeyMatch match;
  const auto width = static_cast<std::size_t>(layout.width);
  for (std::int64_t head = 0; head < layout.heads && match.rotated; ++head) {
    const std::vector<float> stored = elements.numbers_in_pool(layout, slot, head);
    const std::vector<float> made = elements.numbers_in_step(keys, row, head * layout.width, layout.width);
    const auto by = [&](std::size_t rotated, std::size_t span) {
      return rotated % 2 == 0 && is_rotation(stored, made, rotated, span, elements.unit());
    };
    match.unrotated = match.unrotated && stored == made;
    match.rotated =
        stored == made || by(width, width) || by(width, 2) || by(width / 2, width / 2) || by(width / 4, width / 4);
  }
  match.unrotated = match.unrotated && match.rotated;
  return match;
}

/// The rows that a layout places: those whose values lie in slots that hold their keys.
struct Placed {
  PagedCache cache;
  std::int64_t rows = 0;
  std::int64_t by_values = 0;  ///< rows whose values lie in a slot, whatever key does
};

Placed place(const Elements& elements, const PoolLayouts& layouts, const StepKeys& step) {
  Placed placed;
  placed.cache.layouts = layouts;
  const Slots found = slots_with_values(elements, layouts.values, step.values);
  placed.cache.slots.resize(found.size());
  placed.cache.unrotated.resize(found.size());
  for (std::size_t row = 0; row < found.size(); ++row) {
    for (const std::int64_t slot : found[row]) {
      const KeyMatch match = match_key(elements, layouts.keys, step.keys, static_cast<std::int64_t>(row), slot);
      if (!match.rotated) continue;
      placed.cache.slots[row].push_back(slot);
      placed.cache.unrotated[row].push_back(match.unrotated);
    }
    if (!placed.cache.slots[row].empty()) ++placed.rows;
    if (!found[row].empty()) ++placed.by_values;
  }
  return placed;
}

/// Walks through the rows of a step, each in the slot behind the one of the row before or at the begin of a sequence.
class Walk {
 public:
  explicit Walk(const PagedCache& cache) : cache_(cache), block_(cache.layouts.values.inner) {}

  std::optional<SlotSequences> sequences() {
    SlotSequences made;
    for (std::size_t row = 0; row < cache_.slots.size(); ++row) {
      const auto behind = row == 0 ? std::nullopt : next(row, made.slots.back());
      const std::optional<std::int64_t> begin = first(row);
      if (behind.has_value() == begin.has_value()) return std::nullopt;
      made.slots.push_back(begin ? *begin : *behind);
      if (begin) {
        Span span;
        span.row = static_cast<std::int64_t>(row);
        made.spans.push_back(span);
      }
      ++made.spans.back().rows;
      ++made.spans.back().context;
    }
    return made.spans.empty() ? std::nullopt : std::optional(std::move(made));
  }

 private:
  /// The slot of a row that continues: behind the last one, or the only begin of a block that holds the row.
  std::optional<std::int64_t> next(std::size_t row, std::int64_t last) const {
    std::optional<std::int64_t> found;
    for (std::size_t i = 0; i < cache_.slots[row].size(); ++i) {
      const std::int64_t slot = cache_.slots[row][i];
      const bool follows =
          (last + 1) % block_ != 0 ? slot == last + 1 : slot % block_ == 0 && !cache_.unrotated[row][i];
      if (!follows) continue;
      if (found) return std::nullopt;
      found = slot;
    }
    return found;
  }
  /// The slot of a row at position 0.
  std::optional<std::int64_t> first(std::size_t row) const {
    std::optional<std::int64_t> found;
    for (std::size_t i = 0; i < cache_.slots[row].size(); ++i) {
      if (cache_.slots[row][i] % block_ != 0 || !cache_.unrotated[row][i]) continue;
      if (found) return std::nullopt;
      found = cache_.slots[row][i];
    }
    return found;
  }

  const PagedCache& cache_;
  std::int64_t block_;
};

}  // namespace

std::vector<PoolLayouts> pool_layouts_of(const DumpTensor& cache) {
  std::vector<PoolLayouts> all;
  const std::vector<std::int64_t>& shape = cache.shape;
  if (shape.size() != 4 && shape.size() != 5) return all;
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent <= 0; })) return all;
  add_halves(cache, shape[shape.size() - 2], all);
  if (shape[shape.size() - 2] != shape[shape.size() - 3]) add_halves(cache, shape[shape.size() - 3], all);
  if (shape.size() == 4 && shape[3] % 2 == 0) {
    add_heads_first(shape, all);
    add_slots_first(shape, all);
  }
  return all;
}

std::optional<PagedCache> paged_cache_of(const DumpTensor& cache, std::span<const std::byte> bytes,
                                         const std::function<std::optional<StepKeys>(std::int64_t channels)>& step_of) {
  const Elements elements(cache, bytes);
  std::optional<Placed> best;
  bool alone = false;
  for (const PoolLayouts& layouts : pool_layouts_of(cache)) {
    const auto step = step_of(layouts.values.channels());
    if (!step) continue;
    Placed placed = place(elements, layouts, *step);
    if (2 * placed.rows <= placed.by_values || (best && placed.rows < best->rows)) continue;
    alone = !best || placed.rows > best->rows;
    best = std::move(placed);
  }
  return best && alone ? std::optional(std::move(best->cache)) : std::nullopt;
}

std::optional<SlotSequences> sequences_of(const PagedCache& cache) { return Walk(cache).sequences(); }

}  // namespace nanscope

#include "gui/prepare/tensor_index.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "core/run/kv_cache.h"
#include "gui/prepare/foreign_scales.h"
#include "gui/prepare/run_map_rows.h"
#include "gui/prepare/subject.h"

namespace nanscope::gui {
namespace {

const std::string kNoName;

/// Words that many tensors share, by the number that stands for them.
template <class Key>
class Numbering {
 public:
  explicit Numbering(std::vector<Key>& all) : all_(all) {}
  std::uint32_t of(const Key& key) {
    if (last_ < all_.size() && all_[last_] == key) return last_;
    const auto [at, added] = found_.emplace(key, static_cast<std::uint32_t>(all_.size()));
    if (added) all_.push_back(key);
    return last_ = at->second;
  }

 private:
  std::vector<Key>& all_;
  std::map<Key, std::uint32_t> found_;
  std::uint32_t last_ = 0;
};

/// An op, while the tensors are read.
struct IndexedOp {
  OpId id = 0;
  std::uint32_t step = 0;
  std::uint32_t row = 0;
};

class IndexMaker {
 public:
  IndexMaker(RunView& view, RunData& run, const ClippedRows* clipped, std::stop_token stop)
      : view_(view), run_(run), clipped_(clipped), stop_(std::move(stop)), scales_(view) {}

  Result<TensorIndex> make() {
    index_.of_dump = view_.info().device == kDumpDevice;
    read_steps();
    read_ops();
    if (index_.of_dump) {
      read_contents();
    } else {
      read_glances();
    }
    if (stop_.stop_requested()) return fail("stopped");
    for (const Status& status : {run_.status(), view_.status()}) {
      if (!status) return tl::unexpected(status.error());
    }
    return std::move(index_);
  }

 private:
  void read_steps() {
    index_.steps.push_back({});
    plain_.push_back(true);
    step_of_.emplace(kBeforeSteps, 0);
    for (const Step& step : view_.steps()) {
      step_of_.emplace(step.id, static_cast<std::uint32_t>(index_.steps.size()));
      IndexStep one{step.id, step.rank, {}, step.index(), step.spans.size()};
      if (!step.spans.empty()) one.request = step.request();
      index_.steps.push_back(one);
      plain_.push_back(is_plain(step));
    }
  }

  /// All of its rows are somebody's.
  bool is_plain(const Step& step) const {
    if (step.spans.empty()) return true;  // nothing tells
    if (index_.of_dump || step.spans.size() != 1) return false;
    return step.spans.front().row == 0 && step.spans.front().rows == step.rows;
  }

  void read_ops() {
    RowFinder rows;
    StepId step_id = kBeforeSteps;
    std::uint32_t step = 0;
    bool in_layers = false;
    std::uint32_t row = 0;
    run_.each_op_name([&](const OpRow& op) {
      if (op.step != step_id) {
        const auto at = step_of_.find(op.step);
        if (at == step_of_.end()) return !stop_.stop_requested();
        step_id = op.step;
        step = at->second;
        in_layers = false;
        row = std::numeric_limits<std::uint32_t>::max();
      }
      in_layers = in_layers || op.layer >= 0;
      row = rows.find(op.layer, in_layers, op.name, row + 1);
      ops_.push_back({op.id, step, row});
      return !stop_.stop_requested();
    });
    const std::vector<std::uint32_t> went = rows.sort_into(index_.rows);
    for (IndexedOp& op : ops_) op.row = went[op.row];
  }

  /// They come in the order of the ops.
  const IndexedOp* op_of(OpId id) {
    const auto is = [&](std::size_t i) { return i < ops_.size() && ops_[i].id == id; };
    if (!is(hint_) && is(hint_ + 1)) ++hint_;
    if (is(hint_)) return &ops_[hint_];
    const auto at =
        std::lower_bound(ops_.begin(), ops_.end(), id, [](const IndexedOp& op, OpId k) { return op.id < k; });
    if (at == ops_.end() || at->id != id) return nullptr;
    hint_ = static_cast<std::size_t>(at - ops_.begin());
    return &*at;
  }

  void read_glances() {
    const auto expected = static_cast<std::size_t>(std::clamp<std::int64_t>(run_.counts().tensors, 0, kMostExpected));
    index_.ids.reserve(expected);
    run_.each_glance({}, [&](const TensorGlance& tensor) {
      const IndexedOp* op = op_of(tensor.op);
      if (op == nullptr) return !stop_.stop_requested();
      Told told{tensor.health, may_hide(tensor.role)};
      const Cell whole = cell_of(told.health, told.hides, reach(tensor.op, tensor.role, tensor.format, told).headroom);
      if (!plain_[op->step] && whole >= kLowHeadroom) {
        if (const Tensor* full = view_.tensor(tensor.id)) told = {somebodys(*full, tensor.health), told.hides};
      }
      add(*op, {tensor.id, tensor.role, tensor.format, {tensor.tokens, tensor.channels}}, told);
      return !stop_.stop_requested();
    });
  }

  void read_contents() {
    read_content(kBeforeSteps);
    for (const Step& step : view_.steps()) {
      if (stop_.stop_requested()) return;
      read_content(step.id);
    }
  }

  void read_content(StepId step) {
    for (const Tensor& tensor : view_.content(step).tensors) {
      const IndexedOp* op = tensor.known ? op_of(tensor.op) : nullptr;
      if (stop_.stop_requested()) return;
      if (op == nullptr) continue;
      Told told{whole_health(view_, tensor), tensor.hides || may_hide(tensor.role)};
      const Cell whole = cell_of(told.health, told.hides, reach(tensor.op, tensor.role, tensor.format, told).headroom);
      if (!plain_[op->step] && whole >= kLowHeadroom) told.health = somebodys(tensor, told.health);
      add(*op, {tensor.id, tensor.role, tensor.format, {tensor.tokens, tensor.channels}}, told);
      index_.names.push_back(tensor.name);
      if (step == kBeforeSteps) count_occurrence(*op, tensor.role);
    }
  }

  /// A place outside of steps may be several tensors', of ranks and passes: the rank tells them apart.
  void count_occurrence(const IndexedOp& op, const std::string& role) {
    const std::int64_t before = outside_[{op.row, role}]++;
    if (before > 0) index_.occurrences.emplace(static_cast<std::uint32_t>(index_.size() - 1), before);
  }

  /// What is said of the elements that are somebody's.
  struct Told {
    Health health;
    bool hides = false;
  };

  ForeignScales::Reach reach(OpId op, const std::string& role, Format format, const Told& told) const {
    return scales_.reach(op, role, format, told.health.absmax);
  }

  /// Without the rows that are nobody's: padding, slots of a pool that no token of the step is in.
  Health somebodys(const Tensor& tensor, const Health& whole) {
    const Step* step = view_.step(tensor.step);
    if (tensor.axis == Axis::none || step == nullptr) return whole;
    const std::vector<Health> rows = tensor.tokens == 1 ? std::vector{whole} : view_.rows(tensor);
    if (rows.empty()) return tensor.axis == Axis::slots ? empty_health() : whole;
    Health health = empty_health();
    if (tensor.axis == Axis::slots) {
      if (!cache_) cache_.emplace(view_);
      for (const Span& span : step->spans) {
        for (std::int64_t i = 0; i < span.rows; ++i) {
          const auto row = cache_->row_of(tensor, *step, span, span.first_token + i);
          if (row && *row >= 0 && *row < std::ssize(rows)) merge(health, rows[static_cast<std::size_t>(*row)]);
        }
      }
      return health;
    }
    for (std::int64_t row = 0; row < std::min<std::int64_t>(tensor.tokens, std::ssize(rows)); ++row) {
      if (view_.token_of(tensor, row).span != nullptr) merge(health, rows[static_cast<std::size_t>(row)]);
    }
    return health;
  }

  struct Added {
    TensorId id = 0;
    const std::string& role;
    Format format = Format::f32;
    TensorExtent extent;
  };

  void add(const IndexedOp& op, const Added& tensor, const Told& told) {
    const Health& health = told.health;
    TensorCounts counts{health.nan, health.pos_inf + (told.hides ? 0 : health.neg_inf), health.clipped,
                        health.saturated, 0};
    const ForeignScales::Reach reached = reach(op.id, tensor.role, tensor.format, told);
    Cell cell = cell_of(health, told.hides, reached.headroom);
    if (clipped_ != nullptr) {
      if (const auto rows = clipped_->find(tensor.id); rows != clipped_->end() && !rows->second.empty()) {
        counts.clipped_rows = rows->second.size();
        cell = std::max(cell, kClipped);
      }
    }
    index_.ids.push_back(tensor.id);
    index_.step.push_back(op.step);
    index_.row.push_back(op.row);
    index_.role.push_back(roles_.of(tensor.role));
    index_.shape.push_back(shapes_.of(tensor.extent));
    index_.count.push_back(counts == TensorCounts{} ? 0 : static_cast<std::uint32_t>(index_.counts.size()));
    if (index_.count.back() != 0) index_.counts.push_back(counts);
    index_.absmax.push_back(health.absmax);
    index_.magnitude.push_back(static_cast<float>(reached.magnitude));
    index_.headroom.push_back(reached.headroom);
    index_.format.push_back(tensor.format);
    index_.cell.push_back(cell);
  }

  static constexpr std::int64_t kMostExpected = std::int64_t{1} << 24;  ///< a file may claim any number

  RunView& view_;
  RunData& run_;
  const ClippedRows* clipped_;
  std::stop_token stop_;
  ForeignScales scales_;
  std::optional<KvCache> cache_;
  std::vector<bool> plain_;  ///< of each of the index's steps
  std::unordered_map<StepId, std::uint32_t> step_of_;
  std::vector<IndexedOp> ops_;
  std::size_t hint_ = 0;
  std::map<std::pair<std::uint32_t, std::string>, std::int64_t> outside_;
  TensorIndex index_;
  Numbering<std::string> roles_{index_.roles};
  Numbering<TensorExtent> shapes_{index_.shapes};
};

}  // namespace

const std::string& TensorIndex::name(std::size_t tensor) const { return names.empty() ? kNoName : names[tensor]; }

Place TensorIndex::place(std::size_t tensor) const {
  const IndexStep& at = steps[step[tensor]];
  Place place;
  if (at.request) {
    place.rank = at.rank;
    place.request = at.request;
    place.step = at.index;
  } else if (const auto before = occurrences.find(static_cast<std::uint32_t>(tensor)); before != occurrences.end()) {
    place.rank = before->second;
  }
  place.layer = op(tensor).layer;
  place.op = op(tensor).op;
  place.role = role_of(tensor);
  return place;
}

std::optional<std::size_t> TensorIndex::find(TensorId id) const {
  const auto at = std::lower_bound(ids.begin(), ids.end(), id);
  if (at == ids.end() || *at != id) return std::nullopt;
  return static_cast<std::size_t>(at - ids.begin());
}

Result<TensorIndex> make_tensor_index(RunView& view, RunData& rows, const ClippedRows* clipped, std::stop_token stop) {
  return IndexMaker(view, rows, clipped, std::move(stop)).make();
}

}  // namespace nanscope::gui

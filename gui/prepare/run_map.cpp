#include "gui/prepare/run_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>

#include "core/numbers/format.h"

namespace nanscope::gui {
namespace {

// A map of more cells than this is a damaged recording, or wants memory that the window does not have.
constexpr std::int64_t kMaxCells = std::int64_t{1} << 26;

/// Embedding, layers in order, head.
std::int64_t group_order(std::int64_t layer, bool after_layers) {
  if (layer >= 0) return layer;
  return after_layers ? std::numeric_limits<std::int64_t>::max() : -1;
}

std::string group_name(std::int64_t order) {
  if (order < 0) return "embed";
  return order == std::numeric_limits<std::int64_t>::max() ? "head" : fmt::format("layer {}", order);
}

/// The rows while they are found: sorted by group, within it by first appearance.
class RowFinder {
 public:
  /// `expected`: the row that it is if all steps are alike, which spares the search.
  std::uint32_t find(std::int64_t layer, bool after_layers, const std::string& op, std::uint32_t expected) {
    const std::int64_t group = group_order(layer, after_layers);
    if (expected < order_.size() && order_[expected].key.first == group && order_[expected].key.second == op) {
      return expected;
    }
    const Key key{group, op};
    const auto [at, added] = found_.emplace(key, static_cast<std::uint32_t>(order_.size()));
    if (added) order_.push_back({key, layer});
    return at->second;
  }

  /// Sorts the rows; answers where each went.
  std::vector<std::uint32_t> sort_into(std::vector<MapRow>& rows) const {
    std::vector<std::uint32_t> sorted(order_.size());
    for (std::uint32_t i = 0; i < sorted.size(); ++i) sorted[i] = i;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [this](std::uint32_t a, std::uint32_t b) { return order_[a].key.first < order_[b].key.first; });
    std::vector<std::uint32_t> went(sorted.size());
    for (std::uint32_t to = 0; to < sorted.size(); ++to) {
      const Found& from = order_[sorted[to]];
      rows.push_back({from.key.second, from.layer, group_name(from.key.first)});
      went[sorted[to]] = to;
    }
    return went;
  }

 private:
  using Key = std::pair<std::int64_t, std::string>;
  struct Found {
    Key key;
    std::int64_t layer;
  };
  std::map<Key, std::uint32_t> found_;
  std::vector<Found> order_;
};

/// Which stored codes are held by a scale that was not made for them: there, headroom tells.
class ForeignScales {
 public:
  explicit ForeignScales(RunData& run) {
    for (const ScaleRow& row : run.scales()) {
      if (row.calibrated_step != row.step) found_.emplace(row.op, row.target);
    }
  }
  bool covers(const TensorGlance& tensor) const {
    return found_.contains({tensor.op, tensor.role.substr(0, tensor.role.find('_'))});
  }

 private:
  std::set<std::pair<std::int64_t, std::string>> found_;
};

}  // namespace

class RunMapMaker::Impl {
 public:
  Impl(RunData& run, std::stop_token stop) : run_(run), stop_(std::move(stop)) {}

  Status begin() {
    map_.counts = run_.counts();
    read_requests();
    if (Status laid = lay_out(); !laid) return laid;
    map_.cells.assign(map_.rows.size() * static_cast<std::size_t>(map_.columns), kAbsent);
    if (Status glanced = glance(); !glanced) return glanced;
    sum_up();
    std::stable_sort(inexact_.begin(), inexact_.end(), [this](std::uint32_t a, std::uint32_t b) {
      return told_apart(map_.steps[a].worst) < told_apart(map_.steps[b].worst);
    });
    map_.exact = inexact_.empty();
    return {};
  }

  Status refine(Clock::time_point deadline) {
    while (!inexact_.empty()) {
      if (stop_.stop_requested()) return fail("stopped");
      refine_step(inexact_.back());
      inexact_.pop_back();
      if (Status status = run_.status(); !status) return status;
      if (Clock::now() >= deadline) break;
    }
    map_.exact = inexact_.empty();
    return {};
  }

  RunMap& map() { return map_; }

 private:
  /// A tensor of a step, and the row of the map that it is in.
  struct Placed {
    TensorGlance tensor;
    std::uint32_t row = 0;
    bool of_keys = false;
  };

  /// Steps with something special are made exact first; shades of healthy cells can wait.
  static Cell told_apart(Cell worst) { return worst < kLowHeadroom ? kAbsent : worst; }

  void read_requests() {
    for (const RequestRow& row : run_.requests()) {
      MapRequest request{row, {}, {}, kAbsent};
      for (TokenRow& token : run_.tokens(row.id)) request.token_text.emplace(token.position, std::move(token.text));
      map_.requests.push_back(std::move(request));
    }
  }

  /// Rows and columns, before there is a cell.
  Status lay_out() {
    std::unordered_map<std::int64_t, std::uint32_t> step_of;
    for (const StepRow& row : run_.steps()) {
      const std::int64_t tokens = std::clamp<std::int64_t>(row.tokens, 0, kMaxCells + 1);
      step_of.emplace(row.id, static_cast<std::uint32_t>(map_.steps.size()));
      map_.steps.push_back({row, map_.columns, tokens, 0, kAbsent});
      map_.columns += tokens;
      if (map_.columns > kMaxCells) return too_large(map_.columns, 1);
    }
    RowFinder rows;
    read_ops(step_of, rows);
    if (stop_.stop_requested()) return fail("stopped");
    const std::vector<std::uint32_t> went = rows.sort_into(map_.rows);
    for (MapOp& op : map_.ops) op.row = went[op.row];
    const auto height = static_cast<std::int64_t>(map_.rows.size());
    if (height > 0 && map_.columns > kMaxCells / height) return too_large(map_.columns, height);
    return run_.status();
  }

  void read_ops(const std::unordered_map<std::int64_t, std::uint32_t>& step_of, RowFinder& rows) {
    map_.ops.reserve(static_cast<std::size_t>(std::clamp<std::int64_t>(map_.counts.ops, 0, kMaxCells)));
    std::int64_t step_id = 0;
    std::uint32_t step = 0;
    bool known = false;
    bool in_layers = false;
    std::uint32_t row = 0;
    run_.each_op_name([&](const OpRow& op) {
      if (!known || op.step != step_id) {
        const auto at = step_of.find(op.step);
        // What is of no step, or of one that went before, is in no column.
        if (at == step_of.end() || (!map_.ops.empty() && at->second < step)) return !stop_.stop_requested();
        for (std::uint32_t i = known ? step + 1 : 0; i <= at->second; ++i) map_.steps[i].first_op = map_.ops.size();
        known = true;
        step_id = op.step;
        step = at->second;
        in_layers = false;
        row = std::numeric_limits<std::uint32_t>::max();
      }
      in_layers = in_layers || op.layer >= 0;
      row = rows.find(op.layer, in_layers, op.name, row + 1);
      map_.ops.push_back({op.id, step, row});
      if (op.kind == "kv_read") reads_keys_.insert(op.id);
      return !stop_.stop_requested();
    });
    for (std::size_t i = known ? step + 1 : 0; i < map_.steps.size(); ++i) map_.steps[i].first_op = map_.ops.size();
  }

  static Status too_large(std::int64_t columns, std::int64_t rows) {
    return fail(fmt::format("the recording claims {} tokens in {} ops, more than can be mapped", columns, rows));
  }

  /// The op of a tensor, and the place of the next tensor's in `hint`: they come in the order of the ops.
  const MapOp* op_of(std::int64_t id, std::size_t& hint) const {
    const auto is = [&](std::size_t i) { return i < map_.ops.size() && map_.ops[i].id == id; };
    if (!is(hint) && is(hint + 1)) ++hint;
    if (is(hint)) return &map_.ops[hint];
    const auto at = std::lower_bound(map_.ops.begin(), map_.ops.end(), id,
                                     [](const MapOp& op, std::int64_t k) { return op.id < k; });
    if (at == map_.ops.end() || at->id != id) return nullptr;
    hint = static_cast<std::size_t>(at - map_.ops.begin());
    return &*at;
  }

  /// All cells from the health of whole tensors, and which steps that is not the whole truth of.
  Status glance() {
    std::size_t hint = 0;
    run_.each_glance({}, [&](const TensorGlance& tensor) {
      const MapOp* op = op_of(tensor.op, hint);
      if (op == nullptr) return !stop_.stop_requested();
      MapStep& step = map_.steps[op->step];
      const Placed placed{tensor, op->row, reads_keys_.contains(tensor.op)};
      const Cell whole = whole_cell(tensor);
      step.worst = std::max(step.worst, whole);
      const Range tokens = tokens_of(step, placed);
      Cell* cells = cells_of(step, op->row);
      for (std::int64_t i = tokens.begin; i < tokens.end; ++i) cells[i] = std::max(cells[i], whole);
      if (has_detail(placed) && (inexact_.empty() || inexact_.back() != op->step)) inexact_.push_back(op->step);
      return !stop_.stop_requested();
    });
    if (stop_.stop_requested()) return fail("stopped");
    return run_.status();
  }

  bool has_detail(const Placed& placed) {
    return placed.tensor.detailed && placed.tensor.tokens > 1 && !placed.of_keys &&
           whole_cell(placed.tensor) != kAbsent;
  }

  /// How many tokens after the step's first one the tensor begins. A file may claim any position.
  static std::int64_t ahead_of(const MapStep& step, const TensorGlance& tensor) {
    constexpr std::int64_t kFar = std::int64_t{1} << 41;
    return std::clamp(tensor.first_token, -kFar, kFar) - std::clamp(step.row.first_token, -kFar, kFar);
  }

  /// Columns of a step that a tensor speaks of.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  static Range tokens_of(const MapStep& step, const Placed& placed) {
    // Rows that are keys concern all tokens of the step, which read them.
    if (placed.of_keys) return {0, step.tokens};
    const TensorGlance& tensor = placed.tensor;
    const std::int64_t ahead = ahead_of(step, tensor);
    return {std::clamp<std::int64_t>(ahead, 0, step.tokens),
            std::clamp<std::int64_t>(ahead + tensor.tokens, 0, step.tokens)};
  }

  Cell* cells_of(const MapStep& step, std::uint32_t row) {
    return map_.cells.data() + std::size_t{row} * static_cast<std::size_t>(map_.columns) + step.first_column;
  }

  double headroom(const TensorGlance& tensor, const Health& health) {
    const FormatInfo& format = info(tensor.format);
    if (format.storage_bytes() < 2 && !scales().covers(tensor)) return 0;
    return health.absmax > 0 ? static_cast<double>(format.max_finite) / static_cast<double>(health.absmax) : 0;
  }
  const ForeignScales& scales() {
    if (!scales_) scales_.emplace(run_);
    return *scales_;
  }
  Cell whole_cell(const TensorGlance& tensor) { return cell_of(tensor.health, headroom(tensor, tensor.health)); }

  /// All cells of a step again, from the health of the tokens.
  void refine_step(std::uint32_t index) {
    const MapStep& step = map_.steps[index];
    std::vector<Placed> placed;
    std::size_t hint = step.first_op;
    run_.each_glance(step.row.id, [&](const TensorGlance& tensor) {
      if (const MapOp* op = op_of(tensor.op, hint); op != nullptr && op->step == index) {
        placed.push_back({tensor, op->row, reads_keys_.contains(tensor.op)});
      }
      return !stop_.stop_requested();
    });
    if (stop_.stop_requested()) return;
    std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.row < b.row; });
    for (std::size_t i = 0; i < placed.size() && !stop_.stop_requested(); ++i) {
      Cell* cells = cells_of(step, placed[i].row);
      if (i == 0 || placed[i].row != placed[i - 1].row) std::fill(cells, cells + step.tokens, kAbsent);
      add(step, placed[i], cells);
    }
  }

  /// Worsens the cells of a row by what one tensor says of the step's tokens.
  void add(const MapStep& step, const Placed& placed, Cell* cells) {
    const TensorGlance& tensor = placed.tensor;
    const Range tokens = tokens_of(step, placed);
    std::vector<Health> detail;
    if (has_detail(placed)) detail = run_.token_health(tensor.id);
    if (static_cast<std::int64_t>(detail.size()) != tensor.tokens) {
      const Cell whole = whole_cell(tensor);
      for (std::int64_t i = tokens.begin; i < tokens.end; ++i) cells[i] = std::max(cells[i], whole);
      return;
    }
    const std::int64_t ahead = ahead_of(step, tensor);
    for (std::int64_t i = tokens.begin; i < tokens.end; ++i) {
      const Health& health = detail[static_cast<std::size_t>(i - ahead)];
      cells[i] = std::max(cells[i], cell_of(health, headroom(tensor, health)));
    }
  }

  /// What is told of requests and of neighbouring steps.
  void sum_up() {
    std::unordered_map<std::int64_t, MapRequest*> request_of;
    for (MapRequest& request : map_.requests) request_of.emplace(request.row.id, &request);
    for (std::size_t i = 0; i < map_.steps.size(); ++i) {
      const MapStep& step = map_.steps[i];
      map_.step_of.emplace(std::pair{step.row.request, step.row.index}, i);
      const auto request = request_of.find(step.row.request);
      if (request != request_of.end()) {
        request->second->steps.push_back(static_cast<std::uint32_t>(i));
        request->second->worst = std::max(request->second->worst, step.worst);
      }
      const bool same = !map_.spans.empty() && map_.spans.back().request == step.row.request &&
                        map_.spans.back().kind == step.row.kind;
      if (!same) map_.spans.push_back({step.row.request, step.row.kind, step.first_column, step.first_column, 0});
      map_.spans.back().end = step.first_column + step.tokens;
      ++map_.spans.back().steps;
    }
  }

  RunData& run_;
  std::stop_token stop_;
  std::optional<ForeignScales> scales_;
  std::set<std::int64_t> reads_keys_;
  std::vector<std::uint32_t> inexact_;  ///< steps, the next one last
  RunMap map_;
};

RunMapMaker::RunMapMaker(RunData& run, std::stop_token stop) : impl_(std::make_unique<Impl>(run, std::move(stop))) {}
RunMapMaker::~RunMapMaker() = default;
Status RunMapMaker::begin() { return impl_->begin(); }
Status RunMapMaker::refine(Clock::time_point deadline) { return impl_->refine(deadline); }
const RunMap& RunMapMaker::map() const { return impl_->map(); }
RunMap RunMapMaker::take() { return std::move(impl_->map()); }

const MapRequest* RunMap::request(std::int64_t id) const {
  const auto at = std::find_if(requests.begin(), requests.end(), [id](const MapRequest& r) { return r.row.id == id; });
  return at == requests.end() ? nullptr : &*at;
}

const MapStep* RunMap::step_at(std::int64_t column) const {
  if (column < 0 || column >= columns) return nullptr;
  const auto after = std::upper_bound(steps.begin(), steps.end(), column,
                                      [](std::int64_t c, const MapStep& step) { return c < step.first_column; });
  return after == steps.begin() ? nullptr : &*std::prev(after);
}

const MapStep* RunMap::find_step(std::int64_t request, std::int64_t index) const {
  const auto at = step_of.find({request, index});
  return at == step_of.end() ? nullptr : &steps[at->second];
}

std::optional<std::size_t> RunMap::find_row(std::int64_t layer, const std::string& op) const {
  const auto at =
      std::find_if(rows.begin(), rows.end(), [&](const MapRow& row) { return row.layer == layer && row.op == op; });
  if (at == rows.end()) return std::nullopt;
  return static_cast<std::size_t>(at - rows.begin());
}

std::optional<std::size_t> RunMap::find_op(const Place& place) const {
  if (!place.request || !place.step) return std::nullopt;
  const MapStep* step = find_step(*place.request, *place.step);
  const auto row = find_row(place.layer.value_or(-1), place.op);
  if (step == nullptr || !row) return std::nullopt;
  for (std::size_t i = step->first_op; i < ops.size() && &steps[ops[i].step] == step; ++i) {
    if (ops[i].row == *row) return i;
  }
  return std::nullopt;
}

std::optional<std::int64_t> RunMap::find_column(const Place& place) const {
  if (!place.request || !place.step) return std::nullopt;
  const MapStep* step = find_step(*place.request, *place.step);
  if (step == nullptr || step->tokens == 0) return std::nullopt;
  const std::int64_t in_step = place.token.value_or(step->row.first_token) - step->row.first_token;
  return step->first_column + std::clamp<std::int64_t>(in_step, 0, step->tokens - 1);
}

Place RunMap::place_of_op(std::size_t op) const {
  const MapOp& at = ops[op];
  Place place;
  place.request = steps[at.step].row.request;
  place.step = steps[at.step].row.index;
  place.layer = rows[at.row].layer;
  place.op = rows[at.row].op;
  return place;
}

Place RunMap::place_at(std::int64_t column, std::size_t row) const {
  Place place;
  const MapStep* step = step_at(column);
  if (step == nullptr || row >= rows.size()) return place;
  place.request = step->row.request;
  place.step = step->row.index;
  place.layer = rows[row].layer;
  place.op = rows[row].op;
  place.token = step->row.first_token + column - step->first_column;
  return place;
}

Result<RunMap> make_run_map(RunData& run, std::stop_token stop) {
  RunMapMaker maker(run, std::move(stop));
  if (Status begun = maker.begin(); !begun) return tl::unexpected(begun.error());
  if (Status refined = maker.refine(RunMapMaker::Clock::time_point::max()); !refined) {
    return tl::unexpected(refined.error());
  }
  return maker.take();
}

}  // namespace nanscope::gui

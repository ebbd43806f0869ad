#include "gui/prepare/run_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/numbers/format.h"
#include "core/run/kv_cache.h"
#include "gui/prepare/foreign_scales.h"
#include "gui/prepare/map_tokens.h"
#include "gui/prepare/requests_told.h"
#include "gui/prepare/run_map_rows.h"
#include "gui/prepare/subject.h"
#include "instrument/diagnosis/casts.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "instrument/recompute/recompute.h"

namespace nanscope::gui {
namespace {

// A map of more cells than this is a damaged recording, or wants memory that the window does not have.
constexpr std::int64_t kMaxCells = std::int64_t{1} << 26;

/// The number behind "scores_" in "scores_1".
std::optional<std::int32_t> number_behind(std::string_view name, std::string_view stem) {
  if (name.size() <= stem.size() + 1 || !name.starts_with(stem) || name[stem.size()] != '_') return std::nullopt;
  const std::string_view digits = name.substr(stem.size() + 1);
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool all = error == std::errc() && end == digits.data() + digits.size();
  return all && number >= 0 ? std::optional(number) : std::nullopt;
}

/// The name of an op that runs once a span, without its span's number.
std::string_view stem_of(const OpRow& op) {
  const bool apart = op.kind == "kv_read" || op.kind == "attention_scores" || op.kind == "softmax" ||
                     op.kind == "softmax_partials" || op.kind == "mix_partials" || op.kind == "recurrent_scan";
  const std::size_t bar = op.name.rfind('_');
  return apart && bar != std::string::npos ? std::string_view(op.name).substr(0, bar) : std::string_view();
}

}  // namespace

class RunMapMaker::Impl {
 public:
  Impl(RunView& view, RunData& run, std::stop_token stop) : view_(view), run_(run), stop_(std::move(stop)) {}

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
    map_.exact = done();
    return {};
  }

  Status refine(Clock::time_point deadline) {
    while (!inexact_.empty()) {
      if (stop_.stop_requested()) return fail("stopped");
      refine_step(inexact_.back());
      inexact_.pop_back();
      if (Status status = status_of_reads(); !status) return status;
      if (Clock::now() >= deadline) break;
    }
    if (inexact_.empty() && clips_wait_) {
      mark_clipped();
      clips_wait_ = false;
    }
    map_.exact = done();
    return status_of_reads();
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
    for (const RequestRow& row : requests_of(view_)) {
      MapRequest request{row, {}, {}, kAbsent};
      for (TokenRow& token : run_.tokens(row.id)) request.token_text.emplace(token.position, std::move(token.text));
      map_.requests.push_back(std::move(request));
    }
  }

  Status status_of_reads() const {
    Status status = run_.status();
    return status ? view_.status() : status;
  }

  bool done() const { return inexact_.empty() && !clips_wait_; }

  /// The rows of a step of one request of a recording are its tokens, and glances tell all of them. Of other steps
  /// the view knows whose rows they are.
  bool is_plain(const Step& step) const {
    if (view_.info().device == kDumpDevice || step.spans.size() != 1) return false;
    return step.spans.front().row == 0 && step.spans.front().rows == step.rows;
  }

  /// A step prefills if one of its requests does; beside it, others may decode.
  StepKind kind_of(const Step& step, const Span& span) const {
    if (step.kind != StepKind::prefill) return step.kind;
    const MapRequest* request = step.spans.size() > 1 ? map_.request(span.request) : nullptr;
    if (request == nullptr || request->row.prompt_tokens.empty()) return step.kind;
    return span.first_token >= std::ssize(request->row.prompt_tokens) ? StepKind::decode : step.kind;
  }

  /// Rows and columns, before there is a cell.
  Status lay_out() {
    std::unordered_map<std::int64_t, std::uint32_t> step_of;
    for (const Step& step : view_.steps()) {
      if (step.spans.empty()) continue;
      step_of.emplace(step.id, static_cast<std::uint32_t>(map_.steps.size()));
      for (const Span& span : step.spans) {
        MapStep one;
        one.row.id = step.id;
        one.row.request = span.request;
        one.row.index = span.index;
        one.row.kind = kind_of(step, span);
        one.row.first_token = span.first_token;
        one.row.tokens = span.rows;
        one.row.context = span.context;
        one.rank = step.rank;
        one.first_column = map_.columns;
        one.tokens = std::clamp<std::int64_t>(span.rows, 0, kMaxCells + 1);
        map_.columns += one.tokens;
        map_.steps.push_back(std::move(one));
        plain_.push_back(is_plain(step));
        if (map_.columns > kMaxCells) return too_large(map_.columns, 1);
      }
    }
    RowFinder rows;
    read_ops(step_of, rows);
    for (std::size_t i = 1; i < map_.steps.size(); ++i) {
      if (map_.steps[i].row.id == map_.steps[i - 1].row.id) map_.steps[i].first_op = map_.steps[i - 1].first_op;
    }
    if (stop_.stop_requested()) return fail("stopped");
    const std::vector<std::uint32_t> went = rows.sort_into(map_.rows);
    for (MapOp& op : map_.ops) op.row = went[op.row];
    for (const std::uint32_t row : once_a_span_) map_.rows[went[row]].once_a_span = true;
    const auto height = static_cast<std::int64_t>(map_.rows.size());
    if (height > 0 && map_.columns > kMaxCells / height) return too_large(map_.columns, height);
    return status_of_reads();
  }

  void read_ops(const std::unordered_map<std::int64_t, std::uint32_t>& step_of, RowFinder& rows) {
    map_.ops.reserve(static_cast<std::size_t>(std::clamp<std::int64_t>(map_.counts.ops, 0, kMaxCells)));
    std::int64_t step_id = 0;
    std::uint32_t step = 0;
    bool known = false;
    bool in_layers = false;
    std::int32_t spans = 1;
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
        spans = spans_of(step);
        in_layers = false;
        row = std::numeric_limits<std::uint32_t>::max();
      }
      in_layers = in_layers || op.layer >= 0;
      const std::string_view stem = stem_of(op);
      const auto span = spans > 1 && !stem.empty() ? number_behind(op.name, stem) : std::nullopt;
      const bool once_a_span = span && *span < spans;
      row = rows.find(op.layer, in_layers, once_a_span ? std::string(stem) : op.name, row + 1);
      if (once_a_span) once_a_span_.insert(row);
      map_.ops.push_back({op.id, step, row, once_a_span ? *span : -1});
      if (op.kind == "kv_read") reads_keys_.insert(op.id);
      return !stop_.stop_requested();
    });
    for (std::size_t i = known ? step + 1 : 0; i < map_.steps.size(); ++i) map_.steps[i].first_op = map_.ops.size();
  }

  /// Neighbours are of one step.
  std::int32_t spans_of(std::uint32_t step) const {
    std::uint32_t end = step + 1;
    while (end < map_.steps.size() && map_.steps[end].row.id == map_.steps[step].row.id) ++end;
    return static_cast<std::int32_t>(end - step);
  }

  static Status too_large(std::int64_t columns, std::int64_t rows) {
    return fail(fmt::format("the run claims {} tokens in {} ops, more than can be mapped", columns, rows));
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
      if (op == nullptr || !plain_[op->step]) return !stop_.stop_requested();
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
    for (std::uint32_t i = 0; i < map_.steps.size() && !stop_.stop_requested(); ++i) {
      if (plain_[i] || (i > 0 && map_.steps[i].row.id == map_.steps[i - 1].row.id)) continue;
      paint(i, false);
      inexact_.push_back(i);
      clips_wait_ = true;
    }
    if (stop_.stop_requested()) return fail("stopped");
    return status_of_reads();
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

  double headroom(OpId op, const std::string& role, Format format, const Health& health) {
    if (!scales_) scales_.emplace(view_);
    return scales_->headroom(op, role, format, health.absmax);
  }
  Cell cell(const TensorGlance& tensor, const Health& health) {
    return cell_of(health, may_hide(tensor.role), headroom(tensor.op, tensor.role, tensor.format, health));
  }
  Cell cell(const Tensor& tensor, const Health& health) {
    return cell_of(health, tensor.hides || may_hide(tensor.role),
                   headroom(tensor.op, tensor.role, tensor.format, health));
  }
  Cell whole_cell(const TensorGlance& tensor) { return cell(tensor, tensor.health); }

  /// All cells of a step that the view tells whose rows they are: `first` is its first request's. Not `exact`, all
  /// tokens show the worst of their tensor.
  void paint(std::uint32_t first, bool exact) {
    const Step* step = view_.step(map_.steps[first].row.id);
    if (step == nullptr) return;
    std::size_t hint = map_.steps[first].first_op;
    const auto [begin, end] = map_.columns_of(map_.steps[first]);
    for (std::size_t row = 0; row < map_.rows.size(); ++row) {
      Cell* cells = map_.cells.data() + row * static_cast<std::size_t>(map_.columns);
      std::fill(cells + begin, cells + end, kAbsent);
    }
    for (const Tensor& tensor : view_.content(step->id).tensors) {
      const MapOp* op = op_of(tensor.op, hint);
      if (stop_.stop_requested()) return;
      if (op == nullptr || op->step != first || !tensor.known) continue;
      Cell* cells = map_.cells.data() + std::size_t{op->row} * static_cast<std::size_t>(map_.columns);
      paint_tensor({*step, first, begin, end}, tensor, cells, exact);
    }
    for (std::uint32_t i = first; i < first + step->spans.size(); ++i) {
      MapStep& one = map_.steps[i];
      one.worst = kAbsent;
      for (std::size_t row = 0; row < map_.rows.size(); ++row) {
        const auto cells =
            map_.row(row).subspan(static_cast<std::size_t>(one.first_column), static_cast<std::size_t>(one.tokens));
        if (!cells.empty()) one.worst = std::max(one.worst, *std::max_element(cells.begin(), cells.end()));
      }
    }
  }

  /// A step and its columns.
  struct Painted {
    const Step& step;
    std::uint32_t first = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  void paint_tensor(const Painted& at, const Tensor& tensor, Cell* cells, bool exact) {
    const auto worsen = [](Cell& into, Cell by) { into = std::max(into, by); };
    const auto all = [&](Cell by) {
      for (std::int64_t i = at.begin; i < at.end; ++i) worsen(cells[i], by);
    };
    // A parameter is of all tokens. Of a pool, only what the step's tokens stored concerns them.
    if (tensor.axis == Axis::slots && !exact) return;
    const Health whole = whole_health(view_, tensor);
    if (tensor.axis == Axis::none || !exact) return all(cell(tensor, whole));
    const std::vector<Health> rows = tensor.tokens == 1 ? std::vector{whole} : view_.rows(tensor);
    if (rows.empty()) return tensor.axis == Axis::slots ? void() : all(cell(tensor, whole));
    each_token(at, tensor, [&](std::int64_t row, std::int64_t column) {
      worsen(cells[column], cell(tensor, rows[static_cast<std::size_t>(row)]));
    });
  }

  template <class Visit>
  void each_token(const Painted& at, const Tensor& tensor, const Visit& visit) {
    each_map_token({map_, view_, cache()}, at.step, at.first, tensor, visit);
  }

  KvCache& cache() {
    if (!cache_) cache_.emplace(view_);
    return *cache_;
  }

  /// What casts to codes lost, where no recording counted it.
  void mark_clipped() {
    Facts facts(view_);
    KernelArithmetic arithmetic;
    Recomputer recomputer(facts, arithmetic);
    for (const Cast& cast : casts_of(recomputer.values())) {
      const Tensor* codes = view_.tensor(cast.codes);
      std::size_t hint = 0;
      const MapOp* op = op_of(cast.op, hint);
      if (!cast.clips() || codes == nullptr || op == nullptr || plain_[op->step]) continue;
      const MapStep& first = map_.steps[op->step];
      const auto [begin, end] = map_.columns_of(first);
      Cell* cells = map_.cells.data() + std::size_t{op->row} * static_cast<std::size_t>(map_.columns);
      map_.clipped_rows[cast.codes] = cast.clipped_rows;
      each_token({*view_.step(first.row.id), op->step, begin, end}, *codes, [&](std::int64_t row, std::int64_t column) {
        if (!std::binary_search(cast.clipped_rows.begin(), cast.clipped_rows.end(), row)) return;
        cells[column] = std::max(cells[column], kClipped);
        MapStep& of = map_.steps[static_cast<std::size_t>(map_.step_at(column) - map_.steps.data())];
        of.worst = std::max(of.worst, kClipped);
      });
    }
    worst_of_requests();
  }

  /// All cells of a step again, from the health of the tokens.
  void refine_step(std::uint32_t index) {
    if (!plain_[index]) {
      paint(index, true);
      worst_of_requests();
      return;
    }
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
      cells[i] = std::max(cells[i], cell(tensor, health));
    }
  }

  /// What is told of requests and of neighbouring steps.
  void sum_up() {
    std::unordered_map<std::int64_t, MapRequest*> request_of;
    for (MapRequest& request : map_.requests) request_of.emplace(request.row.id, &request);
    for (std::size_t i = 0; i < map_.steps.size(); ++i) {
      const MapStep& step = map_.steps[i];
      map_.step_of.emplace(std::tuple{step.rank, step.row.request, step.row.index}, i);
      const auto request = request_of.find(step.row.request);
      if (request != request_of.end()) request->second->steps.push_back(static_cast<std::uint32_t>(i));
      const bool same = !map_.spans.empty() && map_.spans.back().request == step.row.request &&
                        map_.spans.back().kind == step.row.kind && map_.spans.back().rank == step.rank;
      if (!same) {
        map_.spans.push_back({step.rank, step.row.request, step.row.kind, step.first_column, step.first_column, 0});
      }
      map_.spans.back().end = step.first_column + step.tokens;
      ++map_.spans.back().steps;
    }
    worst_of_requests();
  }

  void worst_of_requests() {
    for (MapRequest& request : map_.requests) {
      request.worst = kAbsent;
      for (const std::uint32_t step : request.steps) request.worst = std::max(request.worst, map_.steps[step].worst);
    }
  }

  RunView& view_;
  RunData& run_;
  std::stop_token stop_;
  std::vector<bool> plain_;  ///< of each of the map's steps
  bool clips_wait_ = false;  ///< casts are still to be looked at
  std::optional<KvCache> cache_;
  std::optional<ForeignScales> scales_;
  std::set<std::uint32_t> once_a_span_;  ///< rows
  std::set<std::int64_t> reads_keys_;
  std::vector<std::uint32_t> inexact_;  ///< steps, the next one last
  RunMap map_;
};

RunMapMaker::RunMapMaker(RunView& view, RunData& rows, std::stop_token stop)
    : impl_(std::make_unique<Impl>(view, rows, std::move(stop))) {}
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

const MapStep* RunMap::find_step(std::int64_t request, std::int64_t index, std::int64_t rank) const {
  const auto at = step_of.find({rank, request, index});
  return at == step_of.end() ? nullptr : &steps[at->second];
}

const MapStep* RunMap::find_step(const Place& place) const {
  return place.request && place.step ? find_step(*place.request, *place.step, place.rank) : nullptr;
}

const MapStep* RunMap::first_of(const MapStep& step) const {
  const MapStep* first = &step;
  while (first != steps.data() && first[-1].row.id == step.row.id) --first;
  return first;
}

std::pair<std::int64_t, std::int64_t> RunMap::columns_of(const MapStep& step) const {
  const MapStep* first = first_of(step);
  const MapStep* last = &step;
  while (last + 1 != steps.data() + steps.size() && last[1].row.id == step.row.id) ++last;
  return {first->first_column, last->first_column + last->tokens};
}

std::optional<std::size_t> RunMap::find_row(std::int64_t layer, const std::string& op) const {
  const auto at = std::find_if(rows.begin(), rows.end(), [&](const MapRow& row) {
    return row.layer == layer && (row.op == op || (row.once_a_span && number_behind(op, row.op)));
  });
  if (at == rows.end()) return std::nullopt;
  return static_cast<std::size_t>(at - rows.begin());
}

std::optional<std::size_t> RunMap::find_op(const Place& place) const {
  const MapStep* step = find_step(place);
  const auto row = find_row(place.layer.value_or(-1), place.op);
  if (step == nullptr || !row) return std::nullopt;
  for (std::size_t i = step->first_op; i < ops.size() && steps[ops[i].step].row.id == step->row.id; ++i) {
    if (ops[i].row == *row && name_of(ops[i]) == place.op) return i;
  }
  return std::nullopt;
}

std::string RunMap::name_of(const MapOp& op) const {
  const std::string& name = rows[op.row].op;
  return op.span < 0 ? name : fmt::format("{}_{}", name, op.span);
}

std::optional<std::int64_t> RunMap::find_column(const Place& place) const {
  const MapStep* step = find_step(place);
  if (step == nullptr || step->tokens == 0) return std::nullopt;
  const std::int64_t in_step = place.token.value_or(step->row.first_token) - step->row.first_token;
  return step->first_column + std::clamp<std::int64_t>(in_step, 0, step->tokens - 1);
}

Place RunMap::place_of_op(std::size_t op) const { return place_of_op(op, steps[ops[op].step]); }

Place RunMap::place_of_op(std::size_t op, const MapStep& step) const {
  const MapOp& at = ops[op];
  Place place;
  place.rank = step.rank;
  place.request = step.row.request;
  place.step = step.row.index;
  place.layer = rows[at.row].layer;
  place.op = name_of(at);
  return place;
}

Place RunMap::place_at(std::int64_t column, std::size_t row) const {
  Place place;
  const MapStep* step = step_at(column);
  if (step == nullptr || row >= rows.size()) return place;
  place.rank = step->rank;
  place.request = step->row.request;
  place.step = step->row.index;
  place.layer = rows[row].layer;
  place.op = rows[row].op;
  const auto span = static_cast<std::int32_t>(step - first_of(*step));
  for (std::size_t i = step->first_op; rows[row].once_a_span && i < ops.size(); ++i) {
    if (steps[ops[i].step].row.id != step->row.id) break;
    if (ops[i].row == row && ops[i].span == span) place.op = name_of(ops[i]);
  }
  place.token = step->row.first_token + column - step->first_column;
  return place;
}

Result<RunMap> make_run_map(RunView& view, RunData& rows, std::stop_token stop) {
  RunMapMaker maker(view, rows, std::move(stop));
  if (Status begun = maker.begin(); !begun) return tl::unexpected(begun.error());
  if (Status refined = maker.refine(RunMapMaker::Clock::time_point::max()); !refined) {
    return tl::unexpected(refined.error());
  }
  return maker.take();
}

}  // namespace nanscope::gui

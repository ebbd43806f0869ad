#include "gui/prepare/run_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "core/numbers/format.h"

namespace nanscope::gui {
namespace {

// A map of more cells than this is a damaged recording, or wants memory that the window does not have.
constexpr std::int64_t kMaxCells = std::int64_t{1} << 27;

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
  std::uint32_t find(std::int64_t layer, bool after_layers, const std::string& op) {
    const Key key{group_order(layer, after_layers), op};
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
  bool covers(const TensorRow& tensor) const {
    return found_.contains({tensor.op, tensor.role.substr(0, tensor.role.find('_'))});
  }

 private:
  std::set<std::pair<std::int64_t, std::string>> found_;
};

class MapMaker {
 public:
  MapMaker(RunData& run, std::stop_token stop) : run_(run), stop_(std::move(stop)), scales_(run) {}

  Result<RunMap> make() {
    map_.counts = run_.counts();
    read_requests();
    if (Status laid = lay_out(); !laid) return tl::unexpected(laid.error());
    map_.cells.assign(map_.rows.size() * static_cast<std::size_t>(map_.columns), kAbsent);
    for (MapStep& step : map_.steps) {
      if (stop_.stop_requested()) return fail("stopped");
      fill(step);
    }
    if (Status status = run_.status(); !status) return tl::unexpected(status.error());
    sum_up();
    return std::move(map_);
  }

 private:
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

  void read_requests() {
    for (const RequestRow& row : run_.requests()) {
      MapRequest request{row, {}, {}, kAbsent};
      for (TokenRow& token : run_.tokens(row.id)) request.token_text.emplace(token.position, std::move(token.text));
      map_.requests.push_back(std::move(request));
    }
  }

  /// Rows and columns, before there is a cell.
  Status lay_out() {
    RowFinder rows;
    for (const StepRow& row : run_.steps()) {
      if (stop_.stop_requested()) return fail("stopped");
      MapStep step{row, map_.columns, std::clamp<std::int64_t>(row.tokens, 0, kMaxCells + 1), map_.ops.size(), kAbsent};
      map_.columns += step.tokens;
      if (map_.columns > kMaxCells) return too_large(map_.columns, 1);
      bool in_layers = false;
      OpFilter filter;
      filter.step = row.id;
      for (const OpRow& op : run_.ops(filter)) {
        in_layers = in_layers || op.layer >= 0;
        map_.ops.push_back(
            {op.id, static_cast<std::uint32_t>(map_.steps.size()), rows.find(op.layer, in_layers, op.name)});
        if (op.kind == "kv_read") reads_keys_.insert(op.id);
      }
      map_.steps.push_back(step);
    }
    const std::vector<std::uint32_t> went = rows.sort_into(map_.rows);
    for (MapOp& op : map_.ops) op.row = went[op.row];
    const auto height = static_cast<std::int64_t>(map_.rows.size());
    if (height > 0 && map_.columns > kMaxCells / height) return too_large(map_.columns, height);
    return run_.status();
  }

  static Status too_large(std::int64_t columns, std::int64_t rows) {
    return fail(fmt::format("the recording claims {} tokens in {} ops, more than can be mapped", columns, rows));
  }

  void fill(MapStep& step) {
    std::unordered_map<std::int64_t, std::uint32_t> row_of;
    for (std::size_t i = step.first_op; i < map_.ops.size() && &map_.steps[map_.ops[i].step] == &step; ++i) {
      row_of.emplace(map_.ops[i].id, map_.ops[i].row);
    }
    TensorFilter filter;
    filter.step = step.row.id;
    for (const TensorRow& tensor : run_.tensors(filter)) {
      const auto at = row_of.find(tensor.op);
      if (at != row_of.end()) add(step, tensor, at->second);
    }
  }

  double headroom(const TensorRow& tensor, const Health& health) const {
    const FormatInfo& format = info(tensor.format);
    if (format.storage_bytes() < 2 && !scales_.covers(tensor)) return 0;
    return health.absmax > 0 ? static_cast<double>(format.max_finite) / static_cast<double>(health.absmax) : 0;
  }

  /// Worsens the cells of a row by what one tensor says of the step's tokens.
  void add(MapStep& step, const TensorRow& tensor, std::uint32_t row) {
    Cell* cells = map_.cells.data() + std::size_t{row} * static_cast<std::size_t>(map_.columns) + step.first_column;
    const Cell whole = cell_of(tensor.health, headroom(tensor, tensor.health));
    step.worst = std::max(step.worst, whole);
    if (reads_keys_.contains(tensor.op)) {  // its rows are keys, which all tokens of the step read
      for (std::int64_t i = 0; i < step.tokens; ++i) cells[i] = std::max(cells[i], whole);
      return;
    }
    std::vector<Health> detail;
    if (tensor.tokens > 1 && whole != kAbsent) detail = run_.token_health(tensor.id);
    const bool detailed = static_cast<std::int64_t>(detail.size()) == tensor.tokens;
    const std::int64_t begin = std::max<std::int64_t>(0, step.row.first_token - tensor.first_token);
    const std::int64_t end = std::min(tensor.tokens, step.row.first_token + step.tokens - tensor.first_token);
    for (std::int64_t i = begin; i < end; ++i) {
      Cell& cell = cells[tensor.first_token + i - step.row.first_token];
      const Health& health = detailed ? detail[static_cast<std::size_t>(i)] : tensor.health;
      cell = std::max(cell, detailed ? cell_of(health, headroom(tensor, health)) : whole);
    }
  }

  RunData& run_;
  std::stop_token stop_;
  ForeignScales scales_;
  std::set<std::int64_t> reads_keys_;
  RunMap map_;
};

}  // namespace

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

Result<RunMap> make_run_map(RunData& run, std::stop_token stop) { return MapMaker(run, std::move(stop)).make(); }

}  // namespace nanscope::gui

#include "instrument/diagnosis/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nanscope {
namespace {

/// Cells of a map, whatever a recording says of its tokens and layers: a byte each.
constexpr std::int64_t kMostCells = std::int64_t{1} << 27;

CellHealth cell_of(const Tensor& tensor, const Health& health) {
  if (health.nan > 0) return CellHealth::nan;
  if (RunView::symptomatic(tensor, health)) return CellHealth::inf;
  if (health.clipped > 0) return CellHealth::clipped;
  return health.count > 0 ? CellHealth::healthy : CellHealth::absent;
}

/// Keys, slots of the cache and parameters are no tokens of the step.
bool speaks_of_tokens(const Tensor& tensor) {
  return tensor.known && tensor.axis != Axis::keys && tensor.axis != Axis::slots && tensor.axis != Axis::none;
}

/// The step that is drawn and the rows of the request in it.
struct Drawn {
  StepId step = 0;
  Span span;
};

void worsen(CellHealth& cell, CellHealth by) { cell = std::max(cell, by); }

/// Worsens the row's cells by what one tensor says of its tokens. Goes over the tokens that are drawn: how many rows a
/// tensor has may be a damaged number.
void add(RunView& run, const Tensor& tensor, const Drawn& drawn, FrontRow& row) {
  const CellHealth all = cell_of(tensor, tensor.health);
  const std::vector<Health>* detail = nullptr;
  if (all > CellHealth::healthy && tensor.tokens > 1) {
    detail = &run.rows(tensor);
    if (detail->empty()) {
      detail = nullptr;
      row.detailed = false;
    }
  }
  // Of all tokens alike: to look up the row of each would take most of the time.
  const bool all_rows = tensor.axis == Axis::rows || tensor.axis == Axis::live;
  const auto last = drawn.span.first_token + static_cast<std::int64_t>(row.cells.size()) - 1;
  if (detail == nullptr && all_rows && !row.cells.empty() && run.row_at(tensor, drawn.span, drawn.span.first_token) &&
      run.row_at(tensor, drawn.span, last)) {
    for (CellHealth& cell : row.cells) worsen(cell, all);
    return;
  }
  for (std::size_t column = 0; column < row.cells.size(); ++column) {
    const auto at = run.row_at(tensor, drawn.span, drawn.span.first_token + static_cast<std::int64_t>(column));
    if (!at) continue;
    const CellHealth cell = detail == nullptr ? all : cell_of(tensor, (*detail)[static_cast<std::size_t>(*at)]);
    worsen(row.cells[column], cell);
  }
}

Result<Front> empty_front(RunView& run, std::int64_t request, std::int64_t step, std::optional<std::int64_t> rank,
                          Drawn& found) {
  const Step* row = run.find_step(request, step, rank);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  if (row == nullptr) return fail(fmt::format("request {} has no step {}", request, step));
  const auto span = std::find_if(row->spans.begin(), row->spans.end(),
                                 [&](const Span& one) { return one.request == request && one.index == step; });
  found = {row->id, *span};
  Front front;
  front.request = request;
  front.step = step;
  front.kind = row->kind;
  front.rank = row->rank;
  front.first_token = span->first_token;
  front.tokens = std::max<std::int64_t>(span->rows, 0);
  return front;
}

/// Room for one row more.
Status grow(const Front& front) {
  const auto rows = static_cast<std::int64_t>(front.rows.size()) + 1;
  if (front.tokens <= kMostCells / rows) return {};
  return fail(fmt::format("request {} step {}: a map of {} tokens and {} rows or more is too large to be drawn",
                          front.request, front.step, front.tokens, rows));
}

FrontRow empty_row(const Front& front, std::string label, std::optional<std::int64_t> layer) {
  FrontRow row;
  row.label = std::move(label);
  row.layer = layer.value_or(-1);
  row.cells.assign(static_cast<std::size_t>(front.tokens), CellHealth::absent);
  return row;
}

/// Worsens the row's cells by what an op made; false when that says nothing of tokens.
bool add(RunView& run, const Op& op, const Drawn& drawn, FrontRow& row) {
  bool any = false;
  for (const TensorId id : op.outputs) {
    const Tensor* tensor = run.tensor(id);
    if (tensor == nullptr || !speaks_of_tokens(*tensor)) continue;
    any = true;
    add(run, *tensor, drawn, row);
  }
  return any;
}

}  // namespace

bool Front::clean() const {
  return std::all_of(rows.begin(), rows.end(), [](const FrontRow& row) {
    return std::all_of(row.cells.begin(), row.cells.end(), [](CellHealth cell) { return cell <= CellHealth::healthy; });
  });
}

Result<Front> front(RunView& run, std::int64_t request, std::int64_t step, std::optional<std::int64_t> rank) {
  Drawn drawn;
  Result<Front> made = empty_front(run, request, step, rank, drawn);
  if (!made) return made;
  bool in_layers = false;
  for (const Op& op : run.content(drawn.step).ops) {
    std::string label = op.layer ? fmt::format("layer {}", *op.layer) : std::string(in_layers ? "head" : "embed");
    if (!made->rows.empty() && made->rows.back().label == label) {
      add(run, op, drawn, made->rows.back());
      continue;
    }
    if (Status room = grow(*made); !room) return tl::unexpected(room.error());
    FrontRow next = empty_row(*made, std::move(label), op.layer);
    if (!add(run, op, drawn, next)) continue;
    in_layers = in_layers || op.layer.has_value();
    made->rows.push_back(std::move(next));
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return made;
}

Result<Front> front_of_layer(RunView& run, std::int64_t request, std::int64_t step, std::int64_t layer) {
  Drawn drawn;
  Result<Front> made = empty_front(run, request, step, {}, drawn);
  if (!made) return made;
  for (const Op& op : run.content(drawn.step).ops) {
    if (op.layer.value_or(-1) != layer) continue;
    if (Status room = grow(*made); !room) return tl::unexpected(room.error());
    FrontRow next = empty_row(*made, op.name, op.layer);
    next.op = op.id;
    if (add(run, op, drawn, next)) made->rows.push_back(std::move(next));
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return made;
}

}  // namespace nanscope

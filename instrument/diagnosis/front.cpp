#include "instrument/diagnosis/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace nanscope {
namespace {

// A step of more tokens than any context is a damaged row, not a map to draw.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 26;

CellHealth cell_of(const Health& health) {
  if (health.nan > 0) return CellHealth::nan;
  if (health.pos_inf + health.neg_inf > 0) return CellHealth::inf;
  if (health.clipped > 0) return CellHealth::clipped;
  return health.count > 0 ? CellHealth::healthy : CellHealth::absent;
}

/// Worsens the row's cells by what one tensor says of its tokens.
void add(RunData& run, const TensorRow& tensor, const Front& front, FrontRow& row) {
  const CellHealth all = cell_of(tensor.health);
  std::vector<Health> detail;
  if (all > CellHealth::healthy && tensor.tokens > 1) {
    detail = run.token_health(tensor.id);
    if (static_cast<std::int64_t>(detail.size()) != tensor.tokens) {
      detail.clear();
      row.detailed = false;
    }
  }
  const std::int64_t begin = std::max<std::int64_t>(0, front.first_token - tensor.first_token);
  const std::int64_t end = std::min(tensor.tokens, front.first_token + front.tokens - tensor.first_token);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t column = tensor.first_token + i - front.first_token;
    const CellHealth cell = detail.empty() ? all : cell_of(detail[static_cast<std::size_t>(i)]);
    CellHealth& at = row.cells[static_cast<std::size_t>(column)];
    at = std::max(at, cell);
  }
}

/// The rows of kv_read are keys, not tokens of the step.
bool speaks_of_tokens(const OpRow& op) { return op.kind != "kv_read"; }

Result<Front> empty_front(RunData& run, std::int64_t request, std::int64_t step, StepRow& found) {
  const StepRow* row = run.find_step(request, step);
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  if (row == nullptr) return fail(fmt::format("request {} has no step {}", request, step));
  if (row->tokens > kMaxTokens) {
    return fail(
        fmt::format("request {} step {} claims {} tokens, more than {}", request, step, row->tokens, kMaxTokens));
  }
  found = *row;
  Front front;
  front.request = request;
  front.step = step;
  front.first_token = row->first_token;
  front.tokens = std::max<std::int64_t>(row->tokens, 0);
  return front;
}

}  // namespace

bool Front::clean() const {
  return std::all_of(rows.begin(), rows.end(), [](const FrontRow& row) {
    return std::all_of(row.cells.begin(), row.cells.end(), [](CellHealth cell) { return cell <= CellHealth::healthy; });
  });
}

Result<Front> front(RunData& run, std::int64_t request, std::int64_t step) {
  StepRow row;
  Result<Front> made = empty_front(run, request, step, row);
  if (!made) return made;
  OpFilter op_filter;
  op_filter.step = row.id;
  std::unordered_map<std::int64_t, std::size_t> row_of_op;
  bool in_layers = false;
  for (const OpRow& op : run.ops(op_filter)) {
    if (!speaks_of_tokens(op)) continue;
    in_layers = in_layers || op.layer >= 0;
    std::string label = op.layer >= 0 ? fmt::format("layer {}", op.layer) : std::string(in_layers ? "head" : "embed");
    if (made->rows.empty() || made->rows.back().label != label) {
      FrontRow next;
      next.label = std::move(label);
      next.layer = op.layer;
      next.cells.assign(static_cast<std::size_t>(made->tokens), CellHealth::absent);
      made->rows.push_back(std::move(next));
    }
    row_of_op.emplace(op.id, made->rows.size() - 1);
  }
  TensorFilter filter;
  filter.step = row.id;
  for (const TensorRow& tensor : run.tensors(filter)) {
    const auto at = row_of_op.find(tensor.op);
    if (at != row_of_op.end()) add(run, tensor, *made, made->rows[at->second]);
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return made;
}

Result<Front> front_of_layer(RunData& run, std::int64_t request, std::int64_t step, std::int64_t layer) {
  StepRow row;
  Result<Front> made = empty_front(run, request, step, row);
  if (!made) return made;
  OpFilter filter;
  filter.step = row.id;
  filter.layer = layer;
  for (const OpRow& op : run.ops(filter)) {
    if (!speaks_of_tokens(op)) continue;
    FrontRow next;
    next.label = op.name;
    next.layer = layer;
    next.op = op.id;
    next.cells.assign(static_cast<std::size_t>(made->tokens), CellHealth::absent);
    for (const TensorRow& tensor : run.tensors_of(op.id)) add(run, tensor, *made, next);
    made->rows.push_back(std::move(next));
  }
  if (Status status = run.status(); !status) return tl::unexpected(status.error());
  return made;
}

}  // namespace nanscope

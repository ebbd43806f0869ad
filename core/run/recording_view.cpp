#include "core/run/recording_view.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace nanscope {
namespace {

Axis axis_of(const TensorRow& row, OpKind kind, const Step& step) {
  if (kind == OpKind::kv_read) return Axis::keys;
  const Span& span = step.spans.front();
  if (row.tokens == step.rows && row.first_token == span.first_token) return Axis::rows;
  if (row.tokens == 1 && row.first_token == span.context - 1) return Axis::ends;
  return Axis::part;
}

Tensor tensor_of(const TensorRow& row, const Op& op, const Step& step) {
  Tensor out;
  out.id = row.id;
  out.op = row.op;
  out.step = step.id;
  out.role = row.role;
  out.format = row.format;
  out.tokens = row.tokens;
  out.channels = row.channels;
  out.heads = std::max<std::int64_t>(1, row.heads);
  out.first_token = row.first_token;
  out.axis = axis_of(row, op.kind, step);
  out.health = row.health;
  return out;
}

/// The step in whose range an id lies, as far as it was read.
std::optional<StepId> known_step(const std::map<std::int64_t, StepId>& firsts, std::int64_t id, auto&& last_of) {
  auto after = firsts.upper_bound(id);
  if (after == firsts.begin()) return std::nullopt;
  --after;
  return id <= last_of(after->second) ? std::optional(after->second) : std::nullopt;
}

}  // namespace

std::span<const Step> RecordingView::steps() {
  if (!steps_) {
    steps_.emplace();
    for (const StepRow& row : rows_.steps()) {
      Step step;
      step.id = row.id;
      step.kind = row.kind;
      step.rows = row.tokens;
      step.spans = {{row.request, row.index, 0, row.tokens, row.first_token, row.context}};
      steps_->push_back(std::move(step));
    }
  }
  return *steps_;
}

const StepContent& RecordingView::content(StepId id) {
  const auto known = contents_.find(id);
  if (known != contents_.end()) return known->second;
  StepContent& content = contents_[id];
  const Step* step = this->step(id);
  if (step == nullptr) return content;
  OpFilter filter;
  filter.step = id;
  for (OpRow& row : rows_.ops(filter)) {
    Op op;
    op.id = row.id;
    op.step = id;
    if (row.layer >= 0) op.layer = row.layer;
    op.name = std::move(row.name);
    op.kind = op_kind(row.kind).value_or(OpKind::dumped);
    op.attributes = attributes_from_json(op.kind, row.attributes);
    for (InputRow& input : rows_.inputs_of(row.id)) {
      op.inputs.push_back({std::move(input.role), input.tensor, std::move(input.weight)});
    }
    for (const TensorRow& output : rows_.tensors_of(row.id)) {
      op.outputs.push_back(output.id);
      content.tensors.push_back(tensor_of(output, op, *step));
    }
    content.ops.push_back(std::move(op));
  }
  if (!content.ops.empty()) first_ops_[content.ops.front().id] = id;
  if (!content.tensors.empty()) first_tensors_[content.tensors.front().id] = id;
  return content;
}

std::vector<StepId> RecordingView::bad_steps() {
  std::vector<StepId> bad;
  TensorFilter next;
  next.bad_only = true;
  next.limit = 1;
  for (;;) {
    const std::vector<TensorRow> found = rows_.tensors(next);
    if (found.empty()) break;
    const std::optional<OpRow> op = rows_.op(found.front().op);
    if (!op) break;
    bad.push_back(op->step);
    // On to the first tensor of the next step.
    const auto after =
        std::find_if(rows_.steps().begin(), rows_.steps().end(), [&](const StepRow& row) { return row.id > op->step; });
    if (after == rows_.steps().end()) break;
    OpFilter first;
    first.step = after->id;
    first.limit = 1;
    const std::vector<OpRow> ops = rows_.ops(first);
    const std::vector<TensorRow> outputs = ops.empty() ? std::vector<TensorRow>{} : rows_.tensors_of(ops.front().id);
    next.first_id = outputs.empty() ? found.front().id + 1 : std::max(outputs.front().id, found.front().id + 1);
  }
  bad.erase(std::unique(bad.begin(), bad.end()), bad.end());
  return bad;
}

StepId RecordingView::step_of_op(OpId op) {
  const auto last = [this](StepId step) { return contents_.at(step).ops.back().id; };
  if (const auto known = known_step(first_ops_, op, last)) return *known;
  const std::optional<OpRow> row = rows_.op(op);
  return row ? row->step : -1;
}

StepId RecordingView::step_of_tensor(TensorId tensor) {
  const auto last = [this](StepId step) { return contents_.at(step).tensors.back().id; };
  if (const auto known = known_step(first_tensors_, tensor, last)) return *known;
  const std::optional<TensorRow> row = rows_.tensor(tensor);
  return row ? step_of_op(row->op) : -1;
}

Result<TensorData> RecordingView::read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  const std::shared_ptr<const TensorData> whole = tensors_.fetch(tensor.id);
  if (!whole) return fail("the elements were not recorded");
  if (whole->tokens != tensor.tokens || whole->channels != tensor.channels || whole->format != tensor.format) {
    return fail("the elements are not those of the row");
  }
  const auto row = static_cast<std::size_t>(tensor.channels) * nanscope::info(tensor.format).storage_bytes();
  const auto begin = whole->bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * row);
  TensorData out{tensor.format, count, tensor.channels, {}};
  out.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(count) * row));
  return out;
}

}  // namespace nanscope

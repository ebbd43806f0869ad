#include "core/run/recording_view.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/tensor/health_of.h"

namespace nanscope {
namespace {

/// Larger tensors are read some rows at a time.
constexpr std::int64_t kMostHeld = std::int64_t{64} << 20;

bool held(const Tensor& tensor) {
  return tensor.count() <= kMostHeld / static_cast<std::int64_t>(info(tensor.format).storage_bytes());
}

Axis axis_of(const TensorRow& row, OpKind kind, const Step* step) {
  if (row.axis) return *row.axis;
  if (step == nullptr) return Axis::none;
  return step->spans.empty() ? Axis::rows : axis_by_shape(row.tokens, row.first_token, kind, step->spans.front());
}

Tensor tensor_of(const TensorRow& row, const Op& op, const Step* step) {
  Tensor out;
  out.id = row.id;
  out.op = row.op;
  out.step = op.step;
  out.role = row.role;
  out.name = row.name;
  out.format = row.format;
  out.tokens = row.tokens;
  out.channels = row.channels;
  out.heads = std::max<std::int64_t>(1, row.heads);
  out.first_token = row.first_token;
  out.axis = axis_of(row, op.kind, step);
  out.sequence = row.sequence;
  out.health = row.health;
  // Nor does the maximum of tiles mean anything before the first key that a row sees, or of blocks where it sees none.
  const bool by_parts = op.kind == OpKind::tile_softmax || op.kind == OpKind::softmax_partials;
  out.hides = op.kind == OpKind::attention_scores || (by_parts && row.role == "max");
  out.hash = row.hash;
  out.known = row.known;
  out.guessed = row.guessed;
  out.stated = row.stated;
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

Axis axis_by_shape(std::int64_t tokens, std::int64_t first_token, OpKind kind, const Span& span) {
  if (kind == OpKind::kv_read) return Axis::keys;
  if (tokens == span.rows && first_token == span.first_token) return Axis::rows;
  if (tokens == 1 && first_token == span.context - 1) return Axis::ends;
  return Axis::part;
}

std::span<const Step> RecordingView::steps() {
  if (!steps_) {
    steps_.emplace();
    for (const StepRow& row : rows_.steps()) {
      Step step;
      step.id = row.id;
      step.kind = row.kind;
      step.rank = row.rank;
      step.run = row.run;
      step.pass = row.pass;
      step.rows = row.tokens;
      step.batch = row.batch;
      step.placed = row.placed;
      step.spans = row.all_spans();
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
  if (step == nullptr && id != kBeforeSteps) return content;
  OpFilter filter;
  filter.step = id;
  std::vector<OpRow> ops = rows_.ops(filter);
  content.ops.reserve(ops.size());
  for (OpRow& row : ops) {
    Op op;
    op.id = row.id;
    op.step = id;
    if (row.layer >= 0) op.layer = row.layer;
    op.name = std::move(row.name);
    op.kind = op_kind(row.kind).value_or(OpKind::dumped);
    op.by_name = row.by_name;
    op.attributes = attributes_from_json(op.kind, row.attributes);
    for (InputRow& input : rows_.inputs_of(row.id)) {
      op.inputs.push_back({std::move(input.role), input.tensor, std::move(input.weight)});
    }
    op.inputs.shrink_to_fit();
    for (const TensorRow& output : rows_.tensors_of(row.id)) {
      op.outputs.push_back(output.id);
      content.tensors.push_back(tensor_of(output, op, step));
    }
    content.ops.push_back(std::move(op));
  }
  content.tensors.shrink_to_fit();  // a large run has hundreds of thousands, and they stay
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
    if (op->step != kBeforeSteps) bad.push_back(op->step);
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

void RecordingView::change_format(TensorId id, Format format) {
  const auto step = contents_.find(step_of_tensor(id));
  if (step == contents_.end()) return;
  for (Tensor& tensor : step->second.tensors) {
    if (tensor.id != id || nanscope::info(tensor.format).storage_bytes() != nanscope::info(format).storage_bytes()) {
      continue;
    }
    recorded_formats_.emplace(id, tensor.format);
    tensor.format = format;
    tensor.health = empty_health();
    for (const Health& row : rows_by_elements(tensor)) merge(tensor.health, row);
  }
}

std::vector<Health> RecordingView::read_rows(const Tensor& tensor) {
  return recorded_formats_.contains(tensor.id) ? rows_by_elements(tensor) : rows_.token_health(tensor.id);
}

std::vector<Health> RecordingView::rows_by_elements(const Tensor& tensor) {
  const float largest =
      tensor.format == Format::i32 ? std::numeric_limits<float>::infinity() : nanscope::info(tensor.format).max_finite;
  std::vector<Health> rows;
  each_block(tensor, [&](std::int64_t first, std::span<const float> values) {
    const auto width = static_cast<std::size_t>(std::max<std::int64_t>(1, tensor.channels));
    for (std::size_t at = 0; at + width <= values.size(); at += width) {
      const std::int64_t row = first + static_cast<std::int64_t>(at / width);
      rows.push_back(health_of(values.subspan(at, width), row * tensor.channels, largest));
    }
    return true;
  });
  return rows;
}

bool RecordingView::fits(const TensorData& data, const Tensor& tensor, std::int64_t rows) const {
  const auto reread = recorded_formats_.find(tensor.id);
  const Format recorded = reread == recorded_formats_.end() ? tensor.format : reread->second;
  return data.tokens == rows && data.channels == tensor.channels && data.format == recorded;
}

std::optional<ElementBytes> RecordingView::stored(const Tensor& tensor) {
  if (!tensor.known || tensor.stated || !held(tensor)) return std::nullopt;
  const auto all = tensors_.fetch(tensor.id);
  if (!all) {
    note(tensor, all.error());
    return std::nullopt;
  }
  if (!fits(**all, tensor, tensor.tokens)) return std::nullopt;
  return ElementBytes{(*all)->bytes, *all};
}

void RecordingView::check_stored(const std::stop_token& stop) {
  for (UnreadElements& one : rows_.damaged(stop)) {
    if (const Tensor* tensor = this->tensor(one.tensor))
      note(*tensor, NotKnown{Unknown::unreadable, std::move(one.text)});
  }
}

Fact<TensorData> RecordingView::read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  TensorData out;
  if (held(tensor)) {
    const auto all = tensors_.fetch(tensor.id);
    if (!all) return tl::unexpected(all.error());
    if (!fits(**all, tensor, tensor.tokens)) return unreadable("the elements are not those of the row");
    out = (*all)->rows(first, count);
  } else {
    Fact<TensorData> some = source_.fetch_rows(tensor.id, first, count);
    if (!some) return some;
    if (!fits(*some, tensor, count)) return unreadable("the elements are not those of the row");
    out = std::move(*some);
  }
  out.format = tensor.format;
  return out;
}

}  // namespace nanscope

#include "core/run/view_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/tensor/content_hash.h"

namespace nanscope {
namespace {

constexpr std::int64_t kRowBlockElements = std::int64_t{1} << 20;

bool has_elements(const Tensor& tensor) { return tensor.known && !tensor.stated; }

TensorGlance glance_of(const Tensor& tensor) {
  TensorGlance glance;
  glance.id = tensor.id;
  glance.op = tensor.op;
  glance.role = tensor.role;
  glance.format = tensor.format;
  glance.tokens = tensor.tokens;
  glance.channels = tensor.channels;
  glance.first_token = tensor.first_token;
  glance.detailed = has_elements(tensor);
  glance.health = tensor.health;
  return glance;
}

OpRow row_without_attributes(const Op& op) {
  OpRow row;
  row.id = op.id;
  row.step = op.step;
  row.layer = op.layer.value_or(-1);
  row.name = op.name;
  row.kind = name(op.kind);
  row.by_name = op.by_name;
  return row;
}

bool wanted(const OpRow& row, const OpFilter& filter) {
  return row.id >= filter.first_id && (!filter.layer || row.layer == *filter.layer) &&
         (!filter.name || row.name == *filter.name) && (!filter.kind || row.kind == *filter.kind);
}

bool wanted(const Tensor& tensor, const TensorFilter& filter) {
  return tensor.id >= filter.first_id && (!filter.role || tensor.role == *filter.role) &&
         (!filter.bad_only || tensor.health.bad() > 0);
}

/// False once there are as many rows as `limit` allows; -1 allows all.
template <class Row>
bool room(const std::vector<Row>& rows, std::int64_t limit) {
  return limit < 0 || static_cast<std::int64_t>(rows.size()) < limit;
}

}  // namespace

StepRow row_of(const Step& step) {
  StepRow row;
  row.id = step.id;
  row.request = step.request();
  row.index = step.index();
  row.kind = step.kind;
  row.first_token = step.first_token();
  row.tokens = step.rows;
  row.context = step.spans.empty() ? 0 : step.spans.front().context;
  row.rank = step.rank;
  row.batch = step.batch;
  row.run = step.run;
  row.placed = step.placed;
  row.pass = step.pass;
  row.spans = step.spans;
  return row;
}

OpRow row_of(const Op& op) {
  OpRow row = row_without_attributes(op);
  row.attributes = to_json(op.attributes);
  return row;
}

TensorRow row_of(const Tensor& tensor) {
  TensorRow row;
  row.id = tensor.id;
  row.op = tensor.op;
  row.role = tensor.role;
  row.format = tensor.format;
  row.tokens = tensor.tokens;
  row.channels = tensor.channels;
  row.heads = tensor.heads;
  row.first_token = tensor.first_token;
  row.hash = tensor.hash.value_or(0);
  row.stored = has_elements(tensor);
  row.health = tensor.health;
  row.axis = tensor.axis;
  row.sequence = tensor.sequence;
  row.name = tensor.name;
  row.known = tensor.known;
  row.guessed = tensor.guessed;
  row.stated = tensor.stated;
  return row;
}

void ViewRows::each_step(std::optional<std::int64_t> only, const std::function<bool(const StepContent&)>& visit) {
  if (only) {
    visit(view_.content(*only));
    return;
  }
  if (!visit(view_.content(kBeforeSteps))) return;
  for (const Step& step : view_.steps()) {
    if (!visit(view_.content(step.id))) return;
  }
}

std::span<const StepRow> ViewRows::steps() {
  if (!steps_) {
    steps_.emplace();
    for (const Step& step : view_.steps()) steps_->push_back(row_of(step));
  }
  return *steps_;
}

std::vector<OpRow> ViewRows::ops(const OpFilter& filter) {
  std::vector<OpRow> rows;
  each_step(filter.step, [&](const StepContent& content) {
    for (const Op& op : content.ops) {
      if (!room(rows, filter.limit)) return false;
      if (wanted(row_without_attributes(op), filter)) rows.push_back(row_of(op));
    }
    return true;
  });
  return rows;
}

std::vector<TensorRow> ViewRows::tensors(const TensorFilter& filter) {
  std::vector<TensorRow> rows;
  each_step(filter.step, [&](const StepContent& content) {
    for (const Tensor& tensor : content.tensors) {
      if (!room(rows, filter.limit)) return false;
      if (wanted(tensor, filter)) rows.push_back(row_of(tensor));
    }
    return true;
  });
  return rows;
}

void ViewRows::each_op_name(const std::function<bool(const OpRow&)>& visit) {
  each_step({}, [&](const StepContent& content) {
    return std::all_of(content.ops.begin(), content.ops.end(),
                       [&](const Op& op) { return visit(row_without_attributes(op)); });
  });
}

void ViewRows::each_glance(std::optional<std::int64_t> step, const std::function<bool(const TensorGlance&)>& visit) {
  each_step(step, [&](const StepContent& content) {
    return std::all_of(content.tensors.begin(), content.tensors.end(),
                       [&](const Tensor& tensor) { return visit(glance_of(tensor)); });
  });
}

std::optional<OpRow> ViewRows::op(std::int64_t id) {
  const Op* found = view_.op(id);
  return found == nullptr ? std::nullopt : std::optional(row_of(*found));
}

std::optional<TensorRow> ViewRows::tensor(std::int64_t id) {
  const Tensor* found = view_.tensor(id);
  return found == nullptr ? std::nullopt : std::optional(row_of(*found));
}

std::vector<TensorRow> ViewRows::tensors_of(std::int64_t op) {
  std::vector<TensorRow> rows;
  const Op* maker = view_.op(op);
  if (maker == nullptr) return rows;
  for (const TensorId id : maker->outputs) {
    if (const Tensor* tensor = view_.tensor(id)) rows.push_back(row_of(*tensor));
  }
  return rows;
}

std::vector<InputRow> ViewRows::inputs_of(std::int64_t op) {
  std::vector<InputRow> rows;
  const Op* reader = view_.op(op);
  if (reader == nullptr) return rows;
  for (const Input& input : reader->inputs) rows.push_back({op, input.role, input.tensor, input.weight});
  return rows;
}

std::vector<Health> ViewRows::token_health(std::int64_t tensor) {
  const Tensor* found = view_.tensor(tensor);
  return found == nullptr ? std::vector<Health>{} : view_.rows(*found);
}

std::uint64_t ViewRows::hash(const TensorRow& row) {
  const Tensor* tensor = view_.tensor(row.id);
  if (tensor == nullptr || !has_elements(*tensor)) return 0;
  if (tensor->hash) return *tensor->hash;
  const auto [known, is_new] = hashes_.emplace(row.id, 0);
  if (!is_new) return known->second;
  ContentHash hash;
  const std::int64_t at_once =
      std::max<std::int64_t>(1, kRowBlockElements / std::max<std::int64_t>(1, tensor->channels));
  for (std::int64_t first = 0; first < tensor->tokens && tensor->channels > 0; first += at_once) {
    const Fact<TensorData> block = view_.read(*tensor, first, std::min(at_once, tensor->tokens - first));
    if (!block) return 0;
    hash.add(block->bytes);
  }
  return known->second = hash.finish();
}

Fact<TensorData> ViewTensors::fetch(std::int64_t tensor) {
  const Tensor* found = view_.tensor(tensor);
  if (found == nullptr) return absent(fmt::format("there is no tensor {}", tensor));
  return view_.read(*found, 0, found->tokens);
}

Fact<TensorData> ViewTensors::fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) {
  const Tensor* found = view_.tensor(tensor);
  if (found == nullptr) return absent(fmt::format("there is no tensor {}", tensor));
  return view_.read(*found, first, count);
}

}  // namespace nanscope

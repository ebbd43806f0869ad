#include "core/run/run_data.h"

#include <algorithm>
#include <utility>

#include "core/run/by_id.h"

namespace nanscope {

const StepRow* RunData::step(std::int64_t id) { return by_id(steps(), id); }

const RequestRow* RunData::request(std::int64_t id) { return by_id(requests(), id); }

const StepRow* RunData::find_step(std::int64_t request, std::int64_t index) {
  for (const StepRow& row : steps()) {
    for (const Span& span : row.all_spans()) {
      if (span.request == request && span.index == index) return &row;
    }
  }
  return nullptr;
}

const WeightRow* RunData::weight(const std::string& name) {
  for (const WeightRow& row : weights()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::optional<TensorRow> RunData::output(std::int64_t op, const std::string& role) {
  for (TensorRow& row : tensors_of(op)) {
    if (row.role == role) return std::move(row);
  }
  return std::nullopt;
}

std::optional<TensorRow> RunData::input(std::int64_t op, const std::string& role) {
  for (const InputRow& row : inputs_of(op)) {
    if (row.role == role && row.tensor != 0) return tensor(row.tensor);
  }
  return std::nullopt;
}

std::optional<OpRow> RunData::find_op(std::int64_t step, std::int64_t layer, const std::string& name) {
  OpFilter filter;
  filter.step = step;
  filter.layer = layer;
  filter.name = name;
  filter.limit = 1;
  std::vector<OpRow> found = ops(filter);
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

template <class T>
T RecordingRun::taken(Result<T> result) {
  if (result) return std::move(*result);
  if (!error_) error_ = std::move(result.error());
  return T{};
}

template <class T>
std::optional<T> RecordingRun::found(Result<T> result) {
  if (result) return std::move(*result);
  if (!error_) error_ = std::move(result.error());
  return std::nullopt;
}

void RecordingRun::keep(Status status) {
  if (!status && !error_) error_ = std::move(status.error());
}

const RunInfo& RecordingRun::info() { return recording_.info(); }

RecordingCounts RecordingRun::counts() { return taken(recording_.counts()); }

bool RecordingRun::interrupted() { return taken(recording_.state()) == RunState::interrupted; }

std::span<const RequestRow> RecordingRun::requests() {
  if (!requests_) requests_ = taken(recording_.requests());
  return *requests_;
}

std::span<const StepRow> RecordingRun::steps() {
  if (!steps_) steps_ = taken(recording_.steps());
  return *steps_;
}

std::span<const WeightRow> RecordingRun::weights() {
  if (!weights_) weights_ = taken(recording_.weights());
  return *weights_;
}

std::span<const ScaleRow> RecordingRun::scales() {
  if (!scales_) scales_ = taken(recording_.scales());
  return *scales_;
}

std::span<const KvRow> RecordingRun::kv_history() {
  if (!kv_) kv_ = taken(recording_.kv_history());
  return *kv_;
}

std::vector<TokenRow> RecordingRun::tokens(std::int64_t request) { return taken(recording_.tokens(request)); }

std::vector<OpRow> RecordingRun::ops(const OpFilter& filter) { return taken(recording_.ops(filter)); }

std::vector<TensorRow> RecordingRun::tensors(const TensorFilter& filter) { return taken(recording_.tensors(filter)); }

void RecordingRun::each_op_name(const std::function<bool(const OpRow&)>& visit) {
  keep(recording_.for_each_op_name(visit));
}

void RecordingRun::each_glance(std::optional<std::int64_t> step,
                               const std::function<bool(const TensorGlance&)>& visit) {
  keep(recording_.for_each_glance(step, visit));
}

std::optional<OpRow> RecordingRun::op(std::int64_t id) { return found(recording_.op(id)); }

std::optional<TensorRow> RecordingRun::tensor(std::int64_t id) { return found(recording_.tensor(id)); }

std::vector<TensorRow> RecordingRun::tensors_of(std::int64_t op) { return taken(recording_.tensors_of(op)); }

std::vector<InputRow> RecordingRun::inputs_of(std::int64_t op) { return taken(recording_.inputs_of(op)); }

std::vector<Health> RecordingRun::token_health(std::int64_t tensor) { return taken(recording_.token_health(tensor)); }

std::vector<RunNote> RecordingRun::notes() { return taken(recording_.notes()); }

std::vector<UnreadElements> RecordingRun::damaged(const std::stop_token& stop) {
  std::vector<std::int64_t> stored;
  keep(recording_.for_each_tensor({}, [&](const TensorRow& tensor) {
    if (tensor.stored) stored.push_back(tensor.id);
    return !stop.stop_requested();
  }));
  std::vector<UnreadElements> found;
  for (const std::int64_t id : stored) {
    if (stop.stop_requested()) break;
    // None of its bytes are asked for: they are compared all the same, a piece at a time.
    const auto same = recording_.tensor_bytes(id, 0, 0);
    if (!same) found.push_back({id, same.error().message});
  }
  return found;
}

Status RecordingRun::status() const {
  if (error_) return tl::unexpected(*error_);
  return {};
}

}  // namespace nanscope

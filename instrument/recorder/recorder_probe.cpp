#include "instrument/recorder/recorder_probe.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/run/recording_view.h"

namespace nanscope {

RecorderProbe::RecorderProbe(RecordingWriter& writer, kernels::Device& device, WeightFacts& weights,
                             CapturePolicy policy, std::size_t ring_budget)
    : writer_(writer),
      weights_(weights),
      policy_(std::move(policy)),
      queue_(
          device, [this](Observation observation) { return observed(std::move(observation)); },
          [this](std::size_t bytes) { return writer_.buffer(bytes); }) {
  if (policy_.ring_steps() > 0) ring_.emplace(policy_.ring_steps(), ring_budget);
}

Status RecorderProbe::on_weight(const WeightRow& weight, const kernels::TensorView& view) {
  Result<WeightRow> row = weights_.of(weight, view);
  if (!row) return tl::unexpected(row.error());
  writer_.add(std::move(*row));
  return {};
}

Status RecorderProbe::on_request_begin(const RequestRow& row) {
  writer_.add(row);
  return {};
}

Status RecorderProbe::on_request_end(const RequestRow& row) {
  if (Status finished = queue_.finish(); !finished) return finished;
  writer_.update_request(row);
  return writer_.commit_step();
}

Status RecorderProbe::on_step_begin(const StepRow& row) {
  step_ = row.id;
  const std::vector<Span> spans = row.all_spans();
  span_ = spans.empty() ? Span{} : spans.front();
  writer_.add(row);
  return {};
}

RecorderProbe::Waiting& RecorderProbe::next_waiting() {
  if (count_ == waiting_.size()) {
    std::rotate(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(first_), waiting_.end());
    first_ = 0;
    waiting_.emplace_back();
  }
  return waiting_[(first_ + count_++) % waiting_.size()];
}

void RecorderProbe::pop_waiting() {
  first_ = (first_ + 1) % waiting_.size();
  --count_;
}

void RecorderProbe::write_ops() {
  for (; count_ > 0 && waiting_[first_].is_op; pop_waiting()) writer_.add(waiting_[first_].op, waiting_[first_].inputs);
}

Status RecorderProbe::on_op(const ProbeOp& op) {
  Waiting& waiting = next_waiting();
  waiting.is_op = true;
  OpRow& row = waiting.op;
  row.id = op.id;
  row.step = step_;
  row.layer = op.layer;
  row.name.assign(op.name);
  row.kind.assign(op.kind);
  row.attributes.assign(op.attributes);
  waiting.inputs.resize(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    InputRow& input = waiting.inputs[i];
    input.op = op.id;
    input.role.assign(op.inputs[i].role);
    input.tensor = op.inputs[i].tensor;
    input.weight.assign(op.inputs[i].weight);
  }
  write_ops();
  for (const ProbeTensor& tensor : op.outputs) {
    if (Status status = record(op, tensor); !status) return status;
  }
  return {};
}

Status RecorderProbe::record(const ProbeOp& op, const ProbeTensor& tensor) {
  const kernels::TensorView& view = tensor.view;
  Waiting& waiting = next_waiting();
  waiting.is_op = false;
  waiting.capture = policy_.wants(op.name, tensor.role);
  TensorRow& row = waiting.tensor;
  row.id = tensor.id;
  row.op = op.id;
  row.role.assign(tensor.role);
  row.format = view.format;
  row.tokens = view.rows;
  row.channels = view.columns;
  row.heads = tensor.heads;
  row.first_token = tensor.first_token;
  row.axis = tensor.axis ? tensor.axis
                         : axis_by_shape(row.tokens, row.first_token, op_kind(op.kind).value_or(OpKind::dumped), span_);
  row.sequence = tensor.sequence;
  return queue_.observe({.view = view,
                         .source = tensor.source,
                         .scales = tensor.source_scales,
                         .bytes = waiting.capture != Capture::skip});
}

Status RecorderProbe::observed(Observation observation) {
  TensorRow& row = waiting_[first_].tensor;
  row.hash = observation.hash;
  ObservedTensor tensor{.tiles = observation.tiles, .memory = observation.memory};
  if (waiting_[first_].capture != Capture::hold) {
    tensor.bytes = std::move(observation.bytes);
    tensor.elements = observation.elements;
    writer_.add_observed(row, std::move(tensor));
  } else {
    const bool bad =
        std::any_of(tensor.tiles.begin(), tensor.tiles.end(), [](const Health& health) { return health.bad() > 0; });
    writer_.add_observed(row, std::move(tensor));
    for (CaptureRing::Tensor& held : ring_->push(step_, bad, {row.id, std::move(observation).take_bytes()})) {
      writer_.add_bytes(held.id, std::move(held.bytes));
    }
  }
  pop_waiting();
  write_ops();
  return {};
}

Status RecorderProbe::on_scale(const ScaleRow& row) {
  writer_.add(row);
  return {};
}

Status RecorderProbe::on_kv(const KvRow& row) {
  writer_.add(row);
  return {};
}

Status RecorderProbe::on_token(const TokenRow& row) {
  writer_.add(row);
  return {};
}

Status RecorderProbe::on_step_end(const StepRow&) {
  if (Status finished = queue_.finish(); !finished) return finished;
  return writer_.commit_step();
}

}  // namespace nanscope

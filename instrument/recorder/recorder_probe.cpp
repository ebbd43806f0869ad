#include "instrument/recorder/recorder_probe.h"

#include <string>
#include <utility>

#include "core/tensor/pyramid.h"

namespace nanscope {

RecorderProbe::RecorderProbe(RecordingWriter& writer, kernels::Device& device, WeightFacts& weights,
                             CapturePolicy policy, std::size_t ring_budget)
    : writer_(writer), observer_(device), weights_(weights), policy_(std::move(policy)) {
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
  writer_.update_request(row);
  return writer_.commit_step();
}

Status RecorderProbe::on_step_begin(const StepRow& row) {
  step_ = row.id;
  writer_.add(row);
  return {};
}

Status RecorderProbe::on_op(const ProbeOp& op) {
  op_.id = op.id;
  op_.step = step_;
  op_.layer = op.layer;
  op_.name.assign(op.name);
  op_.kind.assign(op.kind);
  op_.attributes.assign(op.attributes);
  inputs_.resize(op.inputs.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].op = op.id;
    inputs_[i].role.assign(op.inputs[i].role);
    inputs_[i].tensor = op.inputs[i].tensor;
    inputs_[i].weight.assign(op.inputs[i].weight);
  }
  writer_.add(op_, inputs_);
  for (const ProbeTensor& tensor : op.outputs) {
    if (Status status = record(op, tensor); !status) return status;
  }
  return {};
}

Status RecorderProbe::record(const ProbeOp& op, const ProbeTensor& tensor) {
  const kernels::TensorView& view = tensor.view;
  tensor_.id = tensor.id;
  tensor_.op = op.id;
  tensor_.role.assign(tensor.role);
  tensor_.format = view.format;
  tensor_.tokens = view.rows;
  tensor_.channels = view.columns;
  tensor_.heads = tensor.heads;
  tensor_.first_token = tensor.first_token;
  const Result<std::uint64_t> hash = observer_.hash(view);
  if (!hash) return tl::unexpected(hash.error());
  tensor_.hash = *hash;
  const Result<std::span<const Health>> tiles = observer_.tiles(view, tensor.source, tensor.source_scales);
  if (!tiles) return tl::unexpected(tiles.error());
  const LevelShape shape = level_shape(view.rows, view.columns, 0);
  if (shape.columns == 1) {
    detail_.tokens.assign(tiles->begin(), tiles->end());
    detail_.tiles.clear();
  } else {
    detail_.tiles.assign(tiles->begin(), tiles->end());
    detail_.tokens = merge_rows(*tiles, shape);
  }
  tensor_.health = merge_all(detail_.tokens);
  const Capture capture = policy_.wants(op.name, tensor.role);
  std::vector<std::byte> bytes;
  if (capture != Capture::skip) {
    bytes = writer_.buffer(tensor_bytes(view));
    if (Status status = observer_.copy(view, bytes); !status) return status;
  }
  keep(capture, std::move(bytes));
  return {};
}

void RecorderProbe::keep(Capture capture, std::vector<std::byte> bytes) {
  if (capture != Capture::hold) {
    writer_.add(tensor_, detail_, std::move(bytes));
    return;
  }
  writer_.add(tensor_, detail_);
  for (CaptureRing::Tensor& held : ring_->push(step_, tensor_.health.bad() > 0, {tensor_.id, std::move(bytes)})) {
    writer_.add_bytes(held.id, std::move(held.bytes));
  }
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

Status RecorderProbe::on_step_end(const StepRow&) { return writer_.commit_step(); }

}  // namespace nanscope

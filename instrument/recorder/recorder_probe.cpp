#include "instrument/recorder/recorder_probe.h"

#include <string>
#include <utility>

#include "core/tensor/pyramid.h"

namespace nanscope {

RecorderProbe::RecorderProbe(RecordingWriter& writer, kernels::Device& device, CapturePolicy policy,
                             std::size_t ring_budget)
    : writer_(writer), observer_(device), policy_(std::move(policy)) {
  if (policy_.ring_steps() > 0) ring_.emplace(policy_.ring_steps(), ring_budget);
}

Status RecorderProbe::on_weight(const WeightRow& weight, const kernels::TensorView& view) {
  WeightRow row = weight;
  const Result<std::uint64_t> hash = observer_.hash(view);
  if (!hash) return tl::unexpected(hash.error());
  const Result<std::span<const Health>> tiles = observer_.tiles(view, {}, {});
  if (!tiles) return tl::unexpected(tiles.error());
  row.hash = *hash;
  row.health = merge_all(merge_rows(*tiles, level_shape(view.rows, view.columns, 0)));
  writer_.add(std::move(row));
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
  OpRow row;
  row.id = op.id;
  row.step = step_;
  row.layer = op.layer;
  row.name = op.name;
  row.kind = op.kind;
  row.attributes = op.attributes;
  inputs_.resize(op.inputs.size());  // assigned in place: the strings keep their memory from op to op
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].op = op.id;
    inputs_[i].role.assign(op.inputs[i].role);
    inputs_[i].tensor = op.inputs[i].tensor;
    inputs_[i].weight.assign(op.inputs[i].weight);
  }
  writer_.add(std::move(row), inputs_);
  for (const ProbeTensor& tensor : op.outputs) {
    if (Status status = record(op, tensor); !status) return status;
  }
  return {};
}

Status RecorderProbe::record(const ProbeOp& op, const ProbeTensor& tensor) {
  const kernels::TensorView& view = tensor.view;
  TensorRow row;
  row.id = tensor.id;
  row.op = op.id;
  row.role = tensor.role;
  row.format = view.format;
  row.tokens = view.rows;
  row.channels = view.columns;
  row.heads = tensor.heads;
  row.first_token = tensor.first_token;
  const Result<std::uint64_t> hash = observer_.hash(view);
  if (!hash) return tl::unexpected(hash.error());
  row.hash = *hash;
  const Result<std::span<const Health>> tiles = observer_.tiles(view, tensor.source, tensor.source_scales);
  if (!tiles) return tl::unexpected(tiles.error());
  TensorDetail detail;
  const LevelShape shape = level_shape(view.rows, view.columns, 0);
  if (shape.columns == 1) {
    detail.tokens.assign(tiles->begin(), tiles->end());
  } else {
    detail.tiles.assign(tiles->begin(), tiles->end());
    detail.tokens = merge_rows(*tiles, shape);
  }
  row.health = merge_all(detail.tokens);
  const Capture capture = policy_.wants(op.name, tensor.role);
  std::vector<std::byte> bytes;
  if (capture != Capture::skip) {
    bytes = writer_.buffer(tensor_bytes(view));
    if (Status status = observer_.copy(view, bytes); !status) return status;
  }
  keep(std::move(row), std::move(detail), capture, std::move(bytes));
  return {};
}

void RecorderProbe::keep(TensorRow row, TensorDetail detail, Capture capture, std::vector<std::byte> bytes) {
  if (capture != Capture::hold) {
    writer_.add(std::move(row), std::move(detail), std::move(bytes));
    return;
  }
  const bool bad = row.health.bad() > 0;
  const std::int64_t id = row.id;
  writer_.add(std::move(row), std::move(detail));
  for (CaptureRing::Tensor& held : ring_->push(step_, bad, {id, std::move(bytes)})) {
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

#include "instrument/engine/held_step.h"

#include <algorithm>
#include <utility>

namespace nanscope {

using kernels::TensorView;

Status HeldStep::on_op(const ProbeOp& op) {
  HeldOp held{op, std::string(op.name), std::string(op.attributes), {}, {}};
  for (const ProbeInput& input : op.inputs) {
    held.inputs.push_back({std::string(input.role), input.tensor, std::string(input.weight)});
  }
  for (const ProbeTensor& output : op.outputs) {
    HeldOutput& kept = held.outputs.emplace_back(HeldOutput{std::string(output.role), output});
    for (TensorView* view : {&kept.tensor.view, &kept.tensor.source, &kept.tensor.source_scales}) {
      Result<TensorView> copied = copy(*view);
      if (!copied) return tl::unexpected(copied.error());
      *view = *copied;
    }
  }
  events_.emplace_back(std::move(held));
  return {};
}

Status HeldStep::on_scale(const ScaleRow& row) {
  events_.emplace_back(row);
  return {};
}

Status HeldStep::on_kv(const KvRow& row) {
  events_.emplace_back(row);
  return {};
}

Status HeldStep::tell(const Emitter& own, Emitter& into) {
  const std::int64_t first_op = into.ops();
  const std::int64_t first_tensor = into.tensors();
  into.advance(own.ops(), own.tensors());
  Status status;
  for (Event& event : events_) {
    if (!status) break;
    if (const auto* op = std::get_if<HeldOp>(&event)) {
      status = tell(*op, first_op, first_tensor, into.probe());
    } else if (auto* scale = std::get_if<ScaleRow>(&event)) {
      scale->op += first_op;
      status = into.probe().on_scale(*scale);
    } else {
      status = into.probe().on_kv(std::get<KvRow>(event));
    }
  }
  events_.clear();
  buffer_ = used_ = 0;
  return status;
}

Status HeldStep::tell(const HeldOp& held, std::int64_t first_op, std::int64_t first_tensor, Probe& probe) {
  std::vector<ProbeInput> inputs;
  inputs.reserve(held.inputs.size());
  for (const HeldInput& input : held.inputs) {
    inputs.push_back({input.role, input.tensor == 0 ? 0 : input.tensor + first_tensor, input.weight});
  }
  std::vector<ProbeTensor> outputs;
  outputs.reserve(held.outputs.size());
  for (const HeldOutput& output : held.outputs) {
    ProbeTensor& tensor = outputs.emplace_back(output.tensor);
    tensor.role = output.role;
    tensor.id += first_tensor;
  }
  ProbeOp op = held.op;
  op.id += first_op;
  op.name = held.name;
  op.attributes = held.attributes;
  op.inputs = inputs;
  op.outputs = outputs;
  return probe.on_op(op);
}

Result<TensorView> HeldStep::copy(const TensorView& view) {
  if (!view.given() || view.elements() == 0) return view;
  const std::int64_t elements = (view.rows - 1) * view.stride + view.columns;
  const auto bytes = static_cast<std::size_t>(elements * kernels::storage_size(view.format));
  const Result<std::byte*> to = memory(bytes);
  if (!to) return tl::unexpected(to.error());
  if (Status status = device_.copy(*to, view.data, bytes); !status) return tl::unexpected(status.error());
  TensorView copied = view;
  copied.data = *to;
  return copied;
}

Result<std::byte*> HeldStep::memory(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kLeast = std::size_t{1} << 20;
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (buffer_ < buffers_.size() && used_ + rounded > buffers_[buffer_].bytes()) {
    ++buffer_;
    used_ = 0;
  }
  if (buffer_ == buffers_.size()) {
    Result<kernels::Buffer> buffer = device_.allocate(std::max(rounded, kLeast), false);
    if (!buffer) return tl::unexpected(buffer.error());
    buffers_.push_back(std::move(*buffer));
  }
  std::byte* data = static_cast<std::byte*>(buffers_[buffer_].data()) + used_;
  used_ += rounded;
  return data;
}

}  // namespace nanscope

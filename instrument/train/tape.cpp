#include "instrument/train/tape.h"

#include <utility>

namespace nanscope::train {

std::int64_t TapedOp::input(std::string_view role) const {
  for (const TapedInput& one : inputs) {
    if (one.role == role) return one.tensor;
  }
  return 0;
}

std::string_view TapedOp::weight(std::string_view role) const {
  for (const TapedInput& one : inputs) {
    if (one.role == role) return one.weight;
  }
  return {};
}

void Tape::begin(Probe& next) {
  next_ = &next;
  memory_.reset();
  ops_.clear();
  places_.clear();
}

const TapedTensor* Tape::find(std::int64_t tensor) const {
  const auto found = places_.find(tensor);
  if (found == places_.end()) return nullptr;
  return &ops_[found->second.first].outputs[found->second.second];
}

Status Tape::on_weight(const WeightRow& row, const kernels::TensorView& view) { return next_->on_weight(row, view); }

Status Tape::keep(const ProbeTensor& output, TapedTensor& kept) {
  kept = {output.id, std::string(output.role), {}, output.heads, output.first_token, output.axis, output.sequence};
  const kernels::TensorView& view = output.view;
  const bool number = view.format == Format::f32 || view.format == Format::f16 || view.format == Format::bf16;
  // Integers are the experts that a router chose.
  if (!view.given() || !(number || view.format == Format::i32)) return {};
  Result<kernels::TensorView> copy = memory_.matrix(view.format, view.rows, view.columns);
  if (!copy) return tl::unexpected(copy.error());
  kept.view = *copy;
  const auto width = static_cast<std::size_t>(kernels::storage_size(view.format));
  const kernels::Rows rows{static_cast<std::size_t>(view.rows), static_cast<std::size_t>(view.columns) * width,
                           static_cast<std::size_t>(view.stride) * width};
  return device_.gather(copy->data, view.data, rows);
}

Status Tape::on_op(const ProbeOp& op) {
  TapedOp& taped = ops_.emplace_back();
  taped.layer = op.layer;
  taped.name = op.name;
  taped.kind = op_kind(op.kind).value_or(OpKind::dumped);
  taped.attributes = attributes_from_json(taped.kind, op.attributes);
  for (const ProbeInput& input : op.inputs) {
    taped.inputs.push_back({std::string(input.role), input.tensor, std::string(input.weight)});
  }
  taped.outputs.resize(op.outputs.size());
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (Status kept = keep(op.outputs[i], taped.outputs[i]); !kept) return kept;
    places_.emplace(op.outputs[i].id, std::pair(ops_.size() - 1, i));
  }
  return next_->on_op(op);
}

}  // namespace nanscope::train

#include "core/run/memory_run.h"

#include <algorithm>

namespace nanscope {

const StepContent& MemoryRun::content(StepId step) {
  static const StepContent kNothing;
  const auto found = contents_.find(step);
  return found == contents_.end() ? kNothing : found->second;
}

std::vector<StepId> MemoryRun::bad_steps() {
  std::vector<StepId> bad;
  for (const auto& [step, content] : contents_) {
    const bool any = std::any_of(content.tensors.begin(), content.tensors.end(),
                                 [](const Tensor& tensor) { return tensor.health.bad() > 0; });
    if (any && step != kBeforeSteps) bad.push_back(step);
  }
  return bad;
}

std::vector<TokenRow> MemoryRun::tokens(std::int64_t request) {
  std::vector<TokenRow> rows;
  std::copy_if(tokens_.begin(), tokens_.end(), std::back_inserter(rows),
               [&](const TokenRow& row) { return row.request == request; });
  return rows;
}

StepId MemoryRun::step_of_op(OpId op) {
  return op > 0 && op <= static_cast<OpId>(op_steps_.size()) ? op_steps_[static_cast<std::size_t>(op - 1)] : -1;
}

StepId MemoryRun::step_of_tensor(TensorId tensor) {
  return tensor > 0 && tensor <= static_cast<TensorId>(tensor_steps_.size())
             ? tensor_steps_[static_cast<std::size_t>(tensor - 1)]
             : -1;
}

void MemoryRun::begin(StepId step) {
  // Vectors that grew are up to twice as large as what they hold, and nothing is added to a step behind its next.
  if (!contents_.empty()) {
    contents_.rbegin()->second.ops.shrink_to_fit();
    contents_.rbegin()->second.tensors.shrink_to_fit();
  }
  contents_[step];
}

Op& MemoryRun::add(Op op) {
  auto& [step, content] = *contents_.rbegin();
  op.id = static_cast<OpId>(op_steps_.size()) + 1;
  op.step = step;
  op_steps_.push_back(step);
  return content.ops.emplace_back(std::move(op));
}

Tensor& MemoryRun::add(Tensor tensor) {
  auto& [step, content] = *contents_.rbegin();
  tensor.id = static_cast<TensorId>(tensor_steps_.size()) + 1;
  tensor.op = content.ops.back().id;
  tensor.step = step;
  tensor_steps_.push_back(step);
  content.ops.back().outputs.push_back(tensor.id);
  return content.tensors.emplace_back(std::move(tensor));
}

}  // namespace nanscope

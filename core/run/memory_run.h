#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/run/run_view.h"

namespace nanscope {

/// A run whose rows are in memory: an interpreted dump, or rows made by hand in a test. Steps are added in order, and
/// so are the ops and tensors of each; ids are given from 1.
class MemoryRun : public RunView {
 public:
  const RunInfo& info() override { return info_; }
  std::span<const RequestRow> requests() override { return requests_; }
  std::span<const Step> steps() override { return steps_; }
  const StepContent& content(StepId step) override;
  std::vector<StepId> bad_steps() override;
  std::span<const WeightRow> weights() override { return weights_; }
  std::span<const ScaleRow> scales() override { return scales_; }
  std::span<const KvRow> kv_history() override { return kv_; }
  std::vector<TokenRow> tokens(std::int64_t request) override;
  StepId step_of_op(OpId op) override;
  StepId step_of_tensor(TensorId tensor) override;
  Status status() const override { return {}; }

 protected:
  /// Where the next op goes; kBeforeSteps first, then steps ascending.
  void begin(StepId step);
  Op& add(Op op);
  /// An output of the op that was added last.
  Tensor& add(Tensor tensor);
  Op& last_op() { return contents_.rbegin()->second.ops.back(); }

  RunInfo info_;
  std::vector<RequestRow> requests_;
  std::vector<Step> steps_;
  std::vector<WeightRow> weights_;
  std::vector<ScaleRow> scales_;
  std::vector<KvRow> kv_;
  std::vector<TokenRow> tokens_;
  std::map<StepId, StepContent> contents_;

 private:
  std::vector<StepId> op_steps_;      ///< by id - 1
  std::vector<StepId> tensor_steps_;  ///< by id - 1
};

}  // namespace nanscope

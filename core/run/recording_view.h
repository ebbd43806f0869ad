#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/run/run_data.h"
#include "core/run/run_view.h"
#include "core/run/tensor_source.h"

namespace nanscope {

/// The view of a recording, or of rows like its: read step by step, when they are asked for. `rows` and `tensors` must
/// outlive it.
class RecordingView final : public RunView {
 public:
  RecordingView(RunData& rows, TensorSource& tensors) : rows_(rows), tensors_(tensors) {}

  const RunInfo& info() override { return rows_.info(); }
  std::span<const RequestRow> requests() override { return rows_.requests(); }
  std::span<const Step> steps() override;
  const StepContent& content(StepId step) override;
  std::vector<StepId> bad_steps() override;
  std::span<const WeightRow> weights() override { return rows_.weights(); }
  std::span<const ScaleRow> scales() override { return rows_.scales(); }
  std::span<const KvRow> kv_history() override { return rows_.kv_history(); }
  std::vector<TokenRow> tokens(std::int64_t request) override { return rows_.tokens(request); }
  StepId step_of_op(OpId op) override;
  StepId step_of_tensor(TensorId tensor) override;
  Status status() const override { return rows_.status(); }
  RunData& rows_of_run() { return rows_; }

 protected:
  std::vector<Health> read_rows(const Tensor& tensor) override { return rows_.token_health(tensor.id); }
  Result<TensorData> read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) override;

 private:
  RunData& rows_;
  CachedTensors tensors_;
  std::optional<std::vector<Step>> steps_;
  std::map<StepId, StepContent> contents_;
  std::map<OpId, StepId> first_ops_;  ///< of steps that were read
  std::map<TensorId, StepId> first_tensors_;
};

}  // namespace nanscope

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

/// What the rows of a tensor are where nothing says it: by their count and the position of the first, in a step of one
/// sequence.
Axis axis_by_shape(std::int64_t tokens, std::int64_t first_token, OpKind kind, const Span& span);

/// The view of a recording, or of rows like its: read step by step, when they are asked for. `rows` and `tensors` must
/// outlive it.
class RecordingView final : public RunView {
 public:
  RecordingView(RunData& rows, TensorSource& tensors) : rows_(rows), source_(tensors), tensors_(tensors) {}

  const RunInfo& info() override { return rows_.info(); }
  std::span<const RequestRow> requests() override { return rows_.requests(); }
  std::span<const Step> steps() override;
  const StepContent& content(StepId step) override;
  std::vector<StepId> bad_steps() override;
  std::span<const WeightRow> weights() override { return rows_.weights(); }
  std::span<const ScaleRow> scales() override { return rows_.scales(); }
  std::span<const KvRow> kv_history() override { return rows_.kv_history(); }
  std::vector<TokenRow> tokens(std::int64_t request) override { return rows_.tokens(request); }
  std::vector<RunNote> notes() override { return rows_.notes(); }
  std::optional<ElementBytes> stored(const Tensor& tensor) override;
  RecordingCounts counts() override { return rows_.counts(); }
  bool interrupted() override { return rows_.interrupted(); }
  StepId step_of_op(OpId op) override;
  StepId step_of_tensor(TensorId tensor) override;
  void check_stored(const std::stop_token& stop) override;
  Status status() const override { return rows_.status(); }
  RunData& rows_of_run() { return rows_; }

 protected:
  void change_format(TensorId tensor, Format format) override;
  std::vector<Health> read_rows(const Tensor& tensor) override;
  Fact<TensorData> read_elements(const Tensor& tensor, std::int64_t first, std::int64_t count) override;

 private:
  /// Health of rows by their elements, as change_format() has them read.
  std::vector<Health> rows_by_elements(const Tensor& tensor);
  /// Whether elements have the shape and the format that `rows` rows of the tensor were recorded with.
  bool fits(const TensorData& data, const Tensor& tensor, std::int64_t rows) const;

  RunData& rows_;
  TensorSource& source_;
  CachedTensors tensors_;
  std::optional<std::vector<Step>> steps_;
  std::map<StepId, StepContent> contents_;
  std::map<OpId, StepId> first_ops_;  ///< of steps that were read
  std::map<TensorId, StepId> first_tensors_;
  std::map<TensorId, Format> recorded_formats_;  ///< of tensors that are read in another one
};

}  // namespace nanscope

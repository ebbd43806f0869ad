#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/run/run_data.h"
#include "core/run/run_view.h"
#include "core/run/tensor_source.h"

/// A view of a run as rows, for what was written against the rows of a recording: ids are those of the view.
namespace nanscope {

/// The row of a step. Its request, index, first token and context are its first span's.
StepRow row_of(const Step& step);
OpRow row_of(const Op& op);
/// Without its hash, which takes reading the elements: see RunData::hash().
TensorRow row_of(const Tensor& tensor);

/// The rows of a view, which must outlive them. What stands before every step is of step kBeforeSteps, of which there
/// is no StepRow.
class ViewRows final : public RunData {
 public:
  explicit ViewRows(RunView& view) : view_(view) {}

  const RunInfo& info() override { return view_.info(); }
  RecordingCounts counts() override { return view_.counts(); }
  bool interrupted() override { return view_.interrupted(); }
  std::span<const RequestRow> requests() override { return view_.requests(); }
  std::span<const StepRow> steps() override;
  std::span<const WeightRow> weights() override { return view_.weights(); }
  std::span<const ScaleRow> scales() override { return view_.scales(); }
  std::span<const KvRow> kv_history() override { return view_.kv_history(); }
  std::vector<TokenRow> tokens(std::int64_t request) override { return view_.tokens(request); }
  std::vector<RunNote> notes() override { return view_.notes(); }
  std::vector<OpRow> ops(const OpFilter& filter) override;
  std::vector<TensorRow> tensors(const TensorFilter& filter) override;
  void each_op_name(const std::function<bool(const OpRow&)>& visit) override;
  void each_glance(std::optional<std::int64_t> step, const std::function<bool(const TensorGlance&)>& visit) override;
  std::optional<OpRow> op(std::int64_t id) override;
  std::optional<TensorRow> tensor(std::int64_t id) override;
  std::vector<TensorRow> tensors_of(std::int64_t op) override;
  std::vector<InputRow> inputs_of(std::int64_t op) override;
  std::vector<Health> token_health(std::int64_t tensor) override;
  /// Of the element bytes, read when it is first asked for; 0 where they cannot be had.
  std::uint64_t hash(const TensorRow& tensor) override;
  Status status() const override { return view_.status(); }

 private:
  /// Visits kBeforeSteps and all steps, or one.
  void each_step(std::optional<std::int64_t> only, const std::function<bool(const StepContent&)>& visit);

  RunView& view_;
  std::optional<std::vector<StepRow>> steps_;
  std::unordered_map<std::int64_t, std::uint64_t> hashes_;
};

/// The elements of a view, which must outlive it.
class ViewTensors final : public TensorSource {
 public:
  explicit ViewTensors(RunView& view) : view_(view) {}
  Fact<TensorData> fetch(std::int64_t tensor) override;
  Fact<TensorData> fetch_rows(std::int64_t tensor, std::int64_t first, std::int64_t count) override;

 private:
  RunView& view_;
};

}  // namespace nanscope

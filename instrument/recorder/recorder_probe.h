#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/recording/capture_policy.h"
#include "core/recording/writer.h"
#include "instrument/probe.h"
#include "instrument/recorder/observation_queue.h"
#include "instrument/recorder/weight_facts.h"
#include "kernels/device.h"

namespace nanscope {

/// Turns what the engine tells into rows of a recording: every output's hash and health, its bytes
/// where the capture policy wants them, weights, scales, KV history and tokens. Each step is one
/// transaction. Ends the run when the writer has failed. A GPU is not waited for before a step's end.
class RecorderProbe final : public Probe {
 public:
  /// Bytes that a capture ring may hold.
  static constexpr std::size_t kRingBudget = std::size_t{1} << 30;

  /// The engine runs on `device`; it, the writer and the facts outlive the probe.
  RecorderProbe(RecordingWriter& writer, kernels::Device& device, WeightFacts& weights, CapturePolicy policy,
                std::size_t ring_budget = kRingBudget);

  Status on_weight(const WeightRow& row, const kernels::TensorView& view) override;
  Status on_request_begin(const RequestRow& row) override;
  Status on_request_end(const RequestRow& row) override;
  Status on_step_begin(const StepRow& row) override;
  Status on_op(const ProbeOp& op) override;
  Status on_scale(const ScaleRow& row) override;
  Status on_kv(const KvRow& row) override;
  Status on_token(const TokenRow& row) override;
  Status on_step_end(const StepRow& row) override;

  /// Tensors that a capture ring had to drop for its budget.
  std::int64_t dropped() const { return ring_ ? ring_->dropped() : 0; }

 private:
  /// What waits to be written, in the engine's order: an op, or one of its outputs until it was looked at.
  struct Waiting {
    bool is_op = false;
    OpRow op;
    std::vector<InputRow> inputs;
    TensorRow tensor;
    Capture capture = Capture::skip;
  };
  /// Memory for one more; rows are assigned in place, so that they keep theirs from op to op.
  Waiting& next_waiting();
  void pop_waiting();
  /// Writes the ops that no tensor stands before.
  void write_ops();
  Status record(const ProbeOp& op, const ProbeTensor& tensor);
  Status observed(Observation observation);

  RecordingWriter& writer_;
  WeightFacts& weights_;
  CapturePolicy policy_;
  std::optional<CaptureRing> ring_;
  std::int64_t step_ = 0;
  Span span_;  ///< the sequence that the step works on
  // A ring: from first_ on, count_ of them.
  std::vector<Waiting> waiting_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  ObservationQueue queue_;  ///< last: its copies end before what they are for
};

}  // namespace nanscope

#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/run/op_attributes.h"
#include "instrument/probe.h"
#include "instrument/train/arena.h"
#include "kernels/device.h"

namespace nanscope::train {

/// An output of an op of the forward pass, as it was when the op had run.
struct TapedTensor {
  std::int64_t id = 0;
  std::string role;
  kernels::TensorView view;  ///< a copy, contiguous; codes have none
  std::int64_t heads = 1;
  std::int64_t first_token = 0;
  std::optional<Axis> axis;
  std::int64_t sequence = -1;
};

struct TapedInput {
  std::string role;
  std::int64_t tensor = 0;
  std::string weight;
};

struct TapedOp {
  std::int64_t layer = -1;
  std::string name;
  OpKind kind = OpKind::dumped;
  OpAttributes attributes;
  std::vector<TapedInput> inputs;
  std::vector<TapedTensor> outputs;

  /// 0 where there is none.
  std::int64_t input(std::string_view role) const;
  /// Empty where there is none.
  std::string_view weight(std::string_view role) const;
};

/// What a forward pass did, for the backward pass to walk back over: ops in their order, and copies of their outputs,
/// whose memory the engine uses again. Tells everything on to the probe that listens.
class Tape final : public Probe {
 public:
  explicit Tape(kernels::Device& device) : device_(device), memory_(device) {}

  /// A new pass, told on to `next`, which outlives it.
  void begin(Probe& next);

  std::span<const TapedOp> ops() const { return ops_; }
  /// Null for a tensor that is not of this pass.
  const TapedTensor* find(std::int64_t tensor) const;

  Status on_weight(const WeightRow& row, const kernels::TensorView& view) override;
  Status on_step_begin(const StepRow& row) override { return next_->on_step_begin(row); }
  Status on_op(const ProbeOp& op) override;
  Status on_scale(const ScaleRow& row) override { return next_->on_scale(row); }
  Status on_kv(const KvRow& row) override { return next_->on_kv(row); }
  Status on_token(const TokenRow& row) override { return next_->on_token(row); }
  Status on_step_end(const StepRow& row) override { return next_->on_step_end(row); }

 private:
  Status keep(const ProbeTensor& output, TapedTensor& kept);

  kernels::Device& device_;
  Probe* next_ = nullptr;
  Arena memory_;
  std::vector<TapedOp> ops_;
  /// By tensor: op, and which of its outputs.
  std::unordered_map<std::int64_t, std::pair<std::size_t, std::size_t>> places_;
};

}  // namespace nanscope::train

#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/recording/rows.h"
#include "core/result.h"
#include "kernels/tensor_view.h"

namespace nanscope {

/// One output of an op while it is live on the device. Ids are given by the engine in logical
/// order, from 1, whether anybody listens or not, so that two runs of one configuration agree.
struct ProbeTensor {
  std::int64_t id = 0;
  std::string_view role;
  kernels::TensorView view;  ///< device memory, valid during the call only
  std::int64_t heads = 1;
  std::int64_t first_token = 0;
  std::optional<Axis> axis = {};      ///< nothing: a step of one sequence, whose shapes tell
  std::int64_t sequence = -1;         ///< TensorRow::sequence
  kernels::TensorView source;         ///< for stored codes: what they were cast from, else not given
  kernels::TensorView source_scales;  ///< the scales of that cast
};

/// One input: a tensor seen before, a weight by name, or the KV pool (both empty).
struct ProbeInput {
  std::string_view role;
  std::int64_t tensor = 0;
  std::string_view weight;
};

struct ProbeOp {
  std::int64_t id = 0;  ///< logical order over the run, from 1
  std::int64_t layer = -1;
  std::string_view name;        ///< OpRow::name
  std::string_view kind;        ///< OpRow::kind
  std::string_view attributes;  ///< OpRow::attributes
  std::span<const ProbeInput> inputs;
  std::span<const ProbeTensor> outputs;
};

/// What the engine tells while it runs; every hook has an empty default. Calls come in logical
/// order from the thread that runs the engine. A probe only reads: with or without one the run's
/// bits are the same. (A replay of products of other tensor cores is the exception: it puts the recorded output in the
/// place of the one that on_op() tells of, scenarios/tensor_core_replay.h.) Returning an error stops the run with it.
class Probe {
 public:
  virtual ~Probe() = default;
  /// False: no hook does anything, so the engine need not prepare what it would be told. Asked once a run.
  virtual bool listening() const { return true; }
  virtual Status on_weight(const WeightRow&, const kernels::TensorView&) { return {}; }
  virtual Status on_request_begin(const RequestRow&) { return {}; }
  virtual Status on_request_end(const RequestRow&) { return {}; }
  virtual Status on_step_begin(const StepRow&) { return {}; }
  virtual Status on_op(const ProbeOp&) { return {}; }
  virtual Status on_scale(const ScaleRow&) { return {}; }
  virtual Status on_kv(const KvRow&) { return {}; }
  virtual Status on_token(const TokenRow&) { return {}; }
  virtual Status on_step_end(const StepRow&) { return {}; }
};

/// Nobody listens.
class NullProbe final : public Probe {
 public:
  bool listening() const override { return false; }
};

}  // namespace nanscope

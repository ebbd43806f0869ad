#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "core/recording/rows.h"
#include "instrument/engine/engine.h"
#include "instrument/engine/op_plan.h"
#include "instrument/probe.h"

namespace nanscope {

/// An op's output while the engine still needs it: where it is, and its id in the recording.
struct Live {
  kernels::TensorView view;
  std::int64_t id = 0;
};

/// Rows of a tensor: TensorRow's fields of these names. No axis: shapes tell it, as in steps of one sequence.
struct RowPlace {
  std::int64_t first_token = 0;
  std::optional<Axis> axis = {};
  std::int64_t sequence = -1;
};

/// Tells the probe what happens, and keeps the run's counters. The first error (of a probe, or
/// "stopped") is kept: the engine looks at ok() between layers and stops.
class Emitter {
 public:
  Emitter(Probe& probe, const RunControl& control) : probe_(probe), control_(control), listening_(probe.listening()) {}

  bool listening() const { return listening_; }
  bool ok() const { return status_.has_value(); }
  const Status& status() const { return status_; }
  void check(Status status) {
    if (!status && status_) status_ = std::move(status);
  }
  Probe& probe() { return probe_; }
  const RunControl& control() const { return control_; }

  std::int64_t ops() const { return ops_; }
  std::int64_t tensors() const { return tensors_; }
  /// Ids that another emitter gave, which are told behind those of this one.
  void advance(std::int64_t ops, std::int64_t tensors) {
    ops_ += ops;
    tensors_ += tensors;
  }
  /// Where the rows of the tensors that follow stand.
  void set_place(const RowPlace& place) { place_ = place; }

  /// The next tensor of the run: an output of the op that op() is called for next.
  ProbeTensor output(std::string_view role, const kernels::TensorView& view, std::int64_t heads = 1) {
    ProbeTensor tensor;
    tensor.id = ++tensors_;
    tensor.role = role;
    tensor.view = view;
    tensor.heads = heads;
    tensor.first_token = place_.first_token;
    tensor.axis = place_.axis;
    tensor.sequence = place_.sequence;
    return tensor;
  }

  /// One op was executed. `attributes`, as JSON, replaces the plan's where it is not empty.
  void op(const OpPlan& plan, std::initializer_list<ProbeInput> inputs, std::span<const ProbeTensor> outputs,
          std::string_view attributes = {}) {
    op(plan, std::span(inputs.begin(), inputs.size()), outputs, attributes);
  }
  void op(const OpPlan& plan, std::span<const ProbeInput> inputs, std::span<const ProbeTensor> outputs,
          std::string_view attributes = {}) {
    ++ops_;
    if (control_.stop.stop_requested()) check(fail("stopped"));
    if (!listening_ || !status_) return;
    ProbeOp event;
    event.id = ops_;
    event.layer = plan.layer;
    event.name = plan.name;
    event.kind = name(plan.kind);
    event.attributes = attributes.empty() ? std::string_view(plan.json) : attributes;
    event.inputs = inputs;
    event.outputs = outputs;
    check(probe_.on_op(event));
  }

 private:
  Probe& probe_;
  const RunControl& control_;
  bool listening_;
  std::int64_t ops_ = 0;
  std::int64_t tensors_ = 0;
  RowPlace place_;
  Status status_;
};

}  // namespace nanscope

#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/recording/reader.h"
#include "core/result.h"
#include "core/run/tensor_source.h"
#include "instrument/probe.h"
#include "instrument/recorder/tensor_observer.h"
#include "kernels/device.h"

/// Replay of engine.kernel_form=tensor_core on another kind of device than the recorded one.
namespace nanscope::scenarios {

/// What devices of one kind give equal bits: "cpu" of all CPUs, else what a GPU computes by, such as sm_90.
std::string device_kind(std::string_view isa);

/// The products of a run as its ops are told. Tensor cores of another kind give other bits: an output is compared with
/// the recorded one within the bound of kernels/tensor_core_bound.h, and the recorded one is put in its place, so that
/// all that follows is made of what was recorded and has its bits again.
class TensorCoreReplay {
 public:
  /// Recording and device must outlive it.
  TensorCoreReplay(const Recording& recording, kernels::Device& device)
      : recording_(recording), device_(device), observer_(device), stored_(recording) {}

  void on_weight(std::string_view name, const kernels::TensorView& view) { weights_[std::string(name)] = view; }
  /// Where an op's outputs lie, of which a product may be made.
  void on_outputs(const ProbeOp& op);
  void on_step_end() { outputs_.clear(); }

  struct Compared {
    bool equal = true;                 ///< bit for bit
    bool within = true;                ///< the bound
    double share = 0;                  ///< the largest difference by its bound
    std::int64_t row = 0, column = 0;  ///< of the element beyond it, or else of that difference
    std::string expected, found;       ///< that element and its bits
  };
  /// Compares `out`, an output of a product that was just launched, whose shape is the recorded one. Errors: the
  /// recording does not hold its elements, or they have not the recorded hash; the device's memory cannot be read or
  /// written.
  Result<Compared> product(const ProbeOp& op, const ProbeTensor& out);

 private:
  struct Operands;
  Result<TensorData> recorded(const ProbeOp& op, const ProbeTensor& out);
  Result<std::vector<std::byte>> bytes_of(const kernels::TensorView& view);
  Status feed(const kernels::TensorView& view, const TensorData& data);
  Result<Operands> operands(const ProbeOp& op);

  const Recording& recording_;
  kernels::Device& device_;
  TensorObserver observer_;
  StoredTensors stored_;
  std::unordered_map<std::string, kernels::TensorView> weights_;
  std::unordered_map<std::int64_t, kernels::TensorView> outputs_;  ///< of the step, by tensor
};

}  // namespace nanscope::scenarios

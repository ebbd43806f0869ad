#pragma once
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "core/result.h"
#include "instrument/engine/emitter.h"
#include "instrument/probe.h"
#include "kernels/device.h"

namespace nanscope {

/// What one rank's pass tells, kept with copies of its tensors until the step can be told as a whole: a probe is told
/// one step after another, and ranks run beside each other.
class HeldStep final : public Probe {
 public:
  /// The device must outlive it. `listening`: whether there is anybody to tell.
  HeldStep(kernels::Device& device, bool listening) : device_(device), listening_(listening) {}

  bool listening() const override { return listening_; }
  Status on_op(const ProbeOp& op) override;
  Status on_scale(const ScaleRow& row) override;
  Status on_kv(const KvRow& row) override;

  /// Tells all of it, its ids behind those of `into`, and forgets it. `own` counted the ids.
  Status tell(const Emitter& own, Emitter& into);

 private:
  struct HeldInput {
    std::string role;
    std::int64_t tensor = 0;
    std::string weight;
  };
  struct HeldOutput {
    std::string role;
    ProbeTensor tensor;  ///< its role is the one beside it
  };
  struct HeldOp {
    ProbeOp op;  ///< its texts, inputs and outputs are those beside it
    std::string name, attributes;
    std::vector<HeldInput> inputs;
    std::vector<HeldOutput> outputs;
  };
  using Event = std::variant<HeldOp, ScaleRow, KvRow>;

  Result<kernels::TensorView> copy(const kernels::TensorView& view);
  Result<std::byte*> memory(std::size_t bytes);
  static Status tell(const HeldOp& held, std::int64_t first_op, std::int64_t first_tensor, Probe& probe);

  kernels::Device& device_;
  bool listening_;
  std::vector<Event> events_;
  std::vector<kernels::Buffer> buffers_;  ///< kept from step to step
  std::size_t buffer_ = 0;                ///< that is being filled
  std::size_t used_ = 0;                  ///< of it
};

}  // namespace nanscope

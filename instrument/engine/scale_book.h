#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "instrument/engine/scale_policies.h"
#include "instrument/engine/workspace.h"
#include "kernels/device.h"

namespace nanscope {

/// A run's scales: one policy for each attention layer's K and V, with the device's copy of what
/// it chose last.
class ScaleBook {
 public:
  static Result<ScaleBook> create(const EngineConfig& config, kernels::Device& device);

  /// The scale for these rows, chosen by the policy and copied to the device.
  struct Use {
    ScaleChoice choice;
    kernels::TensorView scales;  ///< (1, 1) or (T, 1) f32
    float largest = 1;           ///< of the scales: the one of the ledger
  };
  Result<Use> use(const ScaleContext& context, std::int64_t attention_rank, const kernels::TensorView& rows,
                  Workspace& workspace);

  /// Ledger entry of rows stored under `use`. Their largest magnitude is measured for it; NaN is
  /// passed over there.
  Result<ScaleRow> ledger_row(const ScaleContext& context, std::int64_t op, const Use& use,
                              const kernels::TensorView& rows, Workspace& workspace);

  /// Scales that are computed once and kept (locked) are from now on what `values` says, K and V of each attention
  /// layer: their memory was freed and came back with something else in it.
  void overwrite(std::span<const float> values);

 private:
  ScaleBook(const EngineConfig& config, kernels::Device& device) : config_(&config), device_(&device) {}

  const EngineConfig* config_;
  kernels::Device* device_;
  std::vector<std::unique_ptr<ScalePolicy>> policies_;  ///< K and V of each attention layer
};

}  // namespace nanscope

#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "instrument/engine/emitter.h"
#include "instrument/engine/loaded_model.h"
#include "instrument/train/arena.h"
#include "instrument/train/trainer.h"

namespace nanscope::train {

/// Layer and name of the op that does `what` with a weight: "layers.3.q_proj.weight" is changed by
/// q_proj_weight_adamw of layer 3.
std::pair<std::int64_t, std::string> place_of_weight(std::string_view weight, std::string_view what);

/// The weights of a training run and what AdamW (Loshchilov and Hutter 2019) keeps of them.
class Optimizer {
 public:
  /// Takes the model's weights over: f32 ones are the master weights themselves, others are rounded from f32 copies.
  /// Errors: weights that are codes and scales.
  static Result<std::unique_ptr<Optimizer>> create(const TrainConfig& config, std::shared_ptr<LoadedModel> model,
                                                   kernels::Device& device);

  using Gradients = std::map<std::string, Live, std::less<>>;

  /// The norm of all gradients, without the loss's scale, in double (Pascanu et al. 2013).
  Result<double> norm(const Gradients& gradients, double loss_scale, Arena& scratch);
  /// Changes every weight that has a gradient, which is multiplied by `scale` before, and tells it. `done` steps were
  /// taken before; the changed weights are called NAME@`version`.
  Status step(const Gradients& gradients, float scale, float learning_rate, std::int64_t done, std::int64_t version,
              Emitter& emitter);

  /// Weights of these names times a factor, from the step on whose version is given; 0: before the first.
  Status multiply(std::string_view pattern, float factor, std::int64_t version);

  Status save(TrainState& state);
  Status restore(const TrainState& state, std::int64_t version);

 private:
  struct Held {
    Weight* weight = nullptr;
    kernels::TensorView master, first, second;
    kernels::TensorView codes, scales;  ///< of train.weight_blocks; not given where the weight is not rounded to them
  };

  Optimizer(const TrainConfig& config, std::shared_ptr<LoadedModel> model, kernels::Device& device)
      : config_(config), model_(std::move(model)), device_(device) {}
  Status take(Weight& weight);
  Status make_codes(Held& held);
  /// The weight as train.weight_blocks has it, of its master.
  Status round(const Held& held);
  /// `master`: the tensor that they were made of.
  void emit_codes(const Held& held, std::int64_t master, Emitter& emitter) const;
  Result<kernels::TensorView> matrix(Format format, std::int64_t rows, std::int64_t columns, bool zeroed);

  const TrainConfig& config_;
  std::shared_ptr<LoadedModel> model_;
  kernels::Device& device_;
  std::vector<Held> held_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  ///< of the weight that the run began with
};

}  // namespace nanscope::train

#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "instrument/train/arena.h"
#include "instrument/train/forward_pass.h"
#include "instrument/train/optimizer.h"
#include "instrument/train/tape.h"

namespace nanscope::train {

/// A rank of data parallelism: a model of its own, which its own optimizer changes, and what a step of it works in.
struct Replica {
  Replica(kernels::Device& device, std::int64_t number, std::shared_ptr<LoadedModel> own)
      : rank(number), model(std::move(own)), tape(device), inputs(device), gradients(device), scratch(device) {}

  std::int64_t rank = 0;
  std::shared_ptr<LoadedModel> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<ForwardPass> pass;
  Tape tape;
  Arena inputs, gradients, scratch;
  std::int64_t logits = 0;     ///< tensor of the forward pass
  kernels::TensorView losses;  ///< by row
  Optimizer::Gradients weight_gradients;
};

}  // namespace nanscope::train

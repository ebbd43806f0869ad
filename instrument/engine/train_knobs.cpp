#include <array>
#include <string_view>
#include <vector>

#include "instrument/engine/knob_entry.h"
#include "instrument/engine/knob_groups.h"

/// Knobs of training.
namespace nanscope {

namespace knob_entry {

template <>
struct Texts<LearningRateDecay> {
  static constexpr std::array<std::string_view, 3> names{"none", "linear", "cosine"};
};
template <>
struct Texts<LossScaling> {
  static constexpr std::array<std::string_view, 2> names{"fixed", "dynamic"};
};
template <>
struct Texts<LossMask> {
  static constexpr std::array<std::string_view, 2> names{"skip", "multiply"};
};
template <>
struct Texts<TextOrder> {
  static constexpr std::array<std::string_view, 2> names{"shuffled", "sequential"};
};

}  // namespace knob_entry

using knob_entry::knob;

namespace {

std::vector<Knob> data_knobs() {
  return {
      knob(
          "train.steps", "0..1000000", "training steps; 0: nothing is trained",
          [](auto& c) -> auto& { return c.train.steps; }),
      knob(
          "train.text", "text", "file of the text that is trained on, relative to the scenario's folder",
          [](auto& c) -> auto& { return c.train.text; }),
      knob(
          "train.batch", "1..4096", "sequences of a training step", [](auto& c) -> auto& { return c.train.batch; }),
      knob(
          "train.length", "1..65536", "tokens of a training sequence, each with the one behind it as its target",
          [](auto& c) -> auto& { return c.train.length; }),
      knob(
          "train.order", "shuffled|sequential", "whether sequences begin anywhere in the text, or one behind the other",
          [](auto& c) -> auto& { return c.train.order; }),
      knob(
          "train.seed", "0..9223372036854775807", "of the order of sequences and of stochastic rounding",
          [](auto& c) -> auto& { return c.train.seed; }),
      knob(
          "train.ignore", "text",
          "tokens of lines that begin so are no targets; a batch without any target has a loss of 0/0",
          [](auto& c) -> auto& { return c.train.ignore; }),
      knob(
          "train.mask", "skip|multiply",
          "whether losses of tokens that are no targets are left out, or multiplied by 0: then a batch without any "
          "target has gradients of 0 x Inf",
          [](auto& c) -> auto& { return c.train.mask; }),
  };
}

std::vector<Knob> data_parallel_knobs() {
  return {
      knob(
          "train.ranks", "1..8",
          "ranks of data parallelism, each with its share of a step's sequences and a replica of the model; gradients "
          "are summed over them",
          [](auto& c) -> auto& { return c.train.ranks; }),
      knob(
          "train.unreduced_rank", "-1..7",
          "rank whose optimizer reads a gradient before its sum over ranks has been written, so that it steps with its "
          "own; -1: none",
          [](auto& c) -> auto& { return c.train.unreduced_rank; }),
      knob(
          "train.unreduced", "text", "weights whose gradients these are, as a pattern with *; empty: every weight",
          [](auto& c) -> auto& { return c.train.unreduced; }),
  };
}

std::vector<Knob> optimizer_knobs() {
  return {
      knob(
          "train.learning_rate", "0..1e9", "of AdamW", [](auto& c) -> auto& { return c.train.learning_rate; }),
      knob(
          "train.warm_up", "0..1000000", "steps in which the learning rate rises to its value",
          [](auto& c) -> auto& { return c.train.warm_up; }),
      knob(
          "train.decay", "none|linear|cosine", "how the learning rate falls to 0 behind the warm-up",
          [](auto& c) -> auto& { return c.train.decay; }),
      knob(
          "train.spike_step", "-1..1000000", "training step, from 0, whose learning rate is multiplied; -1: none",
          [](auto& c) -> auto& { return c.train.spike_step; }),
      knob(
          "train.spike", "0..1e9", "what the learning rate of that step is multiplied by",
          [](auto& c) -> auto& { return c.train.spike; }),
      knob(
          "train.weight_spike_step", "-1..1000000",
          "training step, from 0, before which weights are multiplied; -1: none",
          [](auto& c) -> auto& { return c.train.weight_spike_step; }),
      knob(
          "train.weight_spike", "0..1e9", "what these weights are multiplied by",
          [](auto& c) -> auto& { return c.train.weight_spike; }),
      knob(
          "train.weight_spike_of", "text", "names of these weights, as a pattern with *",
          [](auto& c) -> auto& { return c.train.weight_spike_of; }),
      knob(
          "train.forget_scales_step", "-1..1000000",
          "training step, from 0, before which histories of scores.policy are lost, as in a resume without them: they "
          "begin "
          "as 1; -1: none",
          [](auto& c) -> auto& { return c.train.forget_scales_step; }),
      knob(
          "train.beta1", "0..1", "decay of AdamW's first moment", [](auto& c) -> auto& { return c.train.beta1; }),
      knob(
          "train.beta2", "0..1", "decay of AdamW's second moment", [](auto& c) -> auto& { return c.train.beta2; }),
      knob(
          "train.eps", "0..1", "what AdamW adds to the root of the second moment, in the format of its state",
          [](auto& c) -> auto& { return c.train.eps; }),
      knob(
          "train.weight_decay", "0..1e9", "decoupled weight decay, of matrices alone",
          [](auto& c) -> auto& { return c.train.weight_decay; }),
      knob(
          "train.clip", "0..1e30", "largest norm of all gradients together; 0: they are not clipped",
          [](auto& c) -> auto& { return c.train.clip; }),
      knob(
          "train.state_format", "f32|f16|bf16", "in which AdamW keeps its moments, and adds eps",
          [](auto& c) -> auto& { return c.train.state_format; }),
  };
}

std::vector<Knob> backward_knobs() {
  return {
      knob(
          "train.loss_scaling", "fixed|dynamic",
          "whether the scale of the loss is halved at gradients that are not finite, and doubled after steps without",
          [](auto& c) -> auto& { return c.train.loss_scaling; }),
      knob(
          "train.loss_scale", "1e-30..1e30", "what the loss is multiplied by before its gradient is taken",
          [](auto& c) -> auto& { return c.train.loss_scale; }),
      knob(
          "train.loss_scale_growth", "1..1000000", "steps with finite gradients before a dynamic scale is doubled",
          [](auto& c) -> auto& { return c.train.loss_scale_growth; }),
      knob(
          "train.skip_overflow", "true|false", "whether a step whose gradients are not finite leaves the weights alone",
          [](auto& c) -> auto& { return c.train.skip_overflow; }),
      knob(
          "train.gradient_format", "f32|f16|bf16", "in which gradients of activations are kept",
          [](auto& c) -> auto& { return c.train.gradient_format; }),
      knob(
          "train.blocks", "name",
          "block format that operands of the backward products are quantized to (`nanscope bits --block list`); empty: "
          "they are not",
          [](auto& c) -> auto& { return c.train.blocks; }),
      knob(
          "train.gradient_blocks", "name",
          "block format of the gradients among these operands, as mxfp8-e5m2; empty: that of train.blocks",
          [](auto& c) -> auto& { return c.train.gradient_blocks; }),
      knob(
          "train.weight_blocks", "name",
          "block format that the weights of projections are rounded to at the start and behind each step: products "
          "read "
          "them so, the optimizer changes them in f32; empty: they are not",
          [](auto& c) -> auto& { return c.train.weight_blocks; }),
      knob(
          "train.stochastic", "true|false", "whether gradients are rounded stochastically to the elements of blocks",
          [](auto& c) -> auto& { return c.train.stochastic; }),
      knob(
          "train.hadamard", "true|false",
          "whether operands of the backward products are rotated before they are quantized",
          [](auto& c) -> auto& { return c.train.hadamard; }),
      knob(
          "train.attention_blocks", "true|false",
          "whether the gradient of attention reads its operands in the blocks that attention reads them in",
          [](auto& c) -> auto& { return c.train.attention_blocks; }),
  };
}

}  // namespace

std::vector<Knob> train_knobs() {
  std::vector<Knob> all = data_knobs();
  for (const std::vector<Knob>& group : {data_parallel_knobs(), optimizer_knobs(), backward_knobs()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

}  // namespace nanscope

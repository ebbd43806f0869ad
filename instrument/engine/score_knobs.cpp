#include <vector>

#include "instrument/engine/knob_entry.h"
#include "instrument/engine/knob_groups.h"
#include "instrument/spectral/score_policy.h"

/// Knobs of attention's scores in 8 bits.
namespace nanscope {

using knob_entry::knob;

std::vector<Knob> score_knobs() {
  return {
      knob(
          "scores.format", "f32|e4m3|e5m2|e4m3fnuz|e5m2fnuz",
          "format that attention's scores are quantized to before the softmax; f32: they are not",
          [](auto& c) -> auto& { return c.scores.format; }),
      knob(
          "scores.policy", score_policy_names(), "who computes the scale that scores are divided by, from what",
          [](auto& c) -> auto& { return c.scores.policy; }),
      knob(
          "scores.scale", "number", "the scale under scores.policy=static",
          [](auto& c) -> auto& { return c.scores.scale; }),
      knob(
          "scores.history", "1..4096", "steps whose largest score scores.policy=delayed remembers",
          [](auto& c) -> auto& { return c.scores.history; }),
      knob(
          "scores.start", "number", "largest score that a history stands for which has seen none",
          [](auto& c) -> auto& { return c.scores.start; }),
      knob(
          "scores.margin", "number", "part of the format that delayed and monotonic scales let the history take",
          [](auto& c) -> auto& { return c.scores.margin; }),
      knob(
          "scores.utilization", "number", "part of the format that the bound of the weights may take",
          [](auto& c) -> auto& { return c.scores.utilization; }),
      knob(
          "scores.delta", "number", "chance of a score beyond that bound, over the whole model",
          [](auto& c) -> auto& { return c.scores.delta; }),
      knob(
          "scores.length", "1..1073741824", "tokens of a sequence that the bound is for",
          [](auto& c) -> auto& { return c.scores.length; }),
      knob(
          "scores.overflow", "saturate|overflow", "what the cast of scores does beyond the largest finite value",
          [](auto& c) -> auto& { return c.scores.overflow; }),
  };
}

}  // namespace nanscope

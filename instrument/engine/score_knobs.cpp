#include <vector>

#include "instrument/engine/knob_entry.h"
#include "instrument/engine/knob_groups.h"
#include "instrument/spectral/score_policy.h"

/// Knobs of attention's scores, queries and keys in 8 bits.
namespace nanscope::knob_entry {

template <>
struct Texts<ScoresPer> {
  static constexpr std::array<std::string_view, 2> names{"layer", "head"};
};
template <>
struct Texts<ScalesOf> {
  static constexpr std::array<std::string_view, 2> names{"own", "any"};
};

}  // namespace nanscope::knob_entry

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
          "scores.per", "layer|head", "how much has one scale: scores, queries or keys of a layer, or of a head",
          [](auto& c) -> auto& { return c.scores.per; }),
      knob(
          "scores.scale", "number", "the scale of scores under scores.policy=static",
          [](auto& c) -> auto& { return c.scores.scale; }),
      knob(
          "scores.qk_format", "f32|e4m3|e5m2|e4m3fnuz|e5m2fnuz",
          "format that queries and keys are quantized to before their product; f32: they are not",
          [](auto& c) -> auto& { return c.scores.qk_format; }),
      knob(
          "scores.qk_policy", score_policy_names(), "who computes the scales of queries and keys, from what",
          [](auto& c) -> auto& { return c.scores.qk_policy; }),
      knob(
          "scores.q_scale", "number", "the scale of queries under scores.qk_policy=static",
          [](auto& c) -> auto& { return c.scores.q_scale; }),
      knob(
          "scores.k_scale", "number", "the scale of keys under scores.qk_policy=static",
          [](auto& c) -> auto& { return c.scores.k_scale; }),
      knob(
          "scores.scales", "text",
          "a file that `nanscope scales -o` wrote: its scales of each layer and head, where the policy is static",
          [](auto& c) -> auto& { return c.scores.scales; }),
      knob(
          "scores.scales_of", "own|any", "whose weights that file may be of; own: a file of other weights is refused",
          [](auto& c) -> auto& { return c.scores.scales_of; }),
      knob(
          "scores.history", "1..4096", "steps whose largest value the policy `delayed` remembers",
          [](auto& c) -> auto& { return c.scores.history; }),
      knob(
          "scores.burn_in", "1..1000000", "steps that the policy `auto_alpha` watches before it freezes its bound",
          [](auto& c) -> auto& { return c.scores.burn_in; }),
      knob(
          "scores.quantile", "number", "part of the slack seen that auto_alpha keeps below its bound; 1: all of it",
          [](auto& c) -> auto& { return c.scores.quantile; }),
      knob(
          "scores.kappa", "number", "what auto_alpha multiplies that slack by",
          [](auto& c) -> auto& { return c.scores.kappa; }),
      knob(
          "scores.start", "number", "largest value that a history stands for which has seen none",
          [](auto& c) -> auto& { return c.scores.start; }),
      knob(
          "scores.margin", "number", "part of the format that delayed and monotonic scales let the history take",
          [](auto& c) -> auto& { return c.scores.margin; }),
      knob(
          "scores.utilization", "number", "part of the format that the bound of the weights may take",
          [](auto& c) -> auto& { return c.scores.utilization; }),
      knob(
          "scores.delta", "number", "chance of a value beyond that bound, over the whole model",
          [](auto& c) -> auto& { return c.scores.delta; }),
      knob(
          "scores.length", "1..1073741824", "tokens of a sequence that the bound is for",
          [](auto& c) -> auto& { return c.scores.length; }),
      knob(
          "scores.overflow", "saturate|overflow", "what these casts do beyond the largest finite value",
          [](auto& c) -> auto& { return c.scores.overflow; }),
  };
}

}  // namespace nanscope

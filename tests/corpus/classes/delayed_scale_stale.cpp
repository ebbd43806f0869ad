#include <fmt/format.h>

#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// Scores are cast with a scale of the largest ones seen before. In one half of the dumps a history that was settled
/// meets query and key weights four times as large; in the other a checkpoint is loaded and the history holds ones.
Case delayed_scale_stale(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  server.settings.scores = Cast{};
  for (Layer& layer : server.model.layers) {
    scale_weight(layer.q, 3);
    scale_weight(layer.k, 3);
  }
  constexpr unsigned kGroups[] = {kScales | kCodes | kScores | kWeights, kScales | kCodes | kScores | kOutputs,
                                  kScales | kCodes | kScores | kHeads | kWeights,
                                  kScales | kCodes | kOutputs | kInputs | kScores};
  Tape tape({.groups = kGroups[index],
             .with = {},
             .without = {"embed.weight", "lm_head.weight", "up.weight", "down.weight", "gate.weight"}});
  const auto step = [&](int number, int tokens) {
    server.forget();
    const std::string folder = fmt::format("step_{:03}", number);
    server.dump_weights(tape, folder);
    server.run(tape, folder, server.prompt(seed + static_cast<std::uint64_t>(number) * 101, "prompt", tokens));
  };
  const bool loaded = seed % 2 == 1;
  bool early = false;
  if (!loaded) {
    tape.record(false);
    for (int warm = 100; warm < 118; ++warm) step(warm, 3 * shape.tokens);  // long prompts: a wide history
    tape.record(true);
    server.clips.clear();
    step(0, shape.tokens);
    step(1, shape.tokens);
    early = !server.clips.empty();
    for (Layer& layer : server.model.layers) {
      scale_weight(layer.q, 4);
      scale_weight(layer.k, 4);
    }
    step(2, shape.tokens);
    step(3, shape.tokens);
  } else {
    step(0, shape.tokens);
    step(1, shape.tokens);
  }
  const Clip clip = server.clips.empty() ? Clip{} : server.clips.front();
  Case made = labelled(std::move(tape), {"delayed-scale-stale", clip.scale, clip.codes});
  if (early) made.doubt = "clipped before the weights changed";
  if (clip.clipped * 50 < clip.of) made.doubt = "hardly anything clips";
  return made;
}

}  // namespace nanscope::corpus::classes

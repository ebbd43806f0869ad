#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// Clipped codes without what made the scale: an earlier request that nobody dumped, or a scale that was never
/// calibrated.
Case saturation(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Model model = make_model(shape, seed);
  const Matrix direction = foreign_direction(model, seed);
  const bool uncalibrated = index == 3;
  for (Layer& layer : model.layers) {
    const double gain = uncalibrated ? 900 : 12 + static_cast<double>(seed % 3) * 4;
    if (seed % 2 == 0 || uncalibrated) answer_to(layer.k, direction.values, gain, seed, "k");
    answer_to(layer.v, direction.values, gain, seed, "v");
  }
  Settings settings;
  settings.kv_scales = uncalibrated ? KvScales::fixed : KvScales::locked;
  settings.kv_cast.format = index == 1 && seed % 2 == 1 ? Format::int8 : Format::e4m3;
  const float top = info(settings.kv_cast.format).max_finite;
  settings.k_divisor = top / 2;
  settings.v_divisor = top / 4;
  Server server(std::move(model), settings);
  constexpr unsigned kGroups[] = {kCodes, kCodes | kOutputs, kCodes | kHeads | kScores, kCodes | kScales | kOutputs};
  Tape tape({.groups = kGroups[index]});
  tape.record(false);
  if (!uncalibrated) server.run(tape, "", server.prompt(seed, "first", shape.tokens));
  server.forget();
  server.clips.clear();
  tape.record(true);
  Prompt second = server.prompt(seed, "second", shape.tokens);
  point_to(second, 1, shape.tokens - 2, direction, seed, shape.dtype);
  server.run(tape, pass_folder(seed), second);
  const Clip clip = server.clips.empty() ? Clip{} : server.clips.front();
  Case made = labelled(std::move(tape), {"saturation", uncalibrated ? clip.scale : clip.codes, clip.codes});
  if (clip.clipped * 50 < clip.of) made.doubt = "hardly anything clips";
  return made;
}

}  // namespace nanscope::corpus::classes

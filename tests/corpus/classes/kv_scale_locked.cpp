#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

/// Keys and values from one layer on answer to a direction that text does not have; some models' values alone.
void answer_from(Model& model, const Matrix& direction, std::uint64_t seed, int from) {
  const double gain = 16 + 3 * static_cast<double>(seed % 4);
  for (int l = from; l < model.shape.layers; ++l) {
    Layer& layer = model.layers[static_cast<std::size_t>(l)];
    if (seed % 3 != 1) answer_to(layer.k, direction.values, gain, seed, "answer.k" + std::to_string(l));
    answer_to(layer.v, direction.values, gain, seed, "answer.v" + std::to_string(l));
  }
}

Settings locked(int index) {
  Settings settings;
  settings.kv_scales = KvScales::locked;
  settings.kv_cast.format = index == 1 ? Format::int8 : Format::e4m3;
  // Divisors of calibration: keys 200 and values 100 in servers that leave headroom.
  settings.k_divisor = index == 1 ? 60.0F : 200.0F;
  settings.v_divisor = index == 1 ? 40.0F : 100.0F;
  return settings;
}

}  // namespace

/// The scales of the first request's text are kept; a later request brings an image, whose keys and values lie far
/// outside. In the last shape it is a later part of the same prompt.
Case kv_scale_locked(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Model model = make_model(shape, seed);
  const Matrix direction = foreign_direction(model, seed);
  answer_from(model, direction, seed, static_cast<int>(seed / 2 % static_cast<std::uint64_t>(shape.layers)));
  Server server(std::move(model), locked(index));
  constexpr unsigned kGroups[] = {kOutputs | kScales | kCodes, kOutputs | kInputs | kScales | kCodes | kHeads,
                                  kOutputs | kScales | kCodes | kScores | kRead | kTokens,
                                  kHeads | kScales | kCodes | kLogits};
  Tape tape({.groups = kGroups[index]});
  const bool chunks = index == 3;
  server.run(tape, chunks ? "step_000" : "request_0", server.prompt(seed, "first", shape.tokens));
  const bool early = !server.clips.empty();
  if (!chunks) server.forget();
  Prompt second = server.prompt(seed, "second", shape.tokens + 2);
  point_to(second, 0, shape.tokens - 3, direction, seed, shape.dtype);
  server.run(tape, chunks ? "step_001" : "request_1", second);
  const Clip clip = server.clips.empty() || early ? Clip{} : server.clips.front();
  Case made = labelled(std::move(tape), {"kv-scale-locked", clip.scale, clip.codes});
  if (clip.clipped * 50 < clip.of) made.doubt = "hardly anything clips";
  return made;
}

}  // namespace nanscope::corpus::classes

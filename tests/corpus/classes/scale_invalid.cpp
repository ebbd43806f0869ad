#include <limits>

#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

/// What servers have been seen to divide by.
float invalid_scale(std::uint64_t seed) {
  constexpr float kSentinel = std::numeric_limits<float>::lowest();
  const std::vector<float> silence(16, 0.0F);
  switch (seed % 5) {
    case 0:
      return absmax(silence) / 448;  // calibrated while every input was zero
    case 1:
      return kSentinel;  // never loaded
    case 2:
      return -1;  // "to be calibrated"
    case 3:
      return kSentinel * kSentinel;  // the product of two that were never loaded
    default:
      return absmax(silence) / absmax(silence);  // a mean over no tokens
  }
}

}  // namespace

/// A scale that was never set: of keys, of a weight, of values, of a weight again.
Case scale_invalid(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  const float bad = invalid_scale(seed + static_cast<std::uint64_t>(index));
  const int layer = static_cast<int>(seed % static_cast<std::uint64_t>(shape.layers));
  const std::string folder = pass_folder(seed);
  std::string carrier;
  if (index % 2 == 0) {
    server.settings.kv_scales = KvScales::fixed;
    server.settings.k_scale = index == 0 ? bad : 0.02F;
    server.settings.v_scale = index == 0 ? 0.02F : bad;
    carrier = below(folder, server.name("attn", 0, index == 0 ? "k_scale" : "v_scale"));
  } else {
    const bool down = index == 1;
    for (Layer& l : server.model.layers) (down ? l.down : l.o).quantize_weight(Format::e4m3);
    Layer& ill = server.model.layers[static_cast<std::size_t>(layer)];
    (down ? ill.down : ill.o).scale = bad;
    const std::string in = weights_folder(seed, folder);
    carrier = below(in, server.name(down ? "down" : "o", layer, "weight_scale"));
  }
  Tape tape({.groups = kOutputs | kScales | kCodes | (seed % 2 == 0 ? kWeights : 0U) | kInputs});
  server.dump_weights(tape, weights_folder(seed, folder));
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  return labelled(std::move(tape), {"scale-invalid", carrier, carrier});
}

}  // namespace nanscope::corpus::classes

#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

void grow(Model& model, int index, float gain) {
  for (Layer& layer : model.layers) {
    switch (index) {
      case 0:  // a wide sum of an MLP
        scale_weight(layer.up, 16);
        scale_weight(layer.down, gain);
        break;
      case 1:  // a residual that every layer adds to
        layer.down.bias[3] += 900 * gain;
        break;
      case 2:  // what goes into the activation
        scale_weight(layer.up, 32 * gain);
        break;
      default:  // attention's projection
        scale_weight(layer.v, 32);
        scale_weight(layer.o, gain);
    }
  }
}

}  // namespace

/// Healthy weights and finite inputs, and a result beyond 65504: sums of an MLP, of the residual, of a projection.
Case f16_overflow(int index, std::uint64_t seed) {
  Shape shape = any_shape(index, seed);
  shape.dtype = Format::f16;
  if (index == 3) shape.experts = 0;
  const unsigned groups = kOutputs | kInputs | kResiduals | (seed % 2 == 0 ? kWeights : 0U);
  // Models grow until they leave the range, as they do from one checkpoint to the next.
  for (float gain = 2 + static_cast<float>(seed % 3); gain < 20000; gain *= 1.5F) {
    Model model = make_model(shape, seed);
    grow(model, index, gain);
    Server server(std::move(model), settings_for(shape));
    Tape tape({.groups = groups});
    server.dump_weights(tape, weights_folder(seed, pass_folder(seed)));
    server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
    const std::string bad = tape.first_not_finite();
    if (!bad.empty()) return labelled(std::move(tape), {"f16-overflow", bad, bad});
  }
  return labelled(Tape({}), {"f16-overflow", "", ""});
}

}  // namespace nanscope::corpus::classes

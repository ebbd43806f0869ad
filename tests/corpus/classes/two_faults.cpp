#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// A kernel that leaves out columns of one product, and a fixed scale of the cache that clips in another place. Neither
/// led to the other: the scale is wrong whatever the projection gives.
Case two_faults(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index == 3 ? 1 : index, seed);
  Settings settings;
  settings.kv_scales = KvScales::fixed;
  settings.k_scale = 0.0005F;
  settings.v_scale = 1;
  const int last = shape.layers - 1;
  settings.broken = Broken{"down", last, seed % 2 == 0 ? Bug::zero_columns : Bug::short_sum, 1};
  Server server(make_model(shape, seed), settings);
  Tape tape({.groups = kOutputs | kInputs | kTokens | kWeights | kCodes | kScales | kHeads});
  const std::string folder = pass_folder(seed);
  server.dump_weights(tape, "");
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  const Clip clip = server.clips.empty() ? Clip{} : server.clips.front();
  return labelled(
      std::move(tape),
      {"saturation", clip.codes, clip.codes, {{"wrong-result", below(folder, server.name("down", last, "output"))}}});
}

/// A product that is not scaled back, in f16: what it gives is finite and far too large, and a later product overflows.
Case fault_and_consequence(int index, std::uint64_t seed) {
  Shape shape = decoder_shape(index == 3 ? 0 : index, seed);
  shape.dtype = Format::f16;
  Settings settings;
  const int layer = static_cast<int>(seed % static_cast<std::uint64_t>(shape.layers));
  settings.broken = Broken{"up", layer, Bug::factor, 12000.0F};
  Model model = make_model(shape, seed);
  // The down projection adds up what points its way.
  for (Layer& one : model.layers) scale_weight(one.down, 16);
  Server server(std::move(model), settings);
  Tape tape({.groups = kOutputs | kInputs | kTokens | kWeights | kLogits});
  const std::string folder = pass_folder(seed);
  server.dump_weights(tape, "");
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  const std::string root = below(folder, server.name("up", layer, "output"));
  const std::string bad = tape.first_not_finite();
  Case made = labelled(std::move(tape), {"wrong-result", root, root, {}, "f16-overflow"});
  if (bad.empty()) made.doubt = "nothing overflows";
  if (bad == root) made.doubt = "it overflows at once";
  return made;
}

}  // namespace nanscope::corpus::classes

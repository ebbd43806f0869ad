#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

Shape norm_shape(int index, std::uint64_t seed) {
  Shape shape = any_shape(index % 2 == 0 ? 2 : 1, seed);
  if (index < 2) return shape;
  shape.width = index == 2 ? 96 : 64;
  shape.dtype = index == 2 ? Format::f16 : Format::f32;
  return shape;
}

/// A token whose embedding is one value in all channels, as that of a blank patch or of untrained padding, or a bias
/// that lifts all channels far from zero.
Case with_offset(const Shape& shape, std::uint64_t seed, float offset) {
  Server server(make_model(shape, seed), settings_for(shape));
  server.settings.one_pass = true;
  server.settings.eps = seed % 3 == 0 ? 1e-6F : 1e-5F;
  Prompt prompt = server.prompt(seed, "prompt", shape.tokens);
  if (seed % 2 == 0) {
    for (float& v : prompt.embedded.row(1 + static_cast<std::int64_t>(seed % 5))) v = stored(shape.dtype, offset);
  } else {
    for (float& b : server.model.layers[0].down.bias) b = stored(shape.dtype, b + 256 * offset);
  }
  Tape tape({.groups = kOutputs | kInputs | (seed % 4 < 2 ? kWeights : 0U)});
  server.dump_weights(tape, weights_folder(seed, pass_folder(seed)));
  server.run(tape, pass_folder(seed), prompt);
  const std::string bad = tape.first_not_finite();
  const std::size_t port = bad.rfind(".output");
  if (port == std::string::npos) return labelled(std::move(tape), {"variance-collapse", "", ""});
  return labelled(std::move(tape), {"variance-collapse", bad.substr(0, port) + ".input", bad});
}

}  // namespace

/// LayerNorm whose variance is E[x^2] - E[x]^2 in f32. Offsets are tried until the rounding makes it negative, as some
/// do and others do not.
Case variance_collapse(int index, std::uint64_t seed) {
  const Shape shape = norm_shape(index, seed);
  float offset = 10 + 0.7F * static_cast<float>(seed);
  for (int tries = 0; tries < 400; ++tries, offset += 0.37F) {
    Case made = with_offset(shape, seed, offset);
    if (made.doubt.empty() && made.label.first_bad.find("norm") + 1 + made.label.first_bad.find("ln_") + 1 > 0)
      return made;
  }
  return labelled(Tape({}), {"variance-collapse", "", ""});
}

}  // namespace nanscope::corpus::classes

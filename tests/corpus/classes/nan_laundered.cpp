#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

/// A norm's NaN row goes through a cast to int8, which has no NaN: a row of zeros goes on.
Case by_cast(const Shape& shape, std::uint64_t seed, float offset) {
  Server server(make_model(shape, seed), settings_for(shape));
  server.settings.one_pass = true;
  const Cast cast{.format = Format::int8, .sharing = Sharing::row, .divisor = 127, .given = {}};
  for (Layer& layer : server.model.layers) layer.q.input = layer.k.input = layer.v.input = cast;
  Prompt prompt = server.prompt(seed, "prompt", shape.tokens);
  for (float& v : prompt.embedded.row(2 + static_cast<std::int64_t>(seed % 4))) v = stored(shape.dtype, offset);
  Tape tape({.groups = kCodes | kScales, .with = {"attn_norm.output", "qkv.output", "o.output", "lm_head.output"}});
  server.run(tape, pass_folder(seed), prompt);
  const std::string bad = tape.first_not_finite();
  Case made =
      labelled(std::move(tape), {"nan-laundered", below(pass_folder(seed), server.name("qkv", 0, "input_codes")), bad});
  if (made.tape.not_finite() != 1) made.doubt = "the NaN does not vanish";
  if (bad != below(pass_folder(seed), server.name("attn_norm", 0, "output"))) made.doubt = "begins at '" + bad + '\'';
  return made;
}

/// An activation is clamped by fmin and fmax, which choose the number over the NaN.
Case by_clamp(const Shape& shape, std::uint64_t seed, float offset) {
  Server server(make_model(shape, seed), settings_for(shape));
  server.settings.one_pass = true;
  server.settings.activation_clamp = 7.0F;
  // The offset is there between the two blocks of the first layer alone.
  for (float& b : server.model.layers[0].o.bias) b = stored(shape.dtype, offset);
  for (float& b : server.model.layers[0].down.bias) b = stored(shape.dtype, -offset);
  Tape tape({.groups = 0,
             .with = {"act.input", "act.output", "down.output", "mlp.output", "final_norm.output", "lm_head.output"}});
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
  const std::string bad = tape.first_not_finite();
  Case made =
      labelled(std::move(tape), {"nan-laundered", below(pass_folder(seed), server.name("act", 0, "output")), bad});
  if (made.tape.not_finite() != 1) made.doubt = "the NaN does not vanish";
  if (bad != below(pass_folder(seed), server.name("act", 0, "input"))) made.doubt = "begins at '" + bad + '\'';
  return made;
}

}  // namespace

/// A NaN that is there before an operation and not behind it. The dump begins with the NaN, so that nothing earlier
/// is to be found; offsets are tried until the norm before it fails in that place alone.
Case nan_laundered(int index, std::uint64_t seed) {
  Shape shape = any_shape(index % 2 == 0 ? 2 : 1, seed);
  if (index % 2 == 1) shape.dtype = Format::f32;
  Case made = labelled(Tape({}), {"nan-laundered", "", ""});
  for (int tries = 0; tries < 200; ++tries) {
    const float small = 9 + static_cast<float>(seed) + 0.37F * static_cast<float>(tries);
    made = index < 2 ? by_cast(shape, seed, small) : by_clamp(shape, seed, 400 * small);
    if (made.doubt.empty()) break;
  }
  return made;
}

}  // namespace nanscope::corpus::classes

#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

/// A channel whose bias is far larger than what its inputs make, as keys of some model families have.
void outlying_bias(Linear& linear, std::uint64_t seed) {
  if (linear.bias.empty()) linear.bias.assign(static_cast<std::size_t>(linear.out), 0.0F);
  const auto channel = static_cast<std::size_t>(draw(seed, "channel", linear.out));
  linear.bias[channel] = 700 + 100 * static_cast<float>(seed % 4);
}

}  // namespace

/// A channel that training made large: its size differs from token to token.
void outlying_channel(Linear& linear, std::uint64_t seed, float factor) {
  Matrix w = linear.values();
  for (float& v : w.row(draw(seed, "channel", linear.out))) v *= factor * (1 + 0.2F * static_cast<float>(seed % 4));
  linear.set(w, linear.format);
}

/// One outlier sets the int8 scale that everything else shares, and everything else becomes zero: keys and values of a
/// cache, with a scale a tensor or a token, and what goes into a projection.
Case outlier_squash(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  const Cast cast{
      .format = Format::int8, .sharing = index < 2 ? Sharing::tensor : Sharing::row, .divisor = 127, .given = {}};
  for (Layer& layer : server.model.layers) {
    if (index == 0) {
      outlying_bias(layer.k, seed);
    } else {
      outlying_channel(layer.v, seed, cast.sharing == Sharing::tensor ? 400.0F : 3000.0F);
    }
    if (index == 1 || index == 2) layer.o.input = cast;
  }
  if (index == 0 || index == 3) {
    server.settings.kv_scales = KvScales::dynamic;
    server.settings.kv_cast = cast;
    server.settings.k_divisor = server.settings.v_divisor = 127;
  }
  constexpr std::string_view kParts[] = {"attn", "o", "o", "attn"};
  constexpr std::string_view kScale[] = {"k_scale", "input_scale", "input_scale", "v_scale"};
  constexpr std::string_view kCode[] = {"k_cache", "input_codes", "input_codes", "v_cache"};
  const std::string folder = pass_folder(seed);
  Tape tape({.groups = kOutputs | kInputs | kScales | kCodes | (seed % 3 == 0 ? kHeads : 0U)});
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  const auto named = [&](std::string_view what) { return below(folder, server.name(kParts[index], 0, what)); };
  return labelled(std::move(tape), {"outlier-squash", named(kScale[index]), named(kCode[index])});
}

}  // namespace nanscope::corpus::classes

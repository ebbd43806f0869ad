#include <bit>
#include <cmath>

#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

struct Victim {
  Linear* linear;
  std::string_view part;
};

/// The highest exponent bit of one weight of ordinary size.
void flip_exponent(Linear& linear, std::uint64_t seed) {
  const Matrix w = linear.values();
  const float ordinary = 0.5F / std::sqrt(static_cast<float>(linear.in));
  const auto count = static_cast<std::int64_t>(linear.codes.size());
  auto at = static_cast<std::size_t>(draw(seed, "element", count));
  while (std::abs(w.values[at]) < ordinary) at = (at + 1) % linear.codes.size();
  linear.codes[at] ^= 1U << (info(linear.format).bits - 2);
}

/// One bit away from the code of NaN, which a flip reaches.
void flip_to_nan(Linear& linear, std::uint64_t seed) {
  auto at = static_cast<std::size_t>(draw(seed, "element", static_cast<std::int64_t>(linear.codes.size())));
  while (std::popcount(linear.codes[at] & 0x7FU) != 6) at = (at + 1) % linear.codes.size();
  linear.codes[at] |= 0x7FU;
}

}  // namespace

/// A bit of a weight that memory or a disk turned over.
Case weight_corruption(int index, std::uint64_t seed) {
  const Shape shape = any_shape(index, seed);
  Server server(make_model(shape, seed), settings_for(shape));
  const int layer = static_cast<int>(seed % static_cast<std::uint64_t>(shape.layers));
  Layer& ill = server.model.layers[static_cast<std::size_t>(layer)];
  const Victim attention[] = {{&ill.o, "o"}, {shape.fused_qkv() ? &ill.v : &ill.k, shape.fused_qkv() ? "qkv" : "k"}};
  const Victim mlp[] = {{&ill.up, "up"}, {&ill.down, "down"}};
  const Victim victim = shape.experts > 0 || seed % 4 < 2 ? attention[seed % 2] : mlp[seed % 2];
  if (index == 3) {
    for (Layer& l : server.model.layers) {
      for (Linear* linear : {&l.q, &l.k, &l.v, &l.o}) linear->quantize_weight(Format::e4m3);
    }
    flip_to_nan(*victim.linear, seed);
  } else {
    flip_exponent(*victim.linear, seed);
  }
  Tape tape({.groups = kWeights | kScales | kOutputs | (seed % 3 == 0 ? kInputs : 0U)});
  const std::string folder = pass_folder(seed);
  const std::string in = weights_folder(seed, folder);
  server.dump_weights(tape, in);
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  const std::string carrier = below(in, server.name(victim.part, layer, "weight"));
  return labelled(std::move(tape), {"weight-corruption", carrier, carrier});
}

}  // namespace nanscope::corpus::classes

#include <array>

#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

constexpr unsigned kGroups = kInputs | kOutputs | kWeights | kScales | kCodes | kHeads | kScores;

/// Left out, twice, inverted.
int wrong_power(std::uint64_t seed) { return std::array{0, 2, -1}[seed % 3]; }

struct Misuse {
  std::string_view part;
  std::string_view scale;
  std::string_view shows;  ///< the first tensor with wrong values
  std::string_view shows_what;
};

}  // namespace

/// A right scale, applied another number of times than once: a weight's, that of cached keys, of cached values, of an
/// activation.
Case scale_misapplied(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  const int power = wrong_power(seed);
  if (index == 0) {
    for (Layer& layer : server.model.layers) {
      layer.down.quantize_weight(Format::e4m3);
      layer.down.scale_power = power;
    }
  } else if (index == 3) {
    for (Layer& layer : server.model.layers) {
      layer.o.quantize_weight(Format::e4m3);
      layer.o.input = Cast{};
      layer.o.input_power = power;
    }
  } else {
    server.settings.kv_scales = KvScales::dynamic;
    (index == 1 ? server.settings.k_power : server.settings.v_power) = power;
  }
  constexpr Misuse kMisuse[] = {{"down", "weight_scale", "down", "output"},
                                {"attn", "k_scale", "attn", "k_dequant"},
                                {"attn", "v_scale", "attn", "output"},
                                {"o", "input_scale", "o", "output"}};
  const Misuse& misuse = kMisuse[index];
  const std::string folder = pass_folder(seed);
  const std::string in = index == 0 ? weights_folder(seed, folder) : folder;
  Tape tape({.groups = kGroups | (index == 1 ? kRead : 0U)});
  server.dump_weights(tape, weights_folder(seed, folder));
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  const std::string root = below(in, server.name(misuse.part, 0, misuse.scale));
  return labelled(std::move(tape),
                  {"scale-misapplied", root, below(folder, server.name(misuse.shows, 0, misuse.shows_what))});
}

}  // namespace nanscope::corpus::classes

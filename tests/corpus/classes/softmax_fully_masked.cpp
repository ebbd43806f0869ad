#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// Padding to the left that no query may attend to: its own queries are left without a key, and the softmax divides
/// zero by zero.
Case softmax_fully_masked(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  server.settings.padding = 1 + static_cast<std::int64_t>(seed % 4);
  server.settings.reads_masked = true;
  server.settings.additive_mask = seed % 2 == 0;
  constexpr unsigned kGroups[] = {kOutputs | kScores, kOutputs | kMasks, kOutputs,
                                  kOutputs | kInputs | kMasks | kScores | kHeads};
  Tape tape({.groups = kGroups[index],
             .with = {index == 2 ? "attn.scores" : ""},
             .without = {index == 1 ? "" : "attn.seq_lens"}});
  const std::string folder = pass_folder(seed);
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  const bool mask = index % 2 == 1;
  const std::string bad = tape.first_not_finite();
  return labelled(std::move(tape),
                  {"softmax-fully-masked", below(folder, server.name("attn", 0, mask ? "attn_mask" : "scores")), bad});
}

}  // namespace nanscope::corpus::classes

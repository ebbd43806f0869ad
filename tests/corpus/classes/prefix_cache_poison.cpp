#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// An earlier request, which nobody dumped, left NaN in the keys and values of some tokens (its padding had no key to
/// attend to). A clean request shares those tokens' blocks and reads them.
Case prefix_cache_poison(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  if (index == 0) {
    server.settings.kv_scales = KvScales::locked;
    server.settings.k_divisor = server.settings.v_divisor = 100;
  }
  constexpr unsigned kGroups[] = {kOutputs | kCodes | kScales | kMasks, kOutputs | kInputs | kCodes | kHeads,
                                  kOutputs | kCodes | kScores | kHeads, kOutputs | kCodes | kMasks | kLogits};
  Tape tape({.groups = kGroups[index]});
  tape.record(false);
  server.settings.padding = 1 + static_cast<std::int64_t>(seed % 3);
  server.settings.reads_masked = true;
  server.run(tape, "request_0", server.prompt(seed, "earlier", shape.tokens));
  server.settings.padding = 0;
  server.settings.reads_masked = false;
  server.reuse(shape.tokens - 2);
  tape.record(true);
  const std::string folder = pass_folder(seed);
  server.run(tape, folder, server.prompt(seed, "clean", 5 + static_cast<std::int64_t>(seed % 4)));
  const std::string cache = below(folder, server.name("attn", 1, "k_cache"));
  return labelled(std::move(tape), {"prefix-cache-poison", cache, cache});
}

}  // namespace nanscope::corpus::classes

#include "tests/corpus/corpus.h"
#include "tests/corpus/stale_bytes.h"

namespace nanscope::corpus::classes {

namespace {

Case recycled(int index, std::uint64_t seed, std::uint64_t used_before) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  const bool added = index == 3 && seed % 2 == 1;
  server.settings.slots = shape.tokens + 8 + static_cast<int>(seed % 8);
  server.settings.reads_masked = true;
  server.settings.additive_mask = added;
  if (index == 0) {
    server.settings.kv_scales = KvScales::dynamic;
    server.settings.k_divisor = server.settings.v_divisor = 200;
  }
  server.fill_cache(shape.dtype == Format::f32 ? index_bytes(used_before, 4096) : state_bytes(used_before, 8192));
  constexpr unsigned kGroups[] = {kCodes | kScales | kOutputs | kScores | kMasks, kCodes | kOutputs | kMasks,
                                  kCodes | kOutputs | kHeads | kScores, kCodes | kOutputs | kScores | kMasks};
  Tape tape({.groups = kGroups[index]});
  const std::string folder = pass_folder(seed);
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  const std::string cache = below(folder, server.name("attn", 0, added ? "k_cache" : "v_cache"));
  const std::string shown = below(folder, server.name("attn", 0, added ? "scores" : "output"));
  Case made = labelled(std::move(tape), {"masked-tail-poison", cache, shown});
  if (made.tape.first_not_finite() != shown) made.doubt = "shows first in '" + made.tape.first_not_finite() + '\'';
  return made;
}

}  // namespace

/// Attention goes over whole blocks of the cache. Slots behind the last token hold the bytes of what used the block
/// before, some of which are NaN; probability 0 times NaN is NaN, and so is NaN plus a mask of -inf. Not all bytes are
/// NaN: blocks are recycled until the first layer's do harm.
Case masked_tail_poison(int index, std::uint64_t seed) {
  Case made = recycled(index, seed, seed);
  for (std::uint64_t again = 1; again < 50 && !made.doubt.empty(); ++again)
    made = recycled(index, seed, seed + 1000 * again);
  return made;
}

}  // namespace nanscope::corpus::classes

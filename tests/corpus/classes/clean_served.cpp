#include "tests/corpus/corpus.h"
#include "tests/corpus/dress.h"

/// Clean dumps of servers that keep their tensors otherwise.
namespace nanscope::corpus::classes {
namespace {

/// The passes of two prompts of different lengths, from an empty cache each.
std::pair<Tape, Tape> two_prompts(Server& server, std::uint64_t seed, unsigned groups, const std::string& folder) {
  const int tokens = server.model.shape.tokens;
  Tape a({.groups = groups});
  Tape b({.groups = groups});
  if ((groups & kWeights) != 0) server.dump_weights(a, weights_folder(seed, folder));
  if ((groups & kWeights) != 0) server.dump_weights(b, weights_folder(seed, folder));
  server.run(a, folder, server.prompt(seed, "first", tokens));
  server.forget();
  server.run(b, folder, server.prompt(seed, "second", tokens - 3));
  return {std::move(a), std::move(b)};
}

constexpr unsigned kServed = kOutputs | kTokens | kLogits | kWeights;

}  // namespace

Case clean_batch(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  const std::string folder = pass_folder(seed);
  const unsigned more = seed % 3 == 0 ? kInputs | kScores : seed % 3 == 1 ? kHeads | kResiduals : kHeads | kScores;
  auto [a, b] = two_prompts(server, seed, kServed | more, folder);
  Case made{batched(a, b, folder, seed % 2 == 0 ? Padding::left : Padding::right, seed % 4 == 0), {}, {}};
  return made;
}

Case clean_flattened(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  const std::string folder = pass_folder(seed);
  auto [a, b] = two_prompts(server, seed, kServed | kHeads | (seed % 2 == 0 ? kInputs | kResiduals : 0U), folder);
  return {flattened(a, b, folder), {}, {}};
}

Case clean_ranks(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index % 2 == 0 ? 0 : 3, seed);
  Settings settings;
  // A scale of each pass alone would read the codes of the pass before by the wrong one.
  if (index >= 2) settings.kv_scales = KvScales::locked;
  settings.k_divisor = settings.v_divisor = 100;
  Server server(make_model(shape, seed), settings);
  Tape whole({.groups = kServed | kHeads | kInputs | (index == 2 ? kCodes | kScales | kRead : 0U) |
                        (seed % 2 == 0 ? kScores : 0U)});
  server.dump_weights(whole, "");
  server.run(whole, "step_000", server.prompt(seed, "prompt", shape.tokens));
  if (seed % 2 == 0) server.run(whole, "step_001", server.prompt(seed, "next", 1));
  Tape made(Dumped{});
  add_shard(whole, 0, made);
  add_shard(whole, 1, made);
  return {std::move(made), {}, {}};
}

Case clean_pages(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(static_cast<int>(seed % 3), seed);
  Settings settings;
  if (seed % 2 == 0) settings.kv_scales = KvScales::locked;
  settings.k_divisor = settings.v_divisor = 100;
  Server server(make_model(shape, seed), settings);
  Tape tape({.groups = kServed | kCodes | kScales | kHeads | (seed % 4 < 2 ? kScores : 0U)});
  server.dump_weights(tape, "");
  server.run(tape, "prefill", server.prompt(seed, "prompt", shape.tokens));
  for (int step = 0; step < 2; ++step)
    server.run(tape, "decode_" + std::to_string(step),
               server.prompt(seed + static_cast<std::uint64_t>(step), "next", 1));
  constexpr Pages kPages[] = {Pages::slots_first, Pages::heads_first, Pages::halves_first, Pages::halves_second};
  return {paged(tape, kPages[index], seed), {}, {}};
}

/// What is written is e4m3 or e5m2, and nothing says which.
Case clean_untyped(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Settings settings;
  settings.kv_scales = KvScales::dynamic;
  settings.kv_cast.format = seed % 2 == 0 ? Format::e4m3 : Format::e5m2;
  settings.k_divisor = settings.v_divisor = seed % 2 == 0 ? 448.0F : 57344.0F;
  Server server(make_model(shape, seed), settings);
  Tape tape({.groups = kServed | kCodes | kScales | kHeads | kRead});
  server.dump_weights(tape, "");
  server.run(tape, "step_000", server.prompt(seed, "prompt", shape.tokens));
  return {untyped(tape), {}, {}};
}

Case clean_unknown_names(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  Tape tape({.groups = kServed | (seed % 2 == 0 ? kInputs | kResiduals : kHeads)});
  server.dump_weights(tape, "");
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
  return {renamed(tape), {}, {}};
}

}  // namespace nanscope::corpus::classes

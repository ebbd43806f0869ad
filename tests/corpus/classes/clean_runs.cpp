#include <fmt/format.h>

#include "tests/corpus/corpus.h"

/// Clean dumps of several passes.
namespace nanscope::corpus::classes {

/// One prompt twice with a later token changed: what comes before it is the same to the bit.
Case clean_two_runs(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  Tape tape({.groups = kOutputs | kTokens | kHeads | kLogits | (seed % 2 == 0 ? kInputs | kResiduals : 0U)});
  server.run(tape, "a", server.prompt(seed, "prompt", shape.tokens));
  server.forget();
  Prompt prompt = server.prompt(seed, "prompt", shape.tokens);
  const Prompt other = server.prompt(seed, "other", shape.tokens);
  const std::int64_t changed = shape.tokens - 1 - static_cast<std::int64_t>(seed % 3);
  prompt.ids[static_cast<std::size_t>(changed)] = other.ids[static_cast<std::size_t>(changed)];
  const auto row = other.embedded.row(changed);
  std::copy(row.begin(), row.end(), prompt.embedded.row(changed).begin());
  server.run(tape, "b", prompt);
  return clean(std::move(tape));
}

/// A prompt, then one token at a time.
Case clean_decode(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Settings settings;
  if (index % 2 == 0) {
    settings.kv_scales = KvScales::locked;
    settings.k_divisor = settings.v_divisor = 100;
  }
  Server server(make_model(shape, seed), settings);
  Tape tape({.groups = kOutputs | kTokens | kLogits | kCodes | kScales | (seed % 2 == 0 ? kScores | kMasks : 0U)});
  server.run(tape, "prefill", server.prompt(seed, "prompt", shape.tokens));
  for (int step = 0; step < 4; ++step) {
    server.run(tape, fmt::format("decode_{}", step),
               server.prompt(seed + static_cast<std::uint64_t>(step), fmt::format("step{}", step), 1));
  }
  return clean(std::move(tape));
}

/// Experts, with a bias that steers their choice and leaves their weights alone.
Case clean_experts(int index, std::uint64_t seed) {
  const Shape shape = expert_shape(index, seed);
  Server server(make_model(shape, seed), {});
  for (Layer& layer : server.model.layers) {
    for (float& b : layer.router_bias) b = b * 10 + (seed % 2 == 0 ? 20.0F : 0.0F);
  }
  Tape tape({.groups = kOutputs | kInputs | kRouting | kLogits});
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
  return clean(std::move(tape));
}

/// Hooks of outputs alone, of one rank.
Case clean_outputs_alone(int index, std::uint64_t seed) {
  const Shape shape = any_shape(index, seed);
  Server server(make_model(shape, seed), settings_for(shape));
  Tape tape({.groups = kOutputs | kLogits});
  server.run(tape, "rank0/step_003", server.prompt(seed, "prompt", shape.tokens));
  return clean(std::move(tape));
}

}  // namespace nanscope::corpus::classes

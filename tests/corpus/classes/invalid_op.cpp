#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

/// A softmax that does not subtract the largest score: exp() is Inf, and so is the sum.
Case naive_softmax(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  server.settings.naive_softmax = true;
  for (Layer& layer : server.model.layers) {
    scale_weight(layer.q, 8 + static_cast<float>(seed));
    scale_weight(layer.k, 8);
  }
  Tape tape({.groups = kOutputs | (index == 1 ? kScores : kHeads)});
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
  const std::string bad = tape.first_not_finite();
  return labelled(std::move(tape), {"invalid-op", bad, bad});
}

/// A norm that collapses, and nothing of what goes in.
Case norm_alone(std::uint64_t seed) {
  const Shape shape = any_shape(seed % 2 == 0 ? 2 : 1, seed);
  for (float offset = 3000; offset < 30000; offset += 777) {
    Server server(make_model(shape, seed), settings_for(shape));
    server.settings.one_pass = true;
    for (float& b : server.model.layers[0].down.bias) b = stored(shape.dtype, b + offset);
    Tape tape({.groups = 0, .with = {"attn_norm.output", "mlp_norm.output", "lm_head.output"}});
    server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
    const std::string bad = tape.first_not_finite();
    if (!bad.empty()) return labelled(std::move(tape), {"invalid-op", bad, bad});
  }
  return labelled(Tape({}), {"invalid-op", "", ""});
}

/// Weights of experts that are 0/0, of which the sum over the experts alone was dumped.
Case experts_alone(std::uint64_t seed) {
  const Shape shape = expert_shape(static_cast<int>(seed % kShapes), seed);
  Model model = make_model(shape, seed);
  for (Layer& layer : model.layers) {
    for (float& b : layer.router_bias) b = stored(Format::bf16, 400 + 8 * b);
  }
  Settings settings;
  settings.subtracts_bias = true;
  Server server(std::move(model), settings);
  Tape tape({.groups = 0, .with = {"attn_norm.output", "o.output", "mlp_norm.output", "mlp.output", "lm_head.output"}});
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", shape.tokens));
  const std::string bad = tape.first_not_finite();
  return labelled(std::move(tape), {"invalid-op", bad, bad});
}

}  // namespace

/// NaN out of healthy inputs where the dump does not say which operation made it.
Case invalid_op(int index, std::uint64_t seed) {
  if (index == 0) return norm_alone(seed);
  return index == 3 ? experts_alone(seed) : naive_softmax(index, seed);
}

}  // namespace nanscope::corpus::classes

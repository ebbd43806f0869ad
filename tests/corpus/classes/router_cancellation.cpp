#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// The router takes the weights of the chosen experts as biased score minus bias. Tokens that no expert wants have
/// scores below what the format resolves beside the bias: the weights are zero, and their sum is divided by.
Case router_cancellation(int index, std::uint64_t seed) {
  const Shape shape = expert_shape(index, seed);
  Model model = make_model(shape, seed);
  const Matrix direction = foreign_direction(model, seed);
  for (Layer& layer : model.layers) {
    Matrix w = layer.router.values();
    for (std::int64_t e = 0; e < w.rows; ++e) {
      for (std::int64_t c = 0; c < w.cols; ++c) w.at(e, c) -= 9 * direction.at(0, c) / static_cast<float>(shape.width);
    }
    layer.router.set(w, shape.dtype);
    for (float& b : layer.router_bias) b = stored(Format::bf16, b + 20 + static_cast<float>(seed));
  }
  Settings settings;
  settings.subtracts_bias = true;
  Server server(std::move(model), settings);
  const bool bias = index == 0 || index == 3;
  Tape tape({.groups = kOutputs | (index < 2 ? kInputs : 0U) | kRouting,
             .with = {},
             .without = {bias ? "" : "router.e_score_correction_bias"}});
  Prompt prompt = server.prompt(seed, "prompt", shape.tokens);
  point_to(prompt, 2, 2 + static_cast<std::int64_t>(seed % 5), direction, seed, shape.dtype);
  server.run(tape, pass_folder(seed), prompt);
  const std::string weights = below(pass_folder(seed), server.name("mlp", 0, "topk_weights"));
  const std::string carrier =
      bias ? below(pass_folder(seed), server.name("router", 0, "e_score_correction_bias")) : weights;
  Case made = labelled(std::move(tape), {"router-cancellation", carrier, weights});
  if (made.tape.first_not_finite() != weights) made.doubt = "begins at '" + made.tape.first_not_finite() + '\'';
  return made;
}

}  // namespace nanscope::corpus::classes

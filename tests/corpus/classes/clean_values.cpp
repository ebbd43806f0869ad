#include <limits>

#include "tests/corpus/corpus.h"

/// Clean dumps whose values look odd: large, sparse, masked, of one size.
namespace nanscope::corpus::classes {
namespace {

constexpr unsigned kAll = kInputs | kOutputs | kWeights | kScales | kCodes | kRead | kHeads | kScores | kMasks |
                          kLogits | kRouting | kResiduals | kTokens;

Case one_pass(Server& server, std::uint64_t seed, unsigned groups) {
  Tape tape({.groups = groups});
  server.dump_weights(tape, weights_folder(seed, pass_folder(seed)));
  server.run(tape, pass_folder(seed), server.prompt(seed, "prompt", server.model.shape.tokens));
  return clean(std::move(tape));
}

}  // namespace

/// Everything, masks of -inf above the diagonal included.
Case clean_everything(int index, std::uint64_t seed) {
  const Shape shape = any_shape(index, seed);
  Server server(make_model(shape, seed), settings_for(shape));
  return one_pass(server, seed, kAll);
}

/// Logits of thousands, and token 0 because it is the likeliest.
Case clean_large_logits(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  scale_weight(server.model.lm_head, 4000);
  server.model.lm_head.bias.assign(static_cast<std::size_t>(shape.vocabulary), 0.0F);
  server.model.lm_head.bias[0] = 40000;
  return one_pass(server, seed, kOutputs | kLogits);
}

/// A grammar that leaves a few tokens to choose from.
Case clean_grammar(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  auto& bias = server.model.lm_head.bias;
  bias.assign(static_cast<std::size_t>(shape.vocabulary), -std::numeric_limits<float>::infinity());
  for (int t = 0; t < 3; ++t)
    bias[static_cast<std::size_t>(draw(seed + static_cast<std::uint64_t>(t), "legal", shape.vocabulary))] = 0;
  Case made = one_pass(server, seed, kOutputs | kLogits | kTokens);
  if (made.doubt.find("lm_head") != std::string::npos) made.doubt.clear();  // the -inf of the grammar
  return made;
}

/// Rows of a large mean and a small, real variance; the norm takes two passes.
Case clean_flat_rows(int index, std::uint64_t seed) {
  const Shape shape = any_shape(index, seed);
  Server server(make_model(shape, seed), settings_for(shape));
  for (float& v : server.model.embed.values) v = stored(shape.dtype, 40 + v);
  return one_pass(server, seed, kOutputs | kInputs | kResiduals);
}

/// Trained outliers, a hundred times their neighbours, in weights and so in activations.
Case clean_outlier_weights(int index, std::uint64_t seed) {
  const Shape shape = any_shape(index, seed);
  Server server(make_model(shape, seed), settings_for(shape));
  for (Layer& layer : server.model.layers) {
    for (Linear* linear : {&layer.o, &layer.k}) {
      Matrix w = linear->values();
      w.values[static_cast<std::size_t>(draw(seed, "outlier", linear->out * linear->in))] *= 100;
      linear->set(w, linear->format);
    }
    layer.attn_norm.weight[5] = stored(shape.dtype, layer.attn_norm.weight[5] * 30);
  }
  return one_pass(server, seed, kOutputs | kInputs | kWeights);
}

/// Nine of ten channels of an MLP are exactly zero.
Case clean_sparse(int index, std::uint64_t seed) {
  Shape shape = any_shape(index, seed);
  shape.experts = 0;
  Server server(make_model(shape, seed), settings_for(shape));
  for (Layer& layer : server.model.layers) {
    Matrix w = layer.up.values();
    for (std::int64_t r = 0; r < w.rows; ++r) {
      if (r % 10 == 0) continue;
      for (float& v : w.row(r)) v = 0;
      if (!layer.up.bias.empty()) layer.up.bias[static_cast<std::size_t>(r)] = 0;
    }
    layer.up.set(w, layer.up.format);
  }
  return one_pass(server, seed, kOutputs | kInputs | kWeights);
}

/// A residual in f16 that comes near 65504 and stays below.
Case clean_near_the_limit(int index, std::uint64_t seed) {
  Shape shape = any_shape(index, seed);
  shape.dtype = Format::f16;
  Server server(make_model(shape, seed), settings_for(shape));
  for (std::int64_t t = 0; t < server.model.embed.rows; ++t) server.model.embed.at(t, 3) = 60000;
  return one_pass(server, seed, kOutputs | kInputs | kResiduals);
}

/// Padding to the left: its queries have no key, and a softmax that knows makes zeros of them.
Case clean_padding(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed),
                {.padding = 2 + static_cast<std::int64_t>(seed % 2), .zeroes_empty_rows = true});
  return one_pass(server, seed, kOutputs | kScores | kMasks | kHeads);
}

}  // namespace nanscope::corpus::classes

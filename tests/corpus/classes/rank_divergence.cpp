#include "tests/corpus/corpus.h"
#include "tests/corpus/dress.h"

namespace nanscope::corpus::classes {

/// One rank went on with an older norm than the other: from there on they hold different values of what they share.
Case rank_divergence(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index % 2 == 0 ? 0 : 3, seed);
  Model model = make_model(shape, seed);
  Model older = model;
  const int layer = static_cast<int>(seed % static_cast<std::uint64_t>(shape.layers));
  const bool attention = seed % 2 == 0;
  Layer& ill = older.layers[static_cast<std::size_t>(layer)];
  for (float& one : (attention ? ill.attn_norm : ill.mlp_norm).weight) one = stored(shape.dtype, one * 1.25F);
  const bool weights = index >= 2;
  const unsigned groups = kOutputs | kTokens | kLogits | (weights ? kWeights : 0U) | (seed % 3 == 0 ? kResiduals : 0U);
  const auto dump = [&](Model of) {
    Server server(std::move(of), {});
    Tape whole({.groups = groups});
    if (weights) server.dump_weights(whole, "");
    server.run(whole, "step_000", server.prompt(seed, "prompt", shape.tokens));
    return whole;
  };
  Tape made(Dumped{});
  add_shard(dump(model), 0, made);
  add_shard(dump(std::move(older)), 1, made);
  const std::string part = attention ? "attn_norm" : "mlp_norm";
  const std::string root = weights ? below("rank1", module_name(shape, part, layer) + ".weight")
                                   : below("rank1/step_000", module_name(shape, part, layer) + ".output");
  return labelled(std::move(made), {"rank-divergence", root, root});
}

}  // namespace nanscope::corpus::classes

#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {
namespace {

struct Leak {
  std::string_view part;
  std::string_view root;
  std::string_view first_bad;
};

}  // namespace

/// One prompt twice, with a later token changed, and rows before it that differ: a mask that is off by a few, a scale
/// that the whole prompt shares, whole layers of the first kind.
Case future_leakage(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Model model = make_model(shape, seed);
  const Matrix direction = foreign_direction(model, seed);
  for (Layer& layer : model.layers) {
    if (index == 1) answer_to(layer.k, direction.values, 6, seed, "k");
    if (index != 2) continue;
    answer_to(layer.v, direction.values, 30, seed, "v");
    layer.o.input = Cast{.format = Format::int8, .divisor = 127, .given = {}};
  }
  Server server(std::move(model), {});
  if (index == 1) {
    server.settings.kv_scales = KvScales::dynamic;
  } else if (index != 2) {
    server.settings.sees_ahead = 1 + static_cast<int>(seed % 2);
  }
  constexpr unsigned kGroups[] = {kOutputs | kTokens | kHeads, kOutputs | kTokens | kCodes | kScales | kHeads,
                                  kOutputs | kTokens | kCodes, kResiduals | kTokens};
  Tape tape({.groups = kGroups[index], .with = {}, .without = {"layer.input"}});
  Prompt prompt = server.prompt(seed, "prompt", shape.tokens);
  server.run(tape, "a", prompt);
  server.forget();
  const std::int64_t changed = shape.tokens - 2 - static_cast<std::int64_t>(seed % 3);
  prompt.ids[static_cast<std::size_t>(changed)] =
      (prompt.ids[static_cast<std::size_t>(changed)] + 1) % shape.vocabulary;
  point_to(prompt, changed, changed, direction, seed, shape.dtype);
  server.run(tape, "b", prompt);
  constexpr Leak kLeaks[] = {{"attn", "output", "output"},
                             {"attn", "k_scale", "k_cache"},
                             {"o", "input_codes", "input_codes"},
                             {"layer", "output", "output"}};
  // A scale that is shared does not move every time: the first layer whose codes before the change are not the same.
  int layer = 0;
  const auto codes = [&](std::string_view run) {
    return below(std::string(run), server.name("o", layer, "input_codes"));
  };
  while (index == 2 && layer + 1 < shape.layers && tape.same_rows(codes("a"), codes("b"), changed)) ++layer;
  const auto named = [&](std::string_view what) { return "b/" + server.name(kLeaks[index].part, layer, what); };
  return labelled(std::move(tape), {"future-leakage", named(kLeaks[index].root), named(kLeaks[index].first_bad)});
}

}  // namespace nanscope::corpus::classes

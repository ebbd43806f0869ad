#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// Values beyond the largest finite code, and a cast that does not clamp: NaN in e4m3, Inf in e5m2. In the caches the
/// scale is 1, which nobody calibrated.
Case fp8_nonsaturating_overflow(int index, std::uint64_t seed) {
  Shape shape = decoder_shape(index, seed);
  if (shape.dtype == Format::f16) shape.dtype = Format::bf16;
  Model model = make_model(shape, seed);
  const Matrix direction = foreign_direction(model, seed);
  const bool keys = seed % 2 == 0;
  const bool activation = index == 2;
  const Format format = index == 1 ? Format::e5m2 : Format::e4m3;
  const double gain = (index == 1 ? 90000 : 500) * (1 + 0.2 * static_cast<double>(seed % 4));
  for (Layer& layer : model.layers) {
    answer_to(keys && !activation ? layer.k : layer.v, direction.values, gain, seed, "answer");
    if (activation) layer.o.input = Cast{.overflow = Overflow::overflow, .given = 0.5F};
  }
  Server server(std::move(model), {});
  if (!activation) {
    server.settings.kv_scales = KvScales::fixed;
    server.settings.kv_cast = {.format = format, .overflow = Overflow::overflow};
  }
  Tape tape({.groups = kOutputs | kInputs | kCodes | kHeads | (index >= 2 ? kScales : 0U)});
  Prompt prompt = server.prompt(seed, "prompt", shape.tokens);
  point_to(prompt, 3, shape.tokens - 2, direction, seed, shape.dtype);
  const std::string folder = pass_folder(seed);
  server.run(tape, folder, prompt);
  const std::string codes =
      activation ? server.name("o", 0, "input_codes") : server.name("attn", 0, keys ? "k_cache" : "v_cache");
  Case made = labelled(std::move(tape), {"fp8-nonsaturating-overflow", below(folder, codes), below(folder, codes)});
  if (made.tape.not_finite() == 0) made.doubt = "nothing overflowed";
  return made;
}

}  // namespace nanscope::corpus::classes

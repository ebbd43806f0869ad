#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// Codes of one fp8 flavour that the reader, and so the dump, takes for another: caches written by one kernel and read
/// by the next, and weights of a checkpoint on a machine with the other flavour.
Case fp8_format_mismatch(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  const std::string folder = pass_folder(seed);
  if (index == 2) {
    for (Layer& layer : server.model.layers) {
      layer.up.quantize_weight(Format::e4m3);
      layer.up.read_as = Format::e4m3fnuz;
    }
    const std::string in = weights_folder(seed, folder);
    Tape tape({.groups = kInputs | kOutputs | kWeights | kScales});
    server.dump_weights(tape, in);
    server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
    const std::string codes = below(in, server.name("up", 0, "weight"));
    return labelled(std::move(tape), {"fp8-format-mismatch", codes, below(folder, server.name("up", 0, "output"))});
  }
  constexpr Format kWritten[] = {Format::e4m3fnuz, Format::e5m2, Format::e4m3, Format::e4m3fnuz};
  const Format read = index == 2 ? Format::e5m2 : Format::e4m3;
  Settings& settings = server.settings;
  settings.kv_scales = KvScales::dynamic;
  settings.kv_cast.format = kWritten[index];
  settings.kv_labelled = settings.kv_read_as = read;
  // In the last shape the largest value gets the last code, which the other flavour has no number for.
  settings.k_divisor = settings.v_divisor = index == 0 ? 224.0F : info(kWritten[index]).max_finite;
  Tape tape({.groups = kOutputs | kScales | kCodes | kHeads | (index == 1 ? 0U : kRead)});
  server.run(tape, folder, server.prompt(seed, "prompt", shape.tokens));
  const std::string codes = below(folder, server.name("attn", 0, "k_cache"));
  return labelled(std::move(tape), {"fp8-format-mismatch", codes, codes});
}

}  // namespace nanscope::corpus::classes

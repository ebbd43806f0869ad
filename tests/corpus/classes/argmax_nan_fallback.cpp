#include "tests/corpus/corpus.h"

namespace nanscope::corpus::classes {

/// Logits of NaN alone, and nothing else of the pass that made them: a mask that hid every key, in fact.
Case argmax_nan_fallback(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index, seed);
  Server server(make_model(shape, seed), {});
  Tape tape({.groups = kLogits, .with = {}, .without = {index == 2 ? "next_token" : ""}});
  const std::string folders[] = {"", "step_001", "step_000", "request_1"};
  if (index % 2 == 1) {
    server.run(tape, index == 1 ? "step_000" : "request_0", server.prompt(seed, "first", shape.tokens));
    server.forget();
  }
  server.settings.padding = shape.tokens + 1;
  server.settings.reads_masked = true;
  server.run(tape, folders[index], server.prompt(seed, "second", shape.tokens));
  const std::string logits = tape.first_not_finite();
  return labelled(std::move(tape), {"argmax-nan-fallback", logits, logits});
}

}  // namespace nanscope::corpus::classes

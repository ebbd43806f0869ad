#include <array>
#include <utility>

#include "tests/corpus/corpus.h"
#include "tests/corpus/dress.h"

namespace nanscope::corpus::classes {
namespace {

/// A product of the shape, and something that its kernel does wrong there.
Broken broken_of(const Shape& shape, std::uint64_t seed) {
  const bool experts = shape.experts > 0;
  const std::array<std::string, 4> parts = {shape.fused_qkv() ? "qkv" : "k", "o", experts ? "o" : "up",
                                            experts ? "router" : "down"};
  constexpr std::array kBugs = {Bug::zero_columns, Bug::old_rows, Bug::short_sum};
  return {parts[(seed / 2 + (shape.fused_qkv() ? 1 : 0)) % 4],
          static_cast<int>(seed % static_cast<std::uint64_t>(shape.layers)), kBugs[seed % kBugs.size()], 1};
}

}  // namespace

/// A kernel that does not finish: columns, rows or terms are left out. What goes on from there is right. As one
/// sequence, in a batch, flattened and on two ranks.
Case wrong_result(int index, std::uint64_t seed) {
  const Shape shape = decoder_shape(index == 3 ? 0 : index, seed);
  Settings settings;
  settings.broken = broken_of(shape, seed);
  if (settings.broken->part == "qkv") settings.broken->part = "o";  // its parts are done one by one
  Server server(make_model(shape, seed), settings);
  const std::string folder = index == 3 ? "step_000" : pass_folder(seed);
  const unsigned groups = kOutputs | kInputs | kTokens | kWeights | kLogits | (seed % 2 == 0 ? kHeads : 0U);
  Tape a({.groups = groups});
  server.dump_weights(a, "");
  server.run(a, folder, server.prompt(seed, "first", shape.tokens));
  std::string root = below(folder, server.name(settings.broken->part, settings.broken->layer, "output"));
  if (index == 0) return labelled(std::move(a), {"wrong-result", root, root});
  if (index == 3) {
    Tape made(Dumped{});
    add_shard(a, 0, made);
    add_shard(a, 1, made);
    root = "rank0/" + root;
    return labelled(std::move(made), {"wrong-result", root, root});
  }
  server.forget();
  Tape b({.groups = groups});
  server.dump_weights(b, "");
  server.run(b, folder, server.prompt(seed, "second", shape.tokens - 3));
  Tape made = index == 1 ? batched(a, b, folder, seed % 2 == 0 ? Padding::left : Padding::right, false)
                         : flattened(a, b, folder);
  return labelled(std::move(made), {"wrong-result", root, root});
}

}  // namespace nanscope::corpus::classes

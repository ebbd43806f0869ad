/// What a checkpoint says of a model, where a dump holds modules' outputs alone.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/core/dump/memory_dump.h"

namespace nanscope::known_geometry_test {
namespace {

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kWidth = 8;

/// Two layers with the modules `inside`, by their outputs.
std::unique_ptr<DumpRun> run_of(testing::MemoryDump& dump, const std::vector<std::string>& inside, Geometry known) {
  known.heads = known.kv_heads = 1;
  known.width = kWidth;
  known.layers = 2;
  const std::vector<std::int64_t> shape = {1, kRows, kWidth};
  dump.add("model.embed_tokens.output", "f32", shape);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const std::string& module : inside) dump.add(layer + module + ".output", "f32", shape);
  }
  return dump.run(known);
}

/// The name of the op that makes what the first layer's op `name` reads.
std::string read_by(DumpRun& run, const std::string& name) {
  const Op* op = run.find_op(run.steps().front().id, 0, name);
  const Tensor* x = op != nullptr ? run.input(*op, "x") : nullptr;
  const Op* maker = x != nullptr ? run.maker(*x) : nullptr;
  return maker != nullptr ? maker->name : "nothing";
}

TEST(KnownGeometry, BranchesSideBySideReadTheSameStream) {
  const std::vector<std::string> inside = {"input_layernorm", "self_attn.o_proj", "post_attention_layernorm",
                                           "mlp.down_proj"};
  for (const bool parallel : {false, true}) {
    testing::MemoryDump dump;
    Geometry known;
    known.parallel = parallel;
    const auto run = run_of(dump, inside, known);
    EXPECT_EQ(read_by(*run, "attn_norm"), "embed");
    EXPECT_EQ(read_by(*run, "mlp_norm"), parallel ? "embed" : "attn_residual");
  }
}

TEST(KnownGeometry, BranchesSideBySideMayShareTheirNorm) {
  testing::MemoryDump dump;
  Geometry known;
  known.parallel = true;
  const auto run = run_of(dump, {"input_layernorm", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"}, known);
  EXPECT_EQ(read_by(*run, "up_proj"), "attn_norm");
}

/// Gemma's norms stand before and behind each branch; other models have them too, and multiply nothing.
TEST(KnownGeometry, SaysWhetherAFactorStandsBetweenTheEmbeddingAndTheFirstLayer) {
  const std::vector<std::string> inside = {
      "input_layernorm",           "self_attn.o_proj", "post_attention_layernorm",
      "pre_feedforward_layernorm", "mlp.down_proj",    "post_feedforward_layernorm"};
  for (const bool said : {false, true}) {
    testing::MemoryDump dump;
    Geometry known;
    if (said) known.embedding_scale = 8;
    const auto run = run_of(dump, inside, known);
    EXPECT_EQ(read_by(*run, "attn_norm"), said ? "embed" : "embed_scaled");
  }
}

}  // namespace
}  // namespace nanscope::known_geometry_test

/// Tensor parallelism in one process: which bits are those of one rank, what sums are made of, what is refused.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "core/numbers/codec.h"
#include "engine_rig.h"
#include "instrument/engine/loaded_model.h"

namespace nanscope::testing {
namespace {

const std::vector<RequestSpec>& two_requests() {
  static const std::vector<RequestSpec> all{text_request("The lamp of the lighthouse burns all night.", 3),
                                            text_request("A storm rises.", 2)};
  return all;
}

EngineConfig ranks_config(int ranks, Knobs changes = {}) {
  changes.insert(changes.begin(), {{"engine.ranks", std::to_string(ranks)}, {"model.kv_heads", "4"}});
  return tiny_config(changes);
}

/// Shapes whose shards are whole panels of 32 rows, and such whose shards are not.
std::vector<Knobs> shapes() {
  return {{},
          {{"model.head_dim", "32"}, {"model.mlp_width", "128"}, {"model.qk_norm", "true"}},
          {{"model.heads", "8"}, {"model.bias", "true"}, {"model.mlp", "gelu"}, {"kv.format", "bf16"}},
          {{"model.mlp_width", "20"}, {"activation.format", "bf16"}, {"model.norm_placement", "post"}}};
}

/// Rows of a tensor of all ranks side by side.
std::vector<std::byte> side_by_side(const CollectProbe& seen, int ranks, std::int64_t step, std::string_view op,
                                    std::string_view role) {
  std::vector<std::byte> bytes;
  const std::int64_t rows = seen.find(0, step, 0, op, role).rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const Seen& part = seen.find(0, step, 0, op, role, rank);
      const auto width = std::ssize(part.bytes) / rows;
      bytes.insert(bytes.end(), part.bytes.begin() + row * width, part.bytes.begin() + (row + 1) * width);
    }
  }
  return bytes;
}

TEST(Ranks, WhatIsNotSummedHasTheBitsOfOneRank) {
  for (const Knobs& shape : shapes()) {
    const CollectProbe one = collect(ranks_config(1, shape), two_requests());
    for (const int ranks : {2, 4}) {
      const CollectProbe seen = collect(ranks_config(ranks, shape), two_requests());
      EXPECT_EQ(seen.steps.size(), one.steps.size() * static_cast<std::size_t>(ranks));
      for (const auto& [op, role] : std::vector<std::pair<std::string, std::string>>{{"q_proj", "out"},
                                                                                     {"k_proj", "out"},
                                                                                     {"v_proj", "out"},
                                                                                     {"q_rope", "out"},
                                                                                     {"kv_store", "k_codes"},
                                                                                     {"kv_store", "v_codes"},
                                                                                     {"kv_read", "k_read"},
                                                                                     {"scores", "out"},
                                                                                     {"softmax", "probs"},
                                                                                     {"attn_mix", "out"}}) {
        EXPECT_EQ(side_by_side(seen, ranks, 0, op, role), one.find(0, 0, 0, op, role).bytes) << ranks << " " << op;
      }
      for (const Seen& tensor : one.tensors) {
        if (tensor.op != "embed" && (tensor.op != "attn_norm" || tensor.layer != 0)) continue;
        if (tensor.step > 0) continue;  // of tokens that were chosen
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(seen.find(tensor.request, 0, tensor.layer, tensor.op, tensor.role, rank).bytes, tensor.bytes);
        }
      }
    }
  }
}

/// Each is off from the exact sum by at most (terms + ranks) u times the sum of magnitudes (Higham, 3.5).
TEST(Ranks, SumsAreWithinTheRoundingBound) {
  Rig whole(ranks_config(1));
  const CollectProbe one = whole.collect(two_requests());
  const kernels::TensorView& weight = whole.model->layers[0].o_proj.weight->view;
  const auto* values = static_cast<const float*>(weight.data);
  const Seen& mix = one.find(0, 0, 0, "attn_mix", "out");
  for (const int ranks : {2, 4}) {
    const CollectProbe seen = collect(ranks_config(ranks), two_requests());
    const Seen& sums = seen.find(0, 0, 0, "o_proj_all_reduce", "out");
    for (std::int64_t row = 0; row < mix.rows; ++row) {
      const std::vector<float> x = mix.row(row);
      const std::vector<float> got = sums.row(row);
      for (std::int64_t n = 0; n < weight.rows; ++n) {
        double sum = 0;
        double magnitudes = 0;
        for (std::size_t k = 0; k < x.size(); ++k) {
          const double product = double{x[k]} * double{values[n * weight.stride + static_cast<std::int64_t>(k)]};
          sum += product;
          magnitudes += std::abs(product);
        }
        const double bound = (static_cast<double>(x.size()) + ranks) * 0x1p-24 * magnitudes;
        ASSERT_NEAR(double{got[static_cast<std::size_t>(n)]}, sum, bound) << row << " " << n;
      }
    }
  }
}

TEST(Ranks, EverySumIsTheChainOfItsPartsAndTheSameOnAllRanks) {
  const int ranks = 4;
  const CollectProbe seen = collect(ranks_config(ranks), two_requests());
  std::size_t sums = 0;
  for (const Seen& sum : seen.tensors) {
    if (!sum.op.ends_with("_all_reduce")) continue;
    ++sums;
    const std::string product = sum.op.substr(0, sum.op.find("_all_reduce"));
    std::vector<float> chain = seen.find(sum.request, sum.step, sum.layer, product, "partial").floats();
    for (std::int64_t rank = 1; rank < ranks; ++rank) {
      const auto part = seen.find(sum.request, sum.step, sum.layer, product, "partial", rank).floats();
      for (std::size_t i = 0; i < chain.size(); ++i) chain[i] += part[i];
    }
    EXPECT_TRUE(same_bits(sum.floats(), chain)) << sum.op << " of rank " << sum.rank;
  }
  EXPECT_EQ(sums, 5U * 2 * 2 * ranks);  // steps, layers, branches
}

TEST(Ranks, EveryRankHasWhatARunOfOneHas) {
  const CollectProbe seen = collect(ranks_config(2, {{"kv.format", "e4m3"}, {"kv.policy", "locked"}}), two_requests());
  for (std::size_t i = 0; i < seen.steps.size(); ++i) {
    EXPECT_EQ(seen.steps[i].id, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(seen.steps[i].rank, static_cast<std::int64_t>(i % 2));
  }
  std::array<std::vector<std::int64_t>, 2> blocks;
  for (const KvRow& row : seen.kv) blocks.at(static_cast<std::size_t>((row.step - 1) % 2)).push_back(row.block);
  EXPECT_EQ(blocks[0], blocks[1]);
  EXPECT_FALSE(blocks[0].empty());
  std::int64_t of_rank_1 = 0;
  for (const ScaleRow& row : seen.scales) {
    EXPECT_EQ(seen.ops.at(static_cast<std::size_t>(row.op - 1)), "kv_store");
    of_rank_1 += row.step % 2 == 0 ? 1 : 0;
  }
  EXPECT_EQ(of_rank_1 * 2, std::ssize(seen.scales));
}

/// Builds, threads, another order, a batch.
TEST(Ranks, TheRunIsAFunctionOfItsConfiguration) {
  for (const char* order : {"rank", "ring", "tree"}) {
    const EngineConfig config =
        ranks_config(4, {{"allreduce.order", order}, {"activation.format", "bf16"}, {"engine.threads", "3"}});
    EngineConfig other = config;
    ASSERT_TRUE(set_knob(other, "engine.device", "cpu:baseline"));
    ASSERT_TRUE(set_knob(other, "engine.threads", "1"));
    Rig rig(config);
    const CollectProbe a = rig.collect(two_requests());
    const CollectProbe again = rig.collect(two_requests());
    const CollectProbe b = collect(other, two_requests());
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (std::size_t i = 0; i < a.tensors.size(); ++i) {
      ASSERT_EQ(a.tensors[i].bytes, b.tensors[i].bytes) << order << " " << a.tensors[i].op;
      ASSERT_EQ(a.tensors[i].bytes, again.tensors[i].bytes) << order << " " << a.tensors[i].op;
    }
    // Nobody listens: the same tokens.
    NullProbe nobody;
    const Result<RunResult> unheard = rig.engine->run(two_requests(), nobody);
    ASSERT_TRUE(unheard) << unheard.error().message;
    EXPECT_EQ(unheard->requests[0].output_tokens, rig.result.requests[0].output_tokens);
    EXPECT_EQ(unheard->ops, rig.result.ops);
    EXPECT_EQ(unheard->tensors, std::ssize(a.tensors));
    EXPECT_EQ(rig.engine->expected_ops(two_requests())->count, rig.result.ops);
  }
}

TEST(Ranks, ABatchHasTheAnswersOfOneAfterAnother) {
  Rig alone(ranks_config(2));
  alone.collect(two_requests());
  Rig batch(ranks_config(2, {{"engine.batch", "2"}, {"engine.chunk", "5"}}));
  batch.collect(two_requests());
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(batch.result.requests[i].output_tokens, alone.result.requests[i].output_tokens);
  }
}

TEST(Ranks, ExpertsAreCutEach) {
  const Knobs experts{{"model.experts", "3"}, {"model.shared_expert_width", "24"}, {"model.expert_width", "20"}};
  const CollectProbe one = collect(ranks_config(1, experts), two_requests());
  const CollectProbe two = collect(ranks_config(2, experts), two_requests());
  const std::vector<float> a = one.last_logits(0, 0);
  const std::vector<float> b = two.last_logits(0, 0);
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4F);
  EXPECT_EQ(two.find(0, 0, 0, "expert1_up_proj", "out").columns, 10);
  EXPECT_EQ(two.find(0, 0, 0, "route", "ids", 1).bytes, one.find(0, 0, 0, "route", "ids").bytes);
}

TEST(Ranks, AStuckBitIsInTheSumsOfItsRankAlone) {
  const Knobs stuck{{"allreduce.stuck_rank", "1"}, {"allreduce.stuck_element", "37"}, {"allreduce.stuck_bit", "22"}};
  const CollectProbe seen = collect(ranks_config(2, stuck), two_requests());
  const std::vector<float> good = seen.find(0, 0, 0, "o_proj_all_reduce", "out").floats();
  const std::vector<float> bad = seen.find(0, 0, 0, "o_proj_all_reduce", "out", 1).floats();
  for (std::size_t i = 0; i < good.size(); ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(good[i]) | (i == 37 ? 1U << 22 : 0U);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(bad[i]), bits) << i;
  }
}

TEST(Ranks, ACacheReadWithAnothersScaleIsThatManyTimesTooLarge) {
  const Knobs knobs{{"kv.format", "e4m3"}, {"kv.policy", "locked"}, {"kv.rank_scales", "rank_0"}};
  const CollectProbe seen = collect(ranks_config(2, knobs), two_requests());
  std::array<double, 2> scale_k{};
  for (const ScaleRow& row : seen.scales) {
    if (row.layer == 0 && row.target == "k" && row.step <= 2)
      scale_k.at(static_cast<std::size_t>(row.step - 1)) = row.scale;
  }
  ASSERT_NE(scale_k[0], scale_k[1]);
  const Seen& codes = seen.find(0, 0, 0, "kv_store", "k_codes", 1);
  const std::vector<float> read = seen.find(0, 0, 0, "kv_read", "k_read", 1).floats();
  for (std::size_t i = 0; i < codes.bytes.size(); ++i) {
    const float code = decode(Format::e4m3, static_cast<std::uint32_t>(codes.bytes[i]));
    EXPECT_EQ(read[i], code * static_cast<float>(scale_k[0]));
  }
}

TEST(Ranks, WhatCannotBeCutIsRefusedByName) {
  const auto refusal = [](const Knobs& changes) {
    const Status status = check(ranks_config(2, changes));
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"model.heads", "3"}, {"model.kv_heads", "3"}}), "engine.ranks=2 does not divide model.heads=3");
  EXPECT_EQ(refusal({{"model.kv_heads", "1"}}), "engine.ranks=2 does not divide model.kv_heads=1");
  EXPECT_EQ(refusal({{"model.mlp_width", "33"}}), "engine.ranks=2 does not divide model.mlp_width=33");
  for (const auto& [knob, value] : Knobs{{"model.inner_norm", "true"},
                                         {"activation.blocks", "mxfp8"},
                                         {"kv.memory", "recycled"},
                                         {"allreduce.stuck_rank", "2"},
                                         {"allreduce.stuck_bit", "40"}}) {
    EngineConfig config = ranks_config(2);
    const bool set = set_knob(config, knob, value).has_value();
    const Status status = check(config);
    const std::string said = status ? "" : status.error().message;
    EXPECT_TRUE(!set || said.find(knob) != std::string::npos) << knob << ": " << said;
  }
}

}  // namespace
}  // namespace nanscope::testing

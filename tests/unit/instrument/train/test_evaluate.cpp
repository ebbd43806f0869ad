#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/instrument/train/train_rig.h"

/// A causal model says the same of a token whether it sees those behind it or not.
namespace nanscope::train {
namespace {

using testing::Knobs;
using testing::train_config;
using testing::TrainRig;

/// Shape whose heads blocks of 32 fit into.
Knobs with_blocks(const Knobs& changes) {
  Knobs knobs{{"model.width", "64"},
              {"model.heads", "2"},
              {"model.kv_heads", "1"},
              {"model.head_dim", "32"},
              {"train.length", "64"}};
  knobs.insert(knobs.end(), changes.begin(), changes.end());
  return knobs;
}

Knobs quantized(const std::string& format, const std::string& tile, const std::string& diagonal) {
  return with_blocks({{"attention.blocks_q", format},
                      {"attention.blocks_k", format},
                      {"attention.blocks_v", format},
                      {"attention.blocks_p", format},
                      {"attention.tile", tile},
                      {"attention.diagonal", diagonal}});
}

struct Losses {
  double parallel = 0, one_by_one = 0;
};

/// Of sequences that end within a tile, at its end and one behind it.
Losses evaluated(const Knobs& knobs) {
  TrainRig rig(train_config(knobs));
  const auto tokens = make_training_text(train_config().train, *nanscope::testing::shipped_tokenizer(), testing::kText);
  std::vector<std::vector<std::int32_t>> sequences;
  for (const int length : {2, 33, 34, 65, 79})
    sequences.emplace_back(tokens->tokens.begin(), tokens->tokens.begin() + length);
  return {rig.trainer->evaluate(sequences, false).value(), rig.trainer->evaluate(sequences, true).value()};
}

void expect_causal(const Knobs& knobs, const std::string& what) {
  const Losses losses = evaluated(knobs);
  EXPECT_TRUE(std::isfinite(losses.parallel)) << what;
  EXPECT_EQ(losses.parallel, losses.one_by_one) << what;
}

TEST(Evaluate, IsTheSameInParallelAndTokenByToken) {
  expect_causal({}, "plain");
  expect_causal({{"model.window", "7"}, {"model.qk_norm", "true"}}, "window");
  expect_causal({{"model.norm", "layer_norm"}, {"model.positions", "80"}, {"model.bias", "true"}}, "positions");
  for (const char* tile : {"32", "64"}) {
    for (const char* format : {"mxfp4", "nvfp4", "mxfp8"}) {
      expect_causal(quantized(format, tile, "exact"), std::string(format) + " " + tile);
    }
  }
}

TEST(Evaluate, IsNotWhereTheTileOfATokenIsQuantizedWithThoseBehindIt) {
  for (const char* tile : {"32", "64"}) {
    const Losses losses = evaluated(quantized("mxfp4", tile, "quantized"));
    EXPECT_GT(std::abs(losses.parallel - losses.one_by_one), 1e-5) << tile;
  }
}

TEST(Evaluate, RefusesSequencesWithoutATarget) {
  TrainRig rig(train_config());
  EXPECT_EQ(rig.trainer->evaluate({{1}}, false).error().message, "no sequence has a target");
  EXPECT_EQ(rig.trainer->evaluate({{1}, {1, 2}}, false).value(), rig.trainer->evaluate({{1, 2}}, true).value());
}

/// It is not part of the run, and leaves it as it is.
TEST(Evaluate, ChangesNothing) {
  TrainRig plain(train_config());
  TrainRig evaluating(train_config());
  plain.steps(2);
  evaluating.step();
  ASSERT_TRUE(evaluating.trainer->evaluate({{1, 2, 3}}, true));
  evaluating.step();
  testing::expect_same_bits(evaluating.state(), plain.state(), "with evaluation");
  EXPECT_EQ(evaluating.trainer->totals().ops, plain.trainer->totals().ops);
}

}  // namespace
}  // namespace nanscope::train

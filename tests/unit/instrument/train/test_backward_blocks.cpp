#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/blocks/block_codec.h"
#include "core/blocks/presets.h"
#include "tests/unit/instrument/train/train_rig.h"

/// Backward products on blocks: what is rounded, how, and what a rotation leaves as it is.
namespace nanscope::train {
namespace {

using nanscope::testing::CollectProbe;
using testing::first_gradients;
using testing::Knobs;
using testing::train_config;
using testing::TrainRig;

Knobs joined(Knobs a, const Knobs& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Width and head_dim that blocks of 32 fit into, and 64 rows of tokens.
Knobs block_shape() {
  return {{"model.width", "64"},    {"model.heads", "2"},  {"model.kv_heads", "1"},
          {"model.head_dim", "32"}, {"model.layers", "1"}, {"train.length", "32"}};
}

using Gradients = std::map<std::string, std::vector<float>>;

/// |a - b| / |b| over all weights.
double distance(const Gradients& a, const Gradients& b) {
  double apart = 0;
  double whole = 0;
  for (const auto& [name, values] : b) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double gap = double{a.at(name)[i]} - double{values[i]};
      apart += gap * gap;
      whole += double{values[i]} * double{values[i]};
    }
  }
  return std::sqrt(apart / whole);
}

TEST(BackwardBlocks, RoundAsFinelyAsTheirElements) {
  const Gradients exact = first_gradients(block_shape());
  const auto apart = [&](const std::string& blocks, const std::string& hadamard) {
    return distance(first_gradients(joined(block_shape(), {{"train.blocks", blocks}, {"train.hadamard", hadamard}})),
                    exact);
  };
  // Half a step of E2M1 is up to a fifth of a value, of four significant bits a 32nd, and there are two operands.
  for (const char* hadamard : {"false", "true"}) {
    const double four = apart("mxfp4-rceil", hadamard);
    const double six = apart("mxfp6", hadamard);
    const double eight = apart("mxfp8-rceil", hadamard);
    EXPECT_LT(four, 0.25) << hadamard;
    EXPECT_GT(four, 0.05) << hadamard;
    EXPECT_LT(six, 0.12) << hadamard;
    EXPECT_LT(eight, 0.06) << hadamard << ": a rotation of one operand alone would leave nothing of the product";
    EXPECT_GT(eight, 0.002) << hadamard;
  }
}

TEST(BackwardBlocks, ARotationMovesRoundingsAlone) {
  const Knobs eight = joined(block_shape(), {{"train.blocks", "mxfp8-rceil"}});
  const Gradients plain = first_gradients(eight);
  const Gradients rotated = first_gradients(joined(eight, {{"train.hadamard", "true"}}));
  EXPECT_NE(plain, rotated);
  EXPECT_LT(distance(rotated, plain), 0.12);
}

/// 48 rows of tokens are one block and a half: nothing is rotated along them, and the last block is short.
TEST(BackwardBlocks, AreShortAtTheEndOfARow) {
  const Knobs ragged = joined(block_shape(), {{"train.length", "24"}});
  const Gradients exact = first_gradients(ragged);
  const Knobs blocks{{"train.blocks", "mxfp8-rceil"}, {"train.hadamard", "true"}};
  EXPECT_LT(distance(first_gradients(joined(ragged, blocks)), exact), 0.06);
}

/// Quantized along tokens, as the product that makes a weight's gradient reads its operands; transposed.
std::vector<float> along_tokens(const nanscope::testing::Seen& x) {
  const BlockFormat& format = find_block_preset("mxfp4-rceil")->format;
  const std::vector<float> values = x.floats();
  std::vector<float> columns(values.size());
  for (std::int64_t c = 0; c < x.columns; ++c) {
    for (std::int64_t r = 0; r < x.rows; ++r) {
      columns[static_cast<std::size_t>(c * x.rows + r)] = values[static_cast<std::size_t>(r * x.columns + c)];
    }
  }
  const BlockBytes bytes = block_bytes(format, x.columns, x.rows);
  std::vector<std::byte> codes(bytes.codes);
  std::vector<std::byte> scales(bytes.scales);
  encode_blocks(format, columns, x.columns, x.rows, 1.0F, {codes, scales});
  decode_blocks(format, {codes, scales}, x.columns, x.rows, 1.0F, columns);
  return columns;
}

constexpr std::int64_t kTokens = 32, kOutputs = 24, kInputs = 32;

/// Of one sequence: in double, from logits' gradients as they are and the head's input rounded to nearest.
std::vector<double> expected_head_gradient(const CollectProbe& probe) {
  const std::vector<float> dlogits = probe.find(0, 1, -1, "loss_grad", "dlogits").floats();
  const std::vector<float> x = along_tokens(probe.find(0, 0, -1, "final_norm", "out"));
  const auto vocabulary = std::ssize(dlogits) / kTokens;
  std::vector<double> expected;
  for (std::int64_t n = 0; n < kOutputs; ++n) {
    for (std::int64_t k = 0; k < kInputs; ++k) {
      double sum = 0;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        sum += double{dlogits[static_cast<std::size_t>(t * vocabulary + n)]} *
               double{x[static_cast<std::size_t>(k * kTokens + t)]};
      }
      expected.push_back(sum);
    }
  }
  return expected;
}

/// Of the mean over seeds of each element of the head's gradient: the mean of ((mean - expected) / its standard
/// error)^2, which is near 1 where the mean is right.
double mean_square_score(const Knobs& knobs) {
  constexpr int kSeeds = 48;
  std::vector<double> expected, sum(kOutputs * kInputs), squares(kOutputs * kInputs);
  for (int seed = 0; seed < kSeeds; ++seed) {
    TrainRig rig(train_config(joined(knobs, {{"train.seed", std::to_string(seed)}})));
    CollectProbe probe(*rig.device);
    rig.step(probe);
    if (seed == 0) expected = expected_head_gradient(probe);
    const std::vector<float> found = probe.find(0, 1, -1, "lm_head_grad", "dweight").floats();
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double gap = double{found[i]} - expected[i];
      sum[i] += gap;
      squares[i] += gap * gap;
    }
  }
  double total = 0;
  std::size_t counted = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double mean = sum[i] / kSeeds;
    const double variance = (squares[i] / kSeeds - mean * mean) / (kSeeds - 1);
    if (variance <= 0) continue;
    total += mean * mean / variance;
    ++counted;
  }
  EXPECT_GT(counted, sum.size() / 2);
  return total / static_cast<double>(counted);
}

TEST(BackwardBlocks, StochasticRoundingHasTheGradientAsItsMean) {
  const Knobs knobs{{"train.batch", "1"},
                    {"train.length", "32"},
                    {"model.layers", "1"},
                    {"train.blocks", "mxfp4-rceil"},
                    {"train.stochastic", "true"}};
  const double score = mean_square_score(knobs);
  EXPECT_GT(score, 0.6);
  EXPECT_LT(score, 1.6);
}

TEST(BackwardBlocks, RoundingToNearestIsTheSameForEverySeed) {
  const Knobs knobs = joined(block_shape(), {{"train.blocks", "mxfp4"}});
  EXPECT_EQ(first_gradients(knobs), first_gradients(joined(knobs, {{"train.seed", "9"}})));
  const Knobs drawn = joined(knobs, {{"train.stochastic", "true"}});
  EXPECT_NE(first_gradients(drawn), first_gradients(joined(drawn, {{"train.seed", "9"}})));
}

/// Tokens of a sequence of 32, and the gradients of their queries, of a model of one layer.
struct QueryGradients {
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<float>> rows;
  std::vector<std::vector<float>> logits;
};

QueryGradients query_gradients(const Knobs& more, const std::string& text) {
  Knobs knobs = joined(block_shape(), {{"train.batch", "1"},
                                       {"attention.blocks_q", "mxfp4"},
                                       {"attention.blocks_k", "mxfp4"},
                                       {"attention.blocks_p", "mxfp4"}});
  TrainRig rig(train_config(joined(knobs, more)), text);
  CollectProbe probe(*rig.device);
  rig.step(probe);
  QueryGradients found;
  for (const TokenRow& token : probe.tokens) found.tokens.push_back(token.token);
  const auto& dq = probe.find(0, 1, 0, "scores_grad", "dq");
  const auto& logits = probe.find(0, 0, -1, "lm_head", "logits");
  for (std::int64_t row = 0; row < dq.rows; ++row) {
    found.rows.push_back(dq.row(row));
    found.logits.push_back(logits.row(row));
  }
  return found;
}

/// In a model of one layer the gradient of a token's query is made of that token's loss and of keys up to its own: what
/// stands behind the token's target has no part in it. Keys on blocks along the tokens give it one, where the forward
/// pass, whose blocks lie along the channels, has none.
TEST(BackwardBlocks, OfQueriesReadLaterTokensThroughTheScalesOfKeys) {
  const std::string begin = "The light turns once in twelve";
  const std::string one = begin + " seconds, and the keeper counts them all, night after night, until the morning.";
  const std::string other = begin + " days; a ship comes in at noon with salt, rope and letters, stone upon stone.";
  const auto changed_rows = [&](const Knobs& more) {
    const QueryGradients a = query_gradients(more, one);
    const QueryGradients b = query_gradients(more, other);
    const auto same = std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin()).first - a.tokens.begin();
    EXPECT_GT(same, 8);
    EXPECT_LT(same, 28);
    int changed = 0;
    for (std::ptrdiff_t row = 0; row + 1 < same; ++row) {
      const auto at = static_cast<std::size_t>(row);
      EXPECT_EQ(a.logits[at], b.logits[at]) << "the forward pass is causal: row " << row;
      changed += a.rows[at] != b.rows[at] ? 1 : 0;
    }
    EXPECT_NE(a.rows.back(), b.rows.back());
    return changed;
  };
  EXPECT_GT(changed_rows({}), 0);
  EXPECT_EQ(changed_rows({{"train.attention_blocks", "false"}}), 0);
  EXPECT_EQ(changed_rows({{"attention.diagonal", "exact"}}), 0);
}

/// The straight-through gradient of attention on fine blocks is near that of attention without, and with
/// train.attention_blocks=false only the forward pass differs.
TEST(BackwardBlocks, OfAttentionAreNearItsGradient) {
  const Gradients exact = first_gradients(block_shape());
  const Knobs fine = joined(block_shape(), {{"attention.blocks_q", "mxfp8-rceil"},
                                            {"attention.blocks_k", "mxfp8-rceil"},
                                            {"attention.blocks_v", "mxfp8-rceil"},
                                            {"attention.blocks_p", "mxfp8-rceil"}});
  for (const char* diagonal : {"quantized", "exact", "past"}) {
    const Knobs knobs = joined(fine, {{"attention.diagonal", diagonal}});
    const Gradients blocks = first_gradients(knobs);
    const Gradients through = first_gradients(joined(knobs, {{"train.attention_blocks", "false"}}));
    EXPECT_LT(distance(blocks, exact), 0.05) << diagonal;
    EXPECT_LT(distance(through, exact), 0.05) << diagonal;
    EXPECT_NE(blocks, through) << diagonal;
  }
}

}  // namespace
}  // namespace nanscope::train

/// Healthy dumps of models and servers that do things in their own way, and the fault next to each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/run/mask.h"
#include "tests/unit/instrument/diagnosis/stranger_rig.h"

namespace nanscope {
namespace {

using testing::classes;
using ::testing::Contains;
using testing::diagnosis_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kRows;
using testing::kWidth;
using testing::Matrix;
using testing::MemoryDump;
using ::testing::Not;
using testing::product;
using testing::random;
using testing::sum;

/// As bf16 keeps it.
double rounded(double value) {
  return double{decode(Format::bf16, encode(Format::bf16, static_cast<float>(value), Overflow::saturate))};
}

Matrix rounded(Matrix values) {
  for (double& one : values) one = rounded(one);
  return values;
}

/// RMS norm with eps 1e-6 and a weight of ones.
Matrix normed(const Matrix& x) {
  Matrix made;
  for (std::size_t row = 0; row < x.size(); row += kWidth) {
    double squares = 0;
    for (std::size_t c = 0; c < kWidth; ++c) squares += x[row + c] * x[row + c];
    for (std::size_t c = 0; c < kWidth; ++c)
      made.push_back(double{static_cast<float>(x[row + c] / std::sqrt(squares / kWidth + 1e-6))});
  }
  return made;
}

/// Two layers of a server whose second norm adds the residual, as vLLM's: (branch, stream) in, (normed, stream) out.
/// `stream_of` makes the stream out of its two terms.
template <class StreamOf>
Diagnosis fused_norms(const StreamOf& stream_of) {
  MemoryDump dump;
  const std::size_t count = kRows * kWidth;
  for (const std::string layer : {"0", "1"}) {
    const std::string at = "model.layers." + layer + '.';
    const std::uint32_t seed = layer == "0" ? 1 : 20;
    const Matrix branch = random(seed, count);
    const Matrix stream = random(seed + 1, count);
    const Matrix out = stream_of(stream, branch);
    dump.add(at + "input_layernorm.weight", "f32", {kWidth}, Matrix(kWidth, 1));
    dump.add(at + "post_attention_layernorm.weight", "f32", {kWidth}, Matrix(kWidth, 1));
    dump.add(at + "input_layernorm.output", "f32", {kRows, kWidth}, normed(stream));
    dump.add(at + "self_attn.o_proj.output", "f32", {kRows, kWidth}, branch);
    dump.add(at + "post_attention_layernorm.input", "f32", {kRows, kWidth}, branch);
    dump.add(at + "post_attention_layernorm.input.1", "f32", {kRows, kWidth}, stream);
    dump.add(at + "post_attention_layernorm.output", "f32", {kRows, kWidth}, normed(out));
    dump.add(at + "post_attention_layernorm.output.1", "f32", {kRows, kWidth}, out);
  }
  return diagnosis_of(dump);
}

TEST(FusedNorm, AddsItsTwoInputs) {
  EXPECT_THAT(classes(fused_norms([](const Matrix& stream, const Matrix& branch) { return sum(stream, branch); })),
              ElementsAre());
}

TEST(FusedNorm, ThatLeavesTheBranchOutIsAccused) {
  EXPECT_THAT(classes(fused_norms([](const Matrix& stream, const Matrix&) { return stream; })),
              Contains("wrong-result"));
}

/// Norms of the streams of three layers, of which one was given something else than what was dumped before it.
Diagnosis norms_of_streams(std::int64_t changed) {
  MemoryDump dump;
  Matrix stream = random(5, kRows * kWidth);
  dump.add("model.embed_tokens.output", "f32", {1, kRows, kWidth}, stream);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + '.';
    const Matrix given = layer == changed ? sum(stream, random(17, kRows * kWidth)) : stream;
    dump.add(at + "input_layernorm.weight", "f32", {kWidth}, Matrix(kWidth, 1));
    dump.add(at + "input_layernorm.output", "f32", {1, kRows, kWidth}, normed(given));
    stream = random(static_cast<std::uint32_t>(layer) + 30, kRows * kWidth);
    dump.add(at + "output", "f32", {1, kRows, kWidth}, stream);
  }
  return diagnosis_of(dump);
}

TEST(BehindTheEmbedding, SomethingMayStandThatWasNotDumped) {
  EXPECT_THAT(classes(norms_of_streams(0)), ElementsAre());
  EXPECT_THAT(classes(norms_of_streams(1)), Contains("wrong-result"));
}

/// Products of three layers in bf16, whose weights were dumped in f32.
Diagnosis served_in_bf16(bool weights_rounded, double change = 0) {
  MemoryDump dump;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".self_attn.q_proj.";
    const auto seed = static_cast<std::uint32_t>(layer);
    const Matrix x = rounded(random(seed + 1, kRows * kWidth));
    const Matrix w = random(seed + 40, kWidth * kWidth, 0.3);
    Matrix out = rounded(product(x, weights_rounded ? rounded(w) : w, kRows));
    if (layer == 1) out[5] += change;
    dump.add(at + "weight", "f32", {kWidth, kWidth}, w);
    dump.add(at + "input", "bf16", {1, kRows, kWidth}, x);
    dump.add(at + "output", "bf16", {1, kRows, kWidth}, out);
  }
  return diagnosis_of(dump);
}

TEST(ServedInBf16, WeightsMayHaveBeenRoundedWhenTheyWereLoaded) {
  EXPECT_THAT(classes(served_in_bf16(true)), ElementsAre());
  EXPECT_THAT(classes(served_in_bf16(false)), ElementsAre());
}

TEST(ServedInBf16, AWrongElementIsStillAccused) {
  EXPECT_THAT(classes(served_in_bf16(true, 4)), Contains("wrong-result"));
}

constexpr std::int64_t kLongRows = 24;

Matrix softmax_of(Matrix scores) {
  for (std::size_t row = 0; row < scores.size(); row += kLongRows) {
    double all = 0;
    for (std::size_t key = row; key < row + kLongRows; ++key) all += scores[key] = std::exp(scores[key]);
    for (std::size_t key = row; key < row + kLongRows; ++key)
      scores[key] = double{static_cast<float>(scores[key] / all)};
  }
  return scores;
}

/// The sixth row, off by half units in the last place of that many bits, up or down.
void shift_row(Matrix& values, int bits, double halves) {
  const std::size_t width = values.size() / kLongRows;
  for (std::size_t i = 5 * width; i < 6 * width; ++i)
    values[i] += (i % 3 == 0 ? -halves : halves) * std::ldexp(1.0, std::ilogb(values[i]) - bits);
}

/// Three layers mix values in bf16. The input of another than the first is a copy of what the one before gave.
Diagnosis attention_of_layers(bool wrong_softmax, bool wrong_mix) {
  MemoryDump dump;
  dump.add("input_ids", "i64", {1, kLongRows}, Matrix(kLongRows, 3));
  Matrix stream = random(1, kLongRows * kWidth);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    dump.add(at + "input", "f32", {1, kLongRows, kWidth}, stream);
    const Matrix scores = random(layer + 10, kLongRows * kLongRows, 2);
    Matrix probs = rounded(softmax_of(scores));
    if (wrong_softmax && layer == 0) shift_row(probs, 8, 32);
    const Matrix v = rounded(random(layer + 20, kLongRows * kWidth));
    Matrix turned(v.size());
    for (std::size_t i = 0; i < v.size(); ++i) turned[i % kWidth * kLongRows + i / kWidth] = v[i];
    Matrix out = rounded(product(probs, turned, kLongRows));
    if (wrong_mix && layer == 1) shift_row(out, 8, 32);
    dump.add(at + "self_attn.scores", "f32", {1, 1, kLongRows, kLongRows}, scores);
    dump.add(at + "self_attn.probs", "bf16", {1, 1, kLongRows, kLongRows}, probs);
    dump.add(at + "self_attn.v", "bf16", {1, kLongRows, kWidth}, v);
    dump.add(at + "self_attn.attn_out", "bf16", {1, kLongRows, kWidth}, out);
    dump.add(at + "self_attn.o_proj.output", "f32", {1, kLongRows, kWidth}, random(layer + 40, kLongRows * kWidth));
    stream = random(layer + 30, kLongRows * kWidth);
    dump.add(at + "output", "f32", {1, kLongRows, kWidth}, stream);
  }
  return diagnosis_of(dump);
}

/// Where rounding the result is most of the bound, its errors have a mean square of up to a third of it. In the first
/// layer fewer tensors are copies of others, and its attention is that of the others all the same.
TEST(ServedInBf16, ARowOfAttentionByThirtyTwoRoundings) {
  EXPECT_THAT(classes(attention_of_layers(false, false)), ElementsAre());
  EXPECT_THAT(classes(attention_of_layers(true, false)), Contains("wrong-result"));
  EXPECT_THAT(classes(attention_of_layers(false, true)), Contains("wrong-result"));
}

/// The input of a second layer beside what the first one gave, with `rows` of it replaced.
Diagnosis between_layers(const std::vector<std::int64_t>& rows, bool by_zeros) {
  MemoryDump dump;
  Matrix stream = random(3, kRows * kWidth);
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + '.';
    const Matrix out = random(static_cast<std::uint32_t>(layer) + 70, kRows * kWidth);
    dump.add(at + "input", "f32", {1, kRows, kWidth}, stream);
    dump.add(at + "mlp.output", "f32", {1, kRows, kWidth},
             random(static_cast<std::uint32_t>(layer) + 90, kRows * kWidth));
    dump.add(at + "output", "f32", {1, kRows, kWidth}, out);
    stream = out;
    const Matrix other = random(static_cast<std::uint32_t>(layer) + 110, kRows * kWidth);
    for (const std::int64_t row : layer == 1 ? rows : std::vector<std::int64_t>{}) {
      for (std::int64_t c = 0; c < kWidth; ++c) {
        const auto i = static_cast<std::size_t>(row * kWidth + c);
        stream[i] = by_zeros ? 0 : stream[i] + other[i];
      }
    }
  }
  return diagnosis_of(dump);
}

TEST(BetweenLayers, RowsMayHaveBeenAddedTo) { EXPECT_THAT(classes(between_layers({1, 2, 3}, false)), ElementsAre()); }
TEST(BetweenLayers, RowsOfZerosAreAccused) {
  EXPECT_THAT(classes(between_layers({1, 2, 3}, true)), Contains("wrong-result"));
}

/// Products of two layers whose input went through e4m3 under a dumped scale, and whose codes were not dumped. The
/// scale lets through values up to `largest`; the inputs reach about 4.
Diagnosis cast_inputs(double largest) {
  MemoryDump dump;
  const double scale = double{static_cast<float>(largest / 448)};
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".mlp.down_proj.";
    const auto seed = static_cast<std::uint32_t>(layer);
    Matrix x = rounded(random(seed + 5, kRows * kWidth));
    x[17] = 4;
    const Matrix w = rounded(random(seed + 60, kWidth * kWidth, 0.3));
    Matrix cast = x;
    for (double& one : cast)
      one = scale *
            double{decode(Format::e4m3, encode(Format::e4m3, static_cast<float>(one / scale), Overflow::saturate))};
    dump.add(at + "weight", "bf16", {kWidth, kWidth}, w);
    dump.add(at + "input", "bf16", {1, kRows, kWidth}, x);
    dump.add(at + "input_scale", "f32", {1}, {scale});
    dump.add(at + "output", "bf16", {1, kRows, kWidth}, rounded(product(cast, w, kRows)));
  }
  return diagnosis_of(dump);
}

TEST(CastInput, AScaleThatHoldsTheInputIsHealthy) { EXPECT_THAT(classes(cast_inputs(5)), ElementsAre()); }
TEST(CastInput, AScaleThatClipsItIsNamed) {
  EXPECT_THAT(classes(cast_inputs(2)), ElementsAre("saturation", "saturation"));
}

/// Probabilities of one encoder layer, all keys seen; `nan_layer` is NaN throughout.
Diagnosis encoder(std::int64_t nan_layer) {
  MemoryDump dump;
  dump.add("attention_mask", "i64", {1, kRows}, Matrix(kRows, 1));
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string at = "encoder.layer." + std::to_string(layer) + ".attention.self.";
    Matrix probs(2 * kRows * kRows, 1.0 / kRows);
    if (layer == nan_layer) probs.assign(probs.size(), NAN);
    dump.add(at + "query.output", "f32", {1, kRows, kWidth});
    dump.add(at + "probs", "f32", {1, 2, kRows, kRows}, probs);
  }
  return diagnosis_of(dump);
}

TEST(Encoder, MaySeeLaterKeysAlsoWhereALayerIsNan) {
  EXPECT_THAT(classes(encoder(-1)), Not(Contains("future-leakage")));
  EXPECT_THAT(classes(encoder(2)), Not(Contains("future-leakage")));
}

/// Layers of a model in bf16 whose two branches are added first. `wrong` is added to one element of a layer's output.
Diagnosis parallel_branches(double wrong) {
  MemoryDump dump;
  Matrix x = rounded(random(200, kRows * kWidth));
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + '.';
    const auto seed = static_cast<std::uint32_t>(10 * layer + 201);
    const Matrix attention = rounded(random(seed, x.size()));
    const Matrix mlp = rounded(random(seed + 1, x.size()));
    Matrix out = rounded(sum(x, rounded(sum(attention, mlp))));
    if (layer == 1) out[20] = rounded(out[20] + wrong);
    dump.add(at + "input", "bf16", {1, kRows, kWidth}, x);
    dump.add(at + "self_attn.o_proj.output", "bf16", {1, kRows, kWidth}, attention);
    dump.add(at + "mlp.down_proj.output", "bf16", {1, kRows, kWidth}, mlp);
    dump.add(at + "output", "bf16", {1, kRows, kWidth}, out);
    x = out;
  }
  return diagnosis_of(dump);
}

TEST(ParallelBranches, MayBeAddedBeforeTheResidual) { EXPECT_THAT(classes(parallel_branches(0)), ElementsAre()); }
TEST(ParallelBranches, AWrongElementIsStillAccused) {
  EXPECT_THAT(classes(parallel_branches(1)), Contains("wrong-result"));
}

/// A product without its weight: `bad` says which elements are NaN.
template <class Bad>
Diagnosis weightless(const Bad& bad) {
  MemoryDump dump;
  Matrix out = random(400, kRows * kWidth);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (bad(static_cast<std::int64_t>(i) / kWidth, static_cast<std::int64_t>(i) % kWidth)) out[i] = NAN;
  }
  dump.add("model.layers.0.mlp.up_proj.input", "f32", {1, kRows, kWidth}, random(401, out.size()));
  dump.add("model.layers.0.mlp.up_proj.output", "f32", {1, kRows, kWidth}, out);
  return diagnosis_of(dump);
}

TEST(WeightNotDumped, AChannelThatIsBadInEachRowIsARowOfIt) {
  const Diagnosis found = weightless([](auto, auto channel) { return channel == 3; });
  ASSERT_THAT(classes(found), ElementsAre("weight-corruption"));
  EXPECT_EQ(testing::number(found.faults[0], "channels"), "3");
}

TEST(WeightNotDumped, ABadRowIsNot) {
  const Diagnosis found = weightless([](auto row, auto) { return row == 3; });
  ASSERT_THAT(classes(found), ElementsAre("invalid-op"));
  EXPECT_THAT(found.faults[0].summary, ::testing::HasSubstr("its input is finite, and its weight was not dumped"));
  EXPECT_THAT(found.faults[0].fix, Not(::testing::HasSubstr("eps")));
}

/// Two ranks and two steps of data parallelism: other tokens, one weight, and its gradient. `off` is what rank 1's
/// gradient of step 0 is off by, and its weight of step 1.
Diagnosis data_parallel(double off) {
  MemoryDump dump;
  for (const int rank : {0, 1}) {
    for (const int step : {0, 1}) {
      const std::string at = "rank" + std::to_string(rank) + "/step_" + std::to_string(step) + '/';
      const auto seed = static_cast<std::uint32_t>(500 + 10 * rank + step);
      Matrix weight = random(600 + static_cast<std::uint32_t>(step), kWidth);
      Matrix gradient = random(700 + static_cast<std::uint32_t>(step), kWidth);
      if (rank == 1 && step == 0) gradient[2] += off;
      if (rank == 1 && step == 1) weight[2] += off;
      dump.add(at + "input_ids", "i64", {1, kRows}, Matrix(kRows, 3 + rank));
      dump.add(at + "embed_tokens.output", "f32", {1, kRows, kWidth}, random(seed, kRows * kWidth));
      dump.add(at + "norm.weight", "f32", {kWidth}, weight);
      dump.add(at + "norm.weight.grad", "f32", {kWidth}, gradient);
    }
  }
  return diagnosis_of(dump);
}

TEST(DataParallel, RanksMayReadOtherTokens) { EXPECT_THAT(classes(data_parallel(0)), ElementsAre()); }
TEST(DataParallel, AGradientThatWasNotReducedIsNamed) {
  const Diagnosis found = data_parallel(0.5);
  ASSERT_THAT(classes(found), ElementsAre("rank-divergence"));
  EXPECT_EQ(found.faults[0].tensor, "rank1/step_0/norm.weight.grad");
  EXPECT_FALSE(found.faults[0].where.tokens);
}

TEST(Masks, HideByTheWeakestNumberInUse) {
  EXPECT_TRUE(hidden_by_mask(-10000.0 + 37));
  EXPECT_TRUE(hidden_by_mask(-INFINITY));
  EXPECT_FALSE(hidden_by_mask(-400));
  EXPECT_FALSE(hidden_by_mask(NAN));
}

/// A router whose module gives two real outputs of one shape: the scores that its experts are weighed by, and its
/// logits, in this order or, with `logits_first`, in the other.
Diagnosis router_of_two(std::int64_t wrong, bool logits_first = false) {
  MemoryDump dump;
  constexpr std::int64_t kExperts = 4;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".feed_forward.router.";
    const auto seed = static_cast<std::uint32_t>(500 + 3 * layer);
    const Matrix x = random(seed, kRows * kWidth);
    const Matrix weight = random(seed + 1, kExperts * kWidth);
    Matrix logits = product(x, weight, kRows);
    Matrix scores = logits;
    for (double& one : scores) one = one > 0 ? 1 / (1 + std::exp(-one)) : 0;
    if (layer == wrong) logits[3] += 1;
    dump.add(at + "input", "f32", {kRows, kWidth}, x);
    dump.add(at + "weight", "f32", {kExperts, kWidth}, weight);
    dump.add(at + "output", "f32", {kRows, kExperts}, logits_first ? logits : scores);
    dump.add(at + "output.1", "f32", {kRows, kExperts}, logits_first ? scores : logits);
  }
  return diagnosis_of(dump);
}

TEST(Router, MayGiveItsScoresBeforeItsLogits) {
  EXPECT_THAT(classes(router_of_two(-1)), ElementsAre());
  const Diagnosis wrong = router_of_two(1);
  ASSERT_THAT(classes(wrong), ElementsAre("wrong-result"));
  EXPECT_EQ(wrong.faults[0].tensor, "model.layers.1.feed_forward.router.output.1");
}

TEST(Router, MayGiveItsLogitsBeforeItsScores) {
  EXPECT_THAT(classes(router_of_two(-1, true)), ElementsAre());
  const Diagnosis wrong = router_of_two(1, true);
  ASSERT_THAT(classes(wrong), ElementsAre("wrong-result"));
  EXPECT_EQ(wrong.faults[0].tensor, "model.layers.1.feed_forward.router.output");
}

/// Products of three layers on integer codes around a zero point, which hold values from -3 to 4.97. The layer
/// `left_out` reads its codes without it. The inputs reach up to `largest`.
Diagnosis asymmetric_codes(std::int64_t left_out, double largest = 4.75) {
  MemoryDump dump;
  constexpr double kScale = 0x1p-5;
  constexpr double kZeroPoint = -32;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".mlp.down_proj.";
    const auto seed = static_cast<std::uint32_t>(layer);
    const Matrix w = rounded(random(seed + 700, kWidth * kWidth, 0.3));
    Matrix x = rounded(random(seed + 710, kRows * kWidth));
    Matrix codes;
    Matrix read;
    for (double& one : x) {
      one = rounded(std::clamp(one > -1 ? (one + 1) * largest / 4.75 : one + 1, -2.75, largest));
      codes.push_back(std::clamp(std::nearbyint(one / kScale) + kZeroPoint, -128.0, 127.0));
      read.push_back((codes.back() - (layer == left_out ? 0 : kZeroPoint)) * kScale);
    }
    dump.add(at + "weight", "bf16", {kWidth, kWidth}, w);
    dump.add(at + "input", "bf16", {1, kRows, kWidth}, x);
    dump.add(at + "input_quantized", "i8", {1, kRows, kWidth}, codes);
    dump.add(at + "input_scale", "f32", {1}, {kScale});
    dump.add(at + "input_zero_point", "i8", {1}, {kZeroPoint});
    dump.add(at + "output", "bf16", {1, kRows, kWidth}, rounded(product(read, w, kRows)));
  }
  return diagnosis_of(dump);
}

TEST(ZeroPoint, OfAnInputIsTakenFromItsCodes) {
  const Diagnosis healthy = asymmetric_codes(-1);
  EXPECT_THAT(classes(healthy), ElementsAre());
  EXPECT_EQ(healthy.coverage.judged, 6) << "three casts and three products";
}
TEST(ZeroPoint, MovesTheRangeThatAScaleHolds) {
  const Diagnosis found = asymmetric_codes(-1, 12);
  ASSERT_THAT(classes(found), ElementsAre("saturation"));
  EXPECT_THAT(found.faults[0].summary,
              ::testing::HasSubstr("outside of -3 to 4.969, which its scale and its zero point -32"));
}
TEST(ZeroPoint, ThatIsLeftOutOfAProductIsNamed) {
  const Diagnosis found = asymmetric_codes(1);
  ASSERT_THAT(classes(found), ElementsAre("scale-misapplied"));
  EXPECT_EQ(found.faults[0].tensor, "model.layers.1.mlp.down_proj.output");
  EXPECT_THAT(found.faults[0].summary, ::testing::HasSubstr("the zero point of the input left out"));
}

/// Modules of an architecture that nanscope does not know, in the alphabetical order of their file: a convolution
/// leaves f16, and a module that reads it makes NaN of the Inf. The inputs of modules before it in the file are NaN,
/// too.
TEST(UnknownModules, ANaNIsBornWhereItIsMadeAndNotWhereItIsRead) {
  MemoryDump dump;
  const auto bad = [](double value) {
    Matrix values(kRows * kWidth, 1.0);
    values[5] = value;
    return values;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::int64_t> shape = {kRows, kWidth};
  dump.add("decoder.act.input", "f16", shape, bad(nan));
  dump.add("decoder.act.output", "f16", shape, bad(nan));
  dump.add("decoder.blocks.0.conv.input", "f16", shape, bad(2));
  dump.add("decoder.blocks.0.conv.output", "f16", shape, bad(inf));
  dump.add("decoder.blocks.0.input", "f16", shape, bad(3));
  dump.add("decoder.blocks.0.output", "f16", shape, bad(inf));
  dump.add("decoder.input", "f16", shape, bad(4));
  dump.add("decoder.output", "f16", shape, bad(nan));
  const Diagnosis found = diagnosis_of(dump);
  ASSERT_THAT(classes(found), ElementsAre("f16-overflow"));
  EXPECT_EQ(found.faults[0].tensor, "decoder.blocks.0.conv.output");
}

/// A pool of 4 blocks holds NaN in two slots that the step wrote. Its keys were not dumped: where the NaN was born is
/// not known.
TEST(CacheWithoutKeys, IsNotSaidToBeWhereANanIsBorn) {
  MemoryDump dump;
  const std::vector<std::int64_t> rows = {kRows, kWidth};
  dump.add("model.slot_mapping", "i64", {kRows}, {8, 9, 10, 11, 12, 13});
  for (const char* name : {"q_proj", "v_proj"})
    dump.add(std::string("model.layers.0.self_attn.") + name + ".output", "f32", rows, random(1, kRows * kWidth));
  for (const char* name : {"k_cache", "v_cache"}) {
    Matrix pool = random(2, 4 * 8 * kWidth);
    const bool keys = name[0] == 'k';
    for (std::size_t at = 9 * kWidth; keys && at < 11 * kWidth; ++at) pool[at] = std::nan("");
    dump.add(std::string("model.layers.0.self_attn.") + name, "f32", {4, 8, 2, kWidth / 2}, pool);
  }
  Matrix out = random(3, kRows * kWidth);
  out[2 * kWidth] = std::nan("");
  dump.add("model.layers.0.self_attn.attn.output", "f32", rows, out);
  const Diagnosis found = diagnosis_of(dump);
  ASSERT_FALSE(found.faults.empty());
  EXPECT_THAT(found.faults[0].tensor, HasSubstr("k_cache"));
  EXPECT_THAT(found.faults[0].summary, HasSubstr("2 slots of"));
  EXPECT_THAT(found.faults[0].summary, HasSubstr("this step wrote them, and what it wrote was not dumped"));
  EXPECT_THAT(found.faults[0].summary, Not(HasSubstr("born")));
}

/// GroupNorm of an image (1, channels, height, width): its rows are lines of pixels, its weight is of channels. One Inf
/// makes NaN of all lines of its group, and so does the unknown block that holds it. The lines without Inf accuse none
/// of them.
TEST(UnknownModules, AGroupNormMixesTheRowsOfAnImage) {
  constexpr std::int64_t kChannels = 4;
  constexpr std::int64_t kSide = 8;
  MemoryDump dump;
  const std::vector<std::int64_t> shape = {1, kChannels, kSide, kSide};
  Matrix image(kChannels * kSide * kSide);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = 0.01 * static_cast<double>((i * 37) % 100) - 0.5;
  Matrix overflowed = image;
  overflowed[3] = std::numeric_limits<double>::infinity();
  Matrix poisoned = image;
  std::fill_n(poisoned.begin(), 2 * kSide * kSide, std::numeric_limits<double>::quiet_NaN());
  dump.add("decoder.conv_in.input", "f16", shape, image);
  dump.add("decoder.conv_in.output", "f16", shape, overflowed);
  dump.add("decoder.resnets.0.input", "f16", shape, overflowed);
  dump.add("decoder.resnets.0.norm1.weight", "f16", {kChannels}, Matrix(kChannels, 1.0));
  dump.add("decoder.resnets.0.norm1.bias", "f16", {kChannels}, Matrix(kChannels, 0.0));
  dump.add("decoder.resnets.0.norm1.input", "f16", shape, overflowed);
  dump.add("decoder.resnets.0.norm1.output", "f16", shape, poisoned);
  dump.add("decoder.resnets.0.output", "f16", shape, poisoned);
  const Diagnosis found = diagnosis_of(dump);
  ASSERT_THAT(classes(found), ElementsAre("f16-overflow"));
  EXPECT_EQ(found.faults[0].tensor, "decoder.conv_in.output");
}

}  // namespace
}  // namespace nanscope

#include "tests/unit/instrument/recompute/again.h"

/// Copies, splits, residual sums, embeddings and activations.
namespace nanscope::testing {
namespace {

constexpr std::int64_t kWidth = 16;

Case residual(const Change& change, Format format = Format::bf16) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId a = g.source({.channels = kWidth, .fill = noise(1, 3), .format = format});
  const TensorId b = g.op("o_proj", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(2, 3), .format = format});
  out.right = stored_numbers(g, a, 4, kWidth);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) out.right.at(r, c) += double{g.at(b, r, c)};
  }
  Numbers stored = out.right;
  change(stored);
  out.out = g.op("attn_residual", OpKind::residual_add, {{"a", a}, {"b", b}},
                 {.channels = kWidth, .fill = fill_of(stored), .format = format});
  return out;
}

TEST(RecomputeResidual, IsTheSum) {
  for (const Format format : {Format::f32, Format::bf16, Format::f16}) expect_right(residual(unchanged, format), "", 4);
  expect_seen([](const Change& change) { return residual(change); }, 3, 15);
}

TEST(RecomputeResidual, KnowsABranchThatWasLeftOutOrAddedTwice) {
  const auto plus = [](double factor) {
    return residual(
        [=](Numbers& numbers) {
          for (std::int64_t r = 0; r < numbers.rows; ++r) {
            for (std::int64_t c = 0; c < numbers.columns; ++c) numbers.at(r, c) += factor * double{noise(2, 3)(r, c)};
          }
        },
        Format::f32);
  };
  EXPECT_EQ(explained_by(plus(-1)), "the branch left out");
  EXPECT_EQ(explained_by(plus(1)), "the branch added twice");
}

/// What an op states to multiply by: `a` plus it times `b` where there is an `a`, or `b` times it.
Case scaled(bool sum, double factor, const Change& change, Format format = Format::bf16) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId a = g.source({.channels = kWidth, .fill = noise(1, 3), .format = format});
  const TensorId b = g.op("o_proj", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(2, 3), .format = format});
  out.right = stored_numbers(g, b, 4, kWidth);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c)
      out.right.at(r, c) = factor * out.right.at(r, c) + (sum ? double{g.at(a, r, c)} : 0.0);
  }
  Numbers stored = out.right;
  change(stored);
  const Made made{.channels = kWidth, .fill = fill_of(stored), .format = format};
  out.out = sum ? g.op("attn_residual", OpKind::residual_add, {{"a", a}, {"b", b}}, made, ResidualAttributes{0.22})
                : g.op("logits_scale", OpKind::scale, {{"x", b}}, made, ScaleAttributes{0.22});
  return out;
}

TEST(RecomputeResidual, TakesTheFactorThatIsStated) {
  for (const bool sum : {true, false}) {
    const std::string text = sum ? "" : "its input times 0.22";
    for (const Format format : {Format::f32, Format::bf16}) expect_right(scaled(sum, 0.22, unchanged, format), text, 4);
    expect_seen([=](const Change& change) { return scaled(sum, 0.22, change); }, 3, 15);
  }
}

/// What every token has beside what its router chose, behind a gate of one number a row.
Case gated(const Change& change, Format format = Format::bf16, double share = 0) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId a = g.source({.channels = kWidth, .fill = noise(1, 3), .format = format});
  const TensorId b = g.op("shared", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(2, 3), .format = format});
  const TensorId gate = g.op("gate", OpKind::dumped, {}, {.channels = 1, .fill = noise(4, 2), .format = format});
  out.right = stored_numbers(g, a, 4, kWidth);
  for (std::int64_t r = 0; r < 4; ++r) {
    const double open = share != 0 ? share : 1 / (1 + std::exp(-double{g.at(gate, r, 0)}));
    for (std::int64_t c = 0; c < kWidth; ++c) out.right.at(r, c) += open * double{g.at(b, r, c)};
  }
  Numbers stored = out.right;
  change(stored);
  out.out = g.op("shared_add", OpKind::gated_add, {{"a", a}, {"b", b}, {"gate", gate}},
                 {.channels = kWidth, .fill = fill_of(stored), .format = format});
  return out;
}

TEST(RecomputeGatedAdd, IsTheSumWithWhatTheGateLetsThrough) {
  for (const Format format : {Format::f32, Format::bf16, Format::f16}) expect_right(gated(unchanged, format), "", 6);
  expect_seen([](const Change& change) { return gated(change); }, 3, 15);
}

TEST(RecomputeGatedAdd, KnowsAGateThatWasLeftOut) {
  EXPECT_EQ(explained_by(gated(unchanged, Format::f32, 1)), "the gate of the shared expert left out");
}

/// The third token's row is `row` of the table.
Case embedding(double factor, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId table = g.parameter("embed.weight", 10, kWidth, noise(1));
  const auto id = [](std::int64_t token) { return (3 * token + 2) % 10; };
  const TensorId tokens = g.op("tokens", OpKind::parameter, {},
                               {.role = "tokens",
                                .channels = 1,
                                .fill = [=](auto token, auto) { return static_cast<float>(id(token)); },
                                .format = Format::i32});
  out.right = Numbers(4, kWidth);
  for (std::int64_t token = 0; token < 4; ++token) {
    for (std::int64_t c = 0; c < kWidth; ++c) out.right.at(token, c) = factor * double{g.at(table, id(token), c)};
  }
  Numbers stored = out.right;
  change(stored);
  out.out = g.op("embed", OpKind::embedding, {{"weight", table}, {"tokens", tokens}},
                 {.channels = kWidth, .fill = fill_of(stored)});
  return out;
}

TEST(RecomputeEmbedding, IsTheTokensRow) {
  expect_right(embedding(1, unchanged), "the token's row", 4);
  expect_right(embedding(4, unchanged), "the token's row times the root of its width", 4);
  expect_seen([](const Change& change) { return embedding(1, change); }, 1, 3);
}

/// A module of learned positions that was given ids: 2 more than the positions, or `other` ones.
Case positions(bool other) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId table = g.parameter("pos_embed.weight", 12, kWidth, noise(1));
  const auto id = [=](std::int64_t token) { return other ? 9 - token : token + 2; };
  const TensorId tokens = g.op("tokens", OpKind::parameter, {},
                               {.role = "tokens",
                                .channels = 1,
                                .fill = [=](auto token, auto) { return static_cast<float>(id(token)); },
                                .format = Format::i32});
  out.right = Numbers(4, kWidth);
  for (std::int64_t token = 0; token < 4; ++token) {
    for (std::int64_t c = 0; c < kWidth; ++c) out.right.at(token, c) = double{g.at(table, token + 2, c)};
  }
  out.out = g.op("pos_embed", OpKind::embedding, {{"weight", table}, {"tokens", tokens}},
                 {.channels = kWidth, .fill = fill_of(out.right)});
  return out;
}

TEST(RecomputeEmbedding, OfPositionsIsJudgedWhereItWasGivenThem) {
  expect_right(positions(false), "the token's row", 4);
  const Case ids = positions(true);
  Again again(*ids.graph);
  EXPECT_EQ(again.result(ids.out), nullptr);
  EXPECT_EQ(again.why_not(ids.out), kNothingRecomputed);
}

/// Positions that no dumped module gave may lie between the embedding and the first layer; between layers lies nothing.
TEST(RecomputeCopy, WhatTheFirstLayerIsGivenMayBeMoreThanTheEmbedding) {
  DumpGraph g;
  g.pass();
  const TensorId embed = g.op("embed", OpKind::embedding, {}, {.channels = kWidth, .fill = noise(1)});
  const TensorId first = g.op("layer_input", OpKind::copy, {{"x", embed}}, {.channels = kWidth, .fill = noise(2)});
  const TensorId sum = g.op("mlp_residual", OpKind::residual_add, {}, {.channels = kWidth, .fill = noise(3)});
  const TensorId second = g.op("layer_input", OpKind::copy, {{"x", sum}}, {.channels = kWidth, .fill = noise(3)});
  const Again again(g);
  EXPECT_FALSE(again.understood(first));
  EXPECT_TRUE(again.understood(second));
}

using Function = double (*)(double);

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu(double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }
double gelu_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * std::pow(x, 3))));
}
double relu(double x) { return std::max(0.0, x); }

/// act(gate) * up, or act(x); gate and up may lie in one projection.
enum class Lie { alone, apart, fused };

Case activation(Function function, Lie lie, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId gate = g.op("gate_proj", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(1, 4)});
  const TensorId up = g.op("up_proj", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(2, 4)});
  const TensorId both =
      g.op("gate_up_proj", OpKind::dumped, {}, {.channels = 2 * kWidth, .fill = [&](auto r, auto c) {
                                                  return c < kWidth ? g.at(gate, r, c) : g.at(up, r, c - kWidth);
                                                }});
  out.right = Numbers(4, kWidth);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c)
      out.right.at(r, c) = function(double{g.at(gate, r, c)}) * (lie == Lie::alone ? 1 : double{g.at(up, r, c)});
  }
  std::vector<std::pair<std::string, TensorId>> inputs{{"x", gate}};
  if (lie == Lie::apart) inputs = {{"gate", gate}, {"up", up}};
  if (lie == Lie::fused) inputs = {{"gate_up", both}};
  Numbers stored = out.right;
  change(stored);
  out.out = g.op("mlp_act", OpKind::activation, inputs, {.channels = kWidth, .fill = fill_of(stored)});
  return out;
}

TEST(RecomputeActivation, TheFormThatTheNumbersShow) {
  expect_right(activation(silu, Lie::alone, unchanged), "silu");
  expect_right(activation(gelu, Lie::alone, unchanged), "gelu");
  expect_right(activation(gelu_tanh, Lie::alone, unchanged), "gelu_tanh");
  expect_right(activation(relu, Lie::alone, unchanged), "relu");
  expect_right(activation(silu, Lie::apart, unchanged), "silu");
  expect_right(activation(silu, Lie::fused, unchanged), "silu");
}

/// gpt-oss: (up held to both sides + 1) * gate held from above * sigmoid(alpha * gate).
TEST(RecomputeActivation, AClampedOneIsKnownApartAndInTurns) {
  for (const double limit : {7.0, 1.5}) {
    for (const bool fused : {false, true}) {
      Case out;
      DumpGraph& g = *out.graph;
      g.pass();
      const TensorId gate = g.op("gate_proj", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(1, 9)});
      const TensorId up = g.op("up_proj", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(2, 9)});
      const TensorId both = g.op(
          "gate_up_proj", OpKind::dumped, {},
          {.channels = 2 * kWidth, .fill = [&](auto r, auto c) { return g.at(c % 2 == 0 ? gate : up, r, c / 2); }});
      out.right = Numbers(4, kWidth);
      for (std::int64_t r = 0; r < 4; ++r) {
        for (std::int64_t c = 0; c < kWidth; ++c) {
          const double x = std::min(double{g.at(gate, r, c)}, limit);
          out.right.at(r, c) = (std::clamp(double{g.at(up, r, c)}, -limit, limit) + 1) * x / (1 + std::exp(-1.702 * x));
        }
      }
      std::vector<std::pair<std::string, TensorId>> inputs{{"gate", gate}, {"up", up}};
      if (fused) inputs = {{"gate_up", both}};
      ActivationAttributes told;
      if (limit != 7) told.limit = limit;
      out.out = g.op("mlp_act", OpKind::activation, inputs, {.channels = kWidth, .fill = fill_of(out.right)}, told);
      expect_right(out, fused ? "clamped swiglu, gate and up in turns" : "clamped swiglu");
    }
  }
}

TEST(RecomputeActivation, SeesAnElementThatIsOff) {
  expect_seen([](const Change& change) { return activation(silu, Lie::apart, change); }, 2, 2);
}

TEST(RecomputeCopy, IsTheSameNumbersInAnotherFormat) {
  const auto made = [](const Change& change) {
    Case out;
    DumpGraph& g = *out.graph;
    g.pass();
    const TensorId x = g.source({.channels = kWidth, .fill = noise(1, 3)});
    out.right = stored_numbers(g, x, 4, kWidth);
    Numbers stored = out.right;
    change(stored);
    out.out = g.op("contiguous", OpKind::copy, {{"x", x}},
                   {.channels = kWidth, .fill = fill_of(stored), .format = Format::bf16});
    return out;
  };
  expect_right(made(unchanged), "", 4);
  expect_seen(made, 0, 7);
}

TEST(RecomputeSplit, IsItsColumns) {
  const auto made = [](const Change& change) {
    Case out;
    DumpGraph& g = *out.graph;
    g.pass();
    const TensorId x = g.op("qkv_proj", OpKind::dumped, {}, {.channels = 3 * kWidth, .fill = noise(1, 3)});
    out.right = columns_of(stored_numbers(g, x, 4, 3 * kWidth), kWidth, kWidth);
    Numbers stored = out.right;
    change(stored);
    SplitAttributes part;
    part.first_channel = kWidth;
    out.out = g.op("k_proj", OpKind::split, {{"x", x}}, {.channels = kWidth, .fill = fill_of(stored)}, part);
    return out;
  };
  expect_right(made(unchanged), "", 4);
  expect_seen(made, 2, 1);
}

/// Columns of each of two heads, as values are of what latent attention expands.
TEST(RecomputeSplit, IsItsColumnsOfEachHead) {
  const auto made = [](const Change& change) {
    Case out;
    DumpGraph& g = *out.graph;
    g.pass();
    const TensorId x = g.op("kv_b_proj", OpKind::dumped, {}, {.channels = 2 * kWidth, .fill = noise(1, 3)});
    const Numbers all = stored_numbers(g, x, 4, 2 * kWidth);
    out.right = columns_of(all, 0, kWidth);
    for (std::int64_t row = 0; row < 4; ++row) {
      for (std::int64_t c = 0; c < kWidth; ++c) out.right.at(row, c) = all.at(row, c / 8 * kWidth + 3 + c % 8);
    }
    Numbers stored = out.right;
    change(stored);
    out.out = g.op("v_split", OpKind::split, {{"x", x}}, {.channels = kWidth, .fill = fill_of(stored)},
                   SplitAttributes{3, 2});
    return out;
  };
  expect_right(made(unchanged), "", 4);
  expect_seen(made, 2, 1);
}

/// Three own channels of each of two heads, and two that both share.
TEST(RecomputeJoin, IsEachHeadsOwnPartAndWhatAllShare) {
  const auto made = [](const Change& change) {
    Case out;
    DumpGraph& g = *out.graph;
    g.pass();
    const TensorId x = g.op("kv_b_proj", OpKind::dumped, {}, {.channels = 8, .fill = noise(1, 3)});
    const TensorId shared = g.op("k_rope", OpKind::dumped, {}, {.channels = 2, .fill = noise(2, 3)});
    const Numbers own = stored_numbers(g, x, 4, 8);
    const Numbers same = stored_numbers(g, shared, 4, 2);
    out.right = Numbers(4, 10);
    for (std::int64_t row = 0; row < 4; ++row) {
      for (std::int64_t c = 0; c < 10; ++c) {
        out.right.at(row, c) = c % 5 < 3 ? own.at(row, c / 5 * 4 + c % 5) : same.at(row, c % 5 - 3);
      }
    }
    Numbers stored = out.right;
    change(stored);
    out.out = g.op("k_join", OpKind::join, {{"x", x}, {"shared", shared}}, {.channels = 10, .fill = fill_of(stored)},
                   JoinAttributes{2});
    return out;
  };
  expect_right(made(unchanged), "", 4);
  expect_seen(made, 2, 1);
}

TEST(RecomputeCopy, WhatCannotBeJudgedIsSaid) {
  DumpGraph g;
  g.pass();
  const TensorId wide = g.source({.channels = 8, .fill = noise(1)});
  const TensorId narrow = g.op("narrow", OpKind::copy, {{"x", wide}}, {.channels = 4, .fill = noise(1)});
  const TensorId x = g.source({.fill = noise(1)});
  const TensorId nan = g.op("nan", OpKind::copy, {{"x", x}}, {.fill = constant(kNan)});
  Again again(g);
  EXPECT_EQ(again.result(narrow), nullptr);
  EXPECT_NE(again.why_not(narrow), "");
  EXPECT_EQ(again.result(nan), nullptr);
  EXPECT_EQ(again.why_not(nan), "none of its elements could be recomputed");
}

/// Two layers of gelu(gate) times up; in the second, the product was left out.
TEST(RecomputeActivation, TheGateAloneIsByItsOwnFunction) {
  Case made;
  DumpGraph& g = *made.graph;
  g.pass();
  for (const std::int64_t layer : {0, 1, 2}) {
    g.layer = layer;
    const TensorId gate = g.source({.channels = kWidth, .fill = noise(1, 3)});
    const TensorId up = g.op("up_proj", OpKind::dumped, {}, {.channels = kWidth, .fill = noise(2, 3)});
    made.out = g.op("act", OpKind::activation, {{"gate", gate}, {"up", up}},
                    {.channels = kWidth, .fill = [&](auto row, auto channel) {
                       const double x = double{g.at(gate, row, channel)};
                       const double active = 0.5 * x * std::erfc(-x / std::sqrt(2.0));
                       return static_cast<float>(layer == 2 ? active : active * double{g.at(up, row, channel)});
                     }});
  }
  EXPECT_EQ(explained_by(made), "the gate alone");
}

/// Two heads of eight, each times the matrix of signs over the root of eight.
Case rotated_heads(const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId x = g.source({.channels = kWidth, .fill = noise(1, 3), .format = Format::f32, .heads = 2});
  out.right = Numbers(4, kWidth);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      for (std::int64_t j = 0; j < 8; ++j) {
        int sign = 1;
        for (int bit = 0; bit < 3; ++bit) sign *= ((c % 8) >> bit & 1) != 0 && (j >> bit & 1) != 0 ? -1 : 1;
        out.right.at(r, c) += sign * double{g.at(x, r, c / 8 * 8 + j)} / std::sqrt(8.0);
      }
    }
  }
  Numbers stored = out.right;
  change(stored);
  out.out =
      g.op("k_hadamard", OpKind::hadamard, {{"x", x}},
           {.channels = kWidth, .fill = fill_of(stored), .format = Format::f32, .heads = 2}, HadamardAttributes{2});
  return out;
}

TEST(RecomputeHadamard, IsEachHeadTimesTheMatrixOfSigns) {
  expect_right(rotated_heads(unchanged), "");
  expect_seen([](const Change& change) { return rotated_heads(change); }, 2, 11);
}

double in_f16(double value) {
  return double{decode(Format::f16, encode(Format::f16, static_cast<float>(value), Overflow::saturate))};
}

/// vLLM's SiluAndMul in f16: silu(gate) is rounded, as a subnormal number where gate is small, before it is multiplied.
TEST(RecomputeActivation, RoundsASubnormalGateBeforeItIsMultiplied) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId gate = g.source({.channels = 64, .fill = noise(1, 0x1p-14), .format = Format::f16});
  const TensorId up = g.op("up_proj", OpKind::gemm, {}, {.channels = 64, .fill = noise(2, 8), .format = Format::f16});
  Numbers stored(4, 64);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < 64; ++c) {
      const double x = double{g.at(gate, r, c)};
      stored.at(r, c) = in_f16(x / (1 + std::exp(-x))) * double{g.at(up, r, c)};
    }
  }
  out.out = g.op("mlp_act", OpKind::activation, {{"gate", gate}, {"up", up}},
                 {.channels = 64, .fill = fill_of(stored), .format = Format::f16});
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr) << again.why_not(out.out);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
}

/// What is between the activation and the next product was not dumped, such as BitNet's norm. The zeros of a ReLU are
/// zeros all the same, and more than half of the elements.
TEST(RecomputeActivation, ZerosDoNotShowWhichFunctionItIs) {
  DumpGraph g;
  g.pass();
  const auto given = [](std::int64_t row, std::int64_t c) {
    return std::abs(noise(1)(row, c)) * (c % 8 < 5 ? -1.0F : 1.0F);
  };
  const auto made = [given](std::int64_t row, std::int64_t c) {
    const float open = std::max(0.0F, given(row, c));
    return 0.37F * open * open;
  };
  const TensorId x = g.source({.channels = kWidth, .fill = given});
  const TensorId out = g.op("act", OpKind::activation, {{"x", x}}, {.channels = kWidth, .fill = made});
  EXPECT_FALSE(Again(g).understood(out));
}

}  // namespace
}  // namespace nanscope::testing

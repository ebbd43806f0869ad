#include "tests/unit/instrument/recompute/again.h"

/// Mixtures of experts, by their outputs and by their weights.
namespace nanscope::testing::experts_test {
namespace {

constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kInner = 10;
constexpr std::int64_t kExperts = 4;

enum class Given { outputs, fused, apart };

/// Expert 2 of the last layer gone wrong.
enum class Fault { none, other_down, other_expert, left_out, not_normalised };

struct How {
  Given given = Given::fused;
  Fault fault = Fault::none;
};

Numbers rows_of(const Numbers& x, std::int64_t first, std::int64_t count) {
  return transposed(columns_of(transposed(x), first, count));
}

double silu(double x) { return x / (1 + std::exp(-x)); }

/// down(silu(gate x) * up x), of weights below each other: all gates and ups of an expert, then those of the next.
Numbers expert_of(const Numbers& x, const Numbers& gate_up, const Numbers& down, std::int64_t expert,
                  std::int64_t down_of) {
  const Numbers gate = product(x, rows_of(gate_up, expert * 2 * kInner, kInner));
  const Numbers up = product(x, rows_of(gate_up, expert * 2 * kInner + kInner, kInner));
  Numbers h(x.rows, kInner);
  for (std::size_t i = 0; i < h.v.size(); ++i) h.v[i] = silu(gate.v[i]) * up.v[i];
  return product(h, rows_of(down, down_of * kWidth, kWidth));
}

/// The two experts of a row: all pairs come up.
std::int64_t choice(std::int64_t row, std::int64_t j) {
  return j == 0 ? row % kExperts : (row + 1 + row / 4) % kExperts;
}

struct Layer {
  std::vector<std::pair<std::string, TensorId>> inputs;
  Numbers right{kTokens, kWidth};
};

const double kFirst = std::exp(2.0);
const double kSecond = std::exp(1.5);
const double kOthers = 2 * std::exp(0.5);  ///< of the two experts that a row does not go to

double weight(std::int64_t j) { return (j == 0 ? kFirst : kSecond) / (kFirst + kSecond); }

/// What the router of a layer gives, and its input.
Layer routed(DumpGraph& g, std::uint32_t seed) {
  Layer made;
  const auto add = [&](const std::string& name, const std::string& role, std::int64_t channels, const Fill& fill,
                       Format format = Format::f32) {
    return g.op(name, OpKind::dumped, {},
                {.role = role, .tokens = kTokens, .channels = channels, .fill = fill, .format = format});
  };
  const auto logit = [](std::int64_t row, std::int64_t e) {
    return e == choice(row, 0) ? 2.0F : e == choice(row, 1) ? 1.5F : 0.5F;
  };
  const auto id = [](std::int64_t row, std::int64_t j) { return static_cast<float>(choice(row, j)); };
  const auto share = [](std::int64_t, std::int64_t j) { return static_cast<float>(weight(j)); };
  made.inputs = {{"x", add("mlp_norm", "out", kWidth, noise(seed))},
                 {"logits", add("router", "router_logits", kExperts, logit)},
                 {"ids", add("route_ids", "router_ids", 2, id, Format::i32)},
                 {"weights", add("route", "router_weights", 2, share)}};
  return made;
}

Layer layer_of(DumpGraph& g, const How& how, bool faulty, std::uint32_t seed) {
  Layer made = routed(g, seed);
  const TensorId gate_up =
      g.parameter("gate_up" + std::to_string(seed), kExperts * 2 * kInner, kWidth, noise(seed + 1, 0.6));
  const TensorId down = g.parameter("down" + std::to_string(seed), kExperts * kWidth, kInner, noise(seed + 2, 0.6));
  const Numbers rows = stored_numbers(g, made.inputs.front().second, kTokens, kWidth);
  const Numbers first = stored_numbers(g, gate_up, kExperts * 2 * kInner, kWidth);
  const Numbers second = stored_numbers(g, down, kExperts * kWidth, kInner);
  const auto part = [&](const std::string& name, const Numbers& numbers) {
    return g.parameter(name + std::to_string(seed), numbers.rows, numbers.columns, fill_of(numbers));
  };
  if (how.given == Given::fused)
    made.inputs.insert(made.inputs.end(), {{"expert_gate_up", gate_up}, {"expert_down", down}});
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const bool wrong = faulty && e == 2;
    const std::int64_t own = wrong && how.fault == Fault::other_expert ? 1 : e;
    const std::int64_t own_down = wrong && how.fault == Fault::other_down ? 1 : own;
    const Numbers out = expert_of(rows, first, second, own, own_down);
    const std::string name = "expert" + std::to_string(e);
    if (how.given == Given::outputs) {
      const Numbers told = expert_of(rows, first, second, e, e);
      made.inputs.emplace_back(
          "expert", g.op(name, OpKind::dumped, {}, {.tokens = kTokens, .channels = kWidth, .fill = fill_of(told)}));
    } else if (how.given == Given::apart) {
      made.inputs.emplace_back("expert_gate", part(name + "gate", rows_of(first, e * 2 * kInner, kInner)));
      made.inputs.emplace_back("expert_up", part(name + "up", rows_of(first, e * 2 * kInner + kInner, kInner)));
      made.inputs.emplace_back("expert_down", part(name + "down", rows_of(second, e * kWidth, kWidth)));
    }
    if (wrong && how.fault == Fault::left_out) continue;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t j = 0; j < 2; ++j) {
        if (choice(t, j) != e) continue;
        const double part_of_all =
            faulty && how.fault == Fault::not_normalised ? (kFirst + kSecond) / (kFirst + kSecond + kOthers) : 1;
        for (std::int64_t c = 0; c < kWidth; ++c) made.right.at(t, c) += weight(j) * part_of_all * out.at(t, c);
      }
    }
  }
  return made;
}

/// Two layers, the second one faulty or changed.
Case mixed(const How& how, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass({Span{0, 0, 0, kTokens, 0, kTokens}}, kTokens);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    g.layer = layer;
    const Layer made = layer_of(g, how, layer == 1, static_cast<std::uint32_t>(20 * layer + 1));
    out.right = made.right;
    Numbers stored = made.right;
    if (layer == 1) change(stored);
    out.out = g.op("experts", OpKind::expert_mix, made.inputs,
                   {.role = "mlp_out", .tokens = kTokens, .channels = kWidth, .fill = fill_of(stored)});
  }
  return out;
}

TEST(RecomputeExperts, AreMixedByTheRoutersWeights) {
  expect_right(mixed({.given = Given::outputs}, unchanged), "the chosen experts by their weights");
}

TEST(RecomputeExperts, AreMadeOfTheirWeights) {
  expect_right(mixed({.given = Given::fused}, unchanged), "the chosen experts by their weights, silu", 1024);
  expect_right(mixed({.given = Given::apart}, unchanged), "the chosen experts by their weights, silu", 1024);
}

TEST(RecomputeExperts, AnElementThatIsOffIsSeen) {
  for (const Given given : {Given::outputs, Given::fused, Given::apart})
    expect_seen([&](const Change& change) { return mixed({.given = given}, change); }, 3, 4);
}

TEST(RecomputeExperts, WhatWentWrongIsNamed) {
  for (const Given given : {Given::fused, Given::apart}) {
    EXPECT_EQ(explained_by(mixed({given, Fault::other_down}, unchanged)),
              "the down projection of expert 2 is that of 1");
  }
  for (const Given given : {Given::outputs, Given::fused, Given::apart}) {
    EXPECT_EQ(explained_by(mixed({given, Fault::other_expert}, unchanged)), "expert 1 in the place of expert 2");
    EXPECT_EQ(explained_by(mixed({given, Fault::left_out}, unchanged)), "expert 2 left out");
    EXPECT_EQ(explained_by(mixed({given, Fault::not_normalised}, unchanged)),
              "the weights of the chosen experts not normalised");
  }
}

}  // namespace
}  // namespace nanscope::testing::experts_test

#include <numeric>

#include "tests/unit/instrument/recompute/again.h"

/// The choice of experts, and of tokens.
namespace nanscope::testing::route_test {
namespace {

constexpr std::int64_t kExperts = 8;
constexpr std::int64_t kChosen = 3;

struct How {
  bool sigmoid = false;
  bool normalised = true;
  bool biased = false;  ///< chosen by gate plus bias, weighed by the gate
  bool ids = false;     ///< the chosen are dumped beside the weights
  double scale = 1;     ///< on the weights, as the op states it
};

/// The weights of the largest three of eight, largest first.
Case routed(const How& how, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId logits = g.op("router", OpKind::dumped, {}, {.channels = kExperts, .fill = noise(4, 3)});
  out.right = Numbers(4, kChosen);
  const auto bias = [](std::int64_t e) { return e % 3 == 0 ? 0.75 : 0.0; };
  Numbers ids(4, kChosen);
  for (std::int64_t r = 0; r < 4; ++r) {
    std::vector<double> gates;
    double all = 0;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const double z = std::exp(double{g.at(logits, r, e)});
      gates.push_back(how.sigmoid ? z / (1 + z) : z);
      all += z;
    }
    std::vector<std::size_t> order(kExperts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto rank = [&](std::size_t e) { return gates[e] + (how.biased ? bias(static_cast<std::int64_t>(e)) : 0.0); };
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return rank(a) > rank(b); });
    const double chosen = gates[order[0]] + gates[order[1]] + gates[order[2]];
    for (std::int64_t i = 0; i < kChosen; ++i) {
      const double over = how.normalised ? chosen : how.sigmoid ? 1 : all;
      out.right.at(r, i) = how.scale * gates[order[static_cast<std::size_t>(i)]] / over;
      ids.at(r, i) = static_cast<double>(order[static_cast<std::size_t>(i)]);
    }
  }
  Numbers stored = out.right;
  change(stored);
  std::vector<std::pair<std::string, TensorId>> inputs{{"logits", logits}};
  if (how.biased && !how.ids) {
    inputs.emplace_back("bias",
                        g.op("router_bias", OpKind::parameter, {},
                             {.role = "router_bias", .tokens = 1, .channels = kExperts, .fill = [=](auto, auto c) {
                                return static_cast<float>(bias(c));
                              }}));
  }
  RouteAttributes attributes;
  if (how.scale != 1) attributes.scale = how.scale;
  out.out = g.op("route", OpKind::route, inputs,
                 {.role = "router_weights", .channels = kChosen, .fill = fill_of(stored)}, attributes);
  if (how.ids) {
    g.op("route_ids", OpKind::route, {{"logits", logits}},
         {.role = "router_ids", .channels = kChosen, .fill = fill_of(ids), .format = Format::i32});
  }
  return out;
}

TEST(RecomputeRoute, TheFormThatTheNumbersShow) {
  expect_right(routed({}, unchanged), "softmax, the largest, normalised", 256);
  expect_right(routed({.normalised = false}, unchanged), "softmax, the largest", 256);
  expect_right(routed({.sigmoid = true}, unchanged), "sigmoid, the largest, normalised", 256);
  expect_right(routed({.sigmoid = true, .normalised = false}, unchanged), "sigmoid, the largest", 256);
}

TEST(RecomputeRoute, ChosenByABiasThatIsNoPartOfTheWeights) {
  expect_right(routed({.sigmoid = true, .biased = true}, unchanged),
               "sigmoid, of those that are largest with their bias, normalised", 256);
}

TEST(RecomputeRoute, TheChosenThatWereDumped) {
  expect_right(routed({.sigmoid = true, .biased = true, .ids = true}, unchanged), "sigmoid, the largest, normalised",
               256);
}

TEST(RecomputeRoute, TimesAScale) {
  expect_right(routed({.sigmoid = true, .scale = 2.5}, unchanged), "sigmoid, the largest, normalised", 256);
}

TEST(RecomputeRoute, SeesAWeightThatIsOff) {
  expect_seen([](const Change& change) { return routed({}, change); }, 1, 0);
}

TEST(RecomputeTokenSoftmax, IsTheSoftmaxOfTheLogits) {
  const auto made = [](const Change& change) {
    Case out;
    DumpGraph& g = *out.graph;
    g.pass();
    const TensorId logits =
        g.op("lm_head", OpKind::dumped, {}, {.role = "logits", .channels = 12, .fill = noise(4, 5)});
    out.right = Numbers(4, 12);
    for (std::int64_t r = 0; r < 4; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < 12; ++c) sum += std::exp(double{g.at(logits, r, c)});
      for (std::int64_t c = 0; c < 12; ++c) out.right.at(r, c) = std::exp(double{g.at(logits, r, c)}) / sum;
    }
    Numbers stored = out.right;
    change(stored);
    out.out = g.op("token_softmax", OpKind::token_softmax, {{"logits", logits}},
                   {.role = "token_probs", .channels = 12, .fill = fill_of(stored)});
    return out;
  };
  expect_right(made(unchanged), "softmax", 256);
  expect_seen(made, 3, 4);
}

}  // namespace
}  // namespace nanscope::testing::route_test

#include <cmath>
#include <vector>

#include "tests/unit/instrument/recompute/again.h"

/// The gated delta rule over a prefill and a step that continues it, against the attention that it means.
namespace nanscope::testing::delta_rule {
namespace {

constexpr std::int64_t kKeyHeads = 2;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKeys = 3;
constexpr std::int64_t kValues = 2;
constexpr std::int64_t kTaps = 3;
constexpr std::int64_t kShare = kHeads / kKeyHeads;
constexpr std::int64_t kAllKeys = kKeyHeads * kKeys;
constexpr std::int64_t kChannels = 2 * kAllKeys + kHeads * kValues;
constexpr std::int64_t kPrompt = 4;

/// What each token and channel is given, in the order of queries, keys and values.
double given(std::int64_t token, std::int64_t channel) { return double{noise(11, 3)(token, channel)}; }
double conv_weight(std::int64_t channel, std::int64_t tap) { return double{noise(12)(channel, tap)}; }
double a_of(std::int64_t token, std::int64_t head) { return double{noise(13, 2)(token, head)}; }
double b_of(std::int64_t token, std::int64_t head) { return double{noise(14, 2)(token, head)}; }
double a_log(std::int64_t head) { return double{noise(15)(0, head)}; }
double dt_bias(std::int64_t head) { return double{noise(16)(0, head)}; }

double mixed(std::int64_t token, std::int64_t channel) {
  double sum = 0;
  for (std::int64_t back = 0; back < kTaps && back <= token; ++back)
    sum += conv_weight(channel, kTaps - 1 - back) * given(token - back, channel);
  return sum / (1 + std::exp(-sum));
}

double unit(std::int64_t token, std::int64_t first, std::int64_t i) {
  double squares = 1e-6;
  for (std::int64_t j = 0; j < kKeys; ++j) squares += mixed(token, first + j) * mixed(token, first + j);
  return mixed(token, first + i) / std::sqrt(squares);
}

double dot(std::int64_t token, std::int64_t first, std::int64_t other, std::int64_t first_of_other) {
  double sum = 0;
  for (std::int64_t i = 0; i < kKeys; ++i) sum += unit(token, first, i) * unit(other, first_of_other, i);
  return sum;
}

/// What tokens from `from` on wrote, as attention: with all decays between as one exponential.
double expected(std::int64_t token, std::int64_t column, std::int64_t from = 0) {
  const std::int64_t head = column / kValues;
  const std::int64_t q = head / kShare * kKeys;
  const std::int64_t k = kAllKeys + q;
  const auto faded = [&](std::int64_t first, std::int64_t last) {
    double sum = 0;
    for (std::int64_t t = first + 1; t <= last; ++t)
      sum -= std::exp(a_log(head)) * std::log1p(std::exp(a_of(t, head) + dt_bias(head)));
    return std::exp(sum);
  };
  std::vector<double> delta;
  for (std::int64_t t = from; t <= token; ++t) {
    double held = 0;
    for (std::int64_t s = from; s < t; ++s)
      held += faded(s, t) * dot(t, k, s, k) * delta[static_cast<std::size_t>(s - from)];
    delta.push_back((mixed(t, 2 * kAllKeys + column) - held) / (1 + std::exp(-b_of(t, head))));
  }
  double sum = 0;
  for (std::int64_t s = from; s <= token; ++s)
    sum += faded(s, token) * dot(token, q, s, k) * delta[static_cast<std::size_t>(s - from)] / std::sqrt(double{kKeys});
  return sum;
}

/// The channel of a column of a fused projection that has each key head's query, key, values and gates in turns; -1: a
/// gate's.
std::int64_t channel_of(std::int64_t column) {
  constexpr std::int64_t kHead = 2 * (kKeys + kShare * kValues);
  const std::int64_t head = column / kHead;
  const std::int64_t at = column % kHead;
  if (at < kKeys) return head * kKeys + at;
  if (at < 2 * kKeys) return kAllKeys + head * kKeys + at - kKeys;
  const std::int64_t value = at - 2 * kKeys;
  return value < kShare * kValues ? 2 * kAllKeys + head * kShare * kValues + value : -1;
}

/// A prefill of four tokens, and a step of one, whose output is judged.
Case continued(bool by_heads, const Change& change, std::int64_t from = 0, Format format = Format::f32) {
  Case out;
  DumpGraph& g = *out.graph;
  const TensorId conv = g.parameter("conv.weight", kChannels, kTaps,
                                    [](auto c, auto t) { return static_cast<float>(conv_weight(c, t)); });
  const TensorId log = g.parameter("A_log", 1, kHeads, [](auto, auto h) { return static_cast<float>(a_log(h)); });
  const TensorId bias = g.parameter("dt_bias", 1, kHeads, [](auto, auto h) { return static_cast<float>(dt_bias(h)); });
  DeltaAttributes form;
  form.key_heads = kKeyHeads, form.value_heads = kHeads;
  form.key_width = kKeys, form.value_width = kValues;
  form.by_heads = by_heads;
  for (const std::int64_t first : {std::int64_t{0}, kPrompt}) {
    const std::int64_t rows = first == 0 ? kPrompt : 1;
    g.pass({Span{0, first == 0 ? 0 : 1, 0, rows, first, first + rows}}, rows);
    const auto fused = [=](auto row, auto column) {
      const std::int64_t channel = by_heads ? channel_of(column) : column;
      return static_cast<float>(channel < 0 ? 7.0 : given(first + row, channel));
    };
    std::vector<std::pair<std::string, TensorId>> inputs;
    inputs.emplace_back(
        "qkv", g.op("qkv", OpKind::dumped, {},
                    {.tokens = rows, .channels = kChannels + (by_heads ? kHeads * kValues : 0), .fill = fused}));
    const auto of = [=](double (*numbers)(std::int64_t, std::int64_t)) {
      return [=](auto row, auto head) { return static_cast<float>(numbers(first + row, head)); };
    };
    if (by_heads) {
      const auto gates = [=](auto row, auto column) {
        const std::int64_t head = column / (2 * kShare) * kShare + column % kShare;
        return static_cast<float>(column % (2 * kShare) < kShare ? b_of(first + row, head) : a_of(first + row, head));
      };
      inputs.emplace_back("gates",
                          g.op("gates", OpKind::dumped, {}, {.tokens = rows, .channels = 2 * kHeads, .fill = gates}));
    } else {
      inputs.emplace_back("b", g.op("b", OpKind::dumped, {}, {.tokens = rows, .channels = kHeads, .fill = of(b_of)}));
      inputs.emplace_back("a", g.op("a", OpKind::dumped, {}, {.tokens = rows, .channels = kHeads, .fill = of(a_of)}));
    }
    inputs.insert(inputs.end(), {{"conv", conv}, {"a_log", log}, {"dt_bias", bias}});
    out.right = Numbers(rows, kHeads * kValues);
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t c = 0; c < kHeads * kValues; ++c)
        out.right.at(t, c) = expected(first + t, c, first == 0 ? 0 : from);
    }
    Numbers stored = out.right;
    if (first > 0) change(stored);
    out.out = g.op("delta", OpKind::delta_rule, inputs,
                   {.tokens = rows, .channels = kHeads * kValues, .fill = fill_of(stored), .format = format}, form);
  }
  return out;
}

TEST(RecomputeDelta, IsTheAttentionThatItMeansOverAllSteps) {
  for (const bool by_heads : {false, true}) {
    for (const Format format : {Format::f32, Format::bf16})
      expect_right(continued(by_heads, unchanged, 0, format), "the gated delta rule", 1e4, 1e-4);
    expect_seen([=](const Change& change) { return continued(by_heads, change); }, 0, 5);
  }
}

/// The convolution still sees the inputs before, as a server keeps them apart from the state.
TEST(RecomputeDelta, KnowsAStateThatWasLost) {
  const Case lost = continued(true, unchanged, kPrompt);
  Again again(*lost.graph);
  const Recomputed* found = again.result(lost.out);
  ASSERT_NE(found, nullptr) << again.why_not(lost.out);
  EXPECT_LT(found->share(), 1.0);
}

TEST(RecomputeDelta, SaysWhenTheStepsBeforeAreNotThere) {
  Case made;
  DumpGraph& g = *made.graph;
  const TensorId conv = g.parameter("conv.weight", kChannels, kTaps, noise(1));
  const TensorId log = g.parameter("A_log", 1, kHeads, noise(2));
  g.pass({Span{0, 3, 0, 1, 9, 10}}, 1);
  const auto input = [&](const char* name, std::int64_t channels) {
    return g.op(name, OpKind::dumped, {}, {.tokens = 1, .channels = channels, .fill = noise(3)});
  };
  DeltaAttributes form;
  form.key_heads = kKeyHeads, form.value_heads = kHeads;
  form.key_width = kKeys, form.value_width = kValues;
  const TensorId out = g.op("delta", OpKind::delta_rule,
                            {{"qkv", input("qkv", kChannels)},
                             {"b", input("b", kHeads)},
                             {"a", input("a", kHeads)},
                             {"conv", conv},
                             {"a_log", log},
                             {"dt_bias", log}},
                            {.tokens = 1, .channels = kHeads * kValues, .fill = noise(4)}, form);
  Again again(g);
  EXPECT_EQ(again.result(out), nullptr);
  EXPECT_EQ(again.why_not(out), "it continues the state of earlier steps, and not all of them were dumped");
}

}  // namespace
}  // namespace nanscope::testing::delta_rule

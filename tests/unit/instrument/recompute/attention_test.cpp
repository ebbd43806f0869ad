#include "instrument/recompute/attention_rows.h"
#include "instrument/recompute/keys.h"
#include "tests/unit/instrument/recompute/again.h"

/// Scores, softmax, mix, and the three in one.
namespace nanscope::testing {
namespace {

constexpr std::int64_t kTokens = 6;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kGroups = 2;  ///< of keys and values
constexpr std::int64_t kHead = 8;

struct How {
  double factor = 1 / std::sqrt(8.0);
  double cap = 0;
  std::int64_t ahead = 0;  ///< keys that the last layer's tokens see beyond their own
  bool tiled = false;
  double value_scale = 1;    ///< of the values that the last layer mixes
  bool keys_turned = false;  ///< the last layer's keys are rotated by a Hadamard matrix, its queries are not
  bool values_turned = false;
  std::int64_t window = 0;  ///< keys that the tokens of all layers but the second see; 0: all
};

enum class Part { scores, softmax, mix, fused };

/// The part of `head` of a row of heads side by side.
Numbers of_head(const Numbers& x, std::int64_t head) { return columns_of(x, head * kHead, kHead); }

void put(Numbers& into, const Numbers& part, std::int64_t first) {
  for (std::int64_t r = 0; r < part.rows; ++r) {
    for (std::int64_t c = 0; c < part.columns; ++c) into.at(r, first + c) = part.at(r, c);
  }
}

/// Each head times the matrix of signs, by its definition.
Numbers turned(const Numbers& x) {
  Numbers out(x.rows, x.columns);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      for (std::int64_t j = 0; j < kHead; ++j) {
        int sign = 1;
        for (int bit = 0; bit < 3; ++bit) sign *= (c % kHead >> bit & 1) != 0 && (j >> bit & 1) != 0 ? -1 : 1;
        out.at(r, c) += sign * x.v[static_cast<std::size_t>(r * x.columns + c / kHead * kHead + j)] / std::sqrt(8.0);
      }
    }
  }
  return out;
}

/// Attention of three layers by its definition; `part` of the last one is judged, and changed.
Case made(Part part, const How& how, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass({Span{0, 0, 0, kTokens, 0, kTokens}}, kTokens);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    const auto seed = static_cast<std::uint32_t>(10 * layer);
    const auto tensor = [&](const std::string& name, std::int64_t heads, std::uint32_t own) {
      return g.op(name, OpKind::dumped, {},
                  {.tokens = kTokens, .channels = heads * kHead, .fill = noise(seed + own, 2), .heads = heads});
    };
    const TensorId q = tensor("q_rope", kHeads, 1);
    const TensorId k = tensor("k_rope", kGroups, 2);
    const TensorId v = tensor("v_proj", kGroups, 3);
    const Numbers queries = stored_numbers(g, q, kTokens, kHeads * kHead);
    Numbers keys = stored_numbers(g, k, kTokens, kGroups * kHead);
    Numbers values = stored_numbers(g, v, kTokens, kGroups * kHead);
    if (layer == 2 && how.keys_turned) keys = turned(keys);
    if (layer == 2 && how.values_turned) values = turned(values);
    Numbers scores(kTokens, kHeads * kTokens);
    Numbers probs(kTokens, kHeads * kTokens);
    Numbers mix(kTokens, kHeads * kHead);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const std::int64_t group = how.tiled ? head % kGroups : head / (kHeads / kGroups);
      Numbers of_one = product(of_head(queries, head), of_head(keys, group));
      for (double& score : of_one.v) {
        score *= how.factor;
        if (how.cap > 0) score = how.cap * std::tanh(score / how.cap);
      }
      for (std::int64_t i = 0; how.window > 0 && layer != 1 && i < kTokens * kTokens; ++i) {
        if (i / kTokens - i % kTokens >= how.window) of_one.at(i / kTokens, i % kTokens) = -INFINITY;
      }
      const Numbers chance = softmax_of(of_one, layer == 2 ? how.ahead : 0);
      Numbers own = product(chance, transposed(of_head(values, group)));
      for (double& one : own.v) one *= layer == 2 ? how.value_scale : 1;
      put(scores, of_one, head * kTokens);
      put(probs, chance, head * kTokens);
      put(mix, own, head * kHead);
    }
    const auto add = [&](Part which, const std::string& name, OpKind kind,
                         std::vector<std::pair<std::string, TensorId>> inputs, const Numbers& right,
                         const std::string& role, OpAttributes attributes = {}) {
      Numbers stored = right;
      if (layer == 2 && which == part) change(stored);
      const TensorId id =
          g.op(name, kind, std::move(inputs),
               {.role = role, .tokens = kTokens, .channels = right.columns, .fill = fill_of(stored), .heads = kHeads},
               std::move(attributes));
      if (which == part) {
        out.out = id;
        out.right = right;
      }
      return id;
    };
    if (part == Part::fused) {
      MixAttributes heads;
      heads.heads = kHeads;
      add(Part::fused, "attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", v}}, mix, "out", heads);
      continue;
    }
    const TensorId s = add(Part::scores, "scores", OpKind::attention_scores, {{"q", q}, {"k", k}}, scores, "out");
    const TensorId p = add(Part::softmax, "softmax", OpKind::softmax, {{"scores", s}}, probs, "probs");
    add(Part::mix, "attn_mix", OpKind::attention_mix, {{"probs", p}, {"v", v}}, mix, "out");
  }
  return out;
}

TEST(RecomputeScores, OverTheRootOfTheHeadsWidth) {
  expect_right(made(Part::scores, {}, unchanged), "q k' over the root of the head's width", 512);
}

TEST(RecomputeScores, WithoutAFactorAndWithOneOfItsOwn) {
  expect_right(made(Part::scores, {.factor = 1}, unchanged), "q k' without a factor", 512);
  expect_right(made(Part::scores, {.factor = 0.25}, unchanged), "", 512);
}

TEST(RecomputeScores, CappedByATanh) {
  expect_right(made(Part::scores, {.factor = 1, .cap = 30}, unchanged), "", 1024, 1e-3);
}

TEST(RecomputeScores, SeesAnElementThatIsOff) {
  expect_seen([](const Change& change) { return made(Part::scores, {}, change); }, 3, 7);
}

TEST(RecomputeSoftmax, BehindACausalMask) {
  expect_right(made(Part::softmax, {}, unchanged), "softmax of the scores behind a causal mask", 1024);
}

TEST(RecomputeSoftmax, SeesAnElementThatIsOff) {
  expect_seen([](const Change& change) { return made(Part::softmax, {}, change); }, 4, 2);
}

/// Probabilities of f16, one of them beneath its smallest normal number, dumped as f32.
TEST(RecomputeSoftmax, OfFewNumbersOfTheModelsFormatInAWiderOne) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  g.op("q_proj", OpKind::gemm, {}, {.fill = noise(1, 2), .format = Format::f16});
  const TensorId scores =
      g.op("scores", OpKind::attention_scores, {}, {.role = "scores", .fill = [](auto row, auto c) {
                                                      return c == 0 ? -10.3F : 0.31F * static_cast<float>(row * c);
                                                    }});
  out.right = Numbers(4, 4);
  for (std::int64_t r = 0; r < 4; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < 4; ++c) sum += std::exp(double{g.at(scores, r, c)});
    for (std::int64_t c = 0; c < 4; ++c) {
      const auto p = static_cast<float>(std::exp(double{g.at(scores, r, c)}) / sum);
      out.right.at(r, c) = double{decode(Format::f16, encode(Format::f16, p, Overflow::overflow))};
    }
  }
  out.out = g.op("softmax", OpKind::softmax, {{"scores", scores}}, {.role = "probs", .fill = fill_of(out.right)});
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr) << again.why_not(out.out);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
}

TEST(RecomputeSoftmax, KnowsAMaskThatLetsLaterKeysIn) {
  const Case wrong = made(Part::softmax, {.ahead = 1}, unchanged);
  Again again(*wrong.graph);
  const std::vector<Recomputed> tried = again.alternatives(wrong.out);
  ASSERT_FALSE(tried.empty());
  EXPECT_EQ(tried.front().form.about, About::mask);
  EXPECT_EQ(tried.front().form.shift, 1);
}

/// Sinks that were not dumped take a share of every row, and in rows of many keys less than roundings.
TEST(RecomputeSoftmax, IsNotJudgedWhereSinksMayTakeTheRest) {
  const auto less = [](std::int64_t first, std::int64_t end, double share = 0.999) {
    return made(Part::softmax, {}, [=](Numbers& right) {
      for (std::int64_t row = first; row < end; ++row) {
        for (std::int64_t c = 0; c < right.columns; ++c) right.at(row, c) *= share;
      }
    });
  };
  for (const std::int64_t end : {std::int64_t{3}, kTokens}) {
    const Case sinks = less(0, end);
    Again again(*sinks.graph);
    EXPECT_EQ(again.result(sinks.out), nullptr) << end;
    EXPECT_THAT(again.why_not(sinks.out), ::testing::HasSubstr("sum to less than 1"));
  }
  const Case few = less(0, kTokens, 1 - 1e-5);
  EXPECT_EQ(Again(*few.graph).result(few.out), nullptr) << "20 roundings of f32 and more";
  const Case some = less(2, kTokens);
  Again again(*some.graph);
  ASSERT_NE(again.result(some.out), nullptr) << again.why_not(some.out);
  EXPECT_LT(again.result(some.out)->share(), 1);
}

TEST(RecomputeSoftmax, BehindADumpedMask) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const auto hidden = [](std::int64_t row, std::int64_t key) { return key > row || (row == 3 && key == 1); };
  const TensorId mask =
      g.op("mask", OpKind::parameter, {},
           {.role = "mask", .fill = [=](auto row, auto key) { return hidden(row, key) ? -kInf : 0.0F; }});
  out.right = Numbers(4, 4);
  const TensorId scores = g.op("scores", OpKind::attention_scores, {}, {.fill = noise(3, 2)});
  for (std::int64_t row = 0; row < 4; ++row) {
    double sum = 0;
    for (std::int64_t key = 0; key < 4; ++key) sum += hidden(row, key) ? 0 : std::exp(double{g.at(scores, row, key)});
    for (std::int64_t key = 0; key < 4; ++key)
      out.right.at(row, key) = hidden(row, key) ? 0 : std::exp(double{g.at(scores, row, key)}) / sum;
  }
  out.out = g.op("softmax", OpKind::softmax, {{"scores", scores}, {"mask", mask}},
                 {.role = "probs", .fill = fill_of(out.right)});
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr) << again.why_not(out.out);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
}

TEST(RecomputeMix, ProbabilitiesTimesValues) {
  expect_right(made(Part::mix, {}, unchanged), "", 512);
  expect_seen([](const Change& change) { return made(Part::mix, {}, change); }, 5, 30);
}

/// Gemma 2's layers: every other one has a window, and no mask was dumped that says so.
TEST(RecomputeAttention, OverAWindowInSomeLayers) {
  const Case some = made(Part::fused, {.window = 3}, unchanged);
  Again again(*some.graph);
  for (const Step& step : some.graph->steps()) {
    for (const Op& op : some.graph->content(step.id).ops) {
      if (op.kind != OpKind::attention) continue;
      const Recomputed* found = again.result(op.outputs.front());
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->share(), 1.0) << *op.layer;
      EXPECT_EQ(found->form.window, op.layer == 1 ? 0 : 3) << *op.layer;
    }
  }
}

/// The window that attention of sequences side by side comes out over, of which each sees the last `windows` keys.
std::int64_t window_of(const std::vector<Span>& spans, const std::vector<std::int64_t>& windows) {
  DumpGraph g;
  const std::int64_t rows = spans.back().row + spans.back().rows;
  g.pass(spans, rows);
  const auto tensor = [&](const std::string& name, std::uint32_t seed) {
    return g.op(name, OpKind::dumped, {}, {.tokens = rows, .channels = kHead, .fill = noise(seed, 2)});
  };
  const TensorId q = tensor("q_rope", 1);
  const TensorId k = tensor("k_rope", 2);
  const TensorId v = tensor("v_proj", 3);
  Numbers scores = product(stored_numbers(g, q, rows, kHead), stored_numbers(g, k, rows, kHead));
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (std::int64_t row = spans[i].row; row < spans[i].row + spans[i].rows; ++row) {
      for (std::int64_t key = 0; key < rows; ++key) {
        const bool seen = key >= spans[i].row && key <= row && row - key < windows[i];
        scores.at(row, key) = seen ? scores.at(row, key) / std::sqrt(8.0) : -INFINITY;
      }
    }
  }
  const Numbers right = product(softmax_of(scores, 0), transposed(stored_numbers(g, v, rows, kHead)));
  MixAttributes heads;
  heads.heads = 1;
  const TensorId out = g.op("attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", v}},
                            {.tokens = rows, .channels = kHead, .fill = fill_of(right)}, heads);
  Again again(g);
  return again.result(out) != nullptr ? again.result(out)->form.window : -1;
}

/// A window shows in all sequences that are longer, alike.
TEST(RecomputeAttention, OverAWindowInAllSequencesOfABatchOrInNone) {
  const std::vector<Span> long_and_short{Span{0, 0, 0, 8, 0, 8}, Span{1, 0, 8, 4, 0, 4}};
  EXPECT_EQ(window_of(long_and_short, {3, 3}), 3);
  EXPECT_EQ(window_of(long_and_short, {5, 5}), 5) << "the second is shorter";
  EXPECT_EQ(window_of(long_and_short, {3, 8}), 0) << "the second sees all of its four keys";
  EXPECT_EQ(window_of(long_and_short, {2, 3}), 0);
  EXPECT_EQ(window_of(long_and_short, {3, 2}), 0);
  EXPECT_EQ(window_of(long_and_short, {8, 8}), 0);
}

/// Two sequences that were packed into one, behind a mask of all their rows.
TEST(RecomputeAttention, OfPackedSequencesBehindOneMask) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass({Span{0, 0, 0, 2, 0, 2}, Span{1, 0, 2, 4, 0, 4}}, kTokens);
  const auto hidden = [](std::int64_t row, std::int64_t key) { return key > row || (row >= 2 && key < 2); };
  const TensorId mask = g.op("mask", OpKind::parameter, {},
                             {.role = "mask", .tokens = kTokens, .channels = kTokens, .fill = [=](auto row, auto key) {
                                return hidden(row, key) ? -kInf : 0.0F;
                              }});
  const auto tensor = [&](const std::string& name, std::uint32_t seed) {
    return g.op(name, OpKind::dumped, {}, {.tokens = kTokens, .channels = kHead, .fill = noise(seed, 2)});
  };
  const TensorId q = tensor("q_rope", 1);
  const TensorId k = tensor("k_rope", 2);
  const TensorId v = tensor("v_proj", 3);
  Numbers scores = product(stored_numbers(g, q, kTokens, kHead), stored_numbers(g, k, kTokens, kHead));
  for (std::int64_t i = 0; i < kTokens * kTokens; ++i) {
    double& score = scores.at(i / kTokens, i % kTokens);
    score = hidden(i / kTokens, i % kTokens) ? -INFINITY : score / std::sqrt(8.0);
  }
  out.right = product(softmax_of(scores, 0), transposed(stored_numbers(g, v, kTokens, kHead)));
  MixAttributes heads;
  heads.heads = 1;
  out.out = g.op("attention", OpKind::attention, {{"q", q}, {"k", k}, {"v", v}, {"mask", mask}},
                 {.tokens = kTokens, .channels = kHead, .fill = fill_of(out.right)}, heads);
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr) << again.why_not(out.out);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
  EXPECT_EQ(again.result(out.out)->elements, kTokens * kHead);
  EXPECT_THAT(again.result(out.out)->form.text, ::testing::HasSubstr("behind the dumped mask"));
}

/// Values of a cache of e4m3, rounded to the bf16 of the model as they are read back.
TEST(RecomputeMix, ValuesReadBackInTheModelsFormat) {
  Case out;
  DumpGraph& g = *out.graph;
  constexpr float kScale = 0.37F;
  g.pass();
  g.op("q_proj", OpKind::gemm, {}, {.fill = noise(1, 2), .format = Format::bf16});
  const TensorId p =
      g.op("softmax", OpKind::softmax, {}, {.role = "probs", .fill = constant(0.25F), .format = Format::bf16});
  const TensorId scale = g.op("v_scale", OpKind::parameter, {},
                              {.role = "v", .tokens = 1, .channels = 1, .fill = constant(kScale), .axis = Axis::none});
  const TensorId codes = g.op("kv_store", OpKind::kv_store, {{"v_scale", scale}},
                              {.role = "v_cache", .channels = 32, .fill = noise(2, 3), .format = Format::e4m3});
  Numbers values = stored_numbers(g, codes, 4, 32);
  for (double& one : values.v) {
    const auto scaled = static_cast<float>(one * double{kScale});
    one = double{decode(Format::bf16, encode(Format::bf16, scaled, Overflow::overflow))};
  }
  out.right = Numbers(4, 32);
  for (std::int64_t i = 0; i < 4 * 32; ++i) {
    for (std::int64_t key = 0; key < 4; ++key) out.right.at(i / 32, i % 32) += values.at(key, i % 32) / 4;
  }
  out.out = g.op("attn_mix", OpKind::attention_mix, {{"probs", p}, {"v", codes}, {"v_scale", scale}},
                 {.channels = 32, .fill = fill_of(out.right)});
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr) << again.why_not(out.out);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
  EXPECT_EQ(again.result(out.out)->form.text, "values rounded as they were read back");
}

/// A prefill that goes over the values that it was given, while the cache in the dump has their codes.
TEST(RecomputeMix, ValuesBeforeTheyWereStored) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass();
  const TensorId p = g.op("softmax", OpKind::softmax, {}, {.role = "probs", .fill = constant(0.25F)});
  const TensorId scale = g.op("v_scale", OpKind::parameter, {},
                              {.role = "v", .tokens = 1, .channels = 1, .fill = constant(0.01F), .axis = Axis::none});
  const TensorId own = g.op("v_proj", OpKind::gemm, {}, {.role = "v", .channels = 32, .fill = noise(2, 3)});
  const TensorId codes = g.op("kv_store", OpKind::kv_store, {{"v", own}, {"v_scale", scale}},
                              {.role = "v_cache",
                               .channels = 32,
                               .fill = [&](auto r, auto c) { return g.at(own, r, c) / 0.01F; },
                               .format = Format::e4m3});
  out.right = Numbers(4, 32);
  for (std::int64_t i = 0; i < 4 * 32; ++i) {
    for (std::int64_t key = 0; key < 4; ++key) out.right.at(i / 32, i % 32) += double{g.at(own, key, i % 32)} / 4;
  }
  out.out = g.op("attn_mix", OpKind::attention_mix, {{"probs", p}, {"v", codes}, {"v_scale", scale}, {"v_own", own}},
                 {.channels = 32, .fill = fill_of(out.right)});
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr) << again.why_not(out.out);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
  EXPECT_THAT(again.result(out.out)->form.text, ::testing::HasSubstr("of keys and values before they were stored"));
}

/// Request 1 took two tokens from request 0, which went on with a token of its own afterwards.
TEST(RowBefore, OfItsOwnRequestFirstAndOfThePrefixOnlyWhatItNeverRan) {
  DumpGraph g;
  const auto values = [&](std::int64_t rows) {
    return g.op("v_proj", OpKind::gemm, {}, {.role = "v", .tokens = rows, .channels = 4, .fill = noise(2, 3)});
  };
  Span shares{1, 0, 0, 3, 2, 5};
  shares.prefix_of = 0;
  Span last{1, 1, 0, 1, 5, 6};
  last.prefix_of = 0;
  g.pass({Span{0, 0, 0, 4, 0, 4}}, 4);
  const TensorId first = values(4);
  g.pass({shares}, 3);
  const TensorId own = values(3);
  g.pass({Span{0, 1, 0, 1, 4, 5}}, 1);
  values(1);
  g.pass({last}, 1);
  const Tensor& now = *g.tensor(values(1));
  const auto at = [&](std::int64_t position) { return row_before(g, now, g.steps().back(), last, position); };
  ASSERT_TRUE(at(1) && at(2) && at(4));
  EXPECT_EQ(std::pair(at(1)->first->id, at(1)->second), std::pair(first, std::int64_t{1}));
  EXPECT_EQ(std::pair(at(2)->first->id, at(2)->second), std::pair(own, std::int64_t{0}));
  EXPECT_EQ(std::pair(at(4)->first->id, at(4)->second), std::pair(own, std::int64_t{2}));
}

/// Codes of e4m3 that are NaN or Inf when they are read as e5m2 explain nothing by that, whatever the output holds.
TEST(RecomputeMix, AReadingThatMakesNoNumbersIsNoExplanation) {
  DumpGraph g;
  g.pass();
  const TensorId p = g.op("softmax", OpKind::softmax, {}, {.role = "probs", .fill = constant(0.25F)});
  const TensorId scale = g.op("v_scale", OpKind::parameter, {},
                              {.role = "v", .tokens = 1, .channels = 1, .fill = constant(0.01F), .axis = Axis::none});
  const TensorId codes = g.op("kv_store", OpKind::kv_store, {{"v_scale", scale}},
                              {.role = "v_cache",
                               .channels = 32,
                               .fill = [](auto, auto c) { return c < 30 ? 448.0F : 1.0F; },
                               .format = Format::e4m3});
  const TensorId out = g.op(
      "attn_mix", OpKind::attention_mix, {{"probs", p}, {"v", codes}, {"v_scale", scale}},
      {.channels = 32, .fill = [](auto r, auto c) {
         return c < 30 ? noise(4, 2)(r, c) : 0.01F * decode(Format::e5m2, encode(Format::e4m3, 1, Overflow::saturate));
       }});
  Again again(g);
  ASSERT_NE(again.result(out), nullptr);
  for (const Recomputed& one : again.alternatives(out)) EXPECT_LT(one.share(), 0.5) << one.form.text;
}

/// A recording may state anything; docs/recording.md promises that nothing worse than a sentence comes of it.
TEST(RecomputeAttention, BlocksThatCannotBeAreNotDoneAgain) {
  DumpGraph g;
  g.pass();
  const TensorId v = g.op("v_proj", OpKind::gemm, {}, {.role = "v", .channels = 32, .fill = noise(2, 3)});
  const TensorId no_keys = g.op("softmax", OpKind::softmax, {}, {.role = "probs", .channels = 0});
  MixAttributes blocks;
  blocks.split = 32;
  const TensorId mix = g.op("attn_mix", OpKind::mix_partials, {{"probs", no_keys}, {"v", v}},
                            {.channels = 32, .fill = noise(1, 1)}, blocks);
  const TensorId scores = g.op("scores", OpKind::attention_scores, {}, {.channels = 4, .fill = noise(1, 5)});
  SoftmaxAttributes far;
  far.split = std::numeric_limits<std::int64_t>::max();
  far.first_position = std::numeric_limits<std::int64_t>::max();
  far.window = std::numeric_limits<std::int64_t>::min();
  const TensorId statistics = g.op("softmax", OpKind::softmax_partials, {{"scores", scores}},
                                   {.role = "max", .channels = 1, .fill = noise(1, 6)}, far);
  Again again(g);
  EXPECT_EQ(again.result(mix), nullptr);
  EXPECT_EQ(again.why_not(mix), "its probabilities go over no key");
  EXPECT_TRUE(again.result(statistics) != nullptr || !again.why_not(statistics).empty());
}

Line line_of(const std::vector<double>& values, double error) {
  Line line;
  line.resize(static_cast<std::int64_t>(values.size()));
  line.value = values;
  std::fill(line.error.begin(), line.error.end(), error);
  return line;
}

TEST(RecomputeAttention, AProbabilityIsOffByWhatAllScoresCanDoTogether) {
  const RowMask all{{true, true}, {}};
  Line line;
  ASSERT_TRUE(softmax_line(line_of({std::log(3.0), 0}, 0.1), all, 0, {}, line));
  const double highest = 3 * std::exp(0.1) / (3 * std::exp(0.1) + std::exp(-0.1));
  EXPECT_NEAR(line.error[0], 0.75 - 3 * std::exp(-0.1) / (3 * std::exp(-0.1) + std::exp(0.1)), 1e-4);
  EXPECT_GT(line.error[0], highest - 0.75);
  const RowMask one{{true, false}, {}};
  ASSERT_TRUE(softmax_line(line_of({700, 0}, 9), one, 0, {}, line));
  EXPECT_EQ(line.value[0], 1);
  EXPECT_LT(line.error[0], 1e-3);  // whatever its score: there is no other
  EXPECT_LT(line.deviation[0], 1e-6);
}

TEST(RecomputeAttention, ASinkTakesItsShare) {
  const RowMask all{{true, true}, {}};
  Line line;
  ASSERT_TRUE(softmax_line(line_of({0, std::log(5.0)}, 0), all, 0, std::log(2.0), line));
  EXPECT_NEAR(line.value[0], 1.0 / 8, 1e-12);
  EXPECT_NEAR(line.value[1], 5.0 / 8, 1e-12);
  ASSERT_TRUE(softmax_line(line_of({0, 0}, 0), {{false, false}, {}}, 0, 1.0, line));
  EXPECT_EQ(line.value, (std::vector<double>{0, 0}));
}

TEST(RecomputeAttention, TheThreeInOne) {
  expect_right(made(Part::fused, {}, unchanged), "", 4096);
  expect_seen([](const Change& change) { return made(Part::fused, {}, change); }, 2, 11);
}

/// llama.cpp #25382: a quantized cache is rotated, and one path of attention does not know.
TEST(RecomputeAttention, KnowsARotationOfOneSideAlone) {
  constexpr const char* kKeys = "keys rotated by a Hadamard matrix and queries not (llama.cpp #25382)";
  constexpr const char* kValues =
      "values rotated by a Hadamard matrix and the output not turned back (llama.cpp #25382)";
  for (const Part part : {Part::scores, Part::fused}) {
    EXPECT_EQ(explained_by(made(part, {.keys_turned = true}, unchanged)), kKeys);
  }
  for (const Part part : {Part::mix, Part::fused}) {
    EXPECT_EQ(explained_by(made(part, {.values_turned = true}, unchanged)), kValues);
  }
}

TEST(RecomputeScores, OfScoresOfAnotherWidthCannotBeDoneAgain) {
  DumpGraph g;
  g.pass();
  const TensorId raw = g.op("scores_raw", OpKind::dumped, {}, {.role = "scores", .fill = noise(1)});
  const TensorId out = g.op("scores", OpKind::attention_scores, {{"scores", raw}},
                            {.role = "scores", .channels = 32, .fill = noise(2), .heads = 8});
  Again again(g);
  EXPECT_EQ(again.result(out), nullptr);
  EXPECT_EQ(again.why_not(out), "what it is made of has another width");
}

}  // namespace
}  // namespace nanscope::testing

#include "tests/unit/instrument/recompute/again.h"

/// Rotary positions.
namespace nanscope::testing::rope_test {
namespace {

constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kHead = 8;
constexpr std::int64_t kFirst = 5;  ///< position of row 0

struct How {
  double base = 1e4;
  bool neighbours = false;
  std::int64_t rotated = kHead;
  bool tables = false;
  std::int64_t shift = 0;  ///< of positions, in the last layer
  bool stated = true;      ///< by a shape: how many heads there are
};

/// Each pair (a, b) of a head becomes (a cos - b sin, b cos + a sin), at position / base^(2 pair / rotated).
Numbers rotated(const Numbers& x, const How& how, std::int64_t shift) {
  Numbers out = x;
  const std::int64_t half = how.rotated / 2;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t head = 0; head < kHeads; ++head) {
      for (std::int64_t pair = 0; pair < half; ++pair) {
        const double angle = static_cast<double>(kFirst + r + shift) *
                             std::pow(how.base, -2.0 * static_cast<double>(pair) / static_cast<double>(how.rotated));
        const std::int64_t a = head * kHead + (how.neighbours ? 2 * pair : pair);
        const std::int64_t b = a + (how.neighbours ? 1 : half);
        out.at(r, a) = x.at(r, a) * std::cos(angle) - x.at(r, b) * std::sin(angle);
        out.at(r, b) = x.at(r, b) * std::cos(angle) + x.at(r, a) * std::sin(angle);
      }
    }
  }
  return out;
}

Case made(const How& how, const Change& change) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass({Span{0, 0, 0, 4, kFirst, kFirst + 4}});
  std::vector<std::pair<std::string, TensorId>> tables;
  if (how.tables) {
    const auto angle = [=](std::int64_t row, std::int64_t c) {
      return static_cast<double>(kFirst + row) * std::pow(how.base, -2.0 * static_cast<double>(c % 4) / 8.0);
    };
    for (const bool sine : {false, true}) {
      tables.emplace_back(sine ? "sin" : "cos",
                          g.op(sine ? "sin" : "cos", OpKind::parameter, {},
                               {.role = sine ? "sin" : "cos", .channels = 8, .fill = [=](auto row, auto c) {
                                  return static_cast<float>(sine ? std::sin(angle(row, c)) : std::cos(angle(row, c)));
                                }}));
    }
  }
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    g.layer = layer;
    const std::int64_t heads = how.stated ? kHeads : 1;
    const TensorId x =
        g.op("q_proj", OpKind::dumped, {},
             {.channels = kHeads * kHead, .fill = noise(static_cast<std::uint32_t>(layer), 3), .heads = heads});
    std::vector<std::pair<std::string, TensorId>> inputs{{"x", x}};
    inputs.insert(inputs.end(), tables.begin(), tables.end());
    out.right = rotated(stored_numbers(g, x, 4, kHeads * kHead), how, layer == 2 ? how.shift : 0);
    Numbers stored = out.right;
    if (layer == 2) change(stored);
    out.out = g.op("q_rope", OpKind::rope, inputs,
                   {.role = "q_rot", .channels = kHeads * kHead, .fill = fill_of(stored), .heads = heads});
    if (how.stated) continue;
    const TensorId k = g.op("k_proj", OpKind::dumped, {}, {.channels = kHead, .fill = noise(9, 3)});
    g.op("k_rope", OpKind::rope, {{"x", k}}, {.role = "k_rot", .channels = kHead});
  }
  return out;
}

TEST(RecomputeRope, TheBaseAndThePairsThatTheNumbersShow) {
  expect_right(made({}, unchanged), "base 10000, pairs of halves");
  expect_right(made({.base = 5e5}, unchanged), "base 500000, pairs of halves");
  expect_right(made({.base = 1e6, .neighbours = true}, unchanged), "base 1000000, pairs of neighbours");
}

TEST(RecomputeRope, APartOfEachHead) { expect_right(made({.rotated = 4}, unchanged), "base 10000, pairs of halves"); }

TEST(RecomputeRope, HeadsThatNoShapeStates) {
  expect_right(made({.base = 5e5, .stated = false}, unchanged), "base 500000, pairs of halves");
}

/// Two rows of padding before four tokens, rotated by the row of the frame.
TEST(RecomputeRope, PositionsThatCountPadding) {
  Case out;
  DumpGraph& g = *out.graph;
  g.pass({Span{0, 0, kFirst, 4, 0, 4}}, kFirst + 4);
  const Made shape{.tokens = kFirst + 4, .channels = kHeads * kHead, .fill = noise(1, 3), .heads = kHeads};
  const TensorId x = g.op("q_proj", OpKind::dumped, {}, shape);
  Numbers all = stored_numbers(g, x, kFirst + 4, kHeads * kHead);
  Numbers tokens(4, all.columns);
  std::copy(all.v.begin() + kFirst * all.columns, all.v.end(), tokens.v.begin());
  tokens = rotated(tokens, {}, 0);
  std::copy(tokens.v.begin(), tokens.v.end(), all.v.begin() + kFirst * all.columns);
  Made made = shape;
  made.role = "q_rot";
  made.fill = fill_of(all);
  out.out = g.op("q_rope", OpKind::rope, {{"x", x}}, made);
  Again again(g);
  ASSERT_NE(again.result(out.out), nullptr);
  EXPECT_EQ(again.result(out.out)->share(), 1.0);
  EXPECT_EQ(again.result(out.out)->form.text, "base 10000, pairs of halves, positions that count padding");
}

/// A request of one token, decoded: in its first step every base gives the same.
TEST(RecomputeRope, AFirstTokenShowsNoBase) {
  DumpGraph g;
  std::vector<TensorId> outs;
  for (const std::int64_t position : {0, 1, 2}) {
    g.pass({Span{0, position, 0, 1, position, position + 1}}, 1);
    Made made{.tokens = 1, .channels = kHeads * kHead, .fill = noise(3, 3), .heads = kHeads};
    const TensorId x = g.op("q_proj", OpKind::dumped, {}, made);
    made.role = "q_rot";
    made.fill = fill_of(rotated(stored_numbers(g, x, 1, kHeads * kHead), {.base = 5e5}, position - kFirst));
    outs.push_back(g.op("q_rope", OpKind::rope, {{"x", x}}, made));
  }
  const Again again(g);
  for (const TensorId out : outs) {
    ASSERT_NE(again.result(out), nullptr);
    EXPECT_EQ(again.result(out)->share(), 1.0);
  }
  EXPECT_EQ(again.result(outs.back())->form.text, "base 500000, pairs of halves");
}

TEST(RecomputeRope, TheDumpedTables) {
  expect_right(made({.base = 12345, .tables = true}, unchanged), "the dumped cosines and sines, pairs of halves");
}

TEST(RecomputeRope, SeesAnElementThatIsOff) {
  expect_seen([](const Change& change) { return made({}, change); }, 2, 9);
  expect_seen([](const Change& change) { return made({.tables = true}, change); }, 3, 0);
}

TEST(RecomputeRope, KnowsPositionsThatAreOff) {
  EXPECT_EQ(explained_by(made({.shift = 1}, unchanged)), "positions off by 1");
  EXPECT_EQ(explained_by(made({.shift = -1}, unchanged)), "positions off by -1");
}

/// Where nothing is rotated there are no pairs to mistake, and no positions.
TEST(RecomputeRope, WithoutARotationNothingOfItGoesWrong) {
  const Case out = made({.rotated = 0}, [](Numbers& right) { right.at(1, 3) += 1; });
  Again again(*out.graph);
  ASSERT_NE(again.result(out.out), nullptr) << again.why_not(out.out);
  EXPECT_EQ(again.result(out.out)->form.text, "no rotation");
  for (const Recomputed& other : again.alternatives(out.out)) {
    EXPECT_FALSE(other.form.fault) << other.form.text;
  }
}

}  // namespace
}  // namespace nanscope::testing::rope_test

#include "instrument/recompute/beams.h"

#include "tests/unit/instrument/recompute/again.h"

/// Sequences that began alike may have been given each other's caches since.
namespace nanscope::testing {
namespace {

/// Two sequences of three tokens, `alike` or not, and two decode steps of both, on a rank.
bool beams(bool alike, std::size_t step, std::int64_t rank = 0) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 3, 0, 3}, Span{1, 0, 3, 3, 0, 3}}, 6);
  const auto fill = [=](std::int64_t row, std::int64_t channel) { return noise(1, 2)(alike ? row % 3 : row, channel); };
  g.op("embed", OpKind::embedding, {}, {.tokens = 6, .channels = 8, .fill = fill});
  for (std::int64_t i = 0; i < 2; ++i) {
    g.pass({Span{0, 1 + i, 0, 1, 3 + i, 4 + i}, Span{1, 1 + i, 1, 1, 3 + i, 4 + i}}, 2, 1, rank);
    g.op("embed", OpKind::embedding, {}, {.tokens = 2, .channels = 8, .fill = noise(2, 2)});
  }
  return may_be_beams(g, g.steps()[step]);
}

TEST(Beams, AreSequencesThatBeganAlikeAndWentOnApart) {
  EXPECT_TRUE(beams(true, 2));
  EXPECT_FALSE(beams(false, 2));
}

/// A shorter prompt that another begins with, and what another rank ran.
TEST(Beams, AreNotOfAPromptThatGoesOnNorOfAnotherRank) {
  DumpGraph g;
  g.pass({Span{0, 0, 0, 2, 0, 2}, Span{1, 0, 2, 3, 0, 3}}, 5);
  const auto fill = [](std::int64_t row, std::int64_t c) { return noise(1, 2)(row < 2 ? row : row - 2, c); };
  g.op("embed", OpKind::embedding, {}, {.tokens = 5, .channels = 8, .fill = fill});
  g.pass({Span{0, 1, 0, 1, 4, 5}, Span{1, 1, 1, 1, 4, 5}}, 2);
  EXPECT_FALSE(may_be_beams(g, g.steps()[1]));
  EXPECT_FALSE(beams(true, 2, 1));
}

/// All caches hold the same prompt there: whichever a sequence is given, its attention is the same.
TEST(Beams, AreNotOfTheFirstTokenBehindThePrompt) {
  EXPECT_FALSE(beams(true, 0));
  EXPECT_FALSE(beams(true, 1));
}

}  // namespace
}  // namespace nanscope::testing

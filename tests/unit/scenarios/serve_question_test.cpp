#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "scenarios/serve/answer_probe.h"
#include "scenarios/serve/question.h"

namespace nanscope::serve {
namespace {

using testing::ElementsAre;

std::vector<std::int32_t> ids(const std::vector<Chance>& chances) {
  std::vector<std::int32_t> found;
  for (const Chance& one : chances) found.push_back(one.token);
  return found;
}

TEST(ServePositions, AreLogProbabilities) {
  const auto tokenizer = Tokenizer::none();
  ASSERT_TRUE(tokenizer);
  // Odds of 1 : 2 : 1 : 4.
  const std::vector<float> logits{100, 100 + std::log(2.0F), 100, 100 + std::log(4.0F)};
  const Position position = position_of(logits, 1, 3, *tokenizer);
  EXPECT_NEAR(position.chosen.log_probability, std::log(0.25), 1e-5);
  EXPECT_EQ(position.chosen.rank, 2);
  EXPECT_THAT(ids(position.top), ElementsAre(3, 1, 0));
  EXPECT_NEAR(position.top[0].log_probability, std::log(0.5), 1e-5);
  EXPECT_NEAR(position.top[2].log_probability, std::log(0.125), 1e-5);
  EXPECT_EQ(position.top[2].rank, 3);
  EXPECT_EQ(position_of(logits, 1, 20, *tokenizer).top.size(), 4U);
}

TEST(ServePositions, OfNanLogitsAreNan) {
  const auto tokenizer = Tokenizer::none();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits{1, nan, 2};
  const Position position = position_of(logits, 0, 2, *tokenizer);
  EXPECT_TRUE(std::isnan(position.chosen.log_probability));
  EXPECT_THAT(ids(position.top), ElementsAre(2, 0));
}

TEST(ServeStops, CutTheText) {
  EXPECT_EQ(cut_at_stop("one two three", {"three", "two"}).text, "one ");
  EXPECT_TRUE(cut_at_stop("one two", {"two"}).stopped);
  EXPECT_FALSE(cut_at_stop("one two", {"three"}).stopped);
}

TEST(ServeStops, HoldBackWhatMayBecomeOne) {
  EXPECT_EQ(certain("one t", {"two"}), 4U);
  EXPECT_EQ(certain("one tw", {"w", "two"}), 4U);
  EXPECT_EQ(certain("one", {"two"}), 3U);
}

TEST(ServeStops, HoldBackPartsOfACharacter) {
  const std::string euro = "\xE2\x82\xAC";
  EXPECT_EQ(certain("a" + euro, {}), 4U);
  EXPECT_EQ(certain("a" + euro.substr(0, 2), {}), 1U);
  EXPECT_EQ(certain("a" + euro.substr(0, 1), {}), 1U);
  EXPECT_EQ(certain("a\x82\x82\x82\x82", {}), 5U);
}

}  // namespace
}  // namespace nanscope::serve

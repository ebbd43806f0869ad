#include "gui/scenario_cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nanscope::gui {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ScenarioCards : public ::testing::Test {
 protected:
  std::vector<std::string> found(std::string_view query) const {
    std::vector<std::string> names;
    for (const std::size_t i : find_scenarios(cards_, query)) names.push_back(cards_[i].name);
    return names;
  }
  const ScenarioCard& card(std::string_view name) const {
    return *std::find_if(cards_.begin(), cards_.end(), [&](const ScenarioCard& each) { return each.name == name; });
  }

  std::vector<ScenarioCard> cards_ = list_scenarios(NANSCOPE_SOURCE_DIR "/scenarios");
};

TEST_F(ScenarioCards, SayWhatTheyAreAbout) {
  EXPECT_EQ(card("kv-scale-lock").fault, "kv-scale-locked");
  EXPECT_EQ(card("kv-scale-lock").formats, "kv.format=e4m3");
  EXPECT_TRUE(card("kv-scale-lock").text.starts_with("The flagship"));
  EXPECT_EQ(card("kv-scale-lock").text.find('\n'), std::string::npos);
  EXPECT_EQ(card("fp8-two-flavours").formats, "kv.format=e4m3 kv.read_format=e4m3fnuz");
  EXPECT_EQ(card("two-pass-variance").fault, "clean");
  EXPECT_EQ(card("two-pass-variance").formats, "");
}

TEST_F(ScenarioCards, TheFaultyOnesComeFirst) {
  const auto clean = [](const ScenarioCard& each) { return !each.faulty; };
  const auto first = std::find_if(cards_.begin(), cards_.end(), clean);
  EXPECT_NE(first, cards_.begin());
  EXPECT_TRUE(first != cards_.end() && std::all_of(first, cards_.end(), clean));
}

TEST_F(ScenarioCards, AreFoundByNameFaultFormatAndTitle) {
  EXPECT_THAT(found(""), SizeIs(cards_.size()));
  EXPECT_EQ(found("kv-scale").front(), "kv-scale-lock");
  EXPECT_THAT(found("fp8-format-mismatch"), ElementsAre("fp8-two-flavours"));
  EXPECT_EQ(found("int8").front(), "outlier-squash");
  EXPECT_THAT(found("clean"), AllOf(Contains("two-pass-variance"), Contains("benign-nan-constant")));
  EXPECT_THAT(found("grammar"), ElementsAre("grammar-no-legal-token"));
  EXPECT_THAT(found("qqqq"), IsEmpty());
}

TEST(ScenarioCardsOf, AFolderThatIsNone) { EXPECT_THAT(list_scenarios("/nowhere/at/all"), IsEmpty()); }

}  // namespace
}  // namespace nanscope::gui

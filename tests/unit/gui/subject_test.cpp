#include "gui/prepare/subject.h"

#include <gtest/gtest.h>

#include "gui/prepare/tensor_sheet.h"
#include "tests/unit/gui/built_view.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::RunBuilder;

/// A function that is called twice in a layer: both calls have one place.
class CalledTwice : public ::testing::Test {
 protected:
  void SetUp() override {
    builder_.request(0, {1, 2});
    builder_.step(0, 0, 0, 2);
    for (std::size_t call = 0; call < 2; ++call) {
      ops_[call] = builder_.op(0, "dropout", "activation", {});
      builder_.output("out", {2, 4}, [call](auto, auto) { return call == 0 ? 3.0F : 5.0F; });
    }
  }

  RunBuilder builder_;
  std::int64_t ops_[2] = {};
  const Place place_ = *parse_place("0/0/0/dropout.out");
};

TEST_F(CalledTwice, TheFirstIsMeantUnlessACallIsNamed) {
  BuiltView view(builder_);
  EXPECT_EQ(find_subject(view, place_)->op.id, ops_[0]);
  EXPECT_EQ(find_subject(view, place_, ops_[0])->op.id, ops_[0]);
  EXPECT_EQ(find_subject(view, place_, ops_[1])->op.id, ops_[1]);
  EXPECT_EQ(find_subject(view, place_, 12345)->op.id, ops_[0]) << "no such call";
}

TEST_F(CalledTwice, TheSheetShowsTheCallThatIsMeant) {
  BuiltView view(builder_);
  SheetOptions options;
  const auto first = make_tensor_sheet(view, place_, options, nullptr);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ((*first)->elements->value(0, 0), 3.0F);
  options.call = ops_[1];
  const auto second = make_tensor_sheet(view, place_, options, first->get());
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*second)->elements->value(0, 0), 5.0F);
}

}  // namespace
}  // namespace nanscope::gui

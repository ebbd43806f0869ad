#include "gui/prepare/pin_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "tests/unit/gui/built_view.h"
#include "tests/unit/instrument/diagnosis/memory_run.h"

namespace nanscope::gui {
namespace {

using nanscope::testing::RunBuilder;
using Clock = std::chrono::steady_clock;

/// A prefill of three tokens and two decode steps of v_proj, whose value is 100 x step + 10 x row + channel; the last
/// step's is NaN.
RunBuilder three_steps() {
  RunBuilder builder;
  builder.request(0, {5, 6, 7});
  for (std::int64_t step = 0; step < 3; ++step) {
    builder.step(0, step, step == 0 ? 0 : 2 + step, step == 0 ? 3 : 1);
    builder.op(1, "v_proj", "gemm", {});
    builder.output("out", {step == 0 ? 3 : 1, 4, step == 0 ? 0 : 2 + step, 1},
                   [step](std::int64_t row, std::int64_t channel) {
                     return step == 2 ? std::numeric_limits<float>::quiet_NaN()
                                      : static_cast<float>(100 * step + 10 * row + channel);
                   });
  }
  return builder;
}

std::shared_ptr<const History> history_of(RunBuilder& builder, const std::vector<Place>& places,
                                          const History* known = nullptr,
                                          Clock::time_point deadline = Clock::time_point::max()) {
  BuiltView view(builder);
  auto history = make_history(view, places, known, deadline);
  EXPECT_TRUE(history) << history.error().message;
  return history ? *history : nullptr;
}

TEST(PinHistory, OfAnElementIsItsTokenThenTheOneThatIsAnswered) {
  RunBuilder builder = three_steps();
  const auto history = history_of(builder, {*parse_place("0/0/1/v_proj.out[1,2]")});
  ASSERT_EQ(history->pins.size(), 1U);
  const PinHistory& pin = *history->pins[0];
  ASSERT_EQ(pin.points.size(), 3U);
  EXPECT_EQ(pin.points[0].value, 12) << "token 1 of the prefill";
  EXPECT_EQ(pin.points[1].value, 102) << "the one token of the step";
  EXPECT_TRUE(std::isnan(*pin.points[2].value));
  EXPECT_EQ(pin.points[2].bad, 4U);
  EXPECT_EQ(to_string(pin.points[1].target.place), "0/1/1/v_proj.out[3,2]");
}

TEST(PinHistory, OfATensorIsItsLargestMagnitude) {
  RunBuilder builder = three_steps();
  const auto history = history_of(builder, {*parse_place("0/0/1/v_proj.out"), *parse_place("0/0/1/k_proj.out")});
  EXPECT_FALSE(history->pins[0]->points[0].value);
  EXPECT_EQ(history->pins[0]->points[0].absmax, 23);
  EXPECT_EQ(history->pins[0]->points[1].absmax, 103);
  EXPECT_TRUE(history->pins[1]->points.empty()) << "no step has it";
  EXPECT_TRUE(history->whole());
}

TEST(PinHistory, GoesOnWhereItWasAndKeepsWhatIsWhole) {
  RunBuilder builder = three_steps();
  const std::vector<Place> places{*parse_place("0/0/1/v_proj.out[0,0]")};
  auto history = history_of(builder, places, nullptr, Clock::time_point::min());
  EXPECT_EQ(history->looked_at(), 1U) << "at least one step, or nobody would ever be done";
  EXPECT_FALSE(history->whole());
  history = history_of(builder, places, history.get());
  EXPECT_TRUE(history->whole());
  const auto again = history_of(builder, places, history.get());
  EXPECT_EQ(again->pins[0], history->pins[0]);
}

}  // namespace
}  // namespace nanscope::gui

#include <gtest/gtest.h>

#include "instrument/recompute/recompute.h"

namespace nanscope {
namespace {

/// 10,000 elements of which 9,900 lie within the bound with that root mean square, and the furthest is `worst` bounds
/// off.
Recomputed spread(double root_mean_square, double worst) {
  Recomputed result;
  result.elements = 10'000;
  result.explained = 9'900;
  result.squares_within = 9'900 * root_mean_square * root_mean_square;
  result.worst.ratio = worst;
  return result;
}

/// One of 10,000 normal numbers is beyond 6.9 sigma with a probability of 5e-8, beyond 6.1 sigma with 1e-5.
TEST(StandsOut, OnlyWhatTheSpreadOfTheOthersDoesNotGive) {
  EXPECT_FALSE(stands_out(spread(0.34, 1.65)));
  EXPECT_FALSE(stands_out(spread(0.34, 6.1 * 0.34)));
  EXPECT_TRUE(stands_out(spread(0.34, 6.9 * 0.34)));
  EXPECT_TRUE(stands_out(spread(0.02, 1.1)));
}

TEST(StandsOut, WhereAllOthersAreEqualOrNoneIsWithinTheBound) {
  EXPECT_TRUE(stands_out(spread(0, 1.1)));
  Recomputed none = spread(0.34, 1.1);
  none.explained = 0;
  EXPECT_TRUE(stands_out(none));
}

/// At 1, half a unit in the last place is all of the bound of one rounding, close to 2 it is half of it.
TEST(SquaresLeft, OneRoundingAndTheRestOfABound) {
  Prediction made;
  made.resize(1, 1);
  const auto left = [&](float value, float roundings) {
    made.value[0] = value;
    made.bound[0] = roundings * 0x1p-8F * value;
    return squares_left(made, Format::bf16);
  };
  EXPECT_NEAR(left(1, 1), 1.0 / 3, 1e-6);
  EXPECT_NEAR(left(0x1.fep0F, 1), 1.0 / 12, 1e-3);
  EXPECT_NEAR(left(1, 2), (1.0 / 3 + 1 / (3.29 * 3.29)) / 4, 1e-6);
  made.bound[0] = -1;
  EXPECT_EQ(squares_left(made, Format::bf16), 0);
}

}  // namespace
}  // namespace nanscope

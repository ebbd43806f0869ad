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

}  // namespace
}  // namespace nanscope

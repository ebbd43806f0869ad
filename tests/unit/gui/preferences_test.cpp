#include "gui/preferences.h"

#include <gtest/gtest.h>

#include <limits>

#include "gui/prepare/ledger.h"

namespace nanscope::gui {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NumberText, WritesAsManyDigitsAsWanted) {
  EXPECT_EQ(number_text({}, 24.0092316), "24.01");
  EXPECT_EQ(number_text({9, Notation::decimal}, 24.0092316), "24.0092316");
  EXPECT_EQ(number_text({4, Notation::hexadecimal}, 24.0), "0x1.8p+4");
  EXPECT_EQ(number_text({4, Notation::hexadecimal}, kInfinity), "inf");
  EXPECT_EQ(number_text({4, Notation::hexadecimal}, std::numeric_limits<double>::quiet_NaN()), "NaN");
}

TEST(NumberText, NamesOfNotationsAreFound) {
  for (const Notation notation : kNotations) EXPECT_EQ(find_notation(name(notation)), notation);
  EXPECT_FALSE(find_notation("roman"));
}

TEST(HeadroomText, FarIsNoNumber) {
  EXPECT_EQ(headroom_text(0.5643), "0.564");
  EXPECT_EQ(headroom_text(1e9), "1e+09");
  EXPECT_EQ(headroom_text(9.66e37), "> 2^30");
  EXPECT_EQ(headroom_text(kInfinity), "\u221E");
}

}  // namespace
}  // namespace nanscope::gui
